//! What terms ask of values, with the errors that users know; and the values of JSON in queries.

use std::sync::Arc;

pub use tessera_document::{Array, Object, ObjectBuilder, PSEUDO_TYPE_KEY, Time, Timezone, Value};
use tessera_document::{ErrorClass, ValueError, reconstructable};

use crate::error::{Error, ErrorKind, Result, until_nul};
use crate::json::Json;

/// The largest number up to which every integer is a double: 2^53.
const EXACT: f64 = tessera_document::MAX_EXACT_INTEGER;

impl From<ValueError> for Error {
    fn from(error: ValueError) -> Self {
        let kind = match error.class() {
            ErrorClass::NonExistence => ErrorKind::NonExistence,
            ErrorClass::Logic => ErrorKind::QueryLogic,
            ErrorClass::ResourceLimit => ErrorKind::ResourceLimit,
        };
        Self::new(kind, error.to_string())
    }
}

/// The number as an integer.
///
/// # Errors
/// If it has a fraction, or is beyond what a double holds exactly.
pub fn checked_integer(number: f64) -> Result<i64> {
    let range = if number > EXACT {
        " (>2^53)"
    } else if number < -EXACT {
        " (<-2^53)"
    } else if number.fract() != 0.0 {
        ""
    } else {
        return Ok(number as i64);
    };
    Err(Error::logic(format!("Number not an integer{range}: {}", reconstructable(number))))
}

/// What terms ask of values.
pub trait ValueExt {
    /// Whether the value counts as true.
    ///
    /// # Errors
    /// None at present; every value is true or false.
    fn to_bool(&self) -> Result<bool>;
    /// # Errors
    /// If the value is no number.
    fn to_number(&self) -> Result<f64>;
    /// # Errors
    /// If the value is no integer that a double holds exactly.
    fn to_integer(&self) -> Result<i64>;
    /// # Errors
    /// If the value is no string.
    fn to_text(&self) -> Result<&Arc<str>>;
    /// # Errors
    /// If the value is no array.
    fn to_items(&self) -> Result<&Array>;
    /// # Errors
    /// If the value is no object; times and geometry are objects here.
    fn to_fields(&self) -> Result<Object>;
    /// # Errors
    /// If the value is no binary string.
    fn to_bytes(&self) -> Result<&Arc<[u8]>>;
    /// # Errors
    /// If the value is no time.
    fn to_time(&self) -> Result<Time>;
    /// A field that must be there.
    ///
    /// # Errors
    /// If the value is no object, or has no such field.
    fn field(&self, name: &str) -> Result<Value>;
    fn is_null(&self) -> bool;
    /// Whether ReQL treats the value as an object.
    fn is_object(&self) -> bool;
    /// Whether the value is a pseudotype, apart from markers.
    fn is_pseudotype(&self) -> bool;
    /// What `r.literal` made of a value: nothing inside means that a field is to go.
    fn literal(&self) -> Option<Option<Value>>;
    /// The value as error messages show it.
    ///
    /// # Errors
    /// `MINVAL` and `MAXVAL` cannot be shown.
    fn print(&self) -> Result<String>;
    /// The value as error messages show it, cut if it is long.
    ///
    /// # Errors
    /// As [`ValueExt::print`].
    fn print_truncated(&self) -> Result<String>;
    /// The type without regard to pseudotypes that are objects.
    fn plain_type_name(&self) -> &'static str;
}

fn expected<T>(value: &Value, name: &str) -> Result<T> {
    Err(Error::typed(value, format!("Expected type {name} but found {}.", value.type_name())))
}

impl ValueExt for Value {
    fn to_bool(&self) -> Result<bool> {
        Ok(self.is_truthy())
    }

    fn to_number(&self) -> Result<f64> {
        self.as_number().map_or_else(|| expected(self, "NUMBER"), Ok)
    }

    fn to_integer(&self) -> Result<i64> {
        checked_integer(self.to_number()?)
    }

    fn to_text(&self) -> Result<&Arc<str>> {
        match self {
            Self::String(text) => Ok(text),
            _ => expected(self, "STRING"),
        }
    }

    fn to_items(&self) -> Result<&Array> {
        self.as_array().map_or_else(|| expected(self, "ARRAY"), Ok)
    }

