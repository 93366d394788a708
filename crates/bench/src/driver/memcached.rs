//! Requests and replies of memcached's text protocol.

use super::lines::{Lines, Piece};
use crate::workload::{Operation, RecordShape, Values};

/// Writes the requests of operations. A record is one value.
pub struct Encoder {
    shape: RecordShape,
    key: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(shape: RecordShape) -> Self {
        Self { shape, key: Vec::new() }
    }

    /// Appends the requests of one operation. Returns how many replies will come.
    pub(super) fn encode(
        &mut self,
        operation: Operation,
        number: u64,
        values: &mut Values,
        out: &mut Vec<u8>,
    ) -> usize {
        self.shape.names.write(number, &mut self.key);
        let reads = matches!(operation, Operation::Read | Operation::ReadModifyWrite);
        if reads {
            out.extend_from_slice(b"get ");
            out.extend_from_slice(&self.key);
            out.extend_from_slice(b"\r\n");
        }
        let writes = operation != Operation::Read;
        if writes {
            let value = values.next(self.shape.field_bytes);
            out.extend_from_slice(b"set ");
            out.extend_from_slice(&self.key);
            out.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        usize::from(reads) + usize::from(writes)
    }
}

/// Counts whole replies in a stream of bytes.
#[derive(Default)]
pub struct ReplyCounter {
    lines: Lines,
    pub(super) errors: u64,
    pub(super) last_error: Option<String>,
}

impl ReplyCounter {
    /// Takes bytes and returns how many replies ended in them.
    pub(super) fn count(&mut self, bytes: &[u8]) -> usize {
        let mut replies = 0;
        let mut lines = std::mem::take(&mut self.lines);
        lines.cut(bytes, |piece| match piece {
            Piece::Line(line) => {
                let value = line.strip_prefix(b"VALUE ").map(value_bytes);
                replies += usize::from(value.is_none());
                if value.is_none() && !matches!(line, b"END" | b"STORED") {
                    self.errors += 1;
                    self.last_error = Some(String::from_utf8_lossy(line).into_owned());
                }
                value
            }
            Piece::Value => None,
        });
        self.lines = lines;
        replies
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

    #[test]
    fn replies_are_counted_however_they_are_cut() {
        let stream = b"VALUE k 0 8\r\nEND\r\nab\n\r\nEND\r\nSTORED\r\nEND\r\nSERVER_ERROR out of memory\r\n";
        for cut in 0..=stream.len() {
            let mut counter = ReplyCounter::default();
            let replies = counter.count(&stream[..cut]) + counter.count(&stream[cut..]);
            assert_eq!((replies, counter.errors), (4, 1), "cut at {cut}");
        }
    }
}
