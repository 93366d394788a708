//! Encoded values, read in place.

use super::{
    ARRAY, BINARY, ESCAPED_KEYS, FALSE, GEOMETRY, INTEGER, MAX_VAL, MIN_VAL, MINUS, NULL, NUMBER, OBJECT, PLAIN_STRING,
    STRING, TIME, TINY_INTEGER, TRUE, width,
};
use crate::number::Number;
use crate::time::{Time, Timezone};

/// An encoded value, read where it lies; see the [module](super) for the format.
///
/// Reading never panics and never leaves the slice, whatever the bytes are. Bytes that may be no encoding (those of a
/// client or of a file that was not checked otherwise) go through [`EncodedValue::check`] first. Damaged bytes that do
/// not are read as some other value, mostly null.
#[derive(Clone, Copy, Debug)]
pub struct EncodedValue<'a>(pub(super) &'a [u8]);

/// What an encoded value is.
#[derive(Clone, Copy, Debug)]
pub enum View<'a> {
    /// Less than every other value.
    MinVal,
    /// JSON's `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A finite number.
    Number(Number),
    /// A text.
    String(EncodedText<'a>),
    /// Bytes that are no text.
    Binary(&'a [u8]),
    /// An array, whose elements are still encoded.
    Array(EncodedArray<'a>),
    /// An object, whose fields are still encoded.
    Object(EncodedObject<'a>),
    /// A point in time with a time zone.
    Time(Time),
    /// A GeoJSON object.
    Geometry(EncodedObject<'a>),
    /// Greater than every other value.
    MaxVal,
}

impl<'a> EncodedValue<'a> {
    /// `bytes` are one encoded value, by whoever keeps them.
    pub fn trusted(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The encoding of the value.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Decodes the outermost layer only. Bytes that are no encoding count as null.
    #[inline]
    pub fn view(self) -> View<'a> {
        let Some((&tag, body)) = self.0.split_first() else { return View::Null };
        match tag {
            TINY_INTEGER.. => View::Number(Number::from(u32::from(tag - TINY_INTEGER))),
            PLAIN_STRING | STRING => View::String(EncodedText { bytes: body, is_plain: tag == PLAIN_STRING }),
            INTEGER => View::Number(integer(body)),
            NUMBER => View::Number(number(body)),
            ARRAY..FALSE => View::Array(EncodedArray(Parts::new(body, tag - ARRAY, 1))),
            OBJECT..GEOMETRY => View::Object(EncodedObject::new(tag - OBJECT, body)),
            GEOMETRY..MAX_VAL => View::Geometry(EncodedObject::new(tag - GEOMETRY, body)),
            FALSE | TRUE => View::Bool(tag == TRUE),
            BINARY => View::Binary(body),
            TIME => View::Time(time(body)),
            MIN_VAL => View::MinVal,
            MAX_VAL => View::MaxVal,
            _ => View::Null,
        }
    }

    /// Whether the value is `null`.
    pub fn is_null(self) -> bool {
        self.0 == [NULL]
    }

    /// The number, if the value is one.
    pub fn as_number(self) -> Option<f64> {
        if let View::Number(number) = self.view() { Some(number.get()) } else { None }
    }

    /// The text, if the value is one.
    pub fn as_text(self) -> Option<EncodedText<'a>> {
        if let View::String(text) = self.view() { Some(text) } else { None }
    }

    /// The array, if the value is one.
    pub fn as_array(self) -> Option<EncodedArray<'a>> {
        if let View::Array(array) = self.view() { Some(array) } else { None }
    }

    /// The fields of an object or a geometry.
    pub fn as_object(self) -> Option<EncodedObject<'a>> {
        if let View::Object(object) | View::Geometry(object) = self.view() { Some(object) } else { None }
    }

    /// The field of an object or a geometry, found by binary search.
    pub fn get_field(self, key: &str) -> Option<EncodedValue<'a>> {
        self.as_object()?.get(key)
    }
}

fn number(body: &[u8]) -> Number {
    let bits = body.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Number::new(f64::from_bits(bits)).unwrap_or(Number::ZERO)
}

fn integer(body: &[u8]) -> Number {
    Number::new(integer_of(body) as f64).unwrap_or(Number::ZERO)
}

/// Reads two's complement of up to eight bytes.
pub(super) fn integer_of(body: &[u8]) -> i64 {
    let length = body.len().min(8);
    let mut bytes = [0; 8];
    bytes[..length].copy_from_slice(&body[..length]);
    let unused_bits = 64 - 8 * length.max(1);
    i64::from_le_bytes(bytes) << unused_bits >> unused_bits
}

fn time(body: &[u8]) -> Time {
    let offset = body.get(8..).and_then(|rest| rest.first_chunk::<2>()).map_or(0, |bytes| u16::from_le_bytes(*bytes));
    let timezone = Timezone::from_offset(offset & MINUS != 0, offset & !MINUS).unwrap_or(Timezone::UTC);
    Time::from_number(number(body), timezone)
}

/// A string or a key.
#[derive(Clone, Copy, Debug)]
pub struct EncodedText<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether the text stands in JSON as it is.
    pub(super) is_plain: bool,
}

impl<'a> EncodedText<'a> {
    /// The bytes of the text in UTF-8.
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The text; empty if the bytes are damaged.
    pub fn as_str(self) -> &'a str {
        std::str::from_utf8(self.bytes).unwrap_or_default()
    }
}

/// The elements of an array.
#[derive(Clone, Copy, Debug)]
pub struct EncodedArray<'a>(pub(super) Parts<'a>);

impl<'a> EncodedArray<'a> {
    /// The number of elements.
    pub fn len(self) -> usize {
        self.0.count
    }

