//! Requests for partitions that other nodes lead. A client may ask any node; the store's [router](tessera_store::Route) takes the
//! request to the leader as it is, and its reply comes back as it is.

use crate::calls::{Request, Tally};
use crate::execute::{DataCall, DecodedRequest, MISDIRECTED, Sent, decode_request};
use crate::frame::{self, Frame, Taken, read_call, write_error};
use crate::outbox::{Content, Outbox};
use crate::server::{PegasusServer, SERVICE};
use crate::status::Failure;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tessera_store::{Envelope, Leader, Outcomes, Part, PartOutcome, Route, Table, TableIdentity};
use tessera_types::{Admitted, ReadMode, TableNumber};

/// After news of a split, before the table is looked for again.
const PAUSE: Duration = Duration::from_millis(1);

/// A request on its way to the node that leads its partition.
struct Forwarding<'a>(&'a Arc<PegasusServer>);

impl Route for Forwarding<'_> {
    type Work = Box<DataCall>;

    const SERVICE: u8 = SERVICE;

    fn request(&self, table: &Table, parts: &[&Part<Self::Work>]) -> Vec<u8> {
        // Requests are independent of each other, and travel one by one.
        write_request(parts.iter().map(|part| &part.work.frame), table.identity())
    }

    fn carry_out(&self, _table: &Table, parts: &[&Part<Self::Work>]) -> Outcomes {
        let server = self.0.clone();
        let calls: Vec<Box<DataCall>> = parts.iter().map(|part| part.work.clone()).collect();
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(calls.len());
            for call in &calls {
                outcomes.push(carry_out_here(&server, call).await);
            }
            outcomes.into_iter().collect()
        })
    }

    fn note_forwarded(&self) {
        self.0.forwarded.fetch_add(1, Ordering::Relaxed);
    }
}

/// What another node is asked: frames, and behind them in which table the partitions were looked up.
fn write_request<'a>(frames: impl Iterator<Item = &'a Frame>, table: TableIdentity) -> Vec<u8> {
    let mut request: Vec<u8> = frames.flat_map(|frame| &frame.bytes[..]).copied().collect();
    table.encode(&mut request);
    request
}

/// Reads what [`write_request`] wrote of one frame. A node of an earlier version writes no table, and does not look behind the frame.
fn read_request(request: &[u8], write_bytes: usize) -> Option<(Frame, Option<TableIdentity>)> {
    let mut request = BytesMut::from(request);
    match frame::take(&mut request, write_bytes) {
        Ok(Taken::Request(frame)) => Some((frame, TableIdentity::decode(&mut request.freeze()))),
        _ => None,
    }
}

/// Whether another node means another table than the one that clients call by its number here.
fn is_another(asked: Option<TableIdentity>, here: TableIdentity) -> bool {
    asked.is_some_and(|asked| asked != here)
}

/// Carries out a request that came to another node. There is no outcome if it cannot be understood here, and nothing was done.
pub(crate) async fn carry_out(server: &Arc<PegasusServer>, request: Bytes) -> Envelope {
    let Some((frame, asked)) = read_request(&request, server.config.write_bytes) else { return Envelope::default() };
    let mut decoded = decode_request(server, &frame, Instant::now());
    if let Some(DecodedRequest::Data(call)) = &mut decoded {
        call.tally = None;
    }
    let outcome = match decoded {
        // One of the two nodes has not heard yet that the table was split or truncated. If it is the other one, its client may not know how
        // many partitions there are: it is told once that node has heard.
        Some(DecodedRequest::Data(call))
            if call.request.is_whole_scan() && is_another(asked, call.table.identity()) =>
        {
            PartOutcome::NO_LEADER
        }
        Some(DecodedRequest::Data(call)) if call.table.leader_of(call.partition) == Leader::Here => {
            match call.admission() {
                Admitted::Now => carry_out_here(server, &call).await,
                admission => PartOutcome::Done(reach_later(server, call, admission).await.into()),
            }
        }
        Some(DecodedRequest::Data(call)) => carry_out_here(server, &call).await,
        // The node that asks knows the table: this one will, or that one will hear that it was dropped.
        Some(DecodedRequest::NoTable(..)) => PartOutcome::NO_LEADER,
        Some(DecodedRequest::Refused(reply) | DecodedRequest::Misdirected(_, reply)) => PartOutcome::Done(reply.into()),
        Some(DecodedRequest::Meta(_)) | None => return Envelope::default(),
    };
    std::iter::once(outcome).collect()
}

