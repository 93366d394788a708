//! Objects that are put together field by field.

use crate::value::Object;
use crate::{Value, ValueError, pseudo_type};
use std::sync::Arc;

/// Collects fields in any order and makes a value out of them.
#[derive(Clone, Debug, Default)]
pub struct ObjectBuilder {
    fields: Vec<(Arc<str>, Value)>,
}

/// What becomes of a key that was inserted twice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EqualKeys {
    LastCounts,
    Refused,
}

impl ObjectBuilder {
    /// A builder with room for this many fields.
    pub fn with_capacity(fields: usize) -> Self {
        Self { fields: Vec::with_capacity(fields) }
    }

    /// Adds a field. Of two fields with the same name the last one counts.
    pub fn insert(&mut self, key: impl Into<Arc<str>>, value: Value) {
        self.fields.push((key.into(), value));
    }

    /// The value with the fields inserted; of equal keys the last one counts. Fields with a `$reql_type$` become what
    /// they stand for.
    ///
    /// # Errors
    /// If the `$reql_type$` is unknown, or fields are not those that it wants; [`ValueError::TooDeep`] if a value is
    /// nested as deeply as is allowed; [`ValueError::TooLarge`].
    pub fn finish(self) -> Result<Value, ValueError> {
        pseudo_type::from_object(self.into_object(EqualKeys::LastCounts)?, false)
    }

    /// As [`ObjectBuilder::finish`], but a `LITERAL` is allowed: it stays an object.
    ///
    /// # Errors
    /// As [`ObjectBuilder::finish`].
    pub fn finish_with_literal(self) -> Result<Value, ValueError> {
        pseudo_type::from_object(self.into_object(EqualKeys::LastCounts)?, true)
    }

    /// As [`ObjectBuilder::finish_with_literal`], for JSON text, where keys must not be equal.
    ///
    /// # Errors
    /// As [`ObjectBuilder::finish`], and [`ValueError::DuplicateKey`].
    pub(crate) fn finish_unique(self) -> Result<Value, ValueError> {
        pseudo_type::from_object(self.into_object(EqualKeys::Refused)?, true)
    }

    fn into_object(self, equal_keys: EqualKeys) -> Result<Object, ValueError> {
        let mut fields = self.fields;
        if fields.is_sorted_by(|(one, _), (next, _)| one < next) {
            return Object::from_sorted(fields);
        }
        // A stable sort: of equal keys, the one that was inserted last stands last.
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        if equal_keys == EqualKeys::Refused
            && let Some(pair) = fields.windows(2).find(|pair| pair[0].0 == pair[1].0)
        {
            let mut key = Vec::new();
            crate::json::write_json_string(&pair[0].0, &mut key);
            return Err(ValueError::DuplicateKey { key: String::from_utf8_lossy(&key).into_owned() });
        }
        fields.dedup_by(|next, kept| {
            let is_equal = next.0 == kept.0;
            if is_equal {
                std::mem::swap(next, kept);
            }
            is_equal
        });
        Object::from_sorted(fields)
    }
}

impl From<Object> for ObjectBuilder {
    fn from(object: Object) -> Self {
        Self { fields: object.into_fields() }
    }
}

impl Value {
    /// The value with these fields; of equal keys the last one counts. An object with a `$reql_type$` becomes what it
    /// stands for.
    ///
    /// # Errors
    /// As [`ObjectBuilder::finish`].
    pub fn object<K: Into<Arc<str>>>(fields: impl IntoIterator<Item = (K, Self)>) -> Result<Self, ValueError> {
        let mut builder = ObjectBuilder::default();
        for (key, value) in fields {
            builder.insert(key, value);
        }
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_keys_the_last_one_counts() {
        let value = Value::object([("b", 1), ("a", 2), ("b", 3), ("b", 4)].map(|(key, number)| (key, number.into())));
        assert_eq!(value.unwrap().to_json().unwrap(), r#"{"a":2,"b":4}"#);
    }
}
