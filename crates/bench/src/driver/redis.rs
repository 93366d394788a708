//! Requests and replies of the Redis protocol.

use super::redis_cluster::Route;
use crate::workload::{Operation, RecordShape, Values};

/// Writes the requests of operations.
pub struct Encoder {
    shape: RecordShape,
    /// Records that one operation reads or writes together.
    batch: usize,
    /// Where keys are, if there is a link to each node.
    route: Option<Route>,
    key: Vec<u8>,
}

impl Encoder {
    pub fn new(shape: RecordShape, batch: usize, route: Option<Route>) -> Self {
        Self { shape, batch, route, key: Vec::new() }
    }

    pub(super) fn link_of(&mut self, number: u64) -> usize {
        let Some(route) = &self.route else { return 0 };
        self.shape.names.write(number, &mut self.key);
        route.node_of(&self.key)
    }

    /// Appends the requests of one operation on the record `number` and, with batches, those after it. Returns how many
    /// replies will come.
    pub fn encode(&mut self, operation: Operation, number: u64, values: &mut Values, out: &mut Vec<u8>) -> usize {
        match operation {
            Operation::Read => self.read(number, values, out),
            Operation::Insert => self.write(number, values, out),
            Operation::Update => self.update(number, values, out),
            Operation::Scan => unreachable!("refused when the run was planned"),
            Operation::ReadModifyWrite => self.read(number, values, out) + self.update(number, values, out),
        }
    }

    fn read(&mut self, number: u64, values: &mut Values, out: &mut Vec<u8>) -> usize {
        if self.shape.fields == 1 && self.batch == 1 {
            header(out, 2);
            bulk(out, b"GET");
            self.shape.names.write(number, &mut self.key);
            bulk(out, &self.key);
            return 1;
        }
        if self.shape.fields == 1 {
            header(out, 1 + self.batch);
            bulk(out, b"MGET");
            for record in 0..self.batch as u64 {
                self.shape.names.write(number + record, &mut self.key);
                bulk(out, &self.key);
            }
            return 1;
        }
        self.shape.names.write(number, &mut self.key);
        header(out, if self.shape.reads_all { 2 } else { 3 });
        bulk(out, if self.shape.reads_all { b"HGETALL" } else { b"HGET" });
        bulk(out, &self.key);
        if !self.shape.reads_all {
            bulk(out, format!("field{}", values.choose(self.shape.fields)).as_bytes());
        }
        1
    }

    fn update(&mut self, number: u64, values: &mut Values, out: &mut Vec<u8>) -> usize {
        if self.shape.fields == 1 || self.shape.writes_all {
            return self.write(number, values, out);
        }
        header(out, 4);
        bulk(out, b"HSET");
        self.shape.names.write(number, &mut self.key);
        bulk(out, &self.key);
        bulk(out, format!("field{}", values.choose(self.shape.fields)).as_bytes());
        bulk(out, values.next(self.shape.field_bytes));
        1
    }

    fn write(&mut self, number: u64, values: &mut Values, out: &mut Vec<u8>) -> usize {
        if self.shape.fields == 1 {
            header(out, 1 + 2 * self.batch);
            bulk(out, if self.batch == 1 { b"SET" } else { b"MSET" });
            for record in 0..self.batch as u64 {
                self.shape.names.write(number + record, &mut self.key);
                bulk(out, &self.key);
                bulk(out, values.next(self.shape.field_bytes));
            }
            return 1;
        }
        header(out, 2 + 2 * self.shape.fields);
        bulk(out, b"HSET");
        self.shape.names.write(number, &mut self.key);
        bulk(out, &self.key);
        for field in 0..self.shape.fields {
            bulk(out, format!("field{field}").as_bytes());
            bulk(out, values.next(self.shape.field_bytes));
        }
        1
    }
}

/// Appends a request of these words.
pub fn request(words: &[String], out: &mut Vec<u8>) {
    header(out, words.len());
    words.iter().for_each(|word| bulk(out, word.as_bytes()));
}

fn header(out: &mut Vec<u8>, arguments: usize) {
    number_line(out, b'*', arguments);
}

fn number_line(out: &mut Vec<u8>, kind: u8, number: usize) {
    use std::io::Write;
    out.push(kind);
    write!(out, "{number}\r\n").expect("a vector takes all bytes");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    number_line(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Counts whole replies in a stream of bytes, without looking at what they hold.
#[derive(Default)]
pub struct ReplyCounter {
    /// Elements of arrays that are still to come.
    open: usize,
    /// Bytes of a bulk string, with its line end, that are still to come.
    skip: usize,
    /// The start of a line that has not ended yet.
    partial: Vec<u8>,
    pub errors: u64,
    pub last_error: Option<String>,
}

impl ReplyCounter {
    /// Takes bytes and returns how many replies ended in them.
    pub fn count(&mut self, mut bytes: &[u8]) -> usize {
        let mut replies = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let taken = self.skip.min(bytes.len());
                self.skip -= taken;
                bytes = &bytes[taken..];
                if self.skip == 0 {
                    replies += self.end_element();
                }
                continue;
            }
            let Some(newline) = memchr::memchr(b'\n', bytes) else {
                self.partial.extend_from_slice(bytes);
                break;
            };
            let (line, rest) = bytes.split_at(newline + 1);
            bytes = rest;
            if self.partial.is_empty() {
                replies += self.line(line);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                replies += self.line(&whole);
            }
        }
        replies
    }

    fn line(&mut self, line: &[u8]) -> usize {
        let text = line.strip_suffix(b"\r\n").unwrap_or(line);
        let number =
            || text.get(1..).and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<i64>().ok()).unwrap_or(-1);
        match text.first() {
            Some(b'$') => match usize::try_from(number()) {
                Ok(length) => self.skip = length + 2,
                Err(_) => return self.end_element(),
            },
            Some(b'*') => match usize::try_from(number()) {
                // The array's elements stand for it.
                Ok(length) if length > 0 => {
                    self.open = self.open.max(1) - 1 + length;
                    if self.open == 0 {
                        return 1;
                    }
                }
                _ => return self.end_element(),
            },
            Some(b'-') => {
                self.errors += 1;
                self.last_error = Some(String::from_utf8_lossy(text).into_owned());
                return self.end_element();
            }
            _ => return self.end_element(),
        }
        0
    }

    fn end_element(&mut self) -> usize {
        self.open = self.open.saturating_sub(1);
        usize::from(self.open == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_however_they_are_cut() {
        let stream = b"+OK\r\n$5\r\nab\r\nc\r\n$-1\r\n*2\r\n$1\r\nx\r\n:7\r\n-ERR no\r\n*0\r\n$0\r\n\r\n";
        for cut in 0..=stream.len() {
            let mut counter = ReplyCounter::default();
            let replies = counter.count(&stream[..cut]) + counter.count(&stream[cut..]);
            assert_eq!((replies, counter.errors), (7, 1), "cut at {cut}");
        }
    }

    #[test]
    fn requests_are_those_of_redis() {
        let mut encoder = Encoder::new(RecordShape::whole(1, 3), 1, None);
        let mut out = Vec::new();
        assert_eq!(encoder.encode(Operation::ReadModifyWrite, 1, &mut Values::new(1), &mut out), 2);
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("*2\r\n$3\r\nGET\r\n")
                && text.contains("*3\r\n$3\r\nSET\r\n")
                && text.contains("\r\n$3\r\n")
        );
    }
}
