//! Requests and replies of Apache Pegasus' protocol, as a client that knows where partitions are sends them: each request
//! goes straight to the node that leads. A record is one value under the empty sort key, or, with several fields, as many
//! sort keys that are read and written together (MULTI_GET, MULTI_PUT).

use super::frames::Frames;
use super::{Errors, Replies};
use crate::workload::{RecordShape, Values};
use anyhow::{Context, bail, ensure};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;
use tessera_types::hash_of;

/// Types of Thrift's binary protocol.
const BOOL: u8 = 2;
const I32: u8 = 8;
const STRING: u8 = 11;
const STRUCT: u8 = 12;
const LIST: u8 = 15;

const PATIENCE: Duration = Duration::from_secs(5);

/// Where a table's partitions are.
#[derive(Clone, Debug)]
pub struct Route {
    table: i32,
    pub(super) nodes: Vec<SocketAddr>,
    /// The node of each partition.
    leads: Vec<usize>,
}

impl Route {
    pub(super) fn ask(meta: SocketAddr, table: &str) -> anyhow::Result<Self> {
        let mut stream =
            TcpStream::connect_timeout(&meta, PATIENCE).with_context(|| format!("connecting to {meta}"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut request = Vec::new();
        message(&mut request, -1, -1, "RPC_CM_QUERY_PARTITION_CONFIG_BY_INDEX", 1, |out| {
            field(out, STRUCT, 1);
            field(out, STRING, 1);
            bytes(out, table.as_bytes());
            out.push(0);
        });
        stream.write_all(&request)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut reply = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(4)];
        stream.read_exact(&mut reply)?;
        Self::parse(&reply).with_context(|| format!("asking {meta} where table '{table}' is"))
    }

    fn parse(reply: &[u8]) -> anyhow::Result<Self> {
        let mut reader = Reader(reply);
        let error = reader.text()?;
        ensure!(error == "ERR_OK", "{error}");
        reader.take(4)?; // version and type of the message
        reader.text()?;
        reader.take(4 + 3)?; // its number, and the field of the response
        let mut route = Self { table: 0, nodes: Vec::new(), leads: Vec::new() };
        while let Some(id) = reader.field()? {
            match id {
                1 => {
                    let error = reader.text()?;
                    ensure!(error == "ERR_OK", "{error}");
                }
                2 => route.table = reader.i32()?,
                3 => _ = reader.i32()?,
                4 => _ = reader.take(1)?,
                5 => {
                    reader.take(1)?;
                    for _ in 0..reader.i32()? {
                        let address = reader.partition()?;
                        let known = route.nodes.iter().position(|node| *node == address);
                        let place = known.unwrap_or(route.nodes.len());
                        if known.is_none() {
                            route.nodes.push(address);
                        }
                        route.leads.push(place);
                    }
                }
                _ => bail!("an answer with a field {id}"),
            }
        }
        ensure!(!route.leads.is_empty(), "the table has no partitions");
        Ok(route)
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> anyhow::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).context("the answer is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn i32(&mut self) -> anyhow::Result<i32> {
        Ok(i32::from_be_bytes(self.take(4)?.try_into()?))
    }

    fn text(&mut self) -> anyhow::Result<String> {
        let length = usize::try_from(self.i32()?)?;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    /// The next field's number; `None` at the end of a struct.
    fn field(&mut self) -> anyhow::Result<Option<i16>> {
        if self.take(1)? == [0] {
            return Ok(None);
        }
        Ok(Some(i16::from_be_bytes(self.take(2)?.try_into()?)))
    }

    /// A partition's configuration, of which only its primary matters here.
    fn partition(&mut self) -> anyhow::Result<SocketAddr> {
        let mut primary = 0;
        while let Some(id) = self.field()? {
            match id {
                1 | 2 | 7 => _ = self.take(8)?,
                3 | 8 => _ = self.take(4)?,
                4 => primary = u64::from_be_bytes(self.take(8)?.try_into()?),
                5 | 6 => {
                    self.take(1)?;
                    let addresses = usize::try_from(self.i32()?)?;
                    self.take(8 * addresses)?;
                }
                _ => bail!("a partition with a field {id}"),
            }
        }
        ensure!(primary != 0, "a partition has no primary");
        // An IPv4 address, a port, and what kind of address it is.
        let address = Ipv4Addr::from_bits((primary >> 32) as u32);
        Ok(SocketAddr::from((address, (primary >> 16) as u16)))
    }
}

/// Writes the requests of operations.
pub(super) struct Encoder {
    route: Route,
    shape: RecordShape,
    key: Vec<u8>,
    /// The number of the next request.
    next: i32,
}

impl Encoder {
    pub(super) fn new(route: Route, shape: RecordShape) -> Self {
        Self { route, shape, key: Vec::new(), next: 0 }
    }

    fn partition_of(&mut self, number: u64) -> usize {
        self.shape.names.write(number, &mut self.key);
        // The remainder is below the number of partitions.
        (hash_of(&self.key, b"") % self.route.leads.len() as u64) as usize
    }

    fn request(&mut self, number: u64, name: &str, out: &mut Vec<u8>, arguments: impl FnOnce(&[u8], &mut Vec<u8>)) {
        let partition = i32::try_from(self.partition_of(number)).expect("there are few partitions");
        message(out, self.route.table, partition, name, self.next, |out| arguments(&self.key, out));
        self.next = self.next.wrapping_add(1);
    }
}

impl super::Encoder for Encoder {
    fn link_of(&mut self, number: u64) -> usize {
        let partition = self.partition_of(number);
        self.route.leads[partition]
    }

    fn next(&self) -> Option<i32> {
        Some(self.next)
    }

    fn read(&mut self, number: u64, _values: &mut Values, out: &mut Vec<u8>) {
        if self.shape.fields == 1 {
            return self.request(number, "RPC_RRDB_RRDB_GET", out, |key, out| {
                field(out, STRUCT, 1);
                stored_key(out, key);
            });
        }
        self.request(number, "RPC_RRDB_RRDB_MULTI_GET", out, |key, out| {
            field(out, STRUCT, 1);
            field(out, STRUCT, 1);
            bytes(out, key);
            for (id, number) in [(3, -1), (4, -1), (10, 0)] {
                field(out, I32, id);
                out.extend_from_slice(&i32::to_be_bytes(number));
            }
            field(out, BOOL, 8);
            out.extend_from_slice(&[1, 0]);
        });
    }

    fn write(&mut self, number: u64, _is_insert: bool, values: &mut Values, out: &mut Vec<u8>) {
        let RecordShape { fields, field_bytes, .. } = self.shape;
        let name = if fields == 1 { "RPC_RRDB_RRDB_PUT" } else { "RPC_RRDB_RRDB_MULTI_PUT" };
        self.request(number, name, out, |key, out| {
            field(out, STRUCT, 1);
            field(out, STRUCT, 1);
            if fields == 1 {
                stored_key(out, key);
                field(out, STRUCT, 2);
                bytes(out, values.next(field_bytes));
            } else {
                bytes(out, key);
                field(out, LIST, 2);
                out.push(STRUCT);
                out.extend_from_slice(&u32::try_from(fields).expect("few fields").to_be_bytes());
                for number in 0..fields {
                    field(out, STRUCT, 1);
                    bytes(out, format!("field{number}").as_bytes());
                    field(out, STRUCT, 2);
                    bytes(out, values.next(field_bytes));
                    out.push(0);
                }
            }
            field(out, I32, 3);
            out.extend_from_slice(&[0; 4]);
            out.push(0);
        });
    }

    fn counter(&self) -> Box<dyn super::ReplyCounter> {
        Box::new(ReplyCounter::default())
    }
}

fn field(out: &mut Vec<u8>, field_type: u8, id: i16) {
    out.push(field_type);
    out.extend_from_slice(&id.to_be_bytes());
}

fn bytes(out: &mut Vec<u8>, content: &[u8]) {
    out.extend_from_slice(&u32::try_from(content.len()).expect("values are far below 4 GiB").to_be_bytes());
    out.extend_from_slice(content);
}

/// A hash key with the empty sort key, as Pegasus stores it.
fn stored_key(out: &mut Vec<u8>, hash_key: &[u8]) {
    out.extend_from_slice(&u32::try_from(2 + hash_key.len()).expect("keys are short").to_be_bytes());
    out.extend_from_slice(&u16::try_from(hash_key.len()).expect("keys are short").to_be_bytes());
    out.extend_from_slice(hash_key);
}

/// A request with the older header; `arguments` writes their fields.
fn message(
    out: &mut Vec<u8>,
    table: i32,
    partition: i32,
    name: &str,
    number: i32,
    arguments: impl FnOnce(&mut Vec<u8>),
) {
    out.extend_from_slice(b"THFT");
    let length_at = out.len() + 12;
    for word in [0, 48, 0, 0, 0, table, partition, 10_000, 0, 0, 0] {
        out.extend_from_slice(&i32::to_be_bytes(word));
    }
    let began = out.len();
    out.extend_from_slice(&[0x80, 1, 0, 1]);
    bytes(out, name.as_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    arguments(out);
    out.push(0);
    let length = u32::try_from(out.len() - began).expect("requests are far below 4 GiB");
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
}

/// The code of a record that is not there: no failure of a read.
const NOT_FOUND: i32 = 1;

/// Takes replies apart as far as they say which request they answer, and whether they have found something.
#[derive(Default)]
struct ReplyCounter {
    frames: Frames,
    finished: Vec<i32>,
    /// Of each that is finished, how many records are not there.
    absent: Vec<u32>,
    errors: Errors,
}

/// What a reply says.
struct Outcome {
    /// The number of the request that it answers.
    number: i32,
    /// Whether a read has found no record.
    is_absent: bool,
    /// What was wrong.
    error: Option<String>,
}

impl ReplyCounter {
    fn outcome(reply: &[u8]) -> anyhow::Result<Outcome> {
        let mut reader = Reader(reply);
        let error = reader.text()?;
        reader.take(4)?;
        reader.text()?;
        let number = reader.i32()?;
        if error != "ERR_OK" {
            return Ok(Outcome { number, is_absent: false, error: Some(error) });
        }
        reader.take(3 + 3)?; // the field of the response, and that of its error
        let code = reader.i32()?;
        // Of several sort keys, field 2 is a list of what was found, with the type of its elements before their number.
        let has_empty_list = matches!(reader.0, [LIST, 0, 2, _, 0, 0, 0, 0, ..]);
        let error = (code != 0 && code != NOT_FOUND).then(|| format!("error {code}"));
        Ok(Outcome { number, is_absent: code == NOT_FOUND || (code == 0 && has_empty_list), error })
    }
}

impl super::ReplyCounter for ReplyCounter {
    fn take(&mut self, bytes: &[u8]) -> Replies<'_> {
        self.finished.clear();
        self.absent.clear();
        let length = |head: &[u8; 4]| u32::from_be_bytes(*head) as usize;
        self.frames.cut(bytes, length, |reply| {
            let error = match Self::outcome(&reply[4..]) {
                Ok(Outcome { number, is_absent, error }) => {
                    self.finished.push(number);
                    self.absent.push(u32::from(is_absent));
                    error
                }
                Err(error) => Some(error.to_string()),
            };
            error.into_iter().for_each(|error| self.errors.add(error));
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

    fn reply(error: &str, number: i32, code: i32, padding: usize) -> Vec<u8> {
        let mut out = vec![0; 4];
        bytes(&mut out, error.as_bytes());
        out.extend([0x80, 1, 0, 2]);
        bytes(&mut out, b"RPC_RRDB_RRDB_GET_ACK");
        out.extend(number.to_be_bytes());
        if error == "ERR_OK" {
            field(&mut out, STRUCT, 0);
            field(&mut out, I32, 1);
            out.extend(code.to_be_bytes());
            out.extend(vec![7; padding]);
        }
        out.push(0);
        let length = u32::try_from(out.len()).unwrap();
        out[..4].copy_from_slice(&length.to_be_bytes());
        out
    }

    #[test]
    fn replies_are_told_apart_however_they_are_cut() {
        let replies = [reply("ERR_OK", 3, 0, 1_000), reply("ERR_BUSY", 1, 0, 0), reply("ERR_OK", 2, 1, 0)];
        let stream = [&replies[0][..], &replies[1], &reply("ERR_OK", 9, 4, 100), &replies[2]].concat();
        for cut in 0..=stream.len() {
            let mut counter = ReplyCounter::default();
            let first = counter.take(&stream[..cut]);
            let (mut numbers, mut absent) = (first.numbers.unwrap().to_vec(), first.absent.to_vec());
            let second = counter.take(&stream[cut..]);
            numbers.extend(second.numbers.unwrap());
            absent.extend(second.absent);
            assert_eq!((numbers, counter.errors.count), (vec![3, 1, 9, 2], 2), "cut at {cut}");
            assert_eq!(absent, [0, 0, 0, 1], "cut at {cut}");
        }
    }

    /// A MULTI_GET of a hash key that is not there is answered without an error.
    #[test]
    fn a_hash_key_without_sort_keys_is_not_there() {
        let several = |found: u32| {
            let mut out = reply("ERR_OK", 5, 0, 0);
            out.pop();
            field(&mut out, LIST, 2);
            out.push(STRUCT);
            out.extend(found.to_be_bytes());
            let length = u32::try_from(out.len()).unwrap();
            out[..4].copy_from_slice(&length.to_be_bytes());
            out
        };
        let absent = |found| ReplyCounter::default().take(&several(found)).absent.to_vec();
        assert_eq!([absent(0), absent(3)], [vec![1], vec![0]]);
    }

    #[test]
    fn a_request_has_the_length_that_it_says() {
        let route = Route { table: 1, nodes: vec!["127.0.0.1:1".parse().unwrap()], leads: vec![0; 8] };
        for fields in [1, 3] {
            let mut encoder = Encoder::new(route.clone(), RecordShape::whole(fields, 100));
            let mut out = Vec::new();
            let sent = encoder.encode(Operation::ReadModifyWrite, 7, &mut Values::new(1), &mut out);
            assert_eq!(sent, (2, Some(0)));
            let mut rest = &out[..];
            for _ in 0..2 {
                assert_eq!(&rest[..4], b"THFT");
                rest = &rest[48 + u32::from_be_bytes(rest[16..20].try_into().unwrap()) as usize..];
            }
            assert!(rest.is_empty());
        }
    }
}
