//! The queries of a connection: those that run and those whose streams are open, and how they get to their next answer. What is here blocks
//! its thread, but for waiting until a feed has something.

use crate::clients::Client;
use crate::logins::Asker;
use crate::memory::Held;
use crate::received::Received;
use crate::respond::{self, ATOM, Reply, Values};
use crate::rows::{Batch, Rows};
use crate::shared::Shared;
use crate::tables::Tables;
use crate::turn::{Turn, Turns};
use crate::user_share::UserShare;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_document::{Time, Timezone, Value};
use tessera_reql::{Answer, ErrorKind, Failure, Pacer, Profile, Query, QueryJob, Stage, Stop, Wait};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Streams of one connection that are open and wait, for their client or for changes.
const MAX_STREAMS: usize = 1024;
/// Of the text of a query, as much as is shown of queries that run.
const SHOWN_BYTES: usize = 2048;

/// Why a query ends before it is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its client has stopped it, and is told of nothing else.
    Stopped,
    /// Somebody has deleted its row in `rethinkdb.jobs`.
    Killed,
}

impl Ending {
    pub(crate) fn reply(self) -> Reply {
        match self {
            Self::Stopped => Reply::no_more(),
            Self::Killed => respond::failure(&Failure {
                stage: Stage::Run,
                kind: ErrorKind::OpIndeterminate,
                message: "Query terminated by the `rethinkdb.jobs` table.".into(),
                backtrace: Vec::new(),
            }),
        }
    }
}

/// A query that runs, or has an open stream.
pub(crate) struct Open {
    /// Its number among the queries of the node.
    pub(crate) number: u64,
    /// What it says, or how that begins.
    pub(crate) text: String,
    pub(crate) began: Instant,
    pub(crate) stop: Arc<Stop>,
    pub(crate) turn: Arc<Turn>,
    /// Told when a feed may have something, or is to end.
    pub(crate) woken: Arc<Notify>,
    /// `None` while rows are being fetched.
    pub(crate) rows: Option<Rows>,
    /// Whether an answer to this token is under way.
    pub(crate) is_running: bool,
    pub(crate) ending: Option<Ending>,
    pub(crate) used: Instant,
}

impl Open {
    pub(crate) fn end(&self) {
        self.stop.stop();
        self.woken.notify_one();
    }
}

/// What came of work for a query.
pub(crate) enum Work {
    Reply(Reply),
    /// The stream is a feed that has nothing yet.
    Wait(Rows, Wait),
}

/// The queries of a connection.
pub(crate) struct Queries {
    pub(crate) client: SocketAddr,
    /// What the user has under way, through all connections.
    pub(crate) share: Arc<UserShare>,
    pub(crate) open: Mutex<BTreeMap<i64, Open>>,
    /// Numbers of the queries that run.
    pub(crate) running: Mutex<BTreeSet<u64>>,
    pub(crate) ended: Notify,
    /// One for each query that may be under way.
    pub(crate) threads: Arc<Semaphore>,
}

impl Queries {
    pub(crate) fn new(client: SocketAddr, user: &str, turns: &Turns) -> Self {
        let (open, running, ended) = (Mutex::default(), Mutex::default(), Notify::new());
        let share = turns.users.share(user);
        Self { client, share, open, running, ended, threads: turns.of_connection() }
    }

    /// Lists a query with its number among those of the node.
    ///
    /// # Errors
    /// Why it is not carried out.
    pub(crate) fn enter(&self, received: &Received, number: u64, turn: &Arc<Turn>) -> Result<(), Reply> {
        let token = received.token;
        // Those that run are counted for themselves, this one among them.
        let others = self.running.lock().len().saturating_sub(1);
        let mut open = self.open.lock();
        if open.contains_key(&token) {
            return Err(respond::client_error(format!("ERROR: duplicate token {token}")));
        }
        if open.len().saturating_sub(others) >= MAX_STREAMS && !received.is_noreply {
            let message = format!("This connection has {MAX_STREAMS} open streams, which is the limit.");
            return Err(respond::client_error(message));
        }
        let now = Instant::now();
        let entered = Open {
            number,
            text: received.query.text(SHOWN_BYTES),
            began: now,
            stop: Arc::default(),
            turn: turn.clone(),
            woken: Arc::default(),
            rows: None,
            is_running: true,
            ending: None,
            used: now,
        };
        open.insert(token, entered);
        Ok(())
    }
}

