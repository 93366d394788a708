//! Carrying out a request for data on the node that leads its partition.

use crate::calls::{self, Origin, Read, Request, Response, Tally};
use crate::frame::{Call, Frame, read_call, write_error};
use crate::outbox::Outbox;
use crate::server::PegasusServer;
use crate::slow_log::{self, Cost, Many};
use crate::status::Failure;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;
use tessera_engine::from_caches;
use tessera_store::{Admissions, Leader, Operation, Table, Transaction, Verdict, WriteOptions};
use tessera_types::{Admitted, Model, RecordKey, RequestError, TableNumber, UnixMillis};

/// The app env by which operators have requests refused that ask the wrong partition.
pub(crate) const VALIDATE_HASH: &str = "replica.split.validate_partition_hash";

/// A request for data that has been understood.
#[derive(Clone)]
pub(crate) struct DataCall {
    pub(crate) frame: Frame,
    pub(crate) call: Call,
    pub(crate) request: Request,
    pub(crate) table: Arc<Table>,
    pub(crate) partition: u32,
    pub(crate) received: Instant,
    /// `None` if another node has asked, or if whoever has the request carried out counts it.
    pub(crate) tally: Option<Tally>,
    /// `None` for a table that admits everything.
    admissions: Option<Arc<Admissions>>,
}

/// Calls are large, and move several times.
#[allow(clippy::vec_box)]
pub(crate) type DataCalls = Vec<Box<DataCall>>;

/// What a message turned out to be.
pub(crate) enum DecodedRequest {
    Data(Box<DataCall>),
    /// Something for the meta server; the name is the call's.
    Meta(Call),
    /// With the reply, which is right unless news of a table is on its way.
    NoTable(TableNumber, Vec<u8>),
    /// With the reply.
    Refused(Vec<u8>),
    /// With the reply, by which the client learns that the table has another number of partitions.
    Misdirected(Arc<Table>, Vec<u8>),
}

/// The error by which a client learns that the table has another number of partitions than it expects.
pub(crate) const MISDIRECTED: &str = "ERR_PARENT_PARTITION_MISUSED";

/// Makes out what a frame asks that was received at some time; `None` if nothing can be replied to it.
pub(crate) fn decode_request(server: &PegasusServer, frame: &Frame, received: Instant) -> Option<DecodedRequest> {
    let (call, arguments) = read_call(frame)?;
    let Some(parsed) = calls::parse(call.name(), arguments) else { return Some(DecodedRequest::Meta(call)) };
    let understood = parsed.map_err(Failure::from).and_then(|request| {
        let (table, partition) = locate(server, frame, &request)?;
        Ok((request, table, partition))
    });
    Some(match understood {
        Ok((request, table, partition)) => {
            let (frame, admissions) = (frame.clone(), table.admissions());
            let tally = Some(Tally::of(&request, received));
            let call = DataCall { frame, call, request, table, partition, received, tally, admissions };
            DecodedRequest::Data(Box::new(call))
        }
        Err(failure) => {
            let mut out = Vec::new();
            let error = if let Failure::Header(error) = failure { error } else { "ERR_INVALID_DATA" };
            write_error(&mut out, &call, error);
            let Ok(number) = u32::try_from(frame.meta.table).map(TableNumber) else {
                return Some(DecodedRequest::Refused(out));
            };
            match server.store.table_numbered(number) {
                None => DecodedRequest::NoTable(number, out),
                Some(table) if error == MISDIRECTED => DecodedRequest::Misdirected(table, out),
                Some(_) => DecodedRequest::Refused(out),
            }
        }
    })
}

/// The table and the partition that a request is for.
fn locate(server: &PegasusServer, frame: &Frame, request: &Request) -> Result<(Arc<Table>, u32), Failure> {
    let not_found = Failure::Header("ERR_OBJECT_NOT_FOUND");
    let id = u32::try_from(frame.meta.table).map_err(|_| not_found.clone())?;
    let table = server.store.table_numbered(TableNumber(id)).ok_or_else(|| not_found.clone())?;
    // Its documents are for ReQL clients. Clients of Apache Pegasus show the name of an error, and no text.
    if table.schema().model == Model::Document {
        return Err(Failure::Header("ERR_INVALID_PARAMETERS"));
    }
    let asked = u32::try_from(frame.meta.partition).map_err(|_| not_found.clone())?;
    if asked >= table.schema().partitions {
        return Err(not_found);
    }
    let partition = request.key()?.map_or(asked, |key| table.partition_of(&key));
    if partition != asked && is_hash_validated(&table) {
        return Err(Failure::Header(MISDIRECTED));
    }
    if let Request::Read(Read::BatchGet(batch)) = request {
        let is_there = |key: &calls::messages::FullKey| {
            table.partition_of(&RecordKey::new(&key.hash_key.0, &key.sort_key.0)) == asked
        };
        if !batch.keys.iter().all(is_there) {
            return Err(Failure::Header(MISDIRECTED));
        }
    }
    Ok((table, partition))
}

