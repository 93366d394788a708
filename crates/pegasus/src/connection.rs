//! The life of a connection. Requests pipeline, and replies go out as they finish: reads run at once, where the connection
//! lives, [adjacent GETs](calls::serve_get_batch) together; the writes that one read of the connection brought travel to the partitions' loops
//! together; what another node must do becomes a task of its own.

use crate::access::Access;
use crate::calls::{self, Request};
use crate::execute::{DataCall, DataCalls, DecodedRequest, MISDIRECTED, Sent, decode_request};
use crate::frame::{self, Frame, Taken, read_call, write_error};
use crate::http::Head;
use crate::known_partitions::{KnownPartitions, SplitTable};
use crate::outbox::Outbox;
use crate::server::PegasusServer;
use crate::status::Failure;
use crate::{forward, http, meta};
use bytes::{Buf, BytesMut};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tessera_engine::from_caches;
use tessera_face::{ClientShare, Input, Stream, buffers};
use tessera_store::{Leader, Table};
use tessera_types::Admitted;

/// Requests of one connection that may wait for their reply; more are not read.
const PIPELINE: usize = 10_000;
/// Replies are written out when they have grown to this.
const REPLY_BYTES: usize = 1 << 20;

pub(crate) struct Connection {
    server: Arc<PegasusServer>,
    stream: Stream,
    address: SocketAddr,
    access: Access,
    /// The number of the change of users at which the access was looked up.
    known_users: u64,
    memory: Arc<ClientShare>,
    input: BytesMut,
    /// Bytes still to come of a request that was refused for its length.
    unwanted: usize,
    output: Vec<u8>,
    outbox: Arc<Outbox>,
    /// Whether nothing more is read: the connection ends when all is answered.
    ends: bool,
    known: KnownPartitions,
}

impl Connection {
    pub(crate) fn new(
        server: Arc<PegasusServer>,
        stream: Stream,
        (address, access, known_users): (SocketAddr, Access, u64),
        memory: Arc<ClientShare>,
    ) -> Self {
        let (input, output, outbox) = (BytesMut::new(), Vec::new(), Arc::default());
        let (unwanted, ends) = (0, false);
        let known = KnownPartitions::since(Instant::now());
        Self { server, stream, address, access, known_users, memory, input, unwanted, output, outbox, ends, known }
    }

