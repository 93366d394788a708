//! Requests and replies of RethinkDB's driver protocol: queries in JSON, of which many are under way on a connection. A
//! record is a document with its key as `id`; its fields are `field0` and so on, or `value` if it has one.

use super::frames::Frames;
use super::{Errors, Replies};
use crate::workload::{RecordShape, Values};
use std::net::SocketAddr;

/// Version 0.4 of the protocol, without a password, in JSON. What answers it ends with a NUL.
const OPENING: [u8; 12] = *b"\x20\x2d\x0c\x40\0\0\0\0\xc7\x70\x69\x7e";
const OPENED: &[u8] = b"SUCCESS\0";
/// Numbers of terms, as the protocol has them.
const MAKE_ARRAY: u32 = 2;
const VAR: u32 = 10;
const DB: u32 = 14;
const TABLE: u32 = 15;
const GET: u32 = 16;
const MAP: u32 = 38;
const COUNT: u32 = 43;
const UPDATE: u32 = 53;
const INSERT: u32 = 56;
const FUNC: u32 = 69;
const SUM: u32 = 145;
const SPLIT: u32 = 149;
const BRACKET: u32 = 170;

/// Where a table is, and who may answer reads of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub(super) nodes: Vec<SocketAddr>,
    database: String,
    table: String,
    read_mode: Option<String>,
}

impl Route {
    /// A table is named as `TABLE` or `DATABASE.TABLE`. Without a read mode, reads are as the server does them.
    pub(super) fn new(nodes: Vec<SocketAddr>, table: &str, read_mode: Option<&str>) -> Self {
        let (database, table) = table.split_once('.').unwrap_or(("test", table));
        Self { nodes, database: database.into(), table: table.into(), read_mode: read_mode.map(str::to_string) }
    }
}

/// Writes the requests of operations.
pub(super) struct Encoder {
    shape: RecordShape,
    /// The term of the table.
    table: String,
    /// The same, as reads name it.
    read_table: String,
    key: Vec<u8>,
    /// The number of the next request.
    next: i32,
}

impl Encoder {
    pub(super) fn new(route: &Route, shape: RecordShape) -> Self {
        let (database, table) = (json(route.database.as_bytes()), json(route.table.as_bytes()));
        let arguments = format!("[[{DB},[{database}]],{table}]");
        let table = format!("[{TABLE},{arguments}]");
        let read_table = match &route.read_mode {
            Some(mode) => format!("[{TABLE},{arguments},{{\"read_mode\":{}}}]", json(mode.as_bytes())),
            None => table.clone(),
        };
        Self { shape, table, read_table, key: Vec::new(), next: 0 }
    }

    fn document_of(&self, table: &str) -> String {
        format!("[{GET},[{table},{}]]", json(&self.key))
    }

    fn update(&self, values: &mut Values) -> String {
        let field = values.choose(self.shape.fields);
        let value = json(values.next(self.shape.field_bytes));
        format!("[{UPDATE},[{},{{\"field{field}\":{value}}}]]", self.document_of(&self.table))
    }

    fn insert(&self, values: &mut Values) -> String {
        let mut document = format!("{{\"id\":{}", json(&self.key));
        for field in 0..self.shape.fields {
            let name = if self.shape.fields == 1 { "value".into() } else { format!("field{field}") };
            document += &format!(",\"{name}\":{}", json(values.next(self.shape.field_bytes)));
        }
        format!("[{INSERT},[{},{document}}}],{{\"conflict\":\"replace\"}}]", self.table)
    }

    /// How many sentences the first field of all documents has, as the published query counts them:
    /// `table.map(r.row("field0").split(".").count()).sum()`.
    fn sentences(&self) -> String {
        let field = if self.shape.fields == 1 { "value" } else { "field0" };
        let count = format!("[{COUNT},[[{SPLIT},[[{BRACKET},[[{VAR},[1]],\"{field}\"]],\".\"]]]]");
        format!("[{SUM},[[{MAP},[{},[{FUNC},[[{MAKE_ARRAY},[1]],{count}]]]]]]", self.read_table)
    }

