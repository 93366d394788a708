//! A decoded value of ReQL.

mod container;

pub use container::{Array, MAX_DEPTH, MAX_VALUE_BYTES, Object, PSEUDO_TYPE_KEY};

use crate::ValueError;
use crate::number::Number;
use crate::time::Time;
use std::sync::Arc;

/// A value of ReQL, decoded. Cloning it copies no content: strings, arrays and objects are shared.
///
/// `Ord` is ReQL's order: by the names of types first (`ARRAY` < `BOOL` < `NULL` < `NUMBER` < `OBJECT` <
/// `PTYPE<BINARY>` < `PTYPE<TIME>` < `STRING`, between `MINVAL` and `MAXVAL`), then by content; strings, binaries and
/// keys by their bytes, arrays element by element, objects pair by pair in the order of their keys. Equality and `Hash`
/// follow it: 0 equals -0, and times are equal whose moments are, whatever their time zones.
///
/// RethinkDB's own order is not total: it sorts geometry as an object among objects, but by the name of its type,
/// `PTYPE<GEOMETRY>`, against binaries and times, so that an object may be less than a binary, that one less than a
/// geometry, and this one less than the object. `Ord` always takes geometry as an object. A single comparison (`lt`,
/// `ge` and so on) that is to answer as RethinkDB's does uses [`Value::compare_as_reql`].
///
/// The variants for pseudo-types hold valid ones only: use
/// [`ObjectBuilder`](crate::ObjectBuilder) to make a value out of the fields that a
/// client sent, which turns objects with a `$reql_type$` into the value they stand for.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// Less than every other value. Only in queries: it has no JSON and is in no document.
    MinVal,
    /// JSON's `null`.
    #[default]
    Null,
    /// A boolean.
    Bool(bool),
    /// A finite number.
    Number(Number),
    /// A text.
    String(Arc<str>),
    /// Bytes; in JSON an object with `$reql_type$` `BINARY` and base64.
    Binary(Arc<[u8]>),
    /// An array.
    Array(Array),
    /// An object without a `$reql_type$`, or one with the `LITERAL` that `merge` and `update` understand.
    Object(Object),
    /// A point in time with a time zone; in JSON an object with `$reql_type$` `TIME`.
    Time(Time),
    /// A GeoJSON object with `$reql_type$`; its fields are there and have the right types, no more is checked.
    Geometry(Object),
    /// Greater than every other value; see `MinVal`.
    MaxVal,
}

impl Value {
    /// The value `true`.
    pub const TRUE: Self = Self::Bool(true);
    /// The value `false`.
    pub const FALSE: Self = Self::Bool(false);

    /// # Errors
    /// [`ValueError::NonFinite`] for NaN and infinities.
    pub fn number(number: f64) -> Result<Self, ValueError> {
        Number::new(number).map(Self::Number)
    }

    /// A text.
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    /// Bytes that are no text.
    pub fn binary(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::Binary(bytes.into())
    }

    /// # Errors
    /// [`ValueError::TooDeep`] if an element is nested as deeply as is allowed.
    pub fn array(elements: Vec<Self>) -> Result<Self, ValueError> {
        Array::new(elements).map(Self::Array)
    }

    /// The array `[]`.
    pub fn empty_array() -> Self {
        Self::Array(Array::default())
    }

    /// The object `{}`.
    pub fn empty_object() -> Self {
        Self::Object(Object::default())
    }

    /// What `type_of` answers.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::MinVal => "MINVAL",
            Self::Null => "NULL",
            Self::Bool(_) => "BOOL",
            Self::Number(_) => "NUMBER",
            Self::String(_) => "STRING",
            Self::Binary(_) => "PTYPE<BINARY>",
            Self::Array(_) => "ARRAY",
            Self::Object(object) if object.is_literal() => "PTYPE<LITERAL>",
            Self::Object(_) => "OBJECT",
            Self::Time(_) => "PTYPE<TIME>",
            Self::Geometry(_) => "PTYPE<GEOMETRY>",
            Self::MaxVal => "MAXVAL",
        }
    }

    /// What ReQL takes the value for where it asks for a bool: everything but `false` and `null` is true.
    pub fn is_truthy(&self) -> bool {
        !matches!(self, Self::Null | Self::Bool(false))
    }

    /// The boolean, if the value is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(bool) = self { Some(*bool) } else { None }
    }

    /// The number, if the value is one.
    pub fn as_number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(number.get()) } else { None }
    }

    /// The text, if the value is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The array, if the value is one.
    pub fn as_array(&self) -> Option<&Array> {
        if let Self::Array(array) = self { Some(array) } else { None }
    }

    /// How deeply arrays and objects are nested in the value: 0 for one that is neither, 1 for `[]`.
    pub fn depth(&self) -> usize {
        match self {
            Self::Array(array) => array.depth(),
            Self::Object(object) | Self::Geometry(object) => object.depth(),
            _ => 0,
        }
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Value {
    fn from(integer: i32) -> Self {
        Self::Number(integer.into())
    }
}

impl From<u32> for Value {
    fn from(integer: u32) -> Self {
        Self::Number(integer.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Self {
        Self::String(text)
    }
}

impl From<Array> for Value {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}

impl From<Time> for Value {
    fn from(time: Time) -> Self {
        Self::Time(time)
    }
}
