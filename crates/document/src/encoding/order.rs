//! Encoded values are compared where they lie, and as [`Value`](crate::Value)s are.

use super::{EncodedObject, EncodedValue, View};
use crate::MAX_DEPTH;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// The place of a value's type in the order of types.
fn rank(view: &View<'_>) -> u8 {
    match view {
        View::MinVal => 0,
        View::Array(_) => 1,
        View::Bool(_) => 2,
        View::Null => 3,
        View::Number(_) => 4,
        View::Object(_) | View::Geometry(_) => 5,
        View::Binary(_) => 6,
        View::Time(_) => 7,
        View::String(_) => 8,
        View::MaxVal => 9,
    }
}

/// `depth` bounds the recursion over bytes that nobody checked.
fn compare<const AS_REQL: bool>(one: EncodedValue<'_>, other: EncodedValue<'_>, depth: usize) -> Ordering {
    if depth > MAX_DEPTH {
        return one.0.cmp(other.0);
    }
    match (one.view(), other.view()) {
        (View::Number(one), View::Number(other)) => one.cmp(&other),
        (View::String(one), View::String(other)) => one.bytes.cmp(other.bytes),
        (View::Bool(one), View::Bool(other)) => one.cmp(&other),
        (View::Binary(one), View::Binary(other)) => one.cmp(other),
        (View::Time(one), View::Time(other)) => one.cmp(&other),
        (View::Array(one), View::Array(other)) => one
            .iter()
            .zip(other.iter())
            .map(|(one, other)| compare::<AS_REQL>(one, other, depth + 1))
            .find(|ordering| ordering.is_ne())
            .unwrap_or_else(|| one.len().cmp(&other.len())),
        (View::Object(one) | View::Geometry(one), View::Object(other) | View::Geometry(other)) => {
            compare_objects::<AS_REQL>(one, other, depth + 1)
        }
        (View::Geometry(_), View::Binary(_)) if AS_REQL => Ordering::Greater,
        (View::Binary(_), View::Geometry(_)) if AS_REQL => Ordering::Less,
        (one, other) => rank(&one).cmp(&rank(&other)),
    }
}

fn compare_objects<const AS_REQL: bool>(one: EncodedObject<'_>, other: EncodedObject<'_>, depth: usize) -> Ordering {
    one.fields()
        .zip(other.fields())
        .map(|((key, value), (other_key, other_value))| {
            key.bytes.cmp(other_key.bytes).then_with(|| compare::<AS_REQL>(value, other_value, depth))
        })
        .find(|ordering| ordering.is_ne())
        .unwrap_or_else(|| one.len().cmp(&other.len()))
}

fn hash<H: Hasher>(value: EncodedValue<'_>, state: &mut H, depth: usize) {
    let view = value.view();
    state.write_u8(rank(&view));
    if depth > MAX_DEPTH {
        return;
    }
    match view {
        View::MinVal | View::Null | View::MaxVal => {}
        View::Bool(bool) => bool.hash(state),
        View::Number(number) => number.hash(state),
        View::String(text) => text.bytes.hash(state),
        View::Binary(bytes) => bytes.hash(state),
        View::Time(time) => time.hash(state),
        View::Array(array) => {
            state.write_usize(array.len());
            array.iter().for_each(|element| hash(element, state, depth + 1));
        }
        View::Object(object) | View::Geometry(object) => {
            state.write_usize(object.len());
            for (key, value) in object.fields() {
                key.bytes.hash(state);
                hash(value, state, depth + 1);
            }
        }
    }
}

impl EncodedValue<'_> {
    /// As [`Value::compare_as_reql`](crate::Value::compare_as_reql).
    pub fn compare_as_reql(self, other: EncodedValue<'_>) -> Ordering {
        compare::<true>(self, other, 0)
    }
}

impl Ord for EncodedValue<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.0 == other.0 {
            return Ordering::Equal;
        }
        compare::<false>(*self, *other, 0)
    }
}

impl PartialOrd for EncodedValue<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for EncodedValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for EncodedValue<'_> {}

impl Hash for EncodedValue<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash(*self, state, 0);
    }
}
