//! Why bytes, text or parts are not a value. The texts are those of RethinkDB 2.4.4, which its users and tools know.

use crate::number::reconstructable;
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
    #[error("Non-finite number: {}", reconstructable(*.0))]
    NonFinite(f64),
    #[error("Arrays and objects may be nested {limit} deep at most (limit `MAX_DEPTH`).")]
    TooDeep { limit: usize },
    #[error("A value may have at most {limit} bytes (limit `MAX_VALUE_BYTES`).")]
    TooLarge { limit: usize },
    /// `key` is JSON text, in quotes.
    #[error("Duplicate key {key} in JSON.")]
    DuplicateKey { key: String },
    /// The text is not JSON. `r.json` puts "Failed to parse "…" as JSON: " before it.
    #[error("{0}")]
    InvalidJson(JsonFault),
    #[error("String `{prefix}` (truncated) is not a UTF-8 string; {reason} at position {position}.")]
    NotUtf8 { prefix: String, reason: &'static str, position: usize },
    #[error("Error: Field `$reql_type$` must be a string (got `{value}` of type {type_name}):\n{object}")]
    PseudoTypeNotString { value: String, type_name: &'static str, object: String },
    #[error("Unknown $reql_type$ `PTYPE<{0}>`.")]
    UnknownPseudoType(Arc<str>),
    #[error(
        "Stray literal keyword found: literal is only legal inside of the object passed to merge or update and cannot \
         nest inside other literals."
    )]
    StrayLiteral,
    #[error("Invalid time object constructed ({reason}):\n{object}")]
    InvalidTime { reason: String, object: String },
    #[error("{0}")]
    InvalidTimezone(String),
    #[error("Invalid binary pseudotype: illegal `{0}` key.")]
    IllegalBinaryKey(Arc<str>),
    #[error("Invalid binary pseudotype: lacking `data` key.")]
    NoBinaryData,
    #[error("Invalid base64 character found: '{0}'.")]
    InvalidBase64Character(char),
    #[error("Invalid base64 length: 1 character remaining, cannot decode a full byte.")]
    InvalidBase64Length,
    #[error("Invalid base64 format, data found after padding character '='.")]
    DataAfterBase64Padding,
    #[error("Field `{0}` not found in geometry object.")]
    NoGeometryField(&'static str),
    #[error("Unrecognized field `{0}` found in geometry object.")]
    UnrecognizedGeometryField(Arc<str>),
    #[error("Expected type {expected} but found {found}.")]
    WrongType { expected: &'static str, found: &'static str },
    #[error("Cannot convert `r.{}` to JSON.", if *is_max { "maxval" } else { "minval" })]
    ExtremumToJson { is_max: bool },
}

impl ValueError {
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
    Empty,
    TrailingText,
    InvalidValue,
    NoName,
    NoColon,
    NoCommaInObject,
    NoCommaInArray,
    InvalidHexDigit,
    InvalidSurrogate,
    InvalidEscape,
    UnterminatedString,
    NumberTooBig,
    NoFraction,
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
