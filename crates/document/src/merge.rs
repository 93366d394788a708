//! Merging objects into objects, as ReQL's `merge` and `update` do.

use crate::{ObjectBuilder, Value, ValueError};

impl Value {
    /// The value with the fields of `other` over its own: objects are merged into objects, anything else takes the place
    /// of what was there. A `LITERAL` in `other` is never merged into: its `value` takes the place of what was there,
    /// and without one the field goes. If one of the two is no object, the result is `other`.
    ///
    /// # Errors
    /// As [`ObjectBuilder::finish`], if fields of a time or a geometry are changed into something impossible.
    pub fn merge(&self, other: &Self) -> Result<Self, ValueError> {
        let (Some(own), Some(others)) = (self.to_object(), other.to_object()) else {
            return Ok(without_literals(other)?.unwrap_or(Self::Null));
        };
        let mut builder = ObjectBuilder::with_capacity(own.len() + others.len());
        for (key, value) in &own {
            if !others.contains_key(key) {
                builder.insert(key.clone(), value.clone());
            }
        }
        for (key, value) in &others {
            let merged = match own.get(key) {
                Some(own) if !is_literal(value) => Some(own.merge(value)?),
                _ => without_literals(value)?,
            };
            if let Some(merged) = merged {
                builder.insert(key.clone(), merged);
            }
        }
        builder.finish()
    }
}

fn is_literal(value: &Value) -> bool {
    matches!(value, Value::Object(object) if object.is_literal())
}

/// The value with what its literals stand for in their places; `None` for a literal that stands for nothing.
fn without_literals(value: &Value) -> Result<Option<Value>, ValueError> {
    match value {
        Value::Object(object) if object.is_literal() => object.get("value").map_or(Ok(None), without_literals),
        Value::Object(object) => {
            let mut builder = ObjectBuilder::with_capacity(object.len());
            for (key, value) in object {
                if let Some(value) = without_literals(value)? {
                    builder.insert(key.clone(), value);
                }
            }
            builder.finish().map(Some)
        }
        Value::Array(array) => {
            let kept: Result<Vec<_>, _> =
                array.iter().filter_map(|value| without_literals(value).transpose()).collect();
            Value::array(kept?).map(Some)
        }
        _ => Ok(Some(value.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_is_as_rethinkdb_merges() {
        let literal = |value: &str| match value {
            "" => r#"{"$reql_type$":"LITERAL"}"#.to_string(),
            value => format!(r#"{{"$reql_type$":"LITERAL","value":{value}}}"#),
        };
        let time = |seconds: i32| format!(r#"{{"$reql_type$":"TIME","epoch_time":{seconds},"timezone":"+00:00"}}"#);
        for (one, other, merged) in [
            (
                r#"{"a":1,"b":{"c":2}}"#.into(),
                r#"{"b":{"d":3},"e":4}"#.into(),
                r#"{"a":1,"b":{"c":2,"d":3},"e":4}"#.into(),
            ),
            (r#"{"a":{"b":1}}"#.into(), format!(r#"{{"a":{}}}"#, literal(r#"{"x":1}"#)), r#"{"a":{"x":1}}"#.into()),
            (r#"{"a":1}"#.into(), format!(r#"{{"a":{}}}"#, literal("")), "{}".into()),
            (r#"{"a":1}"#.into(), format!(r#"{{"a":{{"b":{}}}}}"#, literal("")), r#"{"a":{}}"#.into()),
            ("{}".into(), format!(r#"{{"a":[{}]}}"#, literal("")), r#"{"a":[]}"#.into()),
            ("{}".into(), format!(r#"{{"a":{{"b":{}}}}}"#, literal("5")), r#"{"a":{"b":5}}"#.into()),
            (format!(r#"{{"a":{}}}"#, time(1)), format!(r#"{{"a":{}}}"#, time(2)), format!(r#"{{"a":{}}}"#, time(2))),
            ("1".into(), r#"{"a":1}"#.into(), r#"{"a":1}"#.into()),
        ] as [(String, String, String); 8]
        {
            let (one, other) = (Value::from_json(&one).unwrap(), Value::from_json(&other).unwrap());
            assert_eq!(one.merge(&other).unwrap().to_json().unwrap(), merged);
        }
        let one = Value::from_json(&format!(r#"{{"a":{}}}"#, time(1))).unwrap();
        let error = one.merge(&Value::from_json(r#"{"a":{"b":2}}"#).unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("Invalid time object constructed (unrecognized field `b`)"));
    }
}
