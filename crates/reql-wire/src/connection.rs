//! The life of a connection: queries come in frames with a token, run beside each other, and are answered as they finish. A
//! stream stays open under its token until it has ended, is stopped, or nobody has asked for more for too long.

use crate::handshake;
use crate::respond::{self, ATOM, NO_MORE, Values, WAIT_COMPLETE};
use crate::rows::Rows;
use crate::server::Shared;
use crate::source::Tables;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_document::{Time, Timezone, Value};
use tessera_reql::{Answer, Failure, Query, Request, Stop};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

/// Queries of one connection that run or have an open stream.
const MAX_QUERIES: usize = 1024;
/// Answers that wait for the client to read them; queries wait beyond.
const ANSWERS: usize = 16;
/// How long a client may take to read an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

struct Open {
    stop: Arc<Stop>,
    /// `None` while rows are being fetched.
    rows: Option<Rows>,
    /// Whether an answer to this token is under way.
    is_running: bool,
    is_stopped: bool,
    used: Instant,
}

#[derive(Default)]
struct Queries {
    open: Mutex<BTreeMap<i64, Open>>,
    /// Numbers of the queries that run.
    running: Mutex<BTreeSet<u64>>,
    ended: Notify,
}

pub(crate) struct Connection {
    shared: Arc<Shared>,
    queries: Arc<Queries>,
    answers: mpsc::Sender<(i64, Vec<u8>)>,
    count: u64,
    one_by_one: bool,
}

/// Ends what a connection has under way when it goes.
struct Ended(Arc<Queries>);

impl Drop for Ended {
    fn drop(&mut self) {
        let open = std::mem::take(&mut *self.0.open.lock());
        open.values().for_each(|query| query.stop.stop());
    }
}

/// Marks a query as ended when it goes.
struct Running(Arc<Queries>, u64);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.lock().remove(&self.1);
        self.0.ended.notify_waiters();
    }
}

impl Connection {
    /// Serves until the client leaves or errs.
    pub(crate) async fn run(shared: Arc<Shared>, mut stream: TcpStream) -> io::Result<()> {
        let greeting = handshake::greet(&mut stream, shared.config.is_open);
        let Some(agreed) = tokio::time::timeout(shared.config.greeting_timeout, greeting).await?? else {
            return Ok(());
        };
        let (mut reader, mut writer) = stream.into_split();
        let (answers, mut waiting) = mpsc::channel::<(i64, Vec<u8>)>(ANSWERS);
        let writing = tokio::spawn(async move {
            while let Some((token, text)) = waiting.recv().await {
                let mut frame = Vec::with_capacity(text.len() + 12);
                frame.extend_from_slice(&token.to_le_bytes());
                frame.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
                frame.extend_from_slice(&text);
                tokio::time::timeout(WRITE_TIMEOUT, writer.write_all(&frame)).await??;
            }
            Ok::<(), io::Error>(())
        });
        let queries = Arc::<Queries>::default();
        let _ended = Ended(queries.clone());
        let mut connection = Self { shared, queries, answers, count: 0, one_by_one: agreed.one_by_one };
        while let Ok(token) = reader.read_i64_le().await {
            let length = reader.read_u32_le().await? as usize;
            let limit = connection.shared.config.query_bytes;
            if length > limit {
                let message = format!("The query has {length} bytes, the limit `reql.query_bytes` is {limit}.");
                connection.answer(token, respond::client_error(message)).await;
                // What follows on the connection is that query.
                drop(connection);
                let _ = writing.await;
                return Ok(());
            }
            // Read as it comes: what is only announced takes no memory.
            let mut text = Vec::new();
            (&mut reader).take(length as u64).read_to_end(&mut text).await?;
            if text.len() < length {
                break;
            }
            connection.take(token, text).await;
            if writing.is_finished() {
                break;
            }
        }
        drop(connection);
        writing.abort();
        Ok(())
    }

    async fn answer(&self, token: i64, text: Vec<u8>) {
        let _ = self.answers.send((token, text)).await;
    }