    fn to_fields(&self) -> Result<Object> {
        self.to_object().map_or_else(|| expected(self, "OBJECT"), Ok)
    }

    fn to_bytes(&self) -> Result<&Arc<[u8]>> {
        match self {
            Self::Binary(bytes) => Ok(bytes),
            _ => expected(self, "PTYPE<BINARY>"),
        }
    }

    fn to_time(&self) -> Result<Time> {
        match self {
            Self::Time(time) => Ok(*time),
            other => {
                let shown = other.print_truncated()?;
                Err(Error::logic(format!("Not a TIME pseudotype: `{shown}`.")))
            }
        }
    }

    fn field(&self, name: &str) -> Result<Value> {
        if let Self::Object(object) = self {
            if let Some(value) = object.get(name) {
                return Ok(value.clone());
            }
        } else if let Some(value) = self.to_fields()?.get(name) {
            return Ok(value.clone());
        }
        let name = until_nul(name);
        Err(Error::non_existence(format!("No attribute `{name}` in object:\n{}", self.print()?)))
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    fn is_object(&self) -> bool {
        matches!(self, Self::Object(_) | Self::Time(_) | Self::Geometry(_))
    }

    fn is_pseudotype(&self) -> bool {
        matches!(self, Self::Binary(_) | Self::Time(_) | Self::Geometry(_))
    }

    fn literal(&self) -> Option<Option<Value>> {
        match self {
            Self::Object(object) => match object.get(PSEUDO_TYPE_KEY) {
                Some(Self::String(name)) if &**name == "LITERAL" => Some(object.get("value").cloned()),
                _ => None,
            },
            _ => None,
        }
    }

    fn print(&self) -> Result<String> {
        Ok(self.to_pretty_json()?)
    }

    fn print_truncated(&self) -> Result<String> {
        Ok(self.to_truncated_json()?)
    }

    fn plain_type_name(&self) -> &'static str {
        match self {
            Self::Time(_) | Self::Geometry(_) => "OBJECT",
            other => other.type_name(),
        }
    }
}

/// A number; ReQL has no infinities and no NaN.
///
/// # Errors
/// If the number is not finite.
pub fn number(number: f64) -> Result<Value> {
    if number.is_nan() {
        // What a division of zeros or a difference of infinities gives on the machines that RethinkDB runs on.
        return Err(Error::logic("Non-finite number: -nan"));
    }
    Ok(Value::number(number)?)
}

/// A count or position, which a double holds exactly.
pub fn integer(integer: usize) -> Value {
    Value::number(integer as f64).unwrap_or(Value::Null)
}

/// An object of these fields.
///
/// # Errors
/// If it is nested too deeply.
pub fn object<const N: usize>(fields: [(&str, Value); N]) -> Result<Value> {
    Ok(Value::object(fields)?)
}

/// The value that JSON of a query means, pseudotypes included.
///
/// # Errors
/// If an object claims to be a pseudotype and is none.
pub fn from_json(json: &Json) -> Result<Value> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(value) => number(*value)?,
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::array(items.iter().map(from_json).collect::<Result<_>>()?)?,
        Json::Object(fields) => {
            let mut builder = ObjectBuilder::with_capacity(fields.len());
            for (name, value) in fields {
                builder.insert(name.clone(), from_json(value)?);
            }
            builder.finish()?
        }
    })
}

/// The object of these fields, if they are scalars and such objects, nested at most so many levels, and an evaluation would neither
/// refuse them nor see anything else in them.
pub fn plain_object(fields: &[(Arc<str>, Json)], levels: usize) -> Option<Value> {
    let levels = levels.checked_sub(1)?;
    let mut builder = ObjectBuilder::with_capacity(fields.len());
    for (name, json) in fields {
        let value = match json {
            Json::Array(_) => return None,
            Json::Object(fields) => plain_object(fields, levels)?,
            scalar => from_json(scalar).ok()?,
        };
        if &**name == PSEUDO_TYPE_KEY {
            return None;
        }
        builder.insert(name.clone(), value);
    }
    // Of equal names the last one would count here, while they are refused.
    builder.finish().ok().filter(|value| matches!(value, Value::Object(object) if object.len() == fields.len()))
}
