//! New encodings out of parts of others, which are copied as they are.

use super::encode::Table;
use super::{ARRAY, Damage, ESCAPED_KEYS, EncodedObject, EncodedText, EncodedValue, OBJECT, View};
use crate::json::is_plain;
use crate::{MAX_DEPTH, MAX_VALUE_BYTES, ObjectBuilder, PSEUDO_TYPE_KEY, Value, ValueError};

impl<'a> EncodedText<'a> {
    /// The text as an encoder takes it.
    pub fn new(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), is_plain: is_plain(text.as_bytes()) }
    }
}

impl<'a> EncodedValue<'a> {
    /// Decodes the value.
    ///
    /// # Errors
    /// [`Damage`], for some bytes that nobody checked.
    pub fn to_value(self) -> Result<Value, Damage> {
        self.decode(0).map_err(|_| Damage("an object or array is not one that could be made"))
    }

    /// `depth` bounds the recursion over bytes that nobody checked.
    fn decode(self, depth: usize) -> Result<Value, ValueError> {
        if depth > MAX_DEPTH {
            return Err(ValueError::TooDeep { limit: MAX_DEPTH });
        }
        Ok(match self.view() {
            View::MinVal => Value::MinVal,
            View::MaxVal => Value::MaxVal,
            View::Null => Value::Null,
            View::Bool(bool) => Value::Bool(bool),
            View::Number(number) => Value::Number(number),
            View::String(text) => Value::from(text.as_str()),
            View::Binary(bytes) => Value::binary(bytes),
            View::Time(time) => Value::Time(time),
            View::Array(array) => {
                Value::array(array.iter().map(|element| element.decode(depth + 1)).collect::<Result<_, _>>()?)?
            }
            View::Object(object) | View::Geometry(object) => {
                let mut builder = ObjectBuilder::with_capacity(object.len());
                for (key, value) in object.fields() {
                    builder.insert(key.as_str(), value.decode(depth + 1)?);
                }
                builder.finish_with_literal()?
            }
        })
    }

    /// Appends what [`Value::merge`] makes of the two. Fields that are not merged are copied as they are.
    ///
    /// # Errors
    /// As [`Value::merge`]; [`ValueError::TooLarge`].
    pub fn merge(self, other: EncodedValue<'_>, out: &mut Vec<u8>) -> Result<(), ValueError> {
        // Literals and geometry are rare, and what has one is merged decoded.
        let is_special = memchr::memmem::find(other.0, PSEUDO_TYPE_KEY.as_bytes()).is_some();
        match (self.view(), other.view()) {
            (View::Object(own), View::Object(others)) if !is_special && merge_objects(own, others, out, 0)? => Ok(()),
            (
                View::Object(_) | View::Geometry(_) | View::Time(_),
                View::Object(_) | View::Geometry(_) | View::Time(_),
            ) => {
                self.decode(0)?.merge(&other.decode(0)?)?.encode(out);
                Ok(())
            }
            _ if is_special => {
                Value::Null.merge(&other.decode(0)?)?.encode(out);
                Ok(())
            }
            _ => {
                out.extend_from_slice(other.0);
                Ok(())
            }
        }
    }
}

/// Merges objects without literals. Answers false, and leaves `out` as it was, if an object meets a time or a geometry.
fn merge_objects(
    own: EncodedObject<'_>,
    others: EncodedObject<'_>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<bool, ValueError> {
    if depth > MAX_DEPTH {
        return Err(ValueError::TooDeep { limit: MAX_DEPTH });
    }
    // Where merged fields stand in `merged`; their fields refer to it once all are there.
    let (mut merged, mut places) = (Vec::new(), Vec::new());
    for (key, other) in others.fields() {
        let Ok(place) = own.position(key.bytes) else { continue };
        match (own.value_at(place).view(), other.view()) {
            (View::Object(own), View::Object(others)) => {
                let start = merged.len();
                if !merge_objects(own, others, &mut merged, depth + 1)? {
                    return Ok(false);
                }
                places.push(start..merged.len());
            }
            (
                View::Object(_) | View::Geometry(_) | View::Time(_),
                View::Object(_) | View::Geometry(_) | View::Time(_),
            ) => {
                return Ok(false);
            }
            _ => {
                let start = merged.len();
                merged.extend_from_slice(other.0);
                places.push(start..merged.len());
            }
        }
    }
    let mut places = places.into_iter();
    let mut fields = Vec::with_capacity(own.len() + others.len());
    let (mut left, mut right) = (own.fields().peekable(), others.fields().peekable());
    loop {
        let ordering = match (left.peek(), right.peek()) {
            (Some((key, _)), Some((other, _))) => key.bytes.cmp(other.bytes),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => break,
        };
        let from_left = if ordering.is_le() { left.next() } else { None };
        let from_right = if ordering.is_ge() { right.next() } else { None };
        match (from_left, from_right) {
            (Some((key, _)), Some(_)) => {
                let place = places.next().unwrap_or_default();
                fields.push((key, EncodedValue(&merged[place])));
            }
            (one, other) => fields.extend(one.or(other)),
        }
    }
    put_object(&fields, out)?;
    Ok(true)
}