    fn query(&mut self, term: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(&i64::from(self.next).to_le_bytes());
        let length = u32::try_from(term.len() + 4).expect("requests are far below 4 GiB");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(b"[1,");
        out.extend_from_slice(term.as_bytes());
        out.push(b']');
        self.next = self.next.wrapping_add(1);
    }
}

impl super::Encoder for Encoder {
    fn opening(&self) -> Vec<u8> {
        OPENING.to_vec()
    }

    fn next(&self) -> Option<i32> {
        Some(self.next)
    }

    fn read(&mut self, number: u64, values: &mut Values, out: &mut Vec<u8>) {
        self.shape.names.write(number, &mut self.key);
        let mut term = self.document_of(&self.read_table);
        if !self.shape.reads_all && self.shape.fields > 1 {
            term = format!("[{BRACKET},[{term},\"field{}\"]]", values.choose(self.shape.fields));
        }
        self.query(&term, out);
    }

    fn write(&mut self, number: u64, is_insert: bool, values: &mut Values, out: &mut Vec<u8>) {
        self.shape.names.write(number, &mut self.key);
        let term = if self.shape.is_written_whole(is_insert) { self.insert(values) } else { self.update(values) };
        self.query(&term, out);
    }

    fn map_reduce(&mut self, out: &mut Vec<u8>) {
        self.query(&self.sentences(), out);
    }

    fn counter(&self) -> Box<dyn super::ReplyCounter> {
        Box::new(ReplyCounter::default())
    }
}

/// A JSON string that is as long as the text: the few characters that would have to be escaped become others.
fn json(text: &[u8]) -> String {
    let plain = |byte: &u8| if matches!(byte, b'"' | b'\\') { '~' } else { char::from(*byte) };
    ['"'].into_iter().chain(text.iter().map(plain)).chain(['"']).collect()
}

/// How the answer to a read begins that has found no document.
const NO_DOCUMENT: &str = "{\"t\":1,\"r\":[null]";

/// Takes replies apart as far as they say which request they answer, and whether they have found something.
#[derive(Default)]
struct ReplyCounter {
    /// Bytes of the answer to the opening that have come.
    opened: usize,
    frames: Frames,
    finished: Vec<i32>,
    /// Of each that is finished, how many documents are not there.
    absent: Vec<u32>,
    errors: Errors,
}

impl super::ReplyCounter for ReplyCounter {
    fn take(&mut self, bytes: &[u8]) -> Replies<'_> {
        self.finished.clear();
        self.absent.clear();
        let (opened, replies) = bytes.split_at(bytes.len().min(OPENED.len() - self.opened));
        if opened != &OPENED[self.opened..self.opened + opened.len()] {
            self.errors.add(String::from_utf8_lossy(bytes).trim_end_matches('\0').trim_end().into());
            return Replies::to(&self.finished, &self.absent);
        }
        self.opened += opened.len();
        let length = |head: &[u8; 12]| head.len() + u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        self.frames.cut(replies, length, |reply| {
            let (number, answer) = reply.split_at(8);
            // It is the one that was sent.
            self.finished.push(i64::from_le_bytes(number.try_into().expect("eight bytes")) as i32);
            let answer = String::from_utf8_lossy(&answer[4..]);
            self.absent.push(u32::from(answer.starts_with(NO_DOCUMENT)));
            let has_failed = answer.contains("\"errors\":") && !answer.contains("\"errors\":0");
            if !answer.starts_with("{\"t\":1,") || has_failed {
                self.errors.add(answer.into_owned());
            }
        });
        Replies::to(&self.finished, &self.absent)
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

    fn reply(number: i64, answer: &str) -> Vec<u8> {
        [&number.to_le_bytes()[..], &u32::try_from(answer.len()).unwrap().to_le_bytes(), answer.as_bytes()].concat()
    }

