//! Why bytes, text or parts are not a value. The texts are those of RethinkDB 2.4.4, which its users and tools know.

use crate::reconstructable::reconstructable;
use std::fmt;
use std::sync::Arc;

/// The class of a ReQL error, by which `default` decides whether it catches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Something that was asked for is not there, or is null. `default` catches these.
    NonExistence,
    /// The query is wrong about its data.
    Logic,
    /// A named limit was reached.
    ResourceLimit,
}

/// Why something is not a value, or cannot be what it was to become.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ValueError {
    /// NaN or an infinity, which ReQL does not have.
    #[error("Non-finite number: {}", reconstructable(*.0))]
    NonFinite(f64),
    /// A value is nested too deep.
    #[error("Arrays and objects may be nested {limit} deep at most (limit `MAX_DEPTH`).")]
    TooDeep {
        /// How deep values may be nested.
        limit: usize,
    },
    /// A value takes too many bytes when it is encoded.
    #[error("A value may have at most {limit} bytes (limit `MAX_VALUE_BYTES`).")]
    TooLarge {
        /// The most bytes.
        limit: usize,
    },
    /// `key` is JSON text, in quotes.
    #[error("Duplicate key {key} in JSON.")]
    DuplicateKey {
        /// The name of the field as JSON text, in quotes.
        key: String,
    },
    /// The text is not JSON. `r.json` puts "Failed to parse "…" as JSON: " before it.
    #[error("{0}")]
    InvalidJson(JsonFault),
    /// Bytes that should be text are not UTF-8.
    #[error("String `{prefix}` (truncated) is not a UTF-8 string; {reason} at position {position}.")]
    NotUtf8 {
        /// The beginning of the text.
        prefix: String,
        /// What is wrong with the bytes.
        reason: &'static str,
        /// The position of the first wrong byte.
        position: usize,
    },
    /// The field that names a pseudo-type is not a text.
    #[error("Error: Field `$reql_type$` must be a string (got `{value}` of type {type_name}):\n{object}")]
    PseudoTypeNotString {
        /// The value of the field, as JSON.
        value: String,
        /// The type of that value.
        type_name: &'static str,
        /// The object, as JSON.
        object: String,
    },
    /// The object names a pseudo-type that does not exist.
    #[error("Unknown $reql_type$ `PTYPE<{0}>`.")]
    UnknownPseudoType(Arc<str>),
    /// A `LITERAL` stands where none has a meaning.
    #[error(
        "Stray literal keyword found: literal is only legal inside of the object passed to merge or update and cannot \
         nest inside other literals."
    )]
    StrayLiteral,
    /// The fields of an object do not make a time.
    #[error("Invalid time object constructed ({reason}):\n{object}")]
    InvalidTime {
        /// What is wrong with them.
        reason: String,
        /// The object, as JSON.
        object: String,
    },
    /// A time zone cannot be read; the text says why.
    #[error("{0}")]
    InvalidTimezone(String),
    /// A binary object has a field that it must not have.
    #[error("Invalid binary pseudotype: illegal `{0}` key.")]
    IllegalBinaryKey(Arc<str>),
    /// A binary object has no field `data`.
    #[error("Invalid binary pseudotype: lacking `data` key.")]
    NoBinaryData,
    /// A character that base64 does not have.
    #[error("Invalid base64 character found: '{0}'.")]
    InvalidBase64Character(char),
    /// The length of a base64 text is that of no bytes.
    #[error("Invalid base64 length: 1 character remaining, cannot decode a full byte.")]
    InvalidBase64Length,
    /// A base64 text goes on after its padding.
    #[error("Invalid base64 format, data found after padding character '='.")]
    DataAfterBase64Padding,
    /// A geometry object lacks this field.
    #[error("Field `{0}` not found in geometry object.")]
    NoGeometryField(&'static str),
    /// A geometry object has a field that it must not have.
    #[error("Unrecognized field `{0}` found in geometry object.")]
    UnrecognizedGeometryField(Arc<str>),
    /// A field has a value of another type than it must have.
    #[error("Expected type {expected} but found {found}.")]
    WrongType {
        /// The type that it must have.
        expected: &'static str,
        /// The type that it has.
        found: &'static str,
    },
    /// `r.minval` and `r.maxval` are in no JSON.
    #[error("Cannot convert `r.{}` to JSON.", if *is_max { "maxval" } else { "minval" })]
    ExtremumToJson {
        /// Whether it was `r.maxval`.
        is_max: bool,
    },
}

impl ValueError {
    /// The class under which clients get the error.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NoGeometryField(_) | Self::WrongType { found: "NULL", .. } => ErrorClass::NonExistence,
            Self::TooDeep { .. } | Self::TooLarge { .. } => ErrorClass::ResourceLimit,
            _ => ErrorClass::Logic,
        }
    }
}

/// What is wrong with a JSON text, in the words of the parser that RethinkDB uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonFault {
    /// There is no text, or white space only.
    Empty,
    /// Something follows the value.
    TrailingText,
    /// No value begins with these characters.
    InvalidValue,
    /// An object's field has no name in quotes.
    NoName,
    /// A field's name is not followed by a colon.
    NoColon,
    /// Two fields have no comma between them.
    NoCommaInObject,
    /// Two elements have no comma between them.
    NoCommaInArray,
    /// `\u` is not followed by four hexadecimal digits.
    InvalidHexDigit,
    /// `\u` gives half of a surrogate pair without the other half.
    InvalidSurrogate,
    /// The character after a backslash is none that may follow it.
    InvalidEscape,
    /// A text has no closing quote.
    UnterminatedString,
    /// A number is beyond the range of a double.
    NumberTooBig,
    /// A decimal point is not followed by a digit.
    NoFraction,
    /// The `e` of a number is not followed by a digit.
    NoExponent,
}

impl fmt::Display for JsonFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Empty => "The document is empty.",
            Self::TrailingText => "The document root must not follow by other values.",
            Self::InvalidValue => "Invalid value.",
            Self::NoName => "Missing a name for object member.",
            Self::NoColon => "Missing a colon after a name of object member.",
            Self::NoCommaInObject => "Missing a comma or '}' after an object member.",
            Self::NoCommaInArray => "Missing a comma or ']' after an array element.",
            Self::InvalidHexDigit => "Incorrect hex digit after \\u escape in string.",
            Self::InvalidSurrogate => "The surrogate pair in string is invalid.",
            Self::InvalidEscape => "Invalid escape character in string.",
            Self::UnterminatedString => "Missing a closing quotation mark in string.",
            Self::NumberTooBig => "Number too big to be stored in double.",
            Self::NoFraction => "Miss fraction part in number.",
            Self::NoExponent => "Miss exponent in number.",
        })
    }
}
