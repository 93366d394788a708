//! Why a value is no key. The texts are those of RethinkDB 2.4.4.

use super::MAX_PRIMARY_KEY_BYTES;
use crate::{EncodedValue, ErrorClass, ValueError, View};

/// Why a value is no key. Values in the texts are printed as JSON.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum KeyError {
    /// The key has more bytes than a primary key may have.
    #[error("Primary key too long (max {} characters): {value}", MAX_PRIMARY_KEY_BYTES - 1)]
    PrimaryKeyTooLong {
        /// The value, as JSON.
        value: String,
    },
    /// `text` is in quotes, cut to twenty bytes, with what is not printable escaped.
    #[error("String {text} (truncated) contains NULL byte at offset {offset} in index key.")]
    NullByte {
        /// The text, in quotes.
        text: String,
        /// The position of the null byte in the text.
        offset: usize,
    },
    /// A value of this type cannot be a primary key.
    #[error("Primary keys must be either a number, string, bool, pseudotype or array (got type {type_name}):\n{value}")]
    NotPrimary {
        /// The type of the value.
        type_name: &'static str,
        /// The value, as JSON.
        value: String,
    },
    /// A value of this type cannot be a secondary key.
    #[error("Secondary keys must be a number, string, bool, pseudotype, or array (got {value} of type {type_name}).")]
    NotSecondary {
        /// The type of the value.
        type_name: &'static str,
        /// The value, as JSON.
        value: String,
    },
    /// An element of an array cannot be part of a key.
    #[error(
        "Array keys can only contain numbers, strings, bools,  pseudotypes, or arrays (got {value} of type {type_name})."
    )]
    NotInArray {
        /// The type of the element.
        type_name: &'static str,
        /// The element, as JSON.
        value: String,
    },
    /// Geometry objects are in geospatial indexes only.
    #[error("Cannot use a geometry value as a key value in a primary or non-geospatial secondary index.")]
    Geometry,
    /// A `LITERAL` is no value of a document.
    #[error("Cannot use pseudotype PTYPE<LITERAL> as a primary or secondary key value .")]
    Literal,
    /// `r.minval` and `r.maxval` are bounds of ranges only.
    #[error("Cannot use `r.minval` or `r.maxval` in an index key.")]
    Extremum,
    /// The value cannot be printed for the error it is about to be in.
    #[error(transparent)]
    Value(#[from] ValueError),
}

impl KeyError {
    /// The class under which clients get the error.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotPrimary { type_name: "NULL", .. }
            | Self::NotSecondary { type_name: "NULL", .. }
            | Self::NotInArray { type_name: "NULL", .. } => ErrorClass::NonExistence,
            Self::Value(error) => error.class(),
            _ => ErrorClass::Logic,
        }
    }

    pub(super) fn too_long(value: EncodedValue<'_>) -> Self {
        printed(value, false).map_or_else(Self::Value, |value| Self::PrimaryKeyTooLong { value })
    }

    pub(super) fn null_byte(text: &[u8], offset: usize) -> Self {
        let mut quoted = String::from("\"");
        for &byte in &text[..text.len().min(20)] {
            match byte {
                b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
                b'\n' => quoted.push_str("\\n"),
                b'\t' => quoted.push_str("\\t"),
                b'\r' => quoted.push_str("\\r"),
                b' '..=b'~' => quoted.push(char::from(byte)),
                _ => quoted.push_str(&format!("\\x{byte:02x}")),
            }
        }
        quoted.push('"');
        Self::NullByte { text: quoted, offset }
    }

    /// `value` is an object or null, in the place of a primary key.
    pub(super) fn not_primary(value: EncodedValue<'_>) -> Self {
        Self::wrong_type(value, true, |type_name, value| Self::NotPrimary { type_name, value })
    }

    /// `value` is an object or null, in the place of a secondary key.
    pub(super) fn not_secondary(value: EncodedValue<'_>) -> Self {
        Self::wrong_type(value, false, |type_name, value| Self::NotSecondary { type_name, value })
    }

    /// `value` is an object or null, in an array.
    pub(super) fn not_in_array(value: EncodedValue<'_>) -> Self {
        Self::wrong_type(value, false, |type_name, value| Self::NotInArray { type_name, value })
    }

    fn wrong_type(value: EncodedValue<'_>, is_short: bool, error: impl FnOnce(&'static str, String) -> Self) -> Self {
        if let View::Object(object) = value.view()
            && object.contains_key(crate::PSEUDO_TYPE_KEY)
        {
            return Self::Literal;
        }
        let type_name = if value.is_null() { "NULL" } else { "OBJECT" };
        printed(value, is_short).map_or_else(Self::Value, |value| error(type_name, value))
    }
}

fn printed(value: EncodedValue<'_>, is_short: bool) -> Result<String, ValueError> {
    let value = value.to_value().unwrap_or_default();
    if is_short { value.to_truncated_json() } else { value.to_pretty_json() }
}
