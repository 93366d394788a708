//! The order of values: see [`Value`].

use crate::Value;
use crate::value::Object;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// The place of a value's type in the order of types.
fn rank(value: &Value) -> u8 {
    match value {
        Value::MinVal => 0,
        Value::Array(_) => 1,
        Value::Bool(_) => 2,
        Value::Null => 3,
        Value::Number(_) => 4,
        Value::Object(_) | Value::Geometry(_) => 5,
        Value::Binary(_) => 6,
        Value::Time(_) => 7,
        Value::String(_) => 8,
        Value::MaxVal => 9,
    }
}

/// `AS_REQL` is what [`Value::compare_as_reql`] describes.
fn compare<const AS_REQL: bool>(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Number(one), Value::Number(other)) => one.cmp(other),
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Binary(one), Value::Binary(other)) => one.cmp(other),
        (Value::Time(one), Value::Time(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) if one.is_shared_with(other) => Ordering::Equal,
        (Value::Array(one), Value::Array(other)) => one
            .iter()
            .zip(other.iter())
            .map(|(one, other)| compare::<AS_REQL>(one, other))
            .find(|ordering| ordering.is_ne())
            .unwrap_or_else(|| one.len().cmp(&other.len())),
        (Value::Object(one) | Value::Geometry(one), Value::Object(other) | Value::Geometry(other)) => {
            compare_objects::<AS_REQL>(one, other)
        }
        (Value::Geometry(_), Value::Binary(_)) if AS_REQL => Ordering::Greater,
        (Value::Binary(_), Value::Geometry(_)) if AS_REQL => Ordering::Less,
        _ => rank(one).cmp(&rank(other)),
    }
}

fn compare_objects<const AS_REQL: bool>(one: &Object, other: &Object) -> Ordering {
    if one.is_shared_with(other) {
        return Ordering::Equal;
    }
    one.into_iter()
        .zip(other)
        .map(|((key, value), (other_key, other_value))| {
            key.cmp(other_key).then_with(|| compare::<AS_REQL>(value, other_value))
        })
        .find(|ordering| ordering.is_ne())
        .unwrap_or_else(|| one.len().cmp(&other.len()))
}

impl Value {
    /// Compares two values as RethinkDB does, geometry with binaries too. Not a total order, so do not sort by it; see
    /// [`Value`].
    pub fn compare_as_reql(&self, other: &Self) -> Ordering {
        compare::<true>(self, other)
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        compare::<false>(self, other)
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(rank(self));
        match self {
            Self::MinVal | Self::Null | Self::MaxVal => {}
            Self::Bool(bool) => bool.hash(state),
            Self::Number(number) => number.hash(state),
            Self::String(text) => text.hash(state),
            Self::Binary(bytes) => bytes.hash(state),
            Self::Time(time) => time.hash(state),
            Self::Array(array) => array.hash(state),
            Self::Object(object) | Self::Geometry(object) => {
                state.write_usize(object.len());
                for (key, value) in object {
                    key.hash(state);
                    value.hash(state);
                }
            }
        }
    }
}
