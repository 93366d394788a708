//! The queries of a connection: those that run and those whose streams are open, and how they get to their next answer. What is here blocks
//! its thread, but for waiting until a feed has something.

use crate::logins::Asker;
use crate::respond::{self, ATOM, Reply, Values};
use crate::rows::{Batch, Rows};
use crate::shared::Shared;
use crate::tables::Tables;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use tessera_document::{Time, Timezone, Value};
use tessera_reql::{Answer, ErrorKind, Failure, Pacer, Query, Stage, Stop, Wait};
use tokio::sync::Notify;

/// A query that runs, or has an open stream.
pub(crate) struct Open {
    pub(crate) stop: Arc<Stop>,
    /// Told when a feed may have something, or is to end.
    pub(crate) woken: Arc<Notify>,
    /// `None` while rows are being fetched.
    pub(crate) rows: Option<Rows>,
    /// Whether an answer to this token is under way.
    pub(crate) is_running: bool,
    pub(crate) is_stopped: bool,
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
#[derive(Default)]
pub(crate) struct Queries {
    pub(crate) open: Mutex<BTreeMap<i64, Open>>,
    /// Numbers of the queries that run.
    pub(crate) running: Mutex<BTreeSet<u64>>,
    pub(crate) ended: Notify,
}

/// A query runs until its client stops it, or the node stops.
struct Pace {
    shared: Arc<Shared>,
    stop: Arc<Stop>,
    woken: Arc<Notify>,
}

impl Pacer for Pace {
    fn goes_on(&self) -> bool {
        self.stop.goes_on() && !self.shared.is_stopping()
    }

    fn wake(&self) {
        self.woken.notify_one();
    }
}

/// Marks a query as ended when it goes.
pub(crate) struct Running(pub(crate) Arc<Queries>, pub(crate) u64);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.lock().remove(&self.1);
        self.0.ended.notify_waiters();
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
pub(crate) fn run(shared: &Arc<Shared>, asker: Arc<Asker>, queries: &Queries, token: i64, query: Query) -> Work {
    let has_profile = query.flag("profile");
    let found = queries.open.lock().get(&token).map(|query| (query.stop.clone(), query.woken.clone()));
    let Some((stop, woken)) = found else {
        return Work::Reply(Reply::no_more());
    };
    // It may have waited for its turn.
    if let Some(refusal) = shared.refusal() {
        queries.open.lock().remove(&token);
        return Work::Reply(respond::failure(&refusal));
    }
    let source = Arc::new(Tables(shared.clone()));
    let pace = Arc::new(Pace { shared: shared.clone(), stop, woken });
    let text = match query.prepare(now()).and_then(|prepared| prepared.run_for(asker, source, pace)) {
        Ok(Answer::Cursor(cursor)) => {
            let (rows, is_first) = (Rows::new(cursor), true);
            return take_batch(shared, queries, token, rows, has_profile, is_first);
        }
        Ok(Answer::Value(value)) => value_of(&value, has_profile),
        Err(failure) => Err(failure),
    };
    let query = queries.open.lock().remove(&token);
    Work::Reply(match text {
        Err(_) if query.is_some_and(|query| query.is_stopped) => Reply::no_more(),
        Ok(text) => Reply::good(text),
        Err(failure) => respond::failure(&shared.explained(failure)),
    })
}

fn value_of(value: &Value, has_profile: bool) -> Result<Vec<u8>, Failure> {
    let mut values = Values::new();
    values.push(value)?;
    Ok(values.finish(ATOM, has_profile))
}

/// The next rows of a stream, which stays open unless it has ended.
pub(crate) fn batch(shared: &Shared, queries: &Queries, token: i64, rows: Rows, has_profile: bool) -> Work {
    take_batch(shared, queries, token, rows, has_profile, false)
}

fn take_batch(
    shared: &Shared,
    queries: &Queries,
    token: i64,
    mut rows: Rows,
    has_profile: bool,
    is_first: bool,
) -> Work {
    let answer = match rows.answer(has_profile) {
        // The client is to know at once that there is a feed.
        Ok(Batch::Wait(_)) if is_first => Ok((rows.nothing_yet(has_profile), false)),
        Ok(Batch::Wait(wait)) => {
            let is_stopped = queries.open.lock().get(&token).is_none_or(|query| query.is_stopped);
            match is_stopped || shared.is_stopping() {
                false => return Work::Wait(rows, wait),
                true => Err(shared.refusal().unwrap_or_else(ended)),
            }
        }
        Ok(Batch::Answer(text, is_last)) => Ok((text, is_last)),
        Err(failure) => Err(failure),
    };
    let mut open = queries.open.lock();
    let is_stopped = open.get(&token).is_none_or(|query| query.is_stopped);
    let is_last = !matches!(&answer, Ok((_, false)));
    if is_last || is_stopped {
        open.remove(&token);
    } else if let Some(query) = open.get_mut(&token) {
        (query.rows, query.is_running, query.used) = (Some(rows), false, Instant::now());
    }
    drop(open);
    Work::Reply(match answer {
        _ if is_stopped => Reply::no_more(),
        Ok((text, _)) => Reply::good(text),
        Err(failure) => respond::failure(&shared.explained(failure)),
    })
}

/// That a feed was stopped, which nobody is told.
fn ended() -> Failure {
    let message = "The feed was stopped.".into();
    Failure { stage: Stage::Run, kind: ErrorKind::Interrupted, message, backtrace: Vec::new() }
}
