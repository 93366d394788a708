//! Requests and replies byte by byte, written apart from the server's code.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Thrift's types.
const BOOL: u8 = 2;
const I32: u8 = 8;
const I64: u8 = 10;
const STRING: u8 = 11;
const STRUCT: u8 = 12;
const MAP: u8 = 13;
const SET: u8 = 14;
const LIST: u8 = 15;

/// The fields of a struct.
#[derive(Clone, Default)]
pub struct Fields(Vec<u8>);

impl Fields {
    fn field(mut self, field_type: u8, id: i16, content: &[u8]) -> Self {
        self.0.push(field_type);
        self.0.extend(id.to_be_bytes());
        self.0.extend(content);
        self
    }

    pub fn bool(self, id: i16, value: bool) -> Self {
        self.field(BOOL, id, &[u8::from(value)])
    }

    pub fn i32(self, id: i16, value: i32) -> Self {
        self.field(I32, id, &value.to_be_bytes())
    }

    pub fn i64(self, id: i16, value: i64) -> Self {
        self.field(I64, id, &value.to_be_bytes())
    }

    pub fn string(self, id: i16, value: &str) -> Self {
        self.field(STRING, id, &bytes(value.as_bytes()))
    }

    /// A type that is said to be a struct and is none.
    pub fn blob(self, id: i16, value: &[u8]) -> Self {
        self.field(STRUCT, id, &bytes(value))
    }

    /// A partition, which is said to be a struct too.
    pub fn partition(self, id: i16, table: u32, partition: u32) -> Self {
        self.field(STRUCT, id, &(u64::from(partition) << 32 | u64::from(table)).to_be_bytes())
    }

    pub fn inner(self, id: i16, fields: &Self) -> Self {
        self.field(STRUCT, id, &fields.clone().end())
    }

    pub fn list(self, id: i16, items: &[Self]) -> Self {
        let mut content = vec![STRUCT];
        content.extend(u32::try_from(items.len()).unwrap().to_be_bytes());
        items.iter().for_each(|item| content.extend(item.clone().end()));
        self.field(LIST, id, &content)
    }

    pub fn blobs(self, id: i16, items: &[&[u8]]) -> Self {
        let mut content = vec![STRUCT];
        content.extend(u32::try_from(items.len()).unwrap().to_be_bytes());
        items.iter().for_each(|item| content.extend(bytes(item)));
        self.field(LIST, id, &content)
    }

    pub fn strings(self, id: i16, items: &[&str]) -> Self {
        let mut content = vec![STRING];
        content.extend(u32::try_from(items.len()).unwrap().to_be_bytes());
        items.iter().for_each(|item| content.extend(bytes(item.as_bytes())));
        self.field(LIST, id, &content)
    }

    pub fn map(self, id: i16, items: &[(&str, &str)]) -> Self {
        let mut content = vec![STRING, STRING];
        content.extend(u32::try_from(items.len()).unwrap().to_be_bytes());
        items.iter().for_each(|(key, value)| content.extend([bytes(key.as_bytes()), bytes(value.as_bytes())].concat()));
        self.field(MAP, id, &content)
    }

    /// Tables by number, each with a set of partitions.
    pub fn partitions(self, id: i16, tables: &[(u32, &[u32])]) -> Self {
        let length = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
        let mut content = [&[I32, SET][..], &length(tables.len())].concat();
        for (table, partitions) in tables {
            content.extend([&table.to_be_bytes()[..], &[STRUCT], &length(partitions.len())].concat());
            let gpid = |partition: &u32| (u64::from(*partition) << 32 | u64::from(*table)).to_be_bytes();
            content.extend(partitions.iter().flat_map(gpid));
        }
        self.field(MAP, id, &content)
    }

    /// As they are on the wire, without what ends a struct.
    pub fn bytes(self) -> Vec<u8> {
        self.0
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push(0);
        self.0
    }
}

fn bytes(content: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(content.len()).unwrap().to_be_bytes().to_vec();
    out.extend(content);
    out
}