    #[test]
    fn replies_are_told_apart_however_they_are_cut() {
        let stream = [
            OPENED.to_vec(),
            reply(1, "{\"t\":1,\"r\":[{\"id\":\"user1\",\"value\":\"x\"}]}"),
            reply(0, "{\"t\":18,\"e\":4100000,\"r\":[\"Table `test.t` does not exist.\"],\"b\":[]}"),
            reply(2, "{\"t\":1,\"r\":[{\"deleted\":0,\"errors\":0,\"inserted\":1}]}"),
            reply(3, "{\"t\":1,\"r\":[{\"deleted\":0,\"errors\":1,\"first_error\":\"no\"}]}"),
            reply(4, "{\"t\":1,\"r\":[null],\"n\":[]}"),
        ]
        .concat();
        for cut in 0..=stream.len() {
            let mut counter = ReplyCounter::default();
            let first = counter.take(&stream[..cut]);
            let (mut numbers, mut absent) = (first.numbers.unwrap().to_vec(), first.absent.to_vec());
            let second = counter.take(&stream[cut..]);
            numbers.extend(second.numbers.unwrap());
            absent.extend(second.absent);
            assert_eq!((numbers, counter.errors.count), (vec![1, 0, 2, 3, 4], 2), "cut at {cut}");
            assert_eq!(absent, [0, 0, 0, 0, 1], "cut at {cut}");
        }
        let mut counter = ReplyCounter::default();
        assert_eq!(counter.take(b"ERROR: Incorrect authorization key.\n\0").count, 0);
        assert_eq!(counter.errors.last.as_deref(), Some("ERROR: Incorrect authorization key."));
    }

    #[test]
    fn queries_are_those_of_rethinkdb() {
        let route = Route::new(vec!["127.0.0.1:1".parse().unwrap()], "bench.people", Some("outdated"));
        let shape = RecordShape { reads_all: false, writes_all: false, ..RecordShape::whole(2, 3) };
        let mut encoder = Encoder::new(&route, shape);
        let mut out = Vec::new();
        let values = &mut Values::new(1);
        assert_eq!(encoder.encode(Operation::ReadModifyWrite, 1, values, &mut out), (2, Some(0)));
        assert_eq!(encoder.encode(Operation::Insert, 1, values, &mut out), (1, Some(2)));
        let mut queries = Vec::new();
        let mut rest = &out[..];
        while let Some((head, after)) = rest.split_at_checked(12) {
            assert_eq!(head[..8], (queries.len() as i64).to_le_bytes());
            let (query, after) = after.split_at(u32::from_le_bytes(head[8..].try_into().unwrap()) as usize);
            queries.push(serde_json::from_slice::<serde_json::Value>(query).unwrap());
            rest = after;
        }
        let table = serde_json::json!([15, [[14, ["bench"]], "people"]]);
        let read_table = serde_json::json!([15, [[14, ["bench"]], "people"], {"read_mode": "outdated"}]);
        assert_eq!(queries[0][1][1][0][1][0], read_table);
        assert_eq!((&queries[1][1][1][0][1][0], &queries[2][1][1][0]), (&table, &table));
        assert_eq!((&queries[1][1][0], &queries[2][1][0]), (&53.into(), &56.into()));
        let mut query = Vec::new();
        assert_eq!(encoder.encode(Operation::MapReduce, 1, values, &mut query), (1, Some(3)));
        let query: serde_json::Value = serde_json::from_slice(&query[12..]).unwrap();
        let field = serde_json::json!([170, [[10, [1]], "field0"]]);
        let count = serde_json::json!([43, [[149, [field, "."]]]]);
        assert_eq!(query, serde_json::json!([1, [145, [[38, [read_table, [69, [[2, [1]], count]]]]]]]));
        let document = queries[2][1][1][1].as_object().unwrap();
        assert_eq!(document.keys().collect::<Vec<_>>(), ["field0", "field1", "id"]);
        assert_eq!(document["field1"].as_str().unwrap().len(), 3);
    }
}
