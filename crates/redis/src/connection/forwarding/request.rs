//! What one node asks another one on behalf of a client.
//!
//! A [table](TableIdentity), `u8 protocol | three bytes of options`, then runs of parts that are all in one partition, or in any:
//! `u32 partition | u32 parts | u32 length | for each part u32 commands | RESP`, the length being that of the RESP. Numbers are
//! little-endian.

use super::{Part, Reach};
use crate::clients::Client;
use crate::connection::Connection;
use crate::connection::frame::OwnedFrame;
use crate::connection::session::Session;
use crate::connection::session_options::SessionOptions;
use crate::resp::{Protocol, Reply};
use crate::server::RedisServer;
use bytes::{Buf, BufMut, Bytes};
use std::sync::Arc;
use tessera_store::{Envelope, Outcomes, TableIdentity};

/// The commands may concern any partition.
const ANY: u32 = u32::MAX;

/// The request for these parts.
pub(super) fn encode(table: TableIdentity, protocol: Protocol, options: SessionOptions, parts: &[&Part]) -> Vec<u8> {
    let reach = |part: &Part| if part.work.is_in_partition { part.partition } else { ANY };
    let number = |number: usize| u32::try_from(number).expect("a pipeline is shorter than 4 GiB");
    // The lengths that stand before each argument have a dozen bytes at most, and so have the numbers of a run.
    let room = |frame: &OwnedFrame| frame.bytes() + 16 * (frame.len() + 2);
    let mut out = Vec::with_capacity(16 + parts.iter().flat_map(|part| &part.work.frames).map(room).sum::<usize>());
    table.encode(&mut out);
    out.put_u8(if protocol == Protocol::Resp3 { 3 } else { 2 });
    out.put_slice(&options.encode());
    for run in parts.chunk_by(|one, other| reach(one) == reach(other)) {
        out.put_u32_le(reach(run[0]));
        out.put_u32_le(number(run.len()));
        out.put_u32_le(0);
        run.iter().for_each(|part| out.put_u32_le(number(part.work.frames.len())));
        let began = out.len();
        for frame in run.iter().flat_map(|part| &part.work.frames) {
            let args = frame.arguments();
            let mut written = Reply::new(&mut out, Protocol::Resp2);
            written.array(args.len());
            args.iter().for_each(|arg| written.bulk(arg));
        }
        let length = number(out.len() - began).to_le_bytes();
        let place = began - 4 * run.len() - 4;
        out[place..place + 4].copy_from_slice(&length);
    }
    out
}

/// Carries out what [`encode`] wrote.
pub(crate) fn carry_out(server: Arc<RedisServer>, request: Bytes) -> Outcomes {
    Box::pin(carry_out_now(server, request))
}

async fn carry_out_now(server: Arc<RedisServer>, mut request: Bytes) -> Envelope {
    let mut connection = match session_for(&server, &mut request) {
        Some(session) => Connection::of_another_node(server, session),
        None => return Envelope::default(),
    };
    // Nothing is done before all of it is read: the answer has an outcome for each part.
    let mut runs = Vec::new();
    while !request.is_empty() {
        match next_run(&mut request) {
            Some(run) => runs.push(run),
            None => return Envelope::default(),
        }
    }
    let parts: Vec<u32> = runs.iter().flat_map(|(_, counts, _)| counts).copied().collect();
    for (reach, _, pipeline) in runs {
        connection.reach = reach;
        connection.input = pipeline.to_vec();
        if connection.process().await.is_err() {
            break;
        }
    }
    std::mem::take(&mut connection.output).into_envelope(&parts)
}

/// The reach of the commands of the next run, how many commands each part has, and the commands; `None` if
/// it cannot be read.
fn next_run(request: &mut Bytes) -> Option<(Reach, Vec<u32>, Bytes)> {
    let reach = request.try_get_u32_le().ok().filter(|partition| *partition != ANY);
    let (parts, length) = (request.try_get_u32_le().ok()?, request.try_get_u32_le().ok()?);
    if parts as usize > request.len() / 4 {
        return None;
    }
    let counts = (0..parts).map(|_| request.get_u32_le()).collect();
    if length as usize > request.len() {
        return None;
    }
    Some((reach.map_or(Reach::Node, Reach::Partition), counts, request.split_to(length as usize)))
}

fn session_for(server: &RedisServer, request: &mut Bytes) -> Option<Session> {
    let table = server.store.table_identified(TableIdentity::decode(request)?)?;
    let mut session = Session::of_another_node(table);
    session.protocol = if request.try_get_u8().ok()? == 3 { Protocol::Resp3 } else { Protocol::Resp2 };
    let mut options = [0; 3];
    request.try_copy_to_slice(&mut options).ok()?;
    session.options = SessionOptions::decode(options)?;
    session.update();
    Some(session)
}

impl Connection {
    fn of_another_node(server: Arc<RedisServer>, session: Session) -> Self {
        let client = Arc::new(Client::of_another_node());
        let mut connection = Self::new(server, client, None);
        connection.session = session;
        connection
    }
}
