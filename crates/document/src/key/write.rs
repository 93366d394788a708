//! Values become keys.

use super::{ARRAY, BINARY, END, ESCAPE, FALSE, KeyError, MAX_VAL, MIN_VAL, NUMBER, STRING, TIME, TRUE};
use crate::number::Number;
use crate::reconstructable::reconstructable;
use crate::{EncodedValue, MAX_DEPTH, ValueError, View};

/// What the key is for, which decides about NUL bytes, extrema and errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Primary,
    /// An entry of an index.
    Entry,
    /// Looking for entries of an index, between bounds that may be extrema.
    Search,
}

/// RethinkDB stops looking at a key's further elements once its own form has so many bytes.
const REQL_KEY_BYTES: usize = 250;

pub(super) struct Writer<'o> {
    out: &'o mut Vec<u8>,
    purpose: Purpose,
    /// Writing stops once `out` has so many bytes.
    limit: usize,
    /// How many bytes RethinkDB's own form of the key has, as far as it was written.
    pub(super) reql_bytes: usize,
}

impl<'o> Writer<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, purpose: Purpose, limit: usize) -> Self {
        Self { out, purpose, limit, reql_bytes: 0 }
    }

    pub(super) fn key(&mut self, value: EncodedValue<'_>) -> Result<(), KeyError> {
        match value.view() {
            View::Null | View::Object(_) => Err(match self.purpose {
                Purpose::Primary => KeyError::not_primary(value),
                Purpose::Entry | Purpose::Search => KeyError::not_secondary(value),
            }),
            _ => self.part(value, 0),
        }
    }

    /// `depth` bounds the recursion over bytes that nobody checked.
    fn part(&mut self, value: EncodedValue<'_>, depth: usize) -> Result<(), KeyError> {
        match value.view() {
            View::Number(number) => self.number(NUMBER, number),
            View::String(text) => self.text(text.as_bytes())?,
            View::Binary(bytes) => {
                let escapes = bytes.iter().filter(|byte| **byte <= ESCAPE).count();
                self.reql_bytes += "PBINARY:".len() + bytes.len() + escapes;
                self.out.push(BINARY);
                self.escaped(bytes);
            }
            View::Bool(bool) => {
                self.reql_bytes += "Bt".len();
                self.out.push(if bool { TRUE } else { FALSE });
            }
            View::Time(time) => {
                self.reql_bytes += "PTIME:".len();
                self.number(TIME, time.number());
            }
            View::Array(array) => {
                if depth == MAX_DEPTH {
                    return Err(ValueError::TooDeep { limit: MAX_DEPTH }.into());
                }
                self.reql_bytes += "A".len();
                self.out.push(ARRAY);
                for element in array.iter() {
                    if self.is_full() {
                        return Ok(());
                    }
                    self.part(element, depth + 1)?;
                    self.reql_bytes += 1;
                }
                self.out.push(END);
            }
            View::MinVal | View::MaxVal if self.purpose == Purpose::Entry => return Err(KeyError::Extremum),
            View::MinVal | View::MaxVal => {
                self.reql_bytes += 1;
                self.out.push(if matches!(value.view(), View::MinVal) { MIN_VAL } else { MAX_VAL });
            }
            View::Geometry(_) => return Err(KeyError::Geometry),
            View::Null | View::Object(_) => return Err(KeyError::not_in_array(value)),
        }
        Ok(())
    }

    /// Whether what follows does not matter: it is cut, or the key is refused anyway.
    fn is_full(&self) -> bool {
        match self.purpose {
            Purpose::Primary => self.reql_bytes >= REQL_KEY_BYTES,
            Purpose::Entry | Purpose::Search => self.out.len() >= self.limit,
        }
    }

    fn number(&mut self, tag: u8, number: Number) {
        if self.purpose == Purpose::Primary {
            self.reql_bytes += "N0123456789abcdef#".len() + printed_length(number);
        }
        self.out.push(tag);
        self.out.extend_from_slice(&ordered_bits(number.get()).to_be_bytes());
    }

    fn text(&mut self, text: &[u8]) -> Result<(), KeyError> {
        if self.purpose == Purpose::Primary
            && let Some(offset) = memchr::memchr(0, text)
        {
            return Err(KeyError::null_byte(text, offset));
        }
        self.reql_bytes += "S".len() + text.len();
        self.out.push(STRING);
        self.escaped(text);
        Ok(())
    }

    /// Writes as much as there is room for, and the end if all of it is written.
    fn escaped(&mut self, bytes: &[u8]) {
        let room = self.limit.saturating_sub(self.out.len());
        let shown = &bytes[..bytes.len().min(room)];
        let mut rest = shown;
        while let Some(at) = memchr::memchr2(0, ESCAPE, rest) {
            self.out.extend_from_slice(&rest[..at]);
            self.out.extend_from_slice(&[ESCAPE, rest[at] + 1]);
            rest = &rest[at + 1..];
        }
        self.out.extend_from_slice(rest);
        if shown.len() == bytes.len() {
            self.out.push(END);
        }
    }
}

/// Bits whose order as an integer is the order of numbers.
fn ordered_bits(number: f64) -> u64 {
    // Adding zero makes -0 into 0, which it equals.
    let bits = (number + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// The inverse of [`ordered_bits`].
pub(super) fn number_of(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

/// How many characters RethinkDB prints in a key for the number.
fn printed_length(number: Number) -> usize {
    match number.as_integer() {
        Some(integer) => itoa::Buffer::new().format(integer).len(),
        None => reconstructable(number.get()).len(),
    }
}
