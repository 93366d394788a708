//! Requests and replies of memcached's text protocol.

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
    /// Bytes of a value, with its line end, that are still to come.
    skip: usize,
    /// The start of a line that has not ended yet.
    partial: Vec<u8>,
    pub(super) errors: u64,
    pub(super) last_error: Option<String>,
}

impl ReplyCounter {
    /// Takes bytes and returns how many replies ended in them.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> usize {
        let mut replies = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let taken = self.skip.min(bytes.len());
                self.skip -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            let Some(newline) = memchr::memchr(b'\n', bytes) else {
                self.partial.extend_from_slice(bytes);
                break;
            };
            let (line, rest) = bytes.split_at(newline + 1);
            bytes = rest;
            self.partial.extend_from_slice(line);
            let line = std::mem::take(&mut self.partial);
            replies += usize::from(self.ends_reply(line.trim_ascii_end()));
            self.partial = line;
            self.partial.clear();
        }
        replies
    }

    fn ends_reply(&mut self, line: &[u8]) -> bool {
        if let Some(value) = line.strip_prefix(b"VALUE ") {
            let length = value.rsplit(|byte| *byte == b' ').next().and_then(|digits| std::str::from_utf8(digits).ok());
            self.skip = length.and_then(|digits| digits.parse::<usize>().ok()).unwrap_or(0) + 2;
            return false;
        }
        if !matches!(line, b"END" | b"STORED") {
            self.errors += 1;
            self.last_error = Some(String::from_utf8_lossy(line).into_owned());
        }
        true
    }
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
