//! The life of a connection: queries come in frames with a token, run beside each other, and are answered as they finish. A
//! stream stays open under its token until it has ended, is stopped, or nobody has asked for more for too long.

use crate::frame::{Frames, Incoming};
use crate::handshake;
use crate::identity::server_id;
use crate::logins::Asker;
use crate::memory::{Held, Kept};
use crate::outgoing::{Outgoing, write};
use crate::point::{self, Asked};
use crate::queries::{Ending, Open, Queries, Running, Work, batch, batch_or_nothing, run, something_new};
use crate::received::Received;
use crate::respond::{self, Reply};
use crate::shared::Shared;
use crate::tally::Tally;
use crate::turn::Turn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tessera_face::{ClientShare, Stream};
use tessera_reql::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

/// Queries of one connection that run; more are not read until one of them has ended.
const MAX_QUERIES: usize = 1024;
/// Answers that wait for the client to read them; queries wait beyond.
const ANSWERS: usize = 16;
/// Queries of a client that has them answered in their order which are read before it is their turn.
const READ_AHEAD: usize = 16;
/// Longer queries are read on a thread for queries, so that other connections go on meanwhile.
const SHORT_BYTES: usize = 64 << 10;
/// How long a feed that has nothing keeps a request waiting where each request waits for its answer: then it is told that there is nothing
/// yet. Whoever has left for good is noticed so, and gives up the connection that the request has come through.
const LONGEST_WAIT: Duration = Duration::from_secs(25);
const FAULT: &str = "The query ended by a fault of the server.";

/// How a connection ends whose client has not failed.
enum End {
    ClientLeft,
    /// The client is to have the answers that are ready.
    Told,
}

/// How a client has its queries answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As they finish.
    Beside,
    /// In their order: one is read when the one before it is answered.
    OneByOne,
    /// As they finish, and each of them: somebody waits for every answer.
    Each,
}

pub(crate) struct Connection {
    shared: Arc<Shared>,
    queries: Arc<Queries>,
    held: Arc<Held>,
    answers: mpsc::Sender<Outgoing>,
    asker: Arc<Asker>,
    count: u64,
    manner: Manner,
}

/// Ends what a connection has under way when it goes.
struct Ended(Arc<Queries>);

impl Drop for Ended {
    fn drop(&mut self) {
        let open = std::mem::take(&mut *self.0.open.lock());
        open.values().for_each(Open::end);
    }
}

impl Connection {
    /// Serves until the client leaves or errs. What it has under way ends with this.
    pub(crate) async fn run(
        shared: Arc<Shared>,
        stream: TcpStream,
        address: SocketAddr,
        share: Arc<ClientShare>,
    ) -> io::Result<()> {
        // The handshake of TLS and that of the driver have one time limit together. What they need is let go of before the connection
        // serves: most connections are idle, and what they take counts.
        let come_in = Box::pin(async {
            let mut stream = Stream::accept(stream, shared.tls.as_ref()).await?;
            let agreed = handshake::greet(&mut stream, &shared.logins, tessera_access::scram_nonce).await?;
            Ok(agreed.map(|agreed| (stream, agreed)))
        });
        let Some((stream, agreed)) = shared.handshakes.run(come_in).await? else { return Ok(()) };
        let manner = if agreed.one_by_one { Manner::OneByOne } else { Manner::Beside };
        let queries = Queries::new(address, &agreed.user, &shared.turns);
        if let Some((reader, writer)) = Self::serve(shared, tokio::io::split(stream), manner, queries, share).await? {
            reader.unsplit(writer).linger().await;
        }
        Ok(())
    }