/// Carries out a request for a table that is not known here: another node may just have created it.
pub(crate) async fn after_news(
    server: &Arc<PegasusServer>,
    table: TableNumber,
    frame: &Frame,
    refusal: Vec<u8>,
) -> Vec<u8> {
    let received = Instant::now();
    server.store.find_table(|store| store.table_numbered(table)).await;
    let reply = match decode_request(server, frame, received) {
        Some(DecodedRequest::Data(call)) => return reach(server, call).await,
        Some(DecodedRequest::Refused(reply) | DecodedRequest::Misdirected(_, reply)) => reply,
        _ => refusal,
    };
    note_tableless(server, frame, received, &reply);
    reply
}

/// Counts a request that is answered with this, and is for no table.
pub(crate) fn note_tableless(server: &PegasusServer, frame: &Frame, received: Instant, reply: &[u8]) {
    let call = read_call(frame);
    let name = call.as_ref().map_or("", |(call, _)| call.name());
    Tally::of_call(name, received).note(&server.meter, None, reply);
}

async fn carry_out_here(server: &Arc<PegasusServer>, call: &DataCall) -> PartOutcome {
    if !matches!(call.request, Request::Write(_))
        && let Some(outcome) = call.read_with_patience(server).await
    {
        if let Err(Failure::Elsewhere(reason)) = outcome {
            return PartOutcome::NotDone(reason);
        }
        let mut out = Vec::new();
        call.reply(server, outcome, &mut out);
        return PartOutcome::Done(out.into());
    }
    let outbox = Arc::<Outbox>::default();
    Sent::send(server, &outbox, vec![Box::new(call.clone())]);
    while outbox.waiting() > 0 {
        outbox.changed().await;
    }
    let Content { replies, mut elsewhere, .. } = outbox.take();
    match elsewhere.pop() {
        Some((_, reason)) => PartOutcome::NotDone(reason),
        None => PartOutcome::Done(replies.into()),
    }
}

/// Has a read made that has to wait for the disk, and returns the reply.
pub(crate) async fn read_later(server: &Arc<PegasusServer>, call: Box<DataCall>) -> Vec<u8> {
    match call.read_with_patience(server).await {
        Some(Err(Failure::Elsewhere(_))) | None => reach(server, call).await,
        Some(outcome) => {
            let mut out = Vec::new();
            call.reply(server, outcome, &mut out);
            out
        }
    }
}

/// Delays a request, or refuses it after a while.
pub(crate) async fn reach_later(server: &Arc<PegasusServer>, call: Box<DataCall>, admission: Admitted) -> Vec<u8> {
    match admission {
        Admitted::Refused(error, after) => {
            tokio::time::sleep(after).await;
            let mut out = Vec::new();
            call.write_reply(server, Err(error.into()), &mut out);
            call.note_answered(server, &out);
            out
        }
        Admitted::After(pause) => {
            tokio::time::sleep(pause).await;
            reach(server, call).await
        }
        // The client has stopped waiting by then.
        Admitted::Dropped(_) => {
            tokio::time::sleep(call.frame.patience()).await;
            let out = refusal(&call, "ERR_TIMEOUT");
            call.note_answered(server, &out);
            out
        }
        Admitted::Now => reach(server, call).await,
    }
}

/// Has a request carried out by whoever leads its partition, counts it here, and returns the reply.
pub(crate) async fn reach(server: &Arc<PegasusServer>, mut call: Box<DataCall>) -> Vec<u8> {
    let (tally, table) = (call.tally.take(), call.table.clone());
    let reply = reach_leader(server, call).await;
    if let Some(tally) = tally {
        tally.note(&server.meter, Some(&table), &reply);
    }
    reply
}