/// Whether a request that asks a partition for a key of another one is refused. As in Pegasus that is so once the table has been split,
/// since the client may believe that it has fewer partitions, or if operators want it. Else the request is carried out in the key's
/// own partition.
fn is_hash_validated(table: &Table) -> bool {
    table.was_split() || table.settings().app_envs.get(VALIDATE_HASH).is_some_and(|value| value == "true")
}

impl DataCall {
    fn origin<'a>(&self, server: &'a PegasusServer) -> Origin<'a> {
        Origin {
            table: self.frame.meta.table,
            partition: self.frame.meta.partition,
            decree: i64::try_from(self.table.applied_index(self.partition)).unwrap_or(i64::MAX),
            server: &server.address,
        }
    }

    /// Until when the request is tried, since its client waits no longer.
    pub(crate) fn until(&self) -> Instant {
        self.received + self.frame.patience()
    }

    /// What is to become of the request, which this node leads.
    pub(crate) fn admission(&self) -> Admitted {
        let is_write = matches!(self.request, Request::Write(_));
        let admissions = self.admissions.as_ref();
        admissions.map_or(Admitted::Now, |all| all.admit(&*self.table, is_write, self.frame.bytes.len()))
    }

    /// Appends the reply.
    pub(crate) fn reply(&self, server: &PegasusServer, outcome: Result<Response, Failure>, out: &mut Vec<u8>) {
        let began = out.len();
        let records = outcome.as_ref().map_or(0, Response::scanned);
        self.write_reply(server, outcome, out);
        self.note_answered(server, &out[began..]);
        if !matches!(self.request, Request::Write(_)) {
            self.note_read(out.len() - began, records);
        }
    }

    /// Counts the request, which is answered with this.
    pub(crate) fn note_answered(&self, server: &PegasusServer, reply: &[u8]) {
        if let Some(tally) = self.tally {
            tally.note(&server.meter, Some(&self.table), reply);
        }
    }

    fn note_read(&self, bytes: usize, records: usize) {
        let many = match &self.request {
            Request::Read(Read::Get(_) | Read::Ttl(_)) => Many::OF_ONE,
            Request::Read(Read::MultiGet(_)) => Many::OF_MULTI_GET,
            Request::Read(Read::BatchGet(_)) => Many::OF_BATCH_GET,
            _ => Many::OF_OTHERS,
        };
        let cost = Cost { took: self.received.elapsed(), bytes, records };
        if slow_log::is_due(&self.table, many, cost) {
            let key = self.request.key().ok().flatten();
            slow_log::note(&self.table, self.partition, self.call.name(), key, cost);
        }
        if let Some(admissions) = &self.admissions {
            admissions.note_read(bytes);
        }
    }

    /// Appends the reply, of which the slow log and the table's rates do not hear.
    pub(crate) fn write_reply(&self, server: &PegasusServer, outcome: Result<Response, Failure>, out: &mut Vec<u8>) {
        match outcome {
            Ok(response) => response.write(out, &self.call, self.origin(server)),
            Err(Failure::Body(code)) => {
                Response::failed(&self.request, code).write(out, &self.call, self.origin(server));
            }
            Err(Failure::Header(error)) => write_error(out, &self.call, error),
            Err(Failure::Elsewhere(_)) => write_error(out, &self.call, "ERR_NOT_ENOUGH_MEMBER"),
            Err(Failure::WouldWait) => write_error(out, &self.call, "ERR_BUSY"),
        }
    }

    /// As [`Self::read`], with what the caches have, or else where one may wait for the disk; and a scan waits for writes on their way that may
    /// let records live on that have expired by the clock.
    pub(crate) async fn read_with_patience(&self, server: &Arc<PegasusServer>) -> Option<Result<Response, Failure>> {
        let (now, until) = (server.store.now(), self.until());
        let is_scan = matches!(self.request, Request::GetScanner(_) | Request::Scan(_));
        loop {
            let found = match from_caches(|| self.read(server, now)) {
                Some(Err(Failure::WouldWait)) => {
                    let (call, its_server) = (self.clone(), server.clone());
                    let read = server.store.disk_readers().read_from_disk(move || call.read(&its_server, now)).await;
                    read.unwrap_or_else(|error| Some(Err(error.into())))
                }
                read => read,
            };
            let is_refused = is_scan && matches!(found, Some(Err(Failure::Elsewhere(_))));
            if !is_refused || !server.store.settles(&self.table, self.partition, until).await {
                return found;
            }
        }
    }

    /// Carries out what is no write, here and now; `None` if the partition's loop must do it: writes come between too fast, or one that is on
    /// its way, or a transaction over partitions, for which the loop waits, has to do with what is read.
    pub(crate) fn read(&self, server: &PegasusServer, now: UnixMillis) -> Option<Result<Response, Failure>> {
        let (table, partition) = (&*self.table, self.partition);
        let outcome = match &self.request {
            Request::GetScanner(request) => server.scanners.begin(table, partition, request, now),
            Request::Scan(request) => server.scanners.next(table, partition, request.context, now),
            Request::Read(read) => {
                let outcome = self.read_at_one_instant(read, now);
                let is_for_loop =
                    matches!(outcome, Some(Err(Failure::Elsewhere(_)))) && table.leader_of(partition) == Leader::Here;
                return outcome.filter(|_| !is_for_loop);
            }
            Request::Write(_) | Request::ClearScanner(_) => Err(RequestError::NotReady),
        };
        Some(outcome.map_err(Failure::from))
    }

    fn read_at_one_instant(&self, read: &Read, now: UnixMillis) -> Option<Result<Response, Failure>> {
        let (table, partition, reads) = (&*self.table, self.partition, self.frame.meta.reads());
        if matches!(read, Read::Get(_) | Read::Ttl(_)) {
            // One record is of one instant.
            let outcome = Transaction::read_only(table, partition, reads, now)
                .and_then(|transaction| Ok((calls::run_read(read, &transaction)?, transaction.check_lease()?)));
            return Some(outcome.map(|(response, ())| response).map_err(Failure::from));
        }
        let outcome = table.read_instant(partition, reads, now, |transaction| calls::run_read(read, transaction));
        outcome.map_err(|error: RequestError| Failure::from(error)).transpose()
    }
}