impl Client for Queries {
    fn close_idle(&self, timeout: Duration) {
        let is_feed = |query: &Open| query.rows.as_ref().is_some_and(Rows::is_feed);
        // Whoever waits for this lock need not wait for what a stream lets go of.
        let closed: Vec<Open> = {
            let mut open = self.open.lock();
            let is_idle = |query: &Open| !query.is_running && !is_feed(query) && query.used.elapsed() >= timeout;
            open.extract_if(.., |_, query| is_idle(query)).map(|(_, query)| query).collect()
        };
        drop(closed);
    }

    fn is_active(&self) -> bool {
        self.open.lock().values().any(|query| query.is_running)
    }

    fn jobs(&self, id: &dyn Fn(u64) -> String) -> Vec<QueryJob> {
        let open = self.open.lock();
        let job = |query: &Open| QueryJob {
            id: id(query.number),
            seconds: query.began.elapsed().as_secs_f64(),
            user: self.share.name.clone(),
            host: self.client.ip().to_string(),
            port: self.client.port(),
            text: query.text.clone(),
        };
        open.values().filter(|query| query.ending.is_none()).map(job).collect()
    }

    fn end(&self, is_wanted: &dyn Fn(u64) -> bool) -> bool {
        let mut open = self.open.lock();
        let Some(query) = open.values_mut().find(|query| is_wanted(query.number)) else { return false };
        // Its client has stopped it already.
        query.ending.get_or_insert(Ending::Killed);
        // An idle stream stays until its client asks for more, and is told.
        query.rows = None;
        query.end();
        true
    }
}

/// A query runs until its client stops it, or the node stops, and lets others have their turn.
struct Pace {
    shared: Arc<Shared>,
    stop: Arc<Stop>,
    turn: Arc<Turn>,
    woken: Arc<Notify>,
}

impl Pace {
    fn is_wanted(&self) -> bool {
        self.stop.goes_on() && !self.shared.is_stopping()
    }
}

impl Pacer for Pace {
    fn goes_on(&self) -> bool {
        self.turn.share();
        self.is_wanted()
    }

    fn outside(&self, act: &mut dyn FnMut(&dyn Fn() -> bool)) {
        self.turn.outside(|may_lend| {
            act(&|| {
                may_lend();
                self.is_wanted()
            });
        });
    }

    fn wake(&self) {
        self.woken.notify_one();
    }
}

/// Marks a query as ended when it goes.
pub(crate) struct Running {
    queries: Arc<Queries>,
    number: u64,
    _of_user: Option<OwnedSemaphorePermit>,
}

impl Running {
    /// `of_user` is its place among the queries of its user; what asks for more of a stream has none.
    pub(crate) fn new(queries: Arc<Queries>, number: u64, of_user: Option<OwnedSemaphorePermit>) -> Self {
        queries.running.lock().insert(number);
        Self { queries, number, _of_user: of_user }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.queries.running.lock().remove(&self.number);
        self.queries.ended.notify_waiters();
    }
}

fn now() -> Value {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    Time::new(millis as f64 / 1000.0, Timezone::UTC).map_or(Value::Null, Value::from)
}

