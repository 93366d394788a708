//! Requests for partitions that other nodes lead. A client may ask any node; the request goes to the leader as it is, and
//! its reply comes back as it is. What certainly was not done, because nobody led there, is tried again until the client's
//! time is over: this is how requests outlast a failover.

use crate::calls::Request;
use crate::execute::{DataCall, Sent, Understood, understand};
use crate::frame::{self, Frame, Taken, write_error};
use crate::outbox::Outbox;
use crate::server::PegasusServer;
use crate::status::Failure;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tessera_store::{Face, Leader, RequestFailure};
use tessera_types::{Admitted, ReadMode, TableNumber};

/// How long a request is tried whose client does not say how long it waits, and the longest.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries. A group that rests needs a moment to wake, an election half a second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Carries out a request that came to another node. Returns the reply, nothing if nothing was done.
pub(crate) async fn carry_out(server: &Arc<PegasusServer>, request: Bytes) -> Bytes {
    let mut request = BytesMut::from(&request[..]);
    let Ok(Taken::Request(frame)) = frame::take(&mut request, server.config.write_bytes) else { return Bytes::new() };
    match understand(server, &frame, Instant::now()) {
        Some(Understood::Data(call)) if call.table.leader_of(call.partition) == Leader::Here => {
            match call.admission() {
                Admitted::Now => carry_out_here(server, &call).await.unwrap_or_default().into(),
                admission => reach_later(server, call, admission).await.into(),
            }
        }
        Some(Understood::Data(call)) => carry_out_here(server, &call).await.unwrap_or_default().into(),
        // The node that asks knows the table: this one will.
        Some(Understood::NoTable(..)) => Bytes::new(),
        Some(Understood::Refused(reply)) => reply.into(),
        Some(Understood::Meta(_)) | None => Bytes::new(),
    }
}

/// Carries out a request for a table that is not known here: another node may just have created it.
pub(crate) async fn after_news(
    server: &Arc<PegasusServer>,
    table: TableNumber,
    frame: &Frame,
    refusal: Vec<u8>,
) -> Vec<u8> {
    server.store.find_table(|store| store.table_numbered(table)).await;
    match understand(server, frame, Instant::now()) {
        Some(Understood::Data(call)) => reach(server, call).await,
        Some(Understood::Refused(reply)) => reply,
        _ => refusal,
    }
}

/// Returns the reply, `None` if nothing was done.
async fn carry_out_here(server: &Arc<PegasusServer>, call: &DataCall) -> Option<Vec<u8>> {
    if !matches!(call.request, Request::Write(_))
        && let Some(outcome) = call.read(server)
    {
        let mut out = Vec::new();
        let is_done = outcome != Err(Failure::Elsewhere);
        call.reply(server, outcome, &mut out);
        return is_done.then_some(out);
    }
    let outbox = Arc::<Outbox>::default();
    Sent::send(server, &outbox, vec![Box::new(call.clone())]);
    while outbox.waiting() > 0 {
        outbox.changed().await;
    }
    Some(outbox.take().replies).filter(|replies| !replies.is_empty())
}

/// Delays a request, or refuses it after a while.
pub(crate) async fn reach_later(server: &Arc<PegasusServer>, call: Box<DataCall>, admission: Admitted) -> Vec<u8> {
    match admission {
        Admitted::Refused(error, after) => {
            tokio::time::sleep(after).await;
            let mut out = Vec::new();
            call.write_reply(server, Err(error.into()), &mut out);
            out
        }
        Admitted::After(pause) => {
            tokio::time::sleep(pause).await;
            reach(server, call).await
        }
        // The client has stopped waiting by then.
        Admitted::Ignored(_) => {
            tokio::time::sleep(call.frame.timeout().unwrap_or(PATIENCE).min(PATIENCE)).await;
            refusal(&call, "ERR_TIMEOUT")
        }
        Admitted::Now => reach(server, call).await,
    }
}

/// Has a request carried out by whoever leads its partition, and returns the reply.
pub(crate) async fn reach(server: &Arc<PegasusServer>, mut call: Box<DataCall>) -> Vec<u8> {
    let (began, mut pause) = (Instant::now(), SHORTEST_PAUSE);
    let patience = call.frame.timeout().unwrap_or(PATIENCE).min(PATIENCE);
    let is_write = matches!(call.request, Request::Write(_));
    loop {
        if call.table.successor().is_some() {
            // It was split, which may make this another partition's business. Then clients ask again where things are.
            match understand(server, &call.frame, began) {
                Some(Understood::Data(again)) => call = again,
                Some(Understood::Refused(reply)) => return reply,
                _ => return refusal(&call, "ERR_OBJECT_NOT_FOUND"),
            }
        }
        let place = match call.frame.meta.reads() {
            ReadMode::Outdated if !is_write => server.store.outdated_reader_of(&call.table, call.partition),
            _ => call.table.leader_of(call.partition),
        };
        match place {
            Leader::Here => {
                if let Some(reply) = carry_out_here(server, &call).await {
                    return reply;
                }
            }
            Leader::Node(node) => {
                server.forwarded.fetch_add(1, Ordering::Relaxed);
                match server.store.ask_face(Face::Pegasus, node, &call.frame.bytes).await {
                    Ok(reply) if !reply.is_empty() => return reply.to_vec(),
                    Err(RequestFailure::Lost) if is_write => return refusal(&call, "ERR_TIMEOUT"),
                    Ok(_) | Err(RequestFailure::NotSent | RequestFailure::Lost) => {}
                }
            }
            Leader::Unknown => {}
        }
        if began.elapsed() >= patience {
            return refusal(&call, "ERR_NOT_ENOUGH_MEMBER");
        }
        server.store.another_leader(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

fn refusal(call: &DataCall, error: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_error(&mut out, &call.call, error);
    out
}
