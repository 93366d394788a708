//! Objects with a `$reql_type$` become the values they stand for.

use crate::container::Object;
use crate::time::{EPOCH_TIME_KEY, TIMEZONE_KEY, Time, Timezone};
use crate::{Value, ValueError, base64};

/// The key that makes an object something else.
pub const PSEUDO_TYPE_KEY: &str = "$reql_type$";

pub(crate) fn is_literal(object: &Object) -> bool {
    object.get(PSEUDO_TYPE_KEY).is_some_and(|name| name.as_str() == Some("LITERAL"))
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
