//! Values become bytes.

use super::{
    ARRAY, BINARY, ESCAPED_KEYS, FALSE, GEOMETRY, INTEGER, MAX_TINY, MAX_VAL, MIN_VAL, MINUS, NULL, NUMBER, OBJECT,
    PLAIN_STRING, STRING, TIME, TINY_INTEGER, TRUE, width, width_index,
};
use crate::Value;
use crate::json::is_plain;
use crate::number::Number;
use crate::time::Time;
use crate::value::Object;

impl Value {
    /// Appends the value's encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        write(self, out);
    }

    /// How many bytes the value's encoding has, which is known without making it.
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::MinVal | Self::MaxVal | Self::Null | Self::Bool(_) => 1,
            Self::Number(number) => number_length(*number),
            Self::String(text) => 1 + text.len(),
            Self::Binary(bytes) => 1 + bytes.len(),
            Self::Time(_) => 11,
            Self::Array(array) => container_length(array.len(), array.parts_bytes()),
            Self::Object(object) | Self::Geometry(object) => container_length(2 * object.len(), object.parts_bytes()),
        }
    }
}

/// The length of a container with its tag and table.
fn container_length(parts: usize, parts_bytes: usize) -> usize {
    1 + (1 + parts) * width(width_index(parts_bytes)) + parts_bytes
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::MinVal => out.push(MIN_VAL),
        Value::MaxVal => out.push(MAX_VAL),
        Value::Null => out.push(NULL),
        Value::Bool(bool) => out.push(if *bool { TRUE } else { FALSE }),
        Value::Number(number) => write_number(*number, out),
        Value::String(text) => write_text(text, out),
        Value::Binary(bytes) => {
            out.push(BINARY);
            out.extend_from_slice(bytes);
        }
        Value::Time(time) => write_time(time, out),
        Value::Array(array) => {
            let mut table = Table::begin(ARRAY, array.len(), array.len(), array.parts_bytes(), out);
            for element in array.iter() {
                write(element, out);
                table.end_part(out);
            }
            table.finish(array.parts_bytes(), out);
        }
        Value::Object(object) => write_object(OBJECT, object, out),
        Value::Geometry(object) => write_object(GEOMETRY, object, out),
    }
}

fn write_object(tag: u8, object: &Object, out: &mut Vec<u8>) {
    let escaped = if object.keys().all(|key| is_plain(key.as_bytes())) { 0 } else { ESCAPED_KEYS };
    let mut table = Table::begin(tag + escaped, object.len(), 2 * object.len(), object.parts_bytes(), out);
    for key in object.keys() {
        out.extend_from_slice(key.as_bytes());
        table.end_part(out);
    }
    for value in object.values() {
        write(value, out);
        table.end_part(out);
    }
    table.finish(object.parts_bytes(), out);
}

/// The table of a container whose parts are being written behind it.
pub(super) struct Table {
    width: usize,
    /// Where the next end is written.
    next: usize,
    /// Where the parts begin.
    data: usize,
}

impl Table {
    /// Writes the tag, with the index of its width added, and the count, and leaves room for the ends of `parts` parts,
    /// which have `parts_bytes` bytes together.
    pub(super) fn begin(tag: u8, count: usize, parts: usize, parts_bytes: usize, out: &mut Vec<u8>) -> Self {
        let index = width_index(parts_bytes);
        let width = width(index);
        out.push(tag + index);
        out.extend_from_slice(&count.to_le_bytes()[..width]);
        let next = out.len();
        out.resize(next + parts * width, 0);
        Self { width, next, data: out.len() }
    }

    /// Notes that a part ends at the end of `out`.
    pub(super) fn end_part(&mut self, out: &mut [u8]) {
        let end = out.len() - self.data;
        out[self.next..self.next + self.width].copy_from_slice(&end.to_le_bytes()[..self.width]);
        self.next += self.width;
    }

    /// All parts are there.
    pub(super) fn finish(self, parts_bytes: usize, out: &[u8]) {
        assert_eq!(out.len() - self.data, parts_bytes, "the length of an encoding was computed wrongly");
    }
}

pub(super) fn write_number(number: Number, out: &mut Vec<u8>) {
    let is_negative_zero = number.get() == 0.0 && number.get().is_sign_negative();
    match number.as_integer() {
        Some(integer) if !is_negative_zero => write_integer(integer, out),
        _ => {
            out.push(NUMBER);
            out.extend_from_slice(&number.get().to_le_bytes());
        }
    }
}

fn write_integer(integer: i64, out: &mut Vec<u8>) {
    if let Some(tiny) = u8::try_from(integer).ok().filter(|tiny| i64::from(*tiny) <= MAX_TINY) {
        out.push(TINY_INTEGER + tiny);
        return;
    }
    out.push(INTEGER);
    out.extend_from_slice(&integer.to_le_bytes()[..integer_length(integer)]);
}

fn number_length(number: Number) -> usize {
    let is_negative_zero = number.get() == 0.0 && number.get().is_sign_negative();
    match number.as_integer() {
        Some(0..=MAX_TINY) if !is_negative_zero => 1,
        Some(integer) if !is_negative_zero => 1 + integer_length(integer),
        _ => 9,
    }
}

/// The fewest bytes of two's complement.
pub(super) fn integer_length(integer: i64) -> usize {
    let bits = 65 - (integer ^ (integer >> 63)).leading_zeros() as usize;
    bits.div_ceil(8)
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(if is_plain(text.as_bytes()) { PLAIN_STRING } else { STRING });
    out.extend_from_slice(text.as_bytes());
}

fn write_time(time: &Time, out: &mut Vec<u8>) {
    let (is_minus, minutes) = time.timezone().offset();
    out.push(TIME);
    out.extend_from_slice(&time.epoch_seconds().to_le_bytes());
    out.extend_from_slice(&(minutes | if is_minus { MINUS } else { 0 }).to_le_bytes());
}