/// Requests on their way to the partitions' loops.
pub(crate) struct Sent {
    server: Arc<PegasusServer>,
    outbox: Arc<Outbox>,
    parts: Vec<Part>,
}

struct Part {
    call: Box<DataCall>,
    /// What its evaluation came to.
    evaluated: Mutex<Option<Result<Response, Failure>>>,
}

impl Sent {
    /// Sends requests of one table, each to its partition's loop. Their replies come to the outbox.
    pub(crate) fn send(server: &Arc<PegasusServer>, outbox: &Arc<Outbox>, calls: DataCalls) {
        let Some(first) = calls.first() else { return };
        let table = first.table.clone();
        let partitions: Vec<u32> = calls.iter().map(|call| call.partition).collect();
        calls.iter().for_each(|_| outbox.expect());
        let parts = calls.into_iter().map(|call| Part { call, evaluated: Mutex::default() }).collect();
        let sent: Arc<dyn Operation> = Arc::new(Self { server: server.clone(), outbox: outbox.clone(), parts });
        server.store.write(&table, WriteOptions::default(), &sent, partitions);
    }
}

impl Operation for Sent {
    fn evaluate(&self, part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let Part { call, evaluated } = &self.parts[part];
        let outcome = match &call.request {
            Request::Write(write) => calls::run_write(write, transaction),
            Request::Read(read) => calls::run_read(read, transaction),
            Request::GetScanner(_) | Request::Scan(_) | Request::ClearScanner(_) => Err(RequestError::NotReady),
        };
        let wrote = matches!(call.request, Request::Write(_)) && outcome.as_ref().is_ok_and(Response::is_ok);
        *evaluated.lock() = Some(outcome.map_err(Failure::from));
        if wrote { Verdict::Commit } else { Verdict::Abandon }
    }

    fn only_reads(&self, part: usize) -> bool {
        matches!(self.parts[part].call.request, Request::Read(_))
    }

    fn answer(&self, part: usize, outcome: Result<(), RequestError>) {
        let Part { call, evaluated } = &self.parts[part];
        let evaluated = || evaluated.lock().take().expect("what is answered with success was evaluated");
        match outcome.map_err(Failure::from).and_then(|()| evaluated()) {
            Err(Failure::Elsewhere(reason)) => self.outbox.take_back(call.frame.clone(), reason),
            outcome => self.outbox.reply(|out| call.reply(&self.server, outcome, out)),
        }
    }
}
