//! Values become bytes.

use super::{
    ARRAY, BINARY, ESCAPED_KEYS, FALSE, GEOMETRY, INTEGER, MAX_TINY, MAX_VAL, MIN_VAL, MINUS, NULL, NUMBER, OBJECT,
    PLAIN_STRING, STRING, TIME, TINY_INTEGER, TRUE, width, width_index,
};
use crate::container::Object;
use crate::json::is_plain;
use crate::number::Number;
use crate::time::Time;
use crate::{Value, ValueError};

/// An encoded value has at most so many bytes, since ends have at most four.
pub(super) const MAX_ENCODED_BYTES: usize = u32::MAX as usize;

impl Value {
    /// Appends the value's encoding.
    ///
    /// # Errors
    /// [`ValueError::TooLarge`] if it would have more than 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), ValueError> {
        Encoder { out, ends: Vec::new() }.value(self)
    }
}

struct Encoder<'o> {
    out: &'o mut Vec<u8>,
    /// Where parts end, of all containers that are being written; the innermost one's are last.
    ends: Vec<usize>,
}

impl Encoder<'_> {
    fn value(&mut self, value: &Value) -> Result<(), ValueError> {
        match value {
            Value::MinVal => self.out.push(MIN_VAL),
            Value::MaxVal => self.out.push(MAX_VAL),
            Value::Null => self.out.push(NULL),
            Value::Bool(bool) => self.out.push(if *bool { TRUE } else { FALSE }),
            Value::Number(number) => write_number(*number, self.out),
            Value::String(text) => write_text(text, self.out),
            Value::Binary(bytes) => {
                self.out.push(BINARY);
                self.out.extend_from_slice(bytes);
            }
            Value::Time(time) => write_time(time, self.out),
            Value::Array(array) => {
                let container = self.begin(ARRAY, array.len(), 1, array.iter().map(least_length).sum());
                for element in array.iter() {
                    self.value(element)?;
                    self.ends.push(self.out.len() - container.data);
                }
                self.end(&container, array.len())?;
            }
            Value::Object(object) => self.object(OBJECT, object)?,
            Value::Geometry(object) => self.object(GEOMETRY, object)?,
        }
        Ok(())
    }

    fn object(&mut self, tag: u8, object: &Object) -> Result<(), ValueError> {
        let escaped = if object.keys().all(|key| is_plain(key.as_bytes())) { 0 } else { ESCAPED_KEYS };
        let length = object.into_iter().map(|(key, value)| key.len() + least_length(value)).sum();
        let container = self.begin(tag + escaped, object.len(), 2, length);
        for key in object.keys() {
            self.out.extend_from_slice(key.as_bytes());
            self.ends.push(self.out.len() - container.data);
        }
        for value in object.values() {
            self.value(value)?;
            self.ends.push(self.out.len() - container.data);
        }
        self.end(&container, object.len())
    }

    /// Leaves room for the tag and the table, as wide as it must be if the parts have `length` bytes.
    fn begin(&mut self, tag: u8, count: usize, per_entry: usize, length: usize) -> Container {
        let start = self.out.len();
        let data = start + 1 + (1 + count * per_entry) * width(width_index(length));
        self.out.resize(data, 0);
        Container { tag, start, data, parts: count * per_entry, first_end: self.ends.len() }
    }

    /// Writes the tag and the table. If the parts are longer than was thought, they move to make room.
    fn end(&mut self, container: &Container, count: usize) -> Result<(), ValueError> {
        let length = self.out.len() - container.data;
        if length > MAX_ENCODED_BYTES {
            return Err(ValueError::TooLarge { limit: MAX_ENCODED_BYTES });
        }
        let index = width_index(length);
        let data = container.start + 1 + (1 + container.parts) * width(index);
        if data > container.data {
            self.out.resize(data + length, 0);
            self.out.copy_within(container.data..container.data + length, data);
        }
        let ends = self.ends.drain(container.first_end..);
        write_table(&mut self.out[container.start..data], container.tag, index, count, ends);
        Ok(())
    }
}

struct Container {
    tag: u8,
    start: usize,
    /// Where the parts begin.
    data: usize,
    parts: usize,
    /// The number of the container's first end.
    first_end: usize,
}

/// Writes the tag of a container with the index of its width added, the count and the ends.
pub(super) fn write_table(table: &mut [u8], tag: u8, index: u8, count: usize, ends: impl Iterator<Item = usize>) {
    table[0] = tag + index;
    let width = width(index);
    for (place, number) in table[1..].chunks_exact_mut(width).zip(std::iter::once(count).chain(ends)) {
        place.copy_from_slice(&number.to_le_bytes()[..width]);
    }
}

/// What the encoding of a value has at least, known without walking it.
fn least_length(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len(),
        Value::Binary(bytes) => 1 + bytes.len(),
        Value::Array(array) => 2 + 2 * array.len(),
        Value::Object(object) | Value::Geometry(object) => 2 + 3 * object.len(),
        _ => 1,
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