impl<'a> EncodedObject<'a> {
    /// Appends an object with the fields whose keys are among `keys`.
    ///
    /// # Errors
    /// As [`assemble_object`].
    pub fn pluck(self, keys: &[&str], out: &mut Vec<u8>) -> Result<(), ValueError> {
        let mut places: Vec<_> = keys.iter().filter_map(|key| self.position(key.as_bytes()).ok()).collect();
        places.sort_unstable();
        places.dedup();
        assemble_object(places.into_iter().map(|place| (self.key_at(place), self.value_at(place))), out)
    }

    /// Appends an object with the fields whose keys are not among `keys`.
    ///
    /// # Errors
    /// As [`assemble_object`].
    pub fn without(self, keys: &[&str], out: &mut Vec<u8>) -> Result<(), ValueError> {
        assemble_object(self.fields().filter(|(key, _)| !keys.iter().any(|gone| gone.as_bytes() == key.bytes)), out)
    }

    /// Appends the object with another value under `key`, which may be new.
    ///
    /// # Errors
    /// As [`assemble_object`].
    pub fn with_field(self, key: &str, value: EncodedValue<'_>, out: &mut Vec<u8>) -> Result<(), ValueError> {
        let mut fields = Vec::with_capacity(self.len() + 1);
        fields.extend(self.fields());
        match self.position(key.as_bytes()) {
            Ok(place) => fields[place].1 = value,
            Err(place) => fields.insert(place, (EncodedText::new(key), value)),
        }
        finish_object(&fields, out)
    }
}

/// Appends an object with these fields, in any order; of equal keys the last one counts. The values are copied as they
/// are. With a `$reql_type$` it becomes what it stands for.
///
/// # Errors
/// As [`ObjectBuilder::finish`]; [`ValueError::TooLarge`].
pub fn assemble_object<'a>(
    fields: impl IntoIterator<Item = (EncodedText<'a>, EncodedValue<'a>)>,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    let mut fields: Vec<_> = fields.into_iter().collect();
    if !fields.is_sorted_by(|(one, _), (next, _)| one.bytes < next.bytes) {
        // A stable sort: of equal keys, the one that came last stands last.
        fields.sort_by(|(one, _), (other, _)| one.bytes.cmp(other.bytes));
        fields.dedup_by(|next, kept| {
            let is_equal = next.0.bytes == kept.0.bytes;
            if is_equal {
                std::mem::swap(next, kept);
            }
            is_equal
        });
    }
    finish_object(&fields, out)
}

/// `fields` are ordered by key, and each key is there once.
fn finish_object(fields: &[(EncodedText<'_>, EncodedValue<'_>)], out: &mut Vec<u8>) -> Result<(), ValueError> {
    if fields.binary_search_by(|(key, _)| key.bytes.cmp(PSEUDO_TYPE_KEY.as_bytes())).is_err() {
        return put_object(fields, out);
    }
    let mut builder = ObjectBuilder::with_capacity(fields.len());
    for (key, value) in fields {
        builder.insert(key.as_str(), value.decode(0)?);
    }
    builder.finish()?.encode(out);
    Ok(())
}

/// Appends an array of these elements, which are copied as they are.
///
/// # Errors
/// [`ValueError::TooLarge`].
pub fn assemble_array(elements: &[EncodedValue<'_>], out: &mut Vec<u8>) -> Result<(), ValueError> {
    put(ARRAY, elements.len(), elements.iter().map(|element| element.0), out)
}

/// `fields` are ordered by key, each key is there once, and none is `$reql_type$`.
fn put_object(fields: &[(EncodedText<'_>, EncodedValue<'_>)], out: &mut Vec<u8>) -> Result<(), ValueError> {
    // A key that comes from an object with another that is to be escaped may itself be plain.
    let are_plain = fields.iter().all(|(key, _)| key.is_plain || is_plain(key.bytes));
    let tag = OBJECT + if are_plain { 0 } else { ESCAPED_KEYS };
    let keys = fields.iter().map(|(key, _)| key.bytes);
    put(tag, fields.len(), keys.chain(fields.iter().map(|(_, value)| value.0)), out)
}

fn put<'a>(
    tag: u8,
    count: usize,
    parts: impl Iterator<Item = &'a [u8]> + Clone,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    let (number, length) = parts.clone().fold((0, 0), |(number, length), part| (number + 1, length + part.len()));
    if length > MAX_VALUE_BYTES {
        return Err(ValueError::TooLarge { limit: MAX_VALUE_BYTES });
    }
    out.reserve(5 + 4 * number + length);
    let mut table = Table::begin(tag, count, number, length, out);
    for part in parts {
        out.extend_from_slice(part);
        table.end_part(out);
    }
    table.finish(length, out);
    Ok(())
}