    /// Whether the array has no elements.
    pub fn is_empty(self) -> bool {
        self.0.count == 0
    }

    /// The element at this position, counted from 0.
    pub fn get(self, place: usize) -> Option<EncodedValue<'a>> {
        (place < self.0.count).then(|| EncodedValue(self.0.get(place)))
    }

    /// The elements in their order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = EncodedValue<'a>> {
        self.0.iter(0, self.0.count).map(EncodedValue)
    }
}

/// The fields of an object.
#[derive(Clone, Copy, Debug)]
pub struct EncodedObject<'a> {
    /// The keys, then the values.
    pub(super) parts: Parts<'a>,
    count: usize,
    pub(super) keys_are_plain: bool,
}

impl<'a> EncodedObject<'a> {
    /// `kind` is the tag above that of an object of width 1.
    fn new(kind: u8, body: &'a [u8]) -> Self {
        let parts = Parts::new(body, kind & (ESCAPED_KEYS - 1), 2);
        Self { parts, count: parts.count / 2, keys_are_plain: kind & ESCAPED_KEYS == 0 }
    }

    /// The number of fields.
    pub fn len(self) -> usize {
        self.count
    }

    /// Whether the object has no fields.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// The value of a field.
    pub fn get(self, key: &str) -> Option<EncodedValue<'a>> {
        self.position(key.as_bytes()).ok().map(|place| self.value_at(place))
    }

    /// Whether the object has this field.
    pub fn contains_key(self, key: &str) -> bool {
        self.position(key.as_bytes()).is_ok()
    }

    /// Where the key stands, or would stand.
    pub(super) fn position(self, key: &[u8]) -> Result<usize, usize> {
        // A search for each width, so that none asks for the width at every step.
        match self.parts.width {
            1 => self.search(key, |place| self.parts.end_of::<1>(place)),
            2 => self.search(key, |place| self.parts.end_of::<2>(place)),
            _ => self.search(key, |place| self.parts.end_of::<4>(place)),
        }
    }

    fn search(self, key: &[u8], end: impl Fn(usize) -> usize) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            let start = if middle == 0 { 0 } else { end(middle - 1) };
            match self.parts.data.get(start..end(middle)).unwrap_or_default().cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    pub(super) fn key_at(self, place: usize) -> EncodedText<'a> {
        EncodedText { bytes: self.parts.get(place), is_plain: self.keys_are_plain }
    }

    pub(super) fn value_at(self, place: usize) -> EncodedValue<'a> {
        EncodedValue(self.parts.get(self.count + place))
    }

    /// The names of the fields, in the order of their bytes.
    pub fn keys(self) -> impl ExactSizeIterator<Item = EncodedText<'a>> {
        let is_plain = self.keys_are_plain;
        self.parts.iter(0, self.count).map(move |bytes| EncodedText { bytes, is_plain })
    }

    /// The values of the fields, in the order of their names.
    pub fn values(self) -> impl ExactSizeIterator<Item = EncodedValue<'a>> {
        self.parts.iter(self.count, self.parts.count).map(EncodedValue)
    }

    /// The fields in the order of their keys.
    pub fn fields(self) -> impl ExactSizeIterator<Item = (EncodedText<'a>, EncodedValue<'a>)> {
        self.keys().zip(self.values())
    }
}

/// The table of a container, and what it divides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub(super) count: usize,
    width: usize,
    ends: &'a [u8],
    pub(super) data: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Reads the table of a container of `width_index`, with `per_entry` parts for each that it counts. A container
    /// whose table is not there is read as empty.
    fn new(body: &'a [u8], width_index: u8, per_entry: usize) -> Self {
        Self::parse(body, width_index, per_entry).unwrap_or(Self { count: 0, width: 1, ends: &[], data: &[] })
    }

    pub(super) fn parse(body: &'a [u8], width_index: u8, per_entry: usize) -> Option<Self> {
        let width = width(width_index);
        let (count, rest) = body.split_at_checked(width)?;
        let count = read(count, width).checked_mul(per_entry)?;
        let (ends, data) = rest.split_at_checked(count.checked_mul(width)?)?;
        Some(Self { count, width, ends, data })
    }

    pub(super) fn end(self, place: usize) -> usize {
        match self.width {
            1 => self.end_of::<1>(place),
            2 => self.end_of::<2>(place),
            _ => self.end_of::<4>(place),
        }
    }

    /// As [`Parts::end`], where the width is `WIDTH`.
    #[inline]
    fn end_of<const WIDTH: usize>(self, place: usize) -> usize {
        self.ends.get(place * WIDTH..).map_or(0, |rest| read(rest, WIDTH))
    }

    #[inline]
    pub(super) fn get(self, place: usize) -> &'a [u8] {
        let start = if place == 0 { 0 } else { self.end(place - 1) };
        self.data.get(start..self.end(place)).unwrap_or_default()
    }

    /// The parts from `first` on, up to but without `last`. They never overlap, even if the ends of bytes that nobody
    /// checked are not in order: a walk over parts within parts would take for ever.
    fn iter(self, first: usize, last: usize) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let mut start = if first == 0 { 0 } else { self.end(first - 1) };
        (first..last).map(move |place| {
            let end = self.end(place).max(start);
            let part = self.data.get(start..end).unwrap_or_default();
            start = end;
            part
        })
    }
}

/// Reads the number of `width` bytes at the start of `bytes`, which is 0 if there are fewer.
#[inline(always)]
fn read(bytes: &[u8], width: usize) -> usize {
    match width {
        1 => bytes.first().map_or(0, |byte| usize::from(*byte)),
        2 => bytes.first_chunk().map_or(0, |bytes| usize::from(u16::from_le_bytes(*bytes))),
        _ => bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize),
    }
}
