//! Arrays and objects. Each knows how deeply it is nested and how long its encoding is. None is nested deeper than
//! [`MAX_DEPTH`], so whatever walks a value by recursion, its destructor too, needs a bounded stack; and none is larger than
//! [`MAX_VALUE_BYTES`], however often it shares its parts, so that the walk ends.

use super::Value;
use crate::ValueError;
use std::sync::Arc;

/// How deeply arrays and objects may be nested. Drivers refuse more than 20; RethinkDB is bounded by its memory only. No
/// walk over such a value, decoded or encoded, takes more than 1 MiB of stack, as tests show; threads have 2 MiB by default.
pub const MAX_DEPTH: usize = 500;

/// The parts of an array or an object may have so many bytes in their encoding. Shared parts count each time: a query
/// can put an array twice into another, and that one twice into the next, until walking it would never end.
pub const MAX_VALUE_BYTES: usize = 1 << 30;

/// The key that makes an object something else.
pub const PSEUDO_TYPE_KEY: &str = "$reql_type$";

/// How deep and how large something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    depth: u16,
    /// Length of the encodings of all parts, without the container's own table.
    parts_bytes: u32,
}

impl Extent {
    const EMPTY: Self = Self { depth: 1, parts_bytes: 0 };

    fn over<'a>(keys_bytes: usize, values: impl Iterator<Item = &'a Value>) -> Result<Self, ValueError> {
        let (mut depth, mut bytes) = (0, keys_bytes);
        for value in values {
            depth = depth.max(value.depth());
            bytes = bytes.saturating_add(value.encoded_len());
        }
        if depth >= MAX_DEPTH {
            return Err(ValueError::TooDeep { limit: MAX_DEPTH });
        }
        match u32::try_from(bytes) {
            Ok(parts_bytes) if bytes <= MAX_VALUE_BYTES => Ok(Self { depth: depth as u16 + 1, parts_bytes }),
            _ => Err(ValueError::TooLarge { limit: MAX_VALUE_BYTES }),
        }
    }
}

/// An array of values, shared when cloned.
#[derive(Clone, Debug)]
pub struct Array(Arc<Elements>);

#[derive(Clone, Debug)]
struct Elements {
    extent: Extent,
    values: Vec<Value>,
}

impl Array {
    /// # Errors
    /// [`ValueError::TooDeep`] if an element is nested as deeply as is allowed; [`ValueError::TooLarge`].
    pub fn new(values: Vec<Value>) -> Result<Self, ValueError> {
        let extent = Extent::over(0, values.iter())?;
        Ok(Self(Arc::new(Elements { extent, values })))
    }

    /// The elements, without copying them if nobody else holds the array.
    pub fn into_vec(self) -> Vec<Value> {
        Arc::unwrap_or_clone(self.0).values
    }

    pub(crate) fn depth(&self) -> usize {
        self.0.extent.depth.into()
    }

    /// Length of the encodings of all parts.
    pub(crate) fn parts_bytes(&self) -> usize {
        self.0.extent.parts_bytes as usize
    }

    /// Whether the two share what they hold.
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Default for Array {
    fn default() -> Self {
        Self(Arc::new(Elements { extent: Extent::EMPTY, values: Vec::new() }))
    }
}

impl std::ops::Deref for Array {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.0.values
    }
}

/// Keys with values, ordered by the keys' bytes, each key once; shared when cloned.
#[derive(Clone, Debug)]
pub struct Object(Arc<Fields>);

#[derive(Clone, Debug)]
struct Fields {
    extent: Extent,
    fields: Vec<(Arc<str>, Value)>,
}

impl Object {
    /// `fields` are ordered by key, without equal keys.
    pub(crate) fn from_sorted(fields: Vec<(Arc<str>, Value)>) -> Result<Self, ValueError> {
        debug_assert!(fields.is_sorted_by(|(one, _), (next, _)| one < next));
        let keys_bytes = fields.iter().map(|(key, _)| key.len()).sum();
        let extent = Extent::over(keys_bytes, fields.iter().map(|(_, value)| value))?;
        Ok(Self(Arc::new(Fields { extent, fields })))
    }

    /// The value of a field.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).map(|at| &self.0.fields[at].1)
    }

    /// Whether the object has this field.
    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    fn position(&self, key: &str) -> Option<usize> {
        self.0.fields.binary_search_by(|(own, _)| (**own).cmp(key)).ok()
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.0.fields.len()
    }

    /// Whether the object has no fields.
    pub fn is_empty(&self) -> bool {
        self.0.fields.is_empty()
    }

    /// The names of the fields, in the order of their bytes.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.0.fields.iter().map(|(key, _)| key)
    }

    /// The values of the fields, in the order of their names.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Value> {
        self.0.fields.iter().map(|(_, value)| value)
    }

    /// The fields in the order of their keys.
    pub fn fields(&self) -> &[(Arc<str>, Value)] {
        &self.0.fields
    }

    /// The fields, without copying them if nobody else holds the object.
    pub fn into_fields(self) -> Vec<(Arc<str>, Value)> {
        Arc::unwrap_or_clone(self.0).fields
    }

    /// Whether the object is a `LITERAL`, which `merge` and `update` understand.
    pub(crate) fn is_literal(&self) -> bool {
        self.get(PSEUDO_TYPE_KEY).is_some_and(|name| name.as_str() == Some("LITERAL"))
    }

    pub(crate) fn depth(&self) -> usize {
        self.0.extent.depth.into()
    }

    /// Length of the encodings of all parts.
    pub(crate) fn parts_bytes(&self) -> usize {
        self.0.extent.parts_bytes as usize
    }

    /// Whether the two share what they hold.
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Default for Object {
    fn default() -> Self {
        Self(Arc::new(Fields { extent: Extent::EMPTY, fields: Vec::new() }))
    }
}

impl<'a> IntoIterator for &'a Object {
    type Item = &'a (Arc<str>, Value);
    type IntoIter = std::slice::Iter<'a, (Arc<str>, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.fields.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_bounded() {
        let mut value = Value::empty_array();
        for _ in 1..MAX_DEPTH {
            value = Value::array(vec![value]).unwrap();
        }
        assert_eq!(value.depth(), MAX_DEPTH);
        assert_eq!(value.clone(), value);
        assert_eq!(Value::array(vec![value.clone()]).unwrap_err(), ValueError::TooDeep { limit: MAX_DEPTH });
        assert_eq!(Value::object([("a", value)]).unwrap_err(), ValueError::TooDeep { limit: MAX_DEPTH });
    }

    #[test]
    fn what_is_shared_counts_each_time() {
        let mut value = Value::from("0123456789");
        let error = loop {
            match Value::array(vec![value.clone(), value.clone()]) {
                Ok(twice) => value = twice,
                Err(error) => break error,
            }
        };
        assert_eq!(error, ValueError::TooLarge { limit: MAX_VALUE_BYTES });
        assert!(value.encoded_len() > MAX_VALUE_BYTES / 3);
        // Two that share their parts are compared without walking them.
        assert_eq!(value, value.clone());
    }
}