    /// Serves somebody who has come in. Returns the two directions if the client is to take what was sent before they are closed.
    pub(crate) async fn serve<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        shared: Arc<Shared>,
        (reader, writer): (R, W),
        manner: Manner,
        queries: Queries,
        share: Arc<ClientShare>,
    ) -> io::Result<Option<(R, W)>> {
        let (answers, waiting) = mpsc::channel(ANSWERS);
        let patience = match manner {
            // Answers go into a pipe, and wait there for room that others make: that is not this client's fault.
            Manner::Each => Duration::MAX,
            Manner::Beside | Manner::OneByOne => shared.config.write_timeout,
        };
        let mut writing = pin!(write(writer, waiting, patience));
        let asker = Arc::new(shared.logins.asker(queries.share.name.clone()));
        let queries = Arc::new(queries);
        let ended = Ended(queries.clone());
        let entered = shared.clients.enter(queries.clone());
        let mut connection = Self { shared, queries, held: Held::new(share), answers, asker, count: 0, manner };
        let limit = connection.shared.config.query_bytes;
        let mut frames = Frames::new(reader, connection.held.clone(), limit);
        let read = async {
            match manner {
                // Few clients are so old, and the others need not be as large.
                Manner::OneByOne => Box::pin(connection.read_ahead(&mut frames, limit)).await,
                Manner::Beside | Manner::Each => connection.read(&mut frames, limit).await,
            }
        };
        let end = tokio::select! {
            end = read => end?,
            outcome = &mut writing => return outcome.map(|_| None),
        };
        drop((connection, ended, entered));
        match end {
            End::ClientLeft => Ok(None),
            End::Told => {
                let writer = writing.await?;
                Ok(Some((frames.into_inner(), writer)))
            }
        }
    }

    async fn read<R: AsyncRead + Unpin>(&mut self, frames: &mut Frames<R>, limit: usize) -> io::Result<End> {
        loop {
            let incoming = frames.next().await?;
            let end = tokio::select! {
                biased;
                end = self.meet(incoming, limit) => end,
                // There may be no room for a query for as long as others run.
                () = frames.left() => Some(End::ClientLeft),
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// The same for a client that has its queries answered in their order: while one is answered, those behind it are read, and so it is
    /// noticed that the client leaves.
    async fn read_ahead<R: AsyncRead + Unpin>(&mut self, frames: &mut Frames<R>, limit: usize) -> io::Result<End> {
        let (sender, mut waiting) = mpsc::channel(READ_AHEAD);
        let coming = async {
            loop {
                match frames.next().await? {
                    Incoming::End => return Ok(End::ClientLeft),
                    incoming => {
                        let is_last = matches!(incoming, Incoming::TooLong { .. });
                        if sender.send(incoming).await.is_err() || is_last {
                            // The answers end the connection.
                            std::future::pending::<()>().await;
                        }
                    }
                }
            }
        };
        let answering = async {
            while let Some(incoming) = waiting.recv().await {
                if let Some(end) = self.meet(incoming, limit).await {
                    return Ok(end);
                }
            }
            Ok(End::ClientLeft)
        };
        tokio::select! {
            end = coming => end,
            end = answering => end,
        }
    }

    /// Takes what has come. Returns how the connection ends, if it does.
    async fn meet(&mut self, incoming: Incoming, limit: usize) -> Option<End> {
        match incoming {
            Incoming::Query { token, text, kept } => {
                self.take(token, text, kept).await;
                None
            }
            Incoming::TooLong { token, length } => {
                let message = format!("The query has {length} bytes, the limit `reql.query_bytes` is {limit}.");
                self.answer(token, respond::client_error(message)).await;
                Some(End::Told)
            }
            Incoming::End => Some(End::ClientLeft),
        }
    }

    async fn answer(&self, token: i64, reply: Reply) {
        self.shared.counts.note(&reply);
        let kept = self.held.keep(reply.text.len());
        let _ = self.answers.send(Outgoing { token, text: reply.text, _kept: kept }).await;
    }

    async fn take(&mut self, token: i64, text: Vec<u8>, kept: Kept) {
        let (is_short, at) = (text.len() <= SHORT_BYTES, Instant::now());
        let understood = if is_short {
            understand(text)
        } else {
            // Whoever holds too much is told before its query is read.
            tokio::task::yield_now().await;
            let reading = self.shared.read(move || understand(text)).await;
            reading.unwrap_or_else(|| Err(respond::client_error(FAULT.into())))
        };
        match understood {
            Err(refusal) => self.answer(token, refusal).await,
            Ok(Request::Start(query)) => self.start(Received::new(token, *query, at, is_short, kept)).await,
            Ok(Request::Continue) => self.go_on(token).await,
            Ok(Request::Stop) => self.stop(token).await,
            Ok(Request::NoreplyWait) => {
                let (queries, answers, count) = (self.queries.clone(), self.answers.clone(), self.count);
                tokio::spawn(async move {
                    loop {
                        let ended = queries.ended.notified();
                        if queries.running.lock().first().is_none_or(|first| *first > count) {
                            break;
                        }
                        ended.await;
                    }
                    let text = Reply::wait_complete().text;
                    let _ = answers.send(Outgoing { token, text, _kept: kept }).await;
                });
            }
            Ok(Request::ServerInfo) => {
                let node = self.shared.store.node();
                let info = serde_json::json!({
                    "id": server_id(node), "name": format!("node-{node}"), "proxy": false
                });
                let text = serde_json::json!({"t": 5, "r": [info]}).to_string().into_bytes();
                self.answer(token, Reply::good(text)).await;
            }
        }
    }

    /// Notes that a query runs, once the connection has room for it.
    async fn begin(&mut self, of_user: Option<OwnedSemaphorePermit>) -> Running {
        self.count += 1;
        loop {
            let ended = self.queries.ended.notified();
            if self.queries.running.lock().len() < MAX_QUERIES {
                break;
            }
            ended.await;
        }
        Running::new(self.queries.clone(), self.count, of_user)
    }

    async fn start(&mut self, received: Received) {
        let token = received.token;
        if self.manner == Manner::Each && received.is_noreply {
            return self
                .answer(token, respond::client_error("noreply queries are not supported over HTTP".into()))
                .await;
        }
        let is_open = self.queries.open.lock().contains_key(&token);
        if !is_open {
            self.shared.counts.queries.fetch_add(1, Ordering::Relaxed);
            if self.shared.refusal().is_none()
                && let Some(reply) = point::answer(&self.shared, &self.asker, &received.query, received.at)
            {
                drop(received);
                let is_long = reply.text.len() > SHORT_BYTES;
                self.answer(token, reply).await;
                if is_long {
                    // Whoever holds too much is told before more is found.
                    tokio::task::yield_now().await;
                }
                return;
            }
        }
        // On the heap: most queries are answered by now, and what the others need would make every connection larger.
        Box::pin(self.carry_out(received)).await;
    }

    /// Has a query carried out that was not answered at once.
    async fn carry_out(&mut self, received: Received) {
        let tally = Tally::of(&self.shared, &received.query, received.at);
        let of_user = match self.queries.share.place(received.is_noreply).await {
            Ok(of_user) => of_user,
            Err(refusal) => {
                let refusal = respond::failure(&refusal);
                tally.note(&self.shared, &refusal);
                return self.answer(received.token, refusal).await;
            }
        };
        let running = self.begin(Some(of_user)).await;
        let turn = self.shared.turns.turn(&self.queries.share);
        let number = self.shared.clients.next_query();
        let entered = match self.shared.refusal() {
            Some(refusal) => Err(respond::failure(&refusal)),
            None => self.queries.enter(&received, number, &turn),
        };
        let Received { token, query, is_short, is_noreply, kept, .. } = received;
        if let Err(refusal) = entered {
            tally.note(&self.shared, &refusal);
            // Whoever waits for no answer would take it for that of another query.
            return match is_noreply {
                true => self.shared.counts.note(&refusal),
                false => self.answer(token, refusal).await,
            };
        }
        let (shared, queries) = (self.shared.clone(), self.queries.clone());
        let asked = if is_short { Asked::of(&self.shared, &self.asker, &query) } else { None };
        let (asker, held) = (self.asker.clone(), self.held.clone());
        let work = move || run(&shared, asker, held, &queries, token, query);
        let task = self.spawn((token, turn, Some(tally)), running, kept, !is_noreply, asked, work);
        self.wait_for_turn(task).await;
    }

    async fn go_on(&mut self, token: i64) {
        let found = {
            let mut open = self.queries.open.lock();
            let query = open.get_mut(&token).filter(|query| !query.is_running);
            let ending = query.as_ref().and_then(|query| query.ending);
            let found = query.and_then(|query| {
                query.is_running = true;
                Some((query.rows.take()?, query.turn.clone()))
            });
            if ending.is_some() {
                open.remove(&token);
            }
            ending.map_or(Ok(found), Err)
        };
        let found = match found {
            Ok(found) => found,
            Err(ending) => return self.answer(token, ending.reply()).await,
        };
        let Some((rows, turn)) = found else {
            let message = format!("Token {token} not in stream cache.");
            return self.answer(token, respond::client_error(message)).await;
        };
        let running = self.begin(None).await;
        let (shared, queries, kept) = (self.shared.clone(), self.queries.clone(), self.held.keep(0));
        let task =
            self.spawn((token, turn, None), running, kept, true, None, move || batch(&shared, &queries, token, rows));
        self.wait_for_turn(task).await;
    }

    /// Has a partition answer what it is `asked`; otherwise, and if it does not, runs work on a thread for queries. Sends the answer. A
    /// query that is new has a `tally`, and is counted.
    fn spawn(
        &self,
        (token, turn, tally): (i64, Arc<Turn>, Option<Tally>),
        running: Running,
        mut kept: Kept,
        is_answered: bool,
        asked: Option<Asked>,
        work: impl FnOnce() -> Work + Send + 'static,
    ) -> JoinHandle<()> {
        let (shared, answers, queries) = (self.shared.clone(), self.answers.clone(), self.queries.clone());
        let mut running = Some(running);
        // What a partition is asked has no thread, by which the node would know that it is to wait.
        let (mut carried_out, asked) = match asked.and_then(|asked| Some((self.held.begin()?, asked))) {
            Some((carried_out, asked)) => (Some(carried_out), Some(asked)),
            None => (None, None),
        };
        let longest = (self.manner == Manner::Each).then_some(LONGEST_WAIT);
        tokio::spawn(async move {
            let answered = match asked {
                Some(asked) => asked.answer(&shared).await,
                None => None,
            };
            let reply = if let Some(reply) = answered {
                let query = queries.open.lock().remove(&token);
                match query.and_then(|query| query.ending).filter(|_| reply.class.is_some()) {
                    Some(ending) => ending.reply(),
                    None => reply,
                }
            } else {
                drop(carried_out.take());
                let mut work: Box<dyn FnOnce() -> Work + Send> = Box::new(work);
                let until = longest.map(|longest| Instant::now() + longest);
                loop {
                    let under_way = tokio::select! {
                        under_way = turn.begin(&queries.threads) => under_way,
                        // Nobody waits for the answer any more.
                        () = answers.closed() => return,
                    };
                    let outcome = tokio::task::spawn_blocking(work).await;
                    drop(under_way);
                    let (rows, wait) = match outcome {
                        Ok(Work::Reply(reply)) => break reply,
                        Ok(Work::Wait(rows, wait)) => (rows, wait),
                        Err(_) => {
                            queries.open.lock().remove(&token);
                            break respond::client_error(FAULT.into());
                        }
                    };
                    // A feed may wait for ever, and takes up nothing meanwhile.
                    running = None;
                    let is_over = tokio::select! {
                        () = something_new(&shared, &queries, token, wait) => false,
                        () = at(until) => true,
                        () = answers.closed() => return,
                    };
                    let (shared, queries) = (shared.clone(), queries.clone());
                    work = match is_over {
                        false => Box::new(move || batch(&shared, &queries, token, rows)),
                        true => Box::new(move || batch_or_nothing(&shared, &queries, token, rows)),
                    };
                }
            };
            shared.counts.note(&reply);
            if let Some(tally) = tally {
                tally.note(&shared, &reply);
            }
            if is_answered {
                kept.change(reply.text.capacity());
                let _ = answers.send(Outgoing { token, text: reply.text, _kept: kept }).await;
            } else {
                // Nobody will ask for the rest of a stream.
                let mut open = queries.open.lock();
                if open.get(&token).is_some_and(|query| Arc::ptr_eq(&query.turn, &turn)) {
                    open.remove(&token);
                }
            }
            drop((running, carried_out));
        })
    }

    /// A client whose protocol has its queries answered in their order has the next one read when this one is answered.
    async fn wait_for_turn(&self, task: JoinHandle<()>) {
        if self.manner == Manner::OneByOne {
            let _ = task.await;
        }
    }

    async fn stop(&self, token: i64) {
        let is_open = {
            let mut open = self.queries.open.lock();
            match open.get_mut(&token) {
                None => false,
                Some(query) if query.is_running => {
                    query.ending = Some(Ending::Stopped);
                    query.end();
                    true
                }
                Some(_) => open.remove(&token).is_some(),
            }
        };
        let reply = match is_open {
            true => Reply::no_more(),
            false => respond::client_error(format!("Token {token} not in stream cache.")),
        };
        self.answer(token, reply).await;
    }
}

/// Waits for a moment, if there is one.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

/// Reads a request.
pub(crate) fn understand(text: Vec<u8>) -> Result<Request, Reply> {
    let buggy = |_| respond::client_error("Client is buggy (failed to deserialize query).".into());
    Request::read(&String::from_utf8(text).map_err(buggy)?).map_err(|failure| respond::failure(&failure))
}
