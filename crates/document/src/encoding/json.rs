//! Encoded values are written as JSON from where they lie.

use super::{EncodedObject, EncodedText, EncodedValue, PLAIN_STRING, TINY_INTEGER, View};
use crate::json::{write_binary, write_bytes, write_time};
use crate::{MAX_DEPTH, ValueError};

impl EncodedValue<'_> {
    /// Appends the value as compact JSON, the same as [`Value::write_json`](crate::Value::write_json) does.
    ///
    /// # Errors
    /// [`ValueError::ExtremumToJson`]; the text is then incomplete.
    pub fn write_json(self, out: &mut Vec<u8>) -> Result<(), ValueError> {
        // A guess: numbers grow, tables become punctuation.
        out.reserve(self.0.len() + self.0.len() / 4);
        write(self, out, 0)
    }

    /// The value as compact JSON.
    ///
    /// # Errors
    /// [`ValueError::ExtremumToJson`].
    pub fn to_json(self) -> Result<String, ValueError> {
        let mut out = Vec::new();
        self.write_json(&mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }
}

impl EncodedText<'_> {
    /// Appends the text as a JSON string, in quotes.
    pub fn write_json(self, out: &mut Vec<u8>) {
        if self.is_plain {
            write_plain(self.bytes, out);
        } else {
            write_bytes(self.bytes, out);
        }
    }
}

fn write_plain(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}

/// `depth` bounds the recursion over bytes that nobody checked.
fn write(value: EncodedValue<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), ValueError> {
    // What documents hold most of, without a detour.
    match value.0 {
        [PLAIN_STRING, text @ ..] => {
            write_plain(text, out);
            return Ok(());
        }
        &[tag, ..] if tag >= TINY_INTEGER => {
            out.extend_from_slice(itoa::Buffer::new().format(tag - TINY_INTEGER).as_bytes());
            return Ok(());
        }
        _ => {}
    }
    match value.view() {
        View::MinVal => return Err(ValueError::ExtremumToJson { is_max: false }),
        View::MaxVal => return Err(ValueError::ExtremumToJson { is_max: true }),
        View::Null => out.extend_from_slice(b"null"),
        View::Bool(true) => out.extend_from_slice(b"true"),
        View::Bool(false) => out.extend_from_slice(b"false"),
        View::Number(number) => number.write_json(out),
        View::String(text) => text.write_json(out),
        View::Binary(bytes) => write_binary(bytes, out),
        View::Time(time) => write_time(&time, out),
        View::Array(_) | View::Object(_) | View::Geometry(_) if depth == MAX_DEPTH => {
            return Err(ValueError::TooDeep { limit: MAX_DEPTH });
        }
        View::Array(array) => {
            out.push(b'[');
            for (place, element) in array.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write(element, out, depth + 1)?;
            }
            out.push(b']');
        }
        View::Object(object) | View::Geometry(object) => write_object(object, out, depth)?,
    }
    Ok(())
}

fn write_object(object: EncodedObject<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), ValueError> {
    out.push(b'{');
    for (place, (key, value)) in object.fields().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        key.write_json(out);
        out.push(b':');
        write(value, out, depth + 1)?;
    }
    out.push(b'}');
    Ok(())
}
