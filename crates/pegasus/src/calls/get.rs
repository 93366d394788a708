//! GET, the commonest call. Those that stand together in what a client sent are made together and where they stand, their bytes read
//! and laid out by hand: by the general way, each a call of its own that the `thrift` crate reads and writes, a pipelined one takes
//! twice as long. Tests hold both against each other.

use super::{Origin, counted};
use crate::frame::{self, RequestMeta, Taken};
use crate::known_partitions::{KnownPartitions, SplitTable};
use crate::outbox::Outbox;
use crate::server::PegasusServer;
use crate::slow_log::{Cost, Many};
use crate::status::{NOT_FOUND, OK};
use crate::{slow_log, stored_key};
use bytes::BytesMut;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tessera_engine::from_caches;
use tessera_face::ClientShare;
use tessera_store::{FaceMeter, Leader, RequestKind, Table};
use tessera_types::{RecordKey, RequestError, StoredValue, TableNumber, UnixMillis};

pub(super) const NAME: &str = "RPC_RRDB_RRDB_GET";
/// GETs that run together, so that their cache misses overlap: their values are in memory at one time.
const TOGETHER: usize = 16;
/// How the message of one begins: that it is a call, and its name.
const BEGINNING: &[u8; 25] = b"\x80\x01\0\x01\0\0\0\x11RPC_RRDB_RRDB_GET";
/// A field's type and number: the one argument, a struct or what is said to be one.
const ARGUMENT: &[u8; 3] = b"\x0c\0\x01";

/// A GET that stands in a buffer.
pub(crate) struct Get<'a> {
    pub(crate) meta: RequestMeta,
    pub(crate) sequence: i32,
    pub(crate) key: RecordKey<'a>,
    /// Bytes of the whole request.
    pub(crate) length: usize,
}

impl<'a> Get<'a> {
    /// Reads what the buffer begins with, if that is a whole GET and laid out as clients lay it out.
    pub(crate) fn read(buffer: &'a [u8]) -> Option<Self> {
        let (message_at, length) = frame::lengths(buffer).ok()??;
        let (header, message) = buffer.get(..length)?.split_at(message_at);
        let (sequence, arguments) = message.strip_prefix(BEGINNING)?.split_first_chunk()?;
        let (key_length, rest) = arguments.strip_prefix(ARGUMENT)?.split_first_chunk()?;
        let (key, end) = rest.split_at_checked(u32::from_be_bytes(*key_length) as usize)?;
        let (hash_key, sort_key) = stored_key::split(key).filter(|_| end == [0])?;
        let (meta, sequence) = (frame::read_meta(header).ok()?, i32::from_be_bytes(*sequence));
        Some(Self { meta, sequence, key: RecordKey::new(hash_key, sort_key), length })
    }

    /// Appends the reply.
    fn write_reply(&self, server: &PegasusServer, value: Option<&[u8]>, out: &mut Vec<u8>) {
        let RequestMeta { table, partition, .. } = self.meta;
        write_value(out, self.sequence, value, Origin { table, partition, decree: 0, server: &server.address });
    }

    /// Tells the slow log of a reply of so many bytes.
    fn note(&self, table: &Table, took: Duration, bytes: usize) {
        let cost = Cost { took, bytes, records: 1 };
        if slow_log::is_due(table, Many::OF_ONE, cost) {
            slow_log::note(table, self.meta.partition.cast_unsigned(), NAME, Some(self.key), cost);
        }
    }

    /// Whether this node can answer, and is the one that was asked.
    fn is_for_here(&self, table: &Table) -> bool {
        let partition = table.partition_of(&self.key);
        u32::try_from(self.meta.partition) == Ok(partition)
            && table.reader_of(partition, self.meta.reads()) == Leader::Here
    }
}

