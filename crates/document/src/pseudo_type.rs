//! Objects with a `$reql_type$` become the values they stand for, and times become objects where ReQL looks at their fields.

use crate::time::{Time, Timezone};
use crate::value::{Object, PSEUDO_TYPE_KEY};
use crate::{Value, ValueError, base64};
use std::sync::Arc;

const EPOCH_TIME_KEY: &str = "epoch_time";
const TIMEZONE_KEY: &str = "timezone";

impl Value {
    /// The fields of what ReQL treats as an object: objects, geometry, and times, whose fields are `$reql_type$`,
    /// `epoch_time` and `timezone`. Binaries are none.
    pub fn to_object(&self) -> Option<Object> {
        match self {
            Self::Object(object) | Self::Geometry(object) => Some(object.clone()),
            Self::Time(time) => Some(time.to_object()),
            _ => None,
        }
    }

    /// The field of what ReQL treats as an object.
    pub fn get_field(&self, key: &str) -> Option<Self> {
        match self {
            Self::Object(object) | Self::Geometry(object) => object.get(key).cloned(),
            Self::Time(time) => time.to_object().get(key).cloned(),
            _ => None,
        }
    }
}

impl Time {
    /// The object that ReQL takes a time for.
    pub fn to_object(&self) -> Object {
        let fields = vec![
            (Arc::from(PSEUDO_TYPE_KEY), Value::from("TIME")),
            (Arc::from(EPOCH_TIME_KEY), Value::Number(self.number())),
            (Arc::from(TIMEZONE_KEY), Value::from(self.timezone().as_str())),
        ];
        Object::from_sorted(fields).expect("the fields are ordered and hold neither arrays nor objects")
    }
}

/// The value that `object` stands for: itself, if it has no `$reql_type$`.
pub(crate) fn from_object(object: Object, allows_literal: bool) -> Result<Value, ValueError> {
    let Some(name) = object.get(PSEUDO_TYPE_KEY) else { return Ok(Value::Object(object)) };
    let Value::String(name) = name else {
        return Err(ValueError::PseudoTypeNotString {
            value: name.to_truncated_json()?,
            type_name: name.type_name(),
            object: Value::Object(object.clone()).to_truncated_json()?,
        });
    };
    match &**name {
        "TIME" => time(&object).map(Value::Time),
        "BINARY" => binary(&object),
        "GEOMETRY" => check_geometry(&object).map(|()| Value::Geometry(object)),
        "LITERAL" if allows_literal => Ok(Value::Object(object)),
        "LITERAL" => Err(ValueError::StrayLiteral),
        _ => Err(ValueError::UnknownPseudoType(name.clone())),
    }
}

fn time(object: &Object) -> Result<Time, ValueError> {
    let invalid = |reason: String| -> ValueError {
        match Value::Object(object.clone()).to_truncated_json() {
            Ok(object) => ValueError::InvalidTime { reason, object },
            Err(error) => error,
        }
    };
    let (mut epoch_seconds, mut timezone) = (None, None);
    for (key, value) in object {
        let wrong_type = |type_name: &str| -> Result<String, ValueError> {
            let (text, found) = (value.to_truncated_json()?, value.type_name());
            Ok(format!("field `{key}` must be a {type_name} (got `{text}` of type {found})"))
        };
        match (&**key, value) {
            (PSEUDO_TYPE_KEY, _) => {}
            (EPOCH_TIME_KEY, Value::Number(number)) => epoch_seconds = Some(number.get()),
            (EPOCH_TIME_KEY, _) => return Err(invalid(wrong_type("number")?)),
            (TIMEZONE_KEY, Value::String(text)) => match Timezone::parse(text) {
                Ok(zone) => timezone = Some(zone),
                Err(_) => {
                    return Err(invalid(format!("invalid timezone string `{}`", value.to_truncated_json()?)));
                }
            },
            (TIMEZONE_KEY, _) => return Err(invalid(wrong_type("string")?)),
            _ => return Err(invalid(format!("unrecognized field `{key}`"))),
        }
    }
    let epoch_seconds = epoch_seconds.ok_or_else(|| invalid(format!("no field `{EPOCH_TIME_KEY}`")))?;
    let timezone = timezone.ok_or_else(|| invalid(format!("no field `{TIMEZONE_KEY}`")))?;
    Time::new(epoch_seconds, timezone)
}

fn binary(object: &Object) -> Result<Value, ValueError> {
    let mut data = None;
    for (key, value) in object {
        match (&**key, value) {
            (PSEUDO_TYPE_KEY, _) => {}
            ("data", Value::String(text)) => data = Some(base64::decode(text)?),
            ("data", _) => {
                return Err(ValueError::WrongType { expected: "STRING", found: value.type_name() });
            }
            _ => return Err(ValueError::IllegalBinaryKey(key.clone())),
        }
    }
    data.map(Value::binary).ok_or(ValueError::NoBinaryData)
}

/// Whether the fields are there. Whether they make a geometry is looked at where one is used.
fn check_geometry(object: &Object) -> Result<(), ValueError> {
    if let Some(key) = object.keys().find(|key| !matches!(&***key, PSEUDO_TYPE_KEY | "type" | "coordinates" | "crs")) {
        return Err(ValueError::UnrecognizedGeometryField(key.clone()));
    }
    match object.get("type") {
        None => return Err(ValueError::NoGeometryField("type")),
        Some(Value::String(_)) => {}
        Some(other) => return Err(ValueError::WrongType { expected: "STRING", found: other.type_name() }),
    }
    match object.get("coordinates") {
        None => Err(ValueError::NoGeometryField("coordinates")),
        Some(Value::Array(_)) => Ok(()),
        Some(other) => Err(ValueError::WrongType { expected: "ARRAY", found: other.type_name() }),
    }
}