    /// Serves until the client leaves, errs or stops reading.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        loop {
            // Asked first: what comes meanwhile is not in what is taken.
            let was_waiting = self.outbox.waiting() > 0;
            let mut content = self.outbox.take();
            content.told.into_iter().for_each(|table| self.known.note(table));
            content.elsewhere.into_iter().for_each(|(frame, _)| self.do_again(&frame));
            if self.output.is_empty() {
                std::mem::swap(&mut self.output, &mut content.replies);
            }
            self.output.extend_from_slice(&content.replies);
            buffers::give_back(&mut content.replies);
            self.write_out().await?;
            if !was_waiting && self.outbox.waiting() == 0 {
                self.memory.answered();
                if self.ends {
                    return Ok(());
                }
            }
            tokio::select! {
                bytes = self.stream.read(&mut self.input), if !self.ends && self.outbox.waiting() < PIPELINE => {
                    if bytes? == 0 {
                        return Ok(());
                    }
                    // What was read when the node stops is not carried out.
                    match self.memory.begin() {
                        true => self.process().await?,
                        false => self.ends = true,
                    }
                }
                () = self.outbox.changed() => {}
            }
        }
    }

    /// Carries out every whole request of the input.
    async fn process(&mut self) -> io::Result<()> {
        let users = self.server.store.user_changes();
        if users != self.known_users {
            let access = self.server.access(self.address);
            self.access = access.ok_or_else(|| invalid("the Pegasus face is closed to this client by now"))?;
            self.known_users = users;
        }
        buffers::take(&mut self.output);
        let (received, mut writes) = (Instant::now(), DataCalls::new());
        loop {
            let unwanted = self.unwanted.min(self.input.len());
            self.input.advance(unwanted);
            self.unwanted -= unwanted;
            if self.access.is_everything()
                && let Some(bytes) = calls::serve_get_batch(
                    &self.server,
                    &self.input,
                    received,
                    &mut self.output,
                    (&self.outbox, &self.memory),
                    &mut self.known,
                )
            {
                self.input.advance(bytes);
                self.write_out_much().await?;
                continue;
            }
            match http::head(&self.input) {
                Head::Target(target) if self.access.is_everything() => {
                    self.output.extend_from_slice(&http::respond(&self.server, target));
                    self.ends = true;
                    break;
                }
                Head::Incomplete if self.access.is_everything() => break,
                _ => {}
            }
            match frame::take(&mut self.input, self.server.config.write_bytes) {
                Ok(Taken::Request(frame)) => self.take_request(frame, received, &mut writes)?,
                Ok(Taken::TooLong(frame, rest)) => {
                    self.unwanted = rest;
                    let (call, _) = read_call(&frame).ok_or_else(unreadable)?;
                    write_error(&mut self.output, &call, "ERR_INVALID_DATA");
                }
                Ok(Taken::Incomplete(needed)) => {
                    // A large request that has been announced is read into place.
                    self.input.reserve(needed.saturating_sub(self.input.len()));
                    break;
                }
                Err(error) => return Err(invalid(&format!("no request of a Pegasus client: {error:?}"))),
            }
            self.write_out_much().await?;
        }
        Sent::send(&self.server, &self.outbox, writes);
        self.input.drop_room(); // an idle connection has none
        Ok(())
    }

    fn take_request(&mut self, frame: Frame, received: Instant, writes: &mut DataCalls) -> io::Result<()> {
        self.server.requests.fetch_add(1, Ordering::Relaxed);
        match decode_request(&self.server, &frame, received).ok_or_else(unreadable)? {
            DecodedRequest::Data(call) if !self.access.includes(&call.table.name()) => {
                let began = self.output.len();
                write_error(&mut self.output, &call.call, "ERR_ACL_DENY");
                call.note_answered(&self.server, &self.output[began..]);
            }
            DecodedRequest::Meta(call) if !self.access.is_everything() && call.name() != meta::WHERE => {
                let began = self.output.len();
                write_error(&mut self.output, &call, "ERR_ACL_DENY");
                forward::note_tableless(&self.server, &frame, received, &self.output[began..]);
            }
            // A table that nobody here has heard of is not one that the settings name.
            DecodedRequest::NoTable(_, refusal) if !self.access.is_everything() => {
                forward::note_tableless(&self.server, &frame, received, &refusal);
                self.output.extend_from_slice(&refusal);
            }
            DecodedRequest::Data(call) if self.would_miss_records(&call) => {
                let began = self.output.len();
                write_error(&mut self.output, &call.call, MISDIRECTED);
                call.note_answered(&self.server, &self.output[began..]);
            }
            DecodedRequest::Data(call) => self.carry_out(call, writes),
            DecodedRequest::Meta(call) => {
                let (server, outbox) = (self.server.clone(), self.outbox.clone());
                // Looked for before: what the client will be told is not older.
                let told = meta::located_table(&server, &call, &frame).and_then(|table| SplitTable::of(&table));
                let told = told.filter(|table| self.known.lacks(*table));
                self.reply_later(async move {
                    let reply = meta::answer(&server, &call, &frame).await;
                    forward::note_tableless(&server, &frame, received, &reply);
                    if let Some(table) = told {
                        outbox.note_told(table);
                    }
                    reply
                });
            }
            DecodedRequest::NoTable(table, refusal) => {
                let server = self.server.clone();
                self.reply_later(async move { forward::after_news(&server, table, &frame, refusal).await });
            }
            DecodedRequest::Refused(reply) => {
                forward::note_tableless(&self.server, &frame, received, &reply);
                self.output.extend_from_slice(&reply);
            }
            DecodedRequest::Misdirected(table, reply) => {
                self.knows_partitions_of(&table);
                forward::note_tableless(&self.server, &frame, received, &reply);
                self.output.extend_from_slice(&reply);
            }
        }
        Ok(())
    }

    /// Whether the request begins a scan of a whole partition for a client that [may not know](KnownPartitions) how many there are.
    fn would_miss_records(&mut self, call: &DataCall) -> bool {
        let Some(split) = SplitTable::of(&call.table) else { return false };
        self.known.note_asked(split, call.partition);
        self.known.lacks(split) && call.request.is_whole_scan()
    }

    fn knows_partitions_of(&mut self, table: &Table) {
        if let Some(split) = SplitTable::of(table) {
            self.known.note(split);
        }
    }

    fn carry_out(&mut self, call: Box<DataCall>, writes: &mut DataCalls) {
        if let Request::ClearScanner(context) = call.request {
            return self.server.scanners.forget(context);
        }
        let is_write = matches!(call.request, Request::Write(_));
        let place = match is_write {
            true => call.table.leader_of(call.partition),
            false => call.table.reader_of(call.partition, call.frame.meta.reads()),
        };
        if place != Leader::Here {
            return self.reach(call);
        }
        match call.admission() {
            Admitted::Now => self.carry_out_here(call, writes),
            admission => {
                let server = self.server.clone();
                self.reply_later(async move { forward::reach_later(&server, call, admission).await });
            }
        }
    }

    /// `writes` have gathered so far, of one table.
    fn carry_out_here(&mut self, call: Box<DataCall>, writes: &mut DataCalls) {
        if !matches!(call.request, Request::Write(_)) {
            match from_caches(|| call.read(&self.server, self.server.store.now())) {
                Some(Err(Failure::Elsewhere(_))) => return self.reach(call),
                Some(Err(Failure::WouldWait)) => {
                    let server = self.server.clone();
                    return self.reply_later(async move { forward::read_later(&server, call).await });
                }
                Some(outcome) => return call.reply(&self.server, outcome, &mut self.output),
                None => {}
            }
        }
        if writes.first().is_some_and(|first| !Arc::ptr_eq(&first.table, &call.table)) {
            Sent::send(&self.server, &self.outbox, std::mem::take(writes));
        }
        writes.push(call);
    }

    /// Carries out a request again that was not done.
    fn do_again(&mut self, frame: &Frame) {
        match decode_request(&self.server, frame, Instant::now()) {
            Some(DecodedRequest::Data(call)) => self.reach(call),
            Some(DecodedRequest::Misdirected(table, reply)) => {
                self.knows_partitions_of(&table);
                self.output.extend_from_slice(&reply);
            }
            Some(DecodedRequest::Refused(reply) | DecodedRequest::NoTable(_, reply)) => {
                self.output.extend_from_slice(&reply);
            }
            Some(DecodedRequest::Meta(_)) | None => {}
        }
    }

    /// Has a request carried out by whoever leads its partition.
    fn reach(&self, call: Box<DataCall>) {
        let server = self.server.clone();
        self.reply_later(async move { forward::reach(&server, call).await });
    }

    /// Has a reply made by a task of its own.
    fn reply_later(&self, reply: impl Future<Output = Vec<u8>> + Send + 'static) {
        let (outbox, memory) = (self.outbox.clone(), self.memory.clone());
        outbox.expect();
        tokio::spawn(async move {
            let reply = reply.await;
            // Until the connection takes it and says what it holds in all.
            memory.hold_more(reply.len());
            outbox.reply(|out| out.extend_from_slice(&reply));
        });
    }

    async fn write_out_much(&mut self) -> io::Result<()> {
        if self.output.len() >= REPLY_BYTES { self.write_out().await } else { Ok(()) }
    }

    /// Writes the replies that are ready; fails if the client takes none of them for too long.
    async fn write_out(&mut self) -> io::Result<()> {
        self.memory.hold(self.input.capacity() + self.output.capacity());
        self.stream.write(&self.output, self.server.config.write_timeout).await?;
        buffers::give_back(&mut self.output);
        Ok(())
    }
}

fn unreadable() -> io::Error {
    invalid("a message that cannot be read")
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
