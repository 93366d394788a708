//! Whether bytes are an encoding.

use super::view::{Parts, integer_of};
use super::{
    ARRAY, BINARY, ESCAPED_KEYS, EncodedValue, FALSE, GEOMETRY, INTEGER, MAX_TINY, MAX_VAL, MIN_VAL, MINUS, NULL,
    NUMBER, OBJECT, PLAIN_STRING, STRING, TIME, TINY_INTEGER, TRUE, View, encode, width_index,
};
use crate::json::is_plain;
use crate::number::{MAX_EXACT_INTEGER, Number};
use crate::time::Timezone;
use crate::{MAX_DEPTH, PSEUDO_TYPE_KEY};

/// Bytes that are not the encoding of a value, or not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not what they are taken for: {0}")]
pub struct Damage(pub(crate) &'static str);

impl<'a> EncodedValue<'a> {
    /// Looks at every byte: what passes is the encoding of a value, and the only one it has.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn check(bytes: &'a [u8]) -> Result<Self, Damage> {
        check(bytes, 0)?;
        Ok(Self(bytes))
    }
}

fn ensure(is_so: bool, what_is_wrong: &'static str) -> Result<(), Damage> {
    if is_so { Ok(()) } else { Err(Damage(what_is_wrong)) }
}

fn check(bytes: &[u8], depth: usize) -> Result<(), Damage> {
    let Some((&tag, body)) = bytes.split_first() else { return Err(Damage("a value has no bytes")) };
    match tag {
        MIN_VAL | FALSE | TRUE | NULL | MAX_VAL | TINY_INTEGER.. => ensure(body.is_empty(), "a value is too long"),
        NUMBER => check_number(body),
        INTEGER => check_integer(body),
        PLAIN_STRING | STRING => check_text(body, tag == PLAIN_STRING),
        BINARY => Ok(()),
        TIME => check_time(body),
        ARRAY..FALSE => check_array(tag - ARRAY, body, depth + 1),
        OBJECT..GEOMETRY => check_object(bytes, tag - OBJECT, body, depth + 1),
        GEOMETRY..MAX_VAL => check_object(bytes, tag - GEOMETRY, body, depth + 1),
        _ => Err(Damage("a tag is unknown")),
    }
}

fn double(body: &[u8]) -> Result<f64, Damage> {
    let bytes = body.first_chunk::<8>().ok_or(Damage("a number is too short"))?;
    let number = f64::from_le_bytes(*bytes);
    ensure(number.is_finite(), "a number is not finite")?;
    Ok(number)
}

fn check_number(body: &[u8]) -> Result<(), Damage> {
    ensure(body.len() == 8, "a number does not have eight bytes")?;
    let number = Number::new(double(body)?).map_err(|_| Damage("a number is not finite"))?;
    let mut shortest = Vec::with_capacity(9);
    encode::write_number(number, &mut shortest);
    ensure(shortest[0] == NUMBER, "a number is an integer")
}

fn check_integer(body: &[u8]) -> Result<(), Damage> {
    ensure(matches!(body.len(), 1..=7), "an integer has no bytes or more than seven")?;
    let integer = integer_of(body);
    ensure((integer as f64).abs() <= MAX_EXACT_INTEGER, "an integer is too large")?;
    ensure(!(0..=MAX_TINY).contains(&integer), "an integer has its own tag")?;
    ensure(encode::integer_length(integer) == body.len(), "an integer is too long")
}

fn check_text(text: &[u8], is_plain_by_tag: bool) -> Result<(), Damage> {
    ensure(std::str::from_utf8(text).is_ok(), "a text is not UTF-8")?;
    ensure(is_plain(text) == is_plain_by_tag, "a text's mark is wrong")
}

fn check_time(body: &[u8]) -> Result<(), Damage> {
    ensure(body.len() == 10, "a time does not have ten bytes")?;
    double(body)?;
    let offset = u16::from_le_bytes([body[8], body[9]]);
    ensure(Timezone::from_offset(offset & MINUS != 0, offset & !MINUS).is_some(), "a time zone is out of range")
}

/// Reads a table and looks whether its ends are in order and its width is the right one.
fn parts(body: &[u8], index: u8, per_entry: usize, depth: usize) -> Result<Parts<'_>, Damage> {
    ensure(depth <= MAX_DEPTH, "values are nested too deeply")?;
    ensure(index < 3, "a tag is unknown")?;
    let parts = Parts::parse(body, index, per_entry).ok_or(Damage("a table is longer than its value"))?;
    let mut start = 0;
    for place in 0..parts.count {
        let end = parts.end(place);
        ensure(start <= end && end <= parts.data.len(), "the ends of a table are not in order")?;
        start = end;
    }
    ensure(start == parts.data.len(), "a container is longer than its parts")?;
    ensure(width_index(start) == index, "a table is too wide")?;
    Ok(parts)
}

fn check_array(index: u8, body: &[u8], depth: usize) -> Result<(), Damage> {
    let parts = parts(body, index, 1, depth)?;
    (0..parts.count).try_for_each(|place| check(parts.get(place), depth))
}

/// `kind` is the tag above that of an object or geometry of width 1.
fn check_object(bytes: &[u8], kind: u8, body: &[u8], depth: usize) -> Result<(), Damage> {
    let parts = parts(body, kind & (ESCAPED_KEYS - 1), 2, depth)?;
    let count = parts.count / 2;
    let mut all_plain = true;
    for place in 0..count {
        let key = parts.get(place);
        ensure(std::str::from_utf8(key).is_ok(), "a key is not UTF-8")?;
        ensure(place == 0 || parts.get(place - 1) < key, "keys are not in order")?;
        all_plain &= is_plain(key);
    }
    ensure(all_plain == (kind & ESCAPED_KEYS == 0), "the mark of an object's keys is wrong")?;
    (count..parts.count).try_for_each(|place| check(parts.get(place), depth))?;
    check_pseudo_type(EncodedValue(bytes))
}

/// An object with a `$reql_type$` is a literal or a geometry, and a geometry has its fields.
fn check_pseudo_type(value: EncodedValue<'_>) -> Result<(), Damage> {
    let (object, is_geometry) = match value.view() {
        View::Object(object) => (object, false),
        View::Geometry(object) => (object, true),
        _ => return Ok(()),
    };
    let name = object.get(PSEUDO_TYPE_KEY).map(|name| name.as_text().map_or(&b""[..], |name| name.as_bytes()));
    if !is_geometry {
        return ensure(matches!(name, None | Some(b"LITERAL")), "an object has a field `$reql_type$`");
    }
    let is_known = |key: &[u8]| matches!(key, b"$reql_type$" | b"type" | b"coordinates" | b"crs");
    let is_complete = name == Some(b"GEOMETRY")
        && object.get("type").is_some_and(|name| name.as_text().is_some())
        && object.get("coordinates").is_some_and(|coordinates| coordinates.as_array().is_some())
        && object.keys().all(|key| is_known(key.as_bytes()));
    ensure(is_complete, "a geometry has not the fields of one")
}