/// Waits until a feed may have something, or is to end.
pub(crate) async fn something_new(shared: &Shared, queries: &Queries, token: i64, wait: Wait) {
    let Some(woken) = queries.open.lock().get(&token).map(|query| query.woken.clone()) else { return };
    let stopping = shared.stopping.notified();
    if shared.is_stopping() {
        return;
    }
    let looks_again = async {
        match wait.look_again {
            Some(pause) => tokio::time::sleep(pause).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = woken.notified() => {}
        () = stopping => {}
        () = looks_again => {}
    }
}

/// Runs a query to its first answer.
pub(crate) fn run(
    shared: &Arc<Shared>,
    asker: Arc<Asker>,
    held: Arc<Held>,
    queries: &Queries,
    token: i64,
    query: Query,
) -> Work {
    let profile = query.flag("profile").then(Arc::<Profile>::default);
    let found =
        queries.open.lock().get(&token).map(|query| (query.stop.clone(), query.turn.clone(), query.woken.clone()));
    let Some((stop, turn, woken)) = found else {
        return Work::Reply(Reply::no_more());
    };
    // It may have waited for its turn.
    if let Some(refusal) = shared.refusal() {
        queries.open.lock().remove(&token);
        return Work::Reply(respond::failure(&refusal));
    }
    let source = Arc::new(Tables(shared.clone(), turn.clone(), held.clone()));
    let pace = Arc::new(Pace { shared: shared.clone(), stop, turn, woken });
    let measured = query.prepare(now()).map(|prepared| prepared.measured(profile.clone()));
    let text = match measured.and_then(|prepared| prepared.run_for(asker, source, pace)) {
        Ok(Answer::Cursor(cursor)) => {
            // The client is to know at once that there is a feed.
            let (rows, is_told) = (Rows::new(cursor, held.keep(0), profile), true);
            return take_batch(shared, queries, token, rows, is_told);
        }
        Ok(Answer::Value(value)) => value_of(&value, profile.as_deref()),
        Err(failure) => Err(failure),
    };
    let query = queries.open.lock().remove(&token);
    Work::Reply(match text {
        Ok(text) => Reply::good(text),
        Err(failure) => match query.and_then(|query| query.ending) {
            Some(ending) => ending.reply(),
            None => respond::failure(&shared.explained(failure)),
        },
    })
}

fn value_of(value: &Value, profile: Option<&Profile>) -> Result<Vec<u8>, Failure> {
    let mut values = Values::new();
    values.push(value)?;
    Ok(values.finish(ATOM, profile))
}

/// The next rows of a stream, which stays open unless it has ended.
pub(crate) fn batch(shared: &Shared, queries: &Queries, token: i64, rows: Rows) -> Work {
    take_batch(shared, queries, token, rows, false)
}

/// The same of a feed whose client is to have an answer now, also if there is nothing yet.
pub(crate) fn batch_or_nothing(shared: &Shared, queries: &Queries, token: i64, rows: Rows) -> Work {
    take_batch(shared, queries, token, rows, true)
}

fn take_batch(shared: &Shared, queries: &Queries, token: i64, mut rows: Rows, is_told: bool) -> Work {
    let answer = match rows.answer() {
        Ok(Batch::Wait(_)) if is_told => Ok((rows.nothing_yet(), false)),
        Ok(Batch::Wait(wait)) => {
            let is_ending = queries.open.lock().get(&token).is_none_or(|query| query.ending.is_some());
            match is_ending || shared.is_stopping() {
                false => return Work::Wait(rows, wait),
                true => Err(shared.refusal().unwrap_or_else(ended)),
            }
        }
        Ok(Batch::Answer(text, is_last)) => Ok((text, is_last)),
        Err(failure) => Err(failure),
    };
    let mut open = queries.open.lock();
    let ending = open.get(&token).map_or(Some(Ending::Stopped), |query| query.ending);
    let is_last = !matches!(&answer, Ok((_, false)));
    if is_last || ending.is_some() {
        open.remove(&token);
    } else if let Some(query) = open.get_mut(&token) {
        (query.rows, query.is_running, query.used) = (Some(rows), false, Instant::now());
    }
    drop(open);
    Work::Reply(match (ending, answer) {
        (Some(ending), _) => ending.reply(),
        (None, Ok((text, _))) => Reply::good(text),
        (None, Err(failure)) => respond::failure(&shared.explained(failure)),
    })
}

/// That a feed was stopped, which nobody is told.
fn ended() -> Failure {
    let message = "The feed was stopped.".into();
    Failure { stage: Stage::Run, kind: ErrorKind::Interrupted, message, backtrace: Vec::new() }
}