/// What can be made together, of one table: GETs that follow each other from the beginning of the input on.
fn gather<'a>(server: &PegasusServer, input: &'a [u8]) -> Option<(Arc<Table>, SmallVec<[Get<'a>; TOGETHER]>)> {
    let mut rest = input;
    let mut all = std::iter::from_fn(|| {
        let get = Get::read(rest)?;
        rest = &rest[get.length..];
        Some(get)
    })
    .peekable();
    let first = &all.peek()?.meta;
    let asked = (first.table, first.reads());
    // A table with limits looks at each request.
    let number = TableNumber(u32::try_from(first.table).ok()?);
    let table = server.store.table_numbered(number).filter(|table| table.admissions().is_none())?;
    let is_alike = |get: &Get<'_>| (get.meta.table, get.meta.reads()) == asked && get.is_for_here(&table);
    let gets = all.take_while(is_alike).take(TOGETHER).collect();
    Some((table, gets))
}

/// Makes the GETs that the input begins with, as many of them as can be made together, here and now. Appends their replies; those
/// of the ones that wait for the disk come to the outbox. Returns how many bytes of the input that were; `None` if what comes first
/// needs the general way.
pub(crate) fn serve_get_batch(
    server: &Arc<PegasusServer>,
    input: &[u8],
    received: Instant,
    out: &mut Vec<u8>,
    later: (&Arc<Outbox>, &Arc<ClientShare>),
    known: &mut KnownPartitions,
) -> Option<usize> {
    let (table, gets) = gather(server, input)?;
    if let Some(split) = SplitTable::of(&table) {
        gets.iter().for_each(|get| known.note_asked(split, get.meta.partition.cast_unsigned()));
    }
    let reads = gets.first()?.meta.reads();
    let keys: SmallVec<[RecordKey<'_>; TOGETHER]> = gets.iter().map(|get| get.key).collect();
    let (began, mut replied, mut hits) = (out.len(), [0; TOGETHER], 0);
    let now = server.store.now();
    let outcome = from_caches(|| {
        table.read_many(&keys, reads, now, &mut |at, stored| {
            let before = out.len();
            hits += u64::from(stored.is_some());
            gets[at].write_reply(server, stored.map(|stored| stored.payload), out);
            replied[at] = out.len() - before;
        })
    });
    match outcome {
        Ok(()) => {}
        Err(RequestError::WouldWait) => {
            let mut rest = input;
            for (get, bytes) in gets.iter().zip(replied) {
                let (request, after) = rest.split_at(get.length);
                rest = after;
                if bytes == 0 {
                    read_from_disk(server, &table, request, (now, received), later);
                }
            }
        }
        Err(_) => {
            // Another node leads by now, or the engine fails: the general way finds out.
            out.truncate(began);
            return None;
        }
    }
    let (took, mut answered) = (received.elapsed(), 0);
    for (get, bytes) in gets.iter().zip(replied).filter(|(_, bytes)| *bytes > 0) {
        get.note(&table, took, bytes);
        answered += 1;
    }
    note_answered(&server.meter, &table, answered, hits, took);
    server.requests.fetch_add(gets.len() as u64, Ordering::Relaxed);
    Some(gets.iter().map(|get| get.length).sum())
}

/// Counts GETs that took this long and are answered, of which so many have found something.
fn note_answered(meter: &FaceMeter, table: &Table, gets: u64, hits: u64, took: Duration) {
    if gets > 0 {
        meter.note_lookups(counted::GET, hits, gets - hits);
        meter.note_requests(Some(table), RequestKind::Read, gets, took);
    }
}

/// Has a GET made where one may wait for the disk.
fn read_from_disk(
    server: &Arc<PegasusServer>,
    table: &Arc<Table>,
    request: &[u8],
    (now, received): (UnixMillis, Instant),
    (outbox, memory): (&Arc<Outbox>, &Arc<ClientShare>),
) {
    outbox.expect();
    let request = BytesMut::from(request);
    let read = {
        let (server, table, request) = (server.clone(), table.clone(), request.clone());
        let (outbox, memory) = (outbox.clone(), memory.clone());
        move || {
            let Some(get) = Get::read(&request) else { return };
            let mut reply = Vec::new();
            let write = &mut |stored: StoredValue<'_>| get.write_reply(&server, Some(stored.payload), &mut reply);
            let Ok(is_hit) = table.read(&get.key, get.meta.reads(), now, write) else {
                return take_back(&outbox, request);
            };
            if !is_hit {
                get.write_reply(&server, None, &mut reply);
            }
            let took = received.elapsed();
            get.note(&table, took, reply.len());
            note_answered(&server.meter, &table, 1, u64::from(is_hit), took);
            // Until the connection takes it and says what it holds in all.
            memory.hold_more(reply.len());
            outbox.reply(|out| out.extend_from_slice(&reply));
        }
    };
    if server.store.disk_readers().begin(read).is_err() {
        take_back(outbox, request);
    }
}

/// Leaves a GET to the general way, which finds out what is to become of it.
fn take_back(outbox: &Outbox, mut request: BytesMut) {
    let length = request.len();
    match frame::take(&mut request, length) {
        Ok(Taken::Request(frame)) => outbox.take_back(frame, RequestError::NotReady),
        other => unreachable!("a whole GET: {:?}", other.is_ok()),
    }
}

/// Appends the reply, as a [`ReadResponse`](super::messages::ReadResponse) would be written.
fn write_value(out: &mut Vec<u8>, sequence: i32, value: Option<&[u8]>, origin: Origin<'_>) {
    let error = if value.is_some() { OK } else { NOT_FOUND };
    let (value, server) = (value.unwrap_or_default(), origin.server.as_bytes());
    let length = 64 + value.len() + 21 + server.len() + 2;
    // Lengths are far below 4 GiB: a value is one that was written.
    let word = |length: usize| (length as u32).to_be_bytes();
    out.reserve(length);
    let began = out.len();
    out.extend_from_slice(&word(length));
    out.extend_from_slice(b"\0\0\0\x06ERR_OK\x80\x01\0\x02\0\0\0\x15RPC_RRDB_RRDB_GET_ACK");
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(b"\x0c\0\0\x08\0\x01");
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(b"\x0c\0\x02");
    out.extend_from_slice(&word(value.len()));
    out.extend_from_slice(value);
    out.extend_from_slice(b"\x08\0\x03");
    out.extend_from_slice(&origin.table.to_be_bytes());
    out.extend_from_slice(b"\x08\0\x04");
    out.extend_from_slice(&origin.partition.to_be_bytes());
    out.extend_from_slice(b"\x0b\0\x06");
    out.extend_from_slice(&word(server.len()));
    out.extend_from_slice(server);
    out.extend_from_slice(&[0, 0]);
    debug_assert_eq!(out.len() - began, length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Response;
    use crate::calls::messages::ReadResponse;
    use crate::frame::{Taken, read_call, take};
    use crate::fuzzing::request;
    use crate::wire::Blob;

    #[test]
    fn what_is_laid_out_by_hand_is_what_the_library_writes() {
        let request = request(NAME, &Blob(b"\0\x01hs".to_vec()));
        let Ok(Taken::Request(frame)) = take(&mut request[..].into(), 1_000) else { panic!("{request:?}") };
        let (call, _) = read_call(&frame).unwrap();
        let server = "127.0.0.1:34801".into();
        let origin = Origin { table: 3, partition: 5, decree: 9, server: &server };
        for value in [None, Some(&b""[..]), Some(&[7; 1_000])] {
            let (mut by_hand, mut by_library) = (Vec::new(), Vec::new());
            write_value(&mut by_hand, call.sequence, value, origin);
            let error = if value.is_some() { OK } else { NOT_FOUND };
            let response =
                ReadResponse { error, value: Blob(value.unwrap_or_default().to_vec()), ..Default::default() };
            Response::Read(response).write(&mut by_library, &call, origin);
            assert_eq!(by_hand, by_library);
        }
    }

    #[test]
    fn only_whole_gets_are_read() {
        let get = request(NAME, &Blob(b"\0\x01hs".to_vec()));
        let read = Get::read(&get).unwrap();
        assert_eq!((read.key, read.length), (RecordKey::new(b"h", b"s"), get.len()));
        for length in 0..get.len() {
            assert!(Get::read(&get[..length]).is_none());
        }
        assert!(Get::read(&request("RPC_RRDB_RRDB_TTL", &Blob(b"\0\x01hs".to_vec()))).is_none());
        assert!(Get::read(&request(NAME, &Blob(b"\0\x03hs".to_vec()))).is_none(), "no key of a record");
    }
}
