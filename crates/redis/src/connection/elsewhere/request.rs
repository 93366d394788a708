//! What one node asks another one on behalf of a client.
//!
//! `u32 table | u8 protocol | three bytes of choices`, then commands, of which some are confined to a partition:
//! `u32 partition | u32 length | RESP`. The answer is the replies, one after the other.

use super::{Confined, Part};
use crate::clients::Client;
use crate::connection::choices::Choices;
use crate::connection::session::Session;
use crate::connection::{Connection, Stream};
use crate::resp::{Protocol, Reply};
use crate::server::RedisServer;
use bytes::{Buf, BufMut, Bytes};
use std::sync::Arc;
use tessera_store::Answer;
use tessera_types::TableId;

/// The commands are not confined to one partition.
const ANY: u32 = u32::MAX;

/// The request for these parts.
pub(super) fn encode<'a>(
    table: TableId,
    protocol: Protocol,
    choices: Choices,
    parts: impl Iterator<Item = &'a Part>,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32_le(table.0);
    out.put_u8(if protocol == Protocol::Resp3 { 3 } else { 2 });
    out.put_slice(&choices.encode());
    let mut open: Option<(u32, usize)> = None;
    for part in parts {
        let confined = if part.is_confined { part.partition } else { ANY };
        if open.is_none_or(|(before, _)| before != confined) {
            close(&mut out, open);
            out.put_u32_le(confined);
            out.put_u32_le(0);
            open = Some((confined, out.len()));
        }
        for command in &part.commands {
            let args = command.arguments();
            let mut written = Reply::new(&mut out, Protocol::Resp2);
            written.array(args.len());
            args.iter().for_each(|arg| written.bulk(arg));
        }
    }
    close(&mut out, open);
    out
}

fn close(out: &mut [u8], open: Option<(u32, usize)>) {
    if let Some((_, began)) = open {
        let length = u32::try_from(out.len() - began).expect("a pipeline is shorter than 4 GiB");
        out[began - 4..began].copy_from_slice(&length.to_le_bytes());
    }
}

/// Carries out what [`encode`] wrote. Returns the replies, nothing if the table is not known here.
pub(crate) fn carry_out(server: Arc<RedisServer>, request: Bytes) -> Answer {
    Box::pin(carry_out_now(server, request))
}

async fn carry_out_now(server: Arc<RedisServer>, mut request: Bytes) -> Bytes {
    let mut connection = match session_for(&server, &mut request) {
        Some(session) => Connection::of_another_node(server, session),
        None => return Bytes::new(),
    };
    while let (Ok(confined), Ok(length)) = (request.try_get_u32_le(), request.try_get_u32_le()) {
        if length as usize > request.len() {
            break;
        }
        connection.confined = Some(confined).filter(|partition| *partition != ANY).map_or(Confined::Here, Confined::To);
        connection.input = request.split_to(length as usize).to_vec();
        if connection.process().await.is_err() {
            break;
        }
    }
    std::mem::take(&mut connection.output).into()
}

fn session_for(server: &RedisServer, request: &mut Bytes) -> Option<Session> {
    let table = server.store.table(TableId(request.try_get_u32_le().ok()?))?;
    let mut session = Session::of_another_node(table);
    session.protocol = if request.try_get_u8().ok()? == 3 { Protocol::Resp3 } else { Protocol::Resp2 };
    let mut choices = [0; 3];
    request.try_copy_to_slice(&mut choices).ok()?;
    session.choices = Choices::decode(choices)?;
    session.update();
    Some(session)
}

impl Connection {
    fn of_another_node(server: Arc<RedisServer>, session: Session) -> Self {
        let client = Arc::new(Client::of_another_node());
        let mut connection = Self::new(server, client, Stream::Nowhere);
        connection.session = session;
        connection
    }
}