/// A key as Pegasus stores it.
pub fn key(hash_key: &str, sort_key: &str) -> Vec<u8> {
    let mut key = u16::try_from(hash_key.len()).unwrap().to_be_bytes().to_vec();
    key.extend(hash_key.as_bytes());
    key.extend(sort_key.as_bytes());
    key
}

/// A message whose one argument is a struct.
pub fn message(name: &str, sequence: i32, argument: &Fields) -> Vec<u8> {
    with_arguments(name, sequence, &Fields::default().inner(1, argument))
}

/// A message whose one argument is a blob.
pub fn message_of_blob(name: &str, sequence: i32, argument: &[u8]) -> Vec<u8> {
    with_arguments(name, sequence, &Fields::default().blob(1, argument))
}

fn with_arguments(name: &str, sequence: i32, arguments: &Fields) -> Vec<u8> {
    let mut out = vec![0x80, 1, 0, 1];
    out.extend(bytes(name.as_bytes()));
    out.extend(sequence.to_be_bytes());
    out.extend(arguments.clone().end());
    out
}

/// A request with the older header.
pub fn v0(table: i32, partition: i32, message: &[u8]) -> Vec<u8> {
    let mut out = b"THFT".to_vec();
    let length = u32::try_from(message.len()).unwrap();
    for number in [0, 48, 0, length, 0, table.cast_unsigned(), partition.cast_unsigned(), 5_000, 0, 0, 0] {
        out.extend(u32::to_be_bytes(number));
    }
    out.extend(message);
    out
}

/// A request with the newer header.
pub fn v1(table: i32, partition: i32, message: &[u8]) -> Vec<u8> {
    let meta = Fields::default().i32(1, table).i32(2, partition).i32(3, 5_000).i64(4, 0).bool(5, false).end();
    let mut out = b"THFT".to_vec();
    for length in [1, meta.len(), message.len()] {
        out.extend(u32::try_from(length).unwrap().to_be_bytes());
    }
    out.extend(meta);
    out.extend(message);
    out
}

pub struct Connection(TcpStream);

impl Connection {
    pub fn to(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(stream)
    }

    pub fn send(&mut self, request: &[u8]) {
        self.0.write_all(request).unwrap();
    }

    /// A reply without its length; `None` if the server has closed the connection.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).ok()?;
        let mut reply = vec![0; u32::from_be_bytes(length) as usize - 4];
        self.0.read_exact(&mut reply).ok()?;
        Some(reply)
    }

    pub fn call(&mut self, request: &[u8]) -> Reply {
        self.send(request);
        Reply::of(&self.receive().expect("the server answers"))
    }
}

/// A reply taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub error: String,
    pub name: String,
    pub sequence: i32,
    /// The fields of the response's struct, up to its last byte, or the text that the response is.
    pub fields: Vec<u8>,
}

impl Reply {
    fn of(reply: &[u8]) -> Self {
        let mut rest = reply;
        let error = take_string(&mut rest);
        assert_eq!(take(&mut rest, 4), [0x80, 1, 0, 2], "a strict message of type reply");
        let name = take_string(&mut rest);
        let sequence = i32::from_be_bytes(take(&mut rest, 4).try_into().unwrap());
        let fields = match rest.split_first_chunk::<3>() {
            Some(([STRUCT, 0, 0], response)) => response.to_vec(),
            Some(([STRING, 0, 0], text)) => text[4..text.len() - 1].to_vec(),
            _ => Vec::new(),
        };
        Self { error, name, sequence, fields }
    }

    /// The response's first field, which is its error.
    pub fn code(&self) -> i32 {
        assert_eq!((self.error.as_str(), &self.fields[..3]), ("ERR_OK", &[I32, 0, 1][..]), "{self:?}");
        i32::from_be_bytes(self.fields[3..7].try_into().unwrap())
    }

    /// Whether these fields are among the response's bytes.
    pub fn has(&self, fields: &Fields) -> bool {
        self.fields.windows(fields.0.len()).any(|window| window == fields.0)
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, after) = rest.split_at(length);
    *rest = after;
    taken
}

fn take_string(rest: &mut &[u8]) -> String {
    let length = u32::from_be_bytes(take(rest, 4).try_into().unwrap());
    String::from_utf8(take(rest, length as usize).to_vec()).unwrap()
}
