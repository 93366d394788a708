//! Requests and replies of the Redis protocol.

use super::lines::{Lines, Piece};
use super::redis_cluster::Route;
use super::resp::{bulk, header};
use super::{Errors, Replies};
use crate::workload::{RecordShape, Values};

/// Writes the requests of operations.
pub(super) struct Encoder {
    shape: RecordShape,
    /// Records that one operation reads or writes together.
    batch: usize,
    /// Where keys are, if there is a link to each node.
    route: Option<Route>,
    key: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(shape: RecordShape, batch: usize, route: Option<Route>) -> Self {
        Self { shape, batch, route, key: Vec::new() }
    }

    /// Writes one of several fields.
    fn update(&mut self, number: u64, values: &mut Values, out: &mut Vec<u8>) {
        header(out, 4);
        bulk(out, b"HSET");
        self.shape.names.write(number, &mut self.key);
        bulk(out, &self.key);
        bulk(out, format!("field{}", values.choose(self.shape.fields)).as_bytes());
        bulk(out, values.next(self.shape.field_bytes));
    }
}

impl super::Encoder for Encoder {
    fn link_of(&mut self, number: u64) -> usize {
        let Some(route) = &self.route else { return 0 };
        self.shape.names.write(number, &mut self.key);
        route.node_of(&self.key)
    }

    /// With batches, also those after the record.
    fn read(&mut self, number: u64, values: &mut Values, out: &mut Vec<u8>) {
        if self.shape.fields == 1 && self.batch == 1 {
            header(out, 2);
            bulk(out, b"GET");
            self.shape.names.write(number, &mut self.key);
            bulk(out, &self.key);
            return;
        }
        if self.shape.fields == 1 {
            header(out, 1 + self.batch);
            bulk(out, b"MGET");
            for record in 0..self.batch as u64 {
                self.shape.names.write(number + record, &mut self.key);
                bulk(out, &self.key);
            }
            return;
        }
        self.shape.names.write(number, &mut self.key);
        header(out, if self.shape.reads_all { 2 } else { 3 });
        bulk(out, if self.shape.reads_all { b"HGETALL" } else { b"HGET" });
        bulk(out, &self.key);
        if !self.shape.reads_all {
            bulk(out, format!("field{}", values.choose(self.shape.fields)).as_bytes());
        }
    }

    /// With batches, also those after the record.
    fn write(&mut self, number: u64, is_insert: bool, values: &mut Values, out: &mut Vec<u8>) {
        if !self.shape.is_written_whole(is_insert) {
            return self.update(number, values, out);
        }
        if self.shape.fields == 1 {
            header(out, 1 + 2 * self.batch);
            bulk(out, if self.batch == 1 { b"SET" } else { b"MSET" });
            for record in 0..self.batch as u64 {
                self.shape.names.write(number + record, &mut self.key);
                bulk(out, &self.key);
                bulk(out, values.next(self.shape.field_bytes));
            }
            return;
        }
        header(out, 2 + 2 * self.shape.fields);
        bulk(out, b"HSET");
        self.shape.names.write(number, &mut self.key);
        bulk(out, &self.key);
        for field in 0..self.shape.fields {
            bulk(out, format!("field{field}").as_bytes());
            bulk(out, values.next(self.shape.field_bytes));
        }
    }

    fn counter(&self) -> Box<dyn super::ReplyCounter> {
        Box::new(ReplyCounter::default())
    }
}

/// Counts whole replies in a stream of bytes, and in each the values that are not there, without looking at what it holds.
#[derive(Default)]
pub struct ReplyCounter {
    /// Elements of arrays that are still to come.
    open: usize,
    lines: Lines,
    /// Values of the reply that has begun that are not there, and of each that has ended.
    absent_so_far: u32,
    absent: Vec<u32>,
    errors: Errors,
}

impl super::ReplyCounter for ReplyCounter {
    fn take(&mut self, bytes: &[u8]) -> Replies<'_> {
        self.absent.clear();
        let mut lines = std::mem::take(&mut self.lines);
        lines.cut(bytes, |piece| {
            let line = match piece {
                Piece::Line(line) => line,
                Piece::Value => b"",
            };
            let digits = line.get(1..).and_then(|digits| std::str::from_utf8(digits).ok());
            // It is negative where there is no value.
            let length = digits.and_then(|digits| digits.parse::<usize>().ok());
            match (line.first(), length) {
                (Some(b'$'), Some(length)) => return Some(length),
                // The array's elements stand for it.
                (Some(b'*'), Some(length)) if length > 0 => self.open = self.open.max(1) - 1 + length,
                (kind, _) => {
                    match kind {
                        Some(b'-') => self.errors.add(String::from_utf8_lossy(line).into_owned()),
                        // No value, or none of a hash.
                        Some(b'$' | b'*') => self.absent_so_far += 1,
                        _ => {}
                    }
                    self.open = self.open.saturating_sub(1);
                    if self.open == 0 {
                        self.absent.push(std::mem::take(&mut self.absent_so_far));
                    }
                }
            }
            None
        });
        self.lines = lines;
        Replies { count: self.absent.len(), numbers: None, absent: &self.absent }
    }

    fn errors(&mut self) -> &mut Errors {
        &mut self.errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Encoder as _, ReplyCounter as _};
    use crate::workload::Operation;

    #[test]
    fn replies_are_counted_however_they_are_cut() {
        let stream = b"+OK\r\n$5\r\nab\r\nc\r\n$-1\r\n*2\r\n$1\r\nx\r\n:7\r\n-ERR no\r\n*0\r\n$0\r\n\r\n";
        for cut in 0..=stream.len() {
            let mut counter = ReplyCounter::default();
            let replies = counter.take(&stream[..cut]).count + counter.take(&stream[cut..]).count;
            assert_eq!((replies, counter.errors.count), (7, 1), "cut at {cut}");
        }
    }

    #[test]
    fn values_that_are_not_there_are_counted() {
        // Of GET, of MGET, of HGETALL, of SET, and of MGET again.
        let stream = b"$-1\r\n*3\r\n$1\r\nx\r\n$-1\r\n$-1\r\n*0\r\n+OK\r\n*1\r\n$0\r\n\r\n";
        for cut in 0..=stream.len() {
            let mut counter = ReplyCounter::default();
            let mut absent = counter.take(&stream[..cut]).absent.to_vec();
            absent.extend(counter.take(&stream[cut..]).absent);
            assert_eq!(absent, [1, 2, 1, 0, 0], "cut at {cut}");
        }
    }

    #[test]
    fn requests_are_those_of_redis() {
        let mut encoder = Encoder::new(RecordShape::whole(1, 3), 1, None);
        let mut out = Vec::new();
        assert_eq!(encoder.encode(Operation::ReadModifyWrite, 1, &mut Values::new(1), &mut out), (2, None));
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("*2\r\n$3\r\nGET\r\n")
                && text.contains("*3\r\n$3\r\nSET\r\n")
                && text.contains("\r\n$3\r\n")
        );
    }
}
