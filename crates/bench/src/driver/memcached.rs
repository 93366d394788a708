//! Requests and replies of memcached's text protocol.

use super::lines::{Lines, Piece};
use super::{Errors, Replies};
use crate::workload::{RecordShape, Values};

/// Writes the requests of operations. A record is one value.
pub(super) struct Encoder {
    shape: RecordShape,
    key: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(shape: RecordShape) -> Self {
        Self { shape, key: Vec::new() }
    }
}

impl super::Encoder for Encoder {
    fn read(&mut self, number: u64, _values: &mut Values, out: &mut Vec<u8>) {
        self.shape.names.write(number, &mut self.key);
        out.extend_from_slice(b"get ");
        out.extend_from_slice(&self.key);
        out.extend_from_slice(b"\r\n");
    }

    fn write(&mut self, number: u64, _is_insert: bool, values: &mut Values, out: &mut Vec<u8>) {
        self.shape.names.write(number, &mut self.key);
        let value = values.next(self.shape.field_bytes);
        out.extend_from_slice(b"set ");
        out.extend_from_slice(&self.key);
        out.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }

    fn counter(&self) -> Box<dyn super::ReplyCounter> {
        Box::new(ReplyCounter::default())
    }
}

/// Counts whole replies in a stream of bytes.
#[derive(Default)]
struct ReplyCounter {
    lines: Lines,
    /// Whether the reply that has begun has a value.
    has_value: bool,
    /// Of each reply, how many values are not there.
    absent: Vec<u32>,
    errors: Errors,
}

impl super::ReplyCounter for ReplyCounter {
    fn take(&mut self, bytes: &[u8]) -> Replies<'_> {
        self.absent.clear();
        let mut lines = std::mem::take(&mut self.lines);
        lines.cut(bytes, |piece| match piece {
            Piece::Line(line) => {
                let value = line.strip_prefix(b"VALUE ").map(value_bytes);
                if value.is_some() {
                    self.has_value = true;
                    return value;
                }
                let has_value = std::mem::take(&mut self.has_value);
                self.absent.push(u32::from(line == b"END" && !has_value));
                if !matches!(line, b"END" | b"STORED") {
                    self.errors.add(String::from_utf8_lossy(line).into_owned());
                }
                None
            }
            Piece::Value => None,
        });
        self.lines = lines;
        Replies { count: self.absent.len(), numbers: None, absent: &self.absent }
    }

    fn errors(&mut self) -> &mut Errors {
        &mut self.errors
    }
}

/// The length at the end of the line before a value.
fn value_bytes(line: &[u8]) -> usize {
    let digits = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::ReplyCounter as _;

    #[test]
    fn replies_are_counted_however_they_are_cut() {
        let stream = b"VALUE k 0 8\r\nEND\r\nab\n\r\nEND\r\nSTORED\r\nEND\r\nSERVER_ERROR out of memory\r\n";
        for cut in 0..=stream.len() {
            let mut counter = ReplyCounter::default();
            let mut absent = counter.take(&stream[..cut]).absent.to_vec();
            absent.extend(counter.take(&stream[cut..]).absent);
            assert_eq!((absent, counter.errors.count), (vec![0, 0, 1, 0], 1), "cut at {cut}");
        }
    }
}