async fn reach_leader(server: &Arc<PegasusServer>, call: Box<DataCall>) -> Vec<u8> {
    let (received, until) = (call.received, call.until());
    let is_write = matches!(call.request, Request::Write(_));
    let reads = if is_write { ReadMode::Single } else { call.frame.meta.reads() };
    let mut parts = [Part { partition: call.partition, reads, is_repeatable: !is_write, work: call, outcome: None }];
    loop {
        let table = parts[0].work.table.clone();
        if server.store.route(&table, &Forwarding(server), &mut parts, until).await.is_none() {
            break;
        }
        // It was split, which may make this another partition's business. Then clients ask again where things are.
        let part = &mut parts[0];
        match decode_request(server, &part.work.frame, received) {
            Some(DecodedRequest::Data(again)) if is_scan_of_half(&again.request, &table, &again.table) => {
                return refusal(&again, MISDIRECTED);
            }
            Some(DecodedRequest::Data(mut again)) => {
                again.tally = None;
                (part.partition, part.work) = (again.partition, again);
            }
            Some(DecodedRequest::Refused(reply) | DecodedRequest::Misdirected(_, reply)) => return reply,
            _ => return refusal(&part.work, "ERR_OBJECT_NOT_FOUND"),
        }
        if Arc::ptr_eq(&part.work.table, &table) {
            tokio::time::sleep(PAUSE).await;
        }
    }
    let [Part { work: call, outcome, .. }] = parts;
    match outcome.unwrap_or(PartOutcome::NO_LEADER).reply() {
        Ok(reply) => reply.into(),
        Err(reason) => {
            let mut out = Vec::new();
            call.write_reply(server, Err(reason.into()), &mut out);
            out
        }
    }
}

/// Whether a request begins a scan that would miss records in the table that has taken the place of the one in which it was asked for:
/// those that are in the partition's other half there, of which its client has not heard.
fn is_scan_of_half(request: &Request, before: &Table, now: &Table) -> bool {
    now.schema().partitions > before.schema().partitions && request.is_whole_scan()
}

fn refusal(call: &DataCall, error: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_error(&mut out, &call.call, error);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::messages::GetScannerRequest;
    use crate::fuzzing::request;
    use crate::wire::Blob;

    fn scan(start: &[u8], stop: &[u8]) -> GetScannerRequest {
        let (start, stop) = (Blob(start.to_vec()), Blob(stop.to_vec()));
        GetScannerRequest { start, stop, start_inclusive: true, ..Default::default() }
    }

    /// The table with an identifier, which was truncated so often.
    fn identity(id: u8, truncations: u8) -> TableIdentity {
        let highest = if truncations > 0 { 0x80 } else { 0 };
        let mut bytes = Bytes::copy_from_slice(&[id, 0, 0, highest, truncations, 0, 0, 0]);
        TableIdentity::decode(&mut bytes).unwrap()
    }

    /// A node that had heard of a split earlier once carried out scans of whole partitions for clients of one that had not.
    #[test]
    fn another_node_is_told_in_which_table_a_partition_was_looked_up() {
        let bytes = request("RPC_RRDB_RRDB_GET_SCANNER", &scan(b"\0\0", b"\xff\xff"));
        let read = |bytes: &[u8]| read_request(bytes, 1_000).map(|(frame, asked)| (frame.bytes, asked));
        let (frame, none) = read_request(&bytes, 1_000).unwrap();
        assert_eq!((&frame.bytes[..], none), (&bytes[..], None), "as nodes of earlier versions ask");
        for asked in [identity(7, 0), identity(7, 1)] {
            let written = write_request([&frame].into_iter(), asked);
            assert_eq!(read(&written), Some((frame.bytes.clone(), Some(asked))));
        }
        assert_eq!(read(&bytes[..bytes.len() - 1]), None);
        assert!(!is_another(None, identity(7, 0)) && !is_another(Some(identity(7, 1)), identity(7, 1)));
        assert!(is_another(Some(identity(7, 0)), identity(8, 0)), "it was split");
        assert!(is_another(Some(identity(7, 0)), identity(7, 1)), "it was truncated and recalled");
    }

    #[test]
    fn a_scan_of_all_but_one_hash_key_is_of_a_whole_partition() {
        let is_whole = |start: &[u8], stop: &[u8]| Request::GetScanner(scan(start, stop)).is_whole_scan();
        assert!(is_whole(b"\0\0", b"\xff\xff") && is_whole(b"", b"") && is_whole(b"\0\x01a", b"\0\x01c"));
        assert!(!is_whole(b"\0\x01a", b"\0\x01b"), "these are all records of the hash key a");
        assert!(!Request::ClearScanner(1).is_whole_scan());
    }
}