    async fn take(&mut self, token: i64, text: Vec<u8>) {
        let Ok(text) = String::from_utf8(text) else {
            let message = "Client is buggy (failed to deserialize query).".into();
            return self.answer(token, respond::client_error(message)).await;
        };
        match Request::read(&text) {
            Err(failure) => self.answer(token, respond::failure(&failure)).await,
            Ok(Request::Start(query)) => self.start(token, *query).await,
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
                    let _ = answers.send((token, WAIT_COMPLETE.to_vec())).await;
                });
            }
            Ok(Request::ServerInfo) => {
                let node = self.shared.store.node();
                let info = serde_json::json!({
                    "id": format!("00000000-0000-4000-8003-{:012x}", node.0), "name": format!("node-{node}"), "proxy": false
                });
                self.answer(token, serde_json::json!({"t": 5, "r": [info]}).to_string().into_bytes()).await;
            }
        }
    }

    /// Notes that a query runs, once there is room for it.
    async fn begin(&mut self) -> Running {
        self.count += 1;
        loop {
            let ended = self.queries.ended.notified();
            if self.queries.running.lock().len() < MAX_QUERIES {
                break;
            }
            ended.await;
        }
        self.queries.running.lock().insert(self.count);
        Running(self.queries.clone(), self.count)
    }

    async fn start(&mut self, token: i64, query: Query) {
        self.close_idle();
        let refusal = {
            let mut open = self.queries.open.lock();
            if open.contains_key(&token) {
                Some(format!("ERROR: duplicate token {token}"))
            } else if open.len() >= MAX_QUERIES {
                Some(format!("This connection has {MAX_QUERIES} open queries and streams, which is the limit."))
            } else {
                let stop = Arc::<Stop>::default();
                let (is_running, is_stopped, used) = (true, false, Instant::now());
                open.insert(token, Open { stop, rows: None, is_running, is_stopped, used });
                None
            }
        };
        if let Some(message) = refusal {
            return self.answer(token, respond::client_error(message)).await;
        }
        let running = self.begin().await;
        let (shared, queries) = (self.shared.clone(), self.queries.clone());
        let is_noreply = query.flag("noreply");
        let work = move || run(&shared, &queries, token, query);
        self.spawn(token, running, !is_noreply, work).await;
    }

    async fn go_on(&mut self, token: i64) {
        let rows = {
            let mut open = self.queries.open.lock();
            let query = open.get_mut(&token).filter(|query| !query.is_running);
            query.and_then(|query| {
                query.is_running = true;
                query.rows.take()
            })
        };
        let Some(rows) = rows else {
            let message = format!("Token {token} not in stream cache.");
            return self.answer(token, respond::client_error(message)).await;
        };
        let running = self.begin().await;
        let queries = self.queries.clone();
        self.spawn(token, running, true, move || batch(&queries, token, rows, false)).await;
    }

    /// Runs work on a thread for queries, and has its answer sent.
    async fn spawn(
        &self,
        token: i64,
        running: Running,
        is_answered: bool,
        work: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) {
        let (shared, answers, queries) = (self.shared.clone(), self.answers.clone(), self.queries.clone());
        let task = tokio::spawn(async move {
            let Ok(turn) = shared.turns.clone().acquire_owned().await else { return };
            let outcome = tokio::task::spawn_blocking(work).await;
            drop(turn);
            let text = outcome.unwrap_or_else(|_| {
                queries.open.lock().remove(&token);
                respond::client_error("The query ended by a fault of the server.".into())
            });
            if is_answered {
                let _ = answers.send((token, text)).await;
            }
            drop(running);
        });
        if self.one_by_one {
            let _ = task.await;
        }
    }

    async fn stop(&self, token: i64) {
        let is_open = {
            let mut open = self.queries.open.lock();
            match open.get_mut(&token) {
                None => false,
                Some(query) if query.is_running => {
                    query.is_stopped = true;
                    query.stop.stop();
                    true
                }
                Some(_) => open.remove(&token).is_some(),
            }
        };
        let text = match is_open {
            true => NO_MORE.to_vec(),
            false => respond::client_error(format!("Token {token} not in stream cache.")),
        };
        self.answer(token, text).await;
    }

    /// Closes streams that nobody has asked for more for too long.
    fn close_idle(&self) {
        let timeout = self.shared.config.cursor_timeout;
        self.queries.open.lock().retain(|_, query| query.is_running || query.used.elapsed() < timeout);
    }
}

fn now() -> Value {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    Time::new(millis as f64 / 1000.0, Timezone::UTC).map_or(Value::Null, Value::from)
}

/// Runs a query to its first answer.
fn run(shared: &Arc<Shared>, queries: &Queries, token: i64, query: Query) -> Vec<u8> {
    let has_profile = query.flag("profile");
    let Some(stop) = queries.open.lock().get(&token).map(|query| query.stop.clone()) else {
        return NO_MORE.to_vec();
    };
    let source = Arc::new(Tables(shared.clone()));
    let text = match query.prepare(now()).and_then(|prepared| prepared.run(source, stop)) {
        Ok(Answer::Cursor(cursor)) => return batch(queries, token, Rows::new(cursor), has_profile),
        Ok(Answer::Value(value)) => value_of(&value, has_profile),
        Err(failure) => Err(failure),
    };
    let query = queries.open.lock().remove(&token);
    match text {
        Err(_) if query.is_some_and(|query| query.is_stopped) => NO_MORE.to_vec(),
        text => text.unwrap_or_else(|failure| respond::failure(&failure)),
    }
}

fn value_of(value: &Value, has_profile: bool) -> Result<Vec<u8>, Failure> {
    let mut values = Values::new();
    values.push(value)?;
    Ok(values.finish(ATOM, has_profile))
}

/// The next rows of a stream, which stays open unless it has ended.
fn batch(queries: &Queries, token: i64, mut rows: Rows, has_profile: bool) -> Vec<u8> {
    let answer = rows.answer(has_profile);
    let mut open = queries.open.lock();
    let is_stopped = open.get(&token).is_none_or(|query| query.is_stopped);
    let is_last = !matches!(&answer, Ok((_, false)));
    if is_last || is_stopped {
        open.remove(&token);
    } else if let Some(query) = open.get_mut(&token) {
        (query.rows, query.is_running, query.used) = (Some(rows), false, Instant::now());
    }
    drop(open);
    match answer {
        _ if is_stopped => NO_MORE.to_vec(),
        Ok((text, _)) => text,
        Err(failure) => respond::failure(&failure),
    }
}
