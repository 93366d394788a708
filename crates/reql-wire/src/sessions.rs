//! Connections of clients that ask each query by a request of its own, as drivers in browsers do over HTTP.
//!
//! A session is a connection like any other, behind a pipe instead of a socket: requests put queries into it, and wait for the
//! answers that come out. How requests come in, and who sends them, is the business of whoever has the [`Sessions`].

use crate::connection::{Connection, Manner};
use crate::frame::HEAD_BYTES;
use crate::memory::{Held, Kept, evicted};
use crate::queries::Queries;
use crate::respond;
use crate::shared::Shared;
use bytes::{Buf as _, BufMut as _, Bytes};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

/// Sessions at one time.
const SESSIONS: usize = 256;
/// After so long without a request a session is closed.
const IDLE: Duration = Duration::from_secs(300);
/// Bytes that are on their way through a pipe, in each direction.
const PIPE_BYTES: usize = 64 << 10;
/// Bytes of all answers together that their clients have not taken yet. Who finds no room waits.
const ANSWERS_BYTES: u32 = 64 << 20;
/// Bytes of a token, which begins every request.
const TOKEN_BYTES: usize = 8;
const NOT_OPEN: &str = "This HTTP connection is not open.";
const STOP: &[u8] = b"[3]";

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// There are as many as there may be.
    #[error("this node has too many connections of ReQL clients")]
    TooMany,
}

/// Why a query was not asked.
#[derive(Debug, thiserror::Error)]
pub enum NotAsked {
    /// There is no token before it.
    #[error("Client is buggy (request too small).")]
    TooSmall,
    /// The session ended before the query was answered.
    #[error("the connection was closed")]
    Closed,
}

/// An answer as it goes over the wire, which counts as held by its client until it is dropped.
pub struct AnswerBytes {
    text: Vec<u8>,
    _kept: Option<(Kept, OwnedSemaphorePermit)>,
}

impl AsRef<[u8]> for AnswerBytes {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// The sessions of a node.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
    open: Arc<Mutex<BTreeMap<String, Arc<Session>>>>,
    room: Arc<Semaphore>,
}

struct Session {
    user: String,
    writer: tokio::sync::Mutex<WriteHalf<DuplexStream>>,
    /// Who waits for answers, by token. A query and the wish to stop it have the same one.
    waiting: Mutex<BTreeMap<i64, VecDeque<oneshot::Sender<AnswerBytes>>>>,
    used: Mutex<Instant>,
    closed: Notify,
}

/// Has a query stopped whose answer nobody waits for any more.
struct Asked<'a> {
    sessions: &'a Sessions,
    session: &'a Arc<Session>,
    token: i64,
    is_answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let (session, token) = (self.session.clone(), self.token);
            self.sessions.shared.runtime.spawn(async move { session.send(token, STOP).await });
        }
    }
}

fn frame(token: i64, text: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + text.len());
    frame.put_i64_le(token);
    frame.put_u32_le(u32::try_from(text.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(text);
    frame
}

impl Sessions {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, open: Arc::default(), room: Arc::new(Semaphore::new(ANSWERS_BYTES as usize)) }
    }

    /// Opens a session for a user who has come in. Returns the name by which that user asks queries in it, which nobody can guess.
    ///
    /// # Errors
    /// If there are too many.
    pub fn open(&self, user: &str, address: SocketAddr) -> Result<String, NotOpened> {
        let mut open = self.open.lock();
        let clients = self.shared.connections.load(Ordering::Relaxed);
        if open.len() >= SESSIONS || clients >= self.shared.config.max_clients {
            self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err(NotOpened::TooMany);
        }
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let (answers, writer) = tokio::io::split(near);
        let session = Arc::new(Session {
            user: user.into(),
            writer: tokio::sync::Mutex::new(writer),
            waiting: Mutex::default(),
            used: Mutex::new(Instant::now()),
            closed: Notify::new(),
        });
        let id = format!("{:032x}", rand::random::<u128>());
        open.insert(id.clone(), session.clone());
        let queries = Queries::new(address, user.into());
        self.shared.runtime.spawn(self.clone().run(id.clone(), session, far, answers, queries));
        Ok(id)
    }

    /// Serves a session until it is closed, idle for too long, or holds too much.
    async fn run(
        self,
        id: String,
        session: Arc<Session>,
        stream: DuplexStream,
        answers: ReadHalf<DuplexStream>,
        queries: Queries,
    ) {
        let Self { shared, open, room } = self;
        shared.counts.connections.fetch_add(1, Ordering::Relaxed);
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let (of_queries, of_answers) = (shared.config.client_memory.join(), shared.config.client_memory.join());
        let held = Held::new(of_answers.clone());
        let served =
            Connection::serve(shared.clone(), tokio::io::split(stream), Manner::Each, queries, of_queries.clone());
        tokio::select! {
            biased;
            _ = evicted(&of_queries) => {}
            _ = evicted(&of_answers) => {}
            _ = served => {}
            _ = session.hand_out(answers, &held, &room) => {}
            () = session.closed.notified() => {}
            () = session.idle(IDLE) => {}
        }
        open.lock().remove(&id);
        session.waiting.lock().clear();
        shared.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// The session of that name, if it is this user's.
    fn find(&self, id: &str, user: &str) -> Option<Arc<Session>> {
        self.open.lock().get(id).filter(|session| session.user == user).cloned()
    }

    /// Asks what a request says: a token, and a query behind it. Returns the answer with the token and its length before it.
    ///
    /// Cancellation: a query that is under way ends.
    ///
    /// # Errors
    /// If there is nothing to answer.
    pub async fn ask(&self, id: &str, user: &str, mut request: Bytes) -> Result<AnswerBytes, NotAsked> {
        if request.len() < TOKEN_BYTES {
            return Err(NotAsked::TooSmall);
        }
        let token = request.get_i64_le();
        let Some(session) = self.find(id, user) else {
            let text = frame(token, &respond::client_error(NOT_OPEN.into()).text);
            return Ok(AnswerBytes { text, _kept: None });
        };
        let (sender, answer) = oneshot::channel();
        session.waiting.lock().entry(token).or_default().push_back(sender);
        *session.used.lock() = Instant::now();
        let mut asked = Asked { sessions: self, session: &session, token, is_answered: false };
        let is_sent = session.send(token, &request).await;
        drop(request);
        let answer = if is_sent { answer.await.ok() } else { None };
        asked.is_answered = true;
        *session.used.lock() = Instant::now();
        answer.ok_or(NotAsked::Closed)
    }

    /// Closes a session, and ends what it has under way.
    pub fn close(&self, id: &str, user: &str) {
        if let Some(session) = self.find(id, user) {
            session.closed.notify_one();
        }
    }
}

impl Session {
    /// Returns whether the session still takes queries.
    async fn send(&self, token: i64, text: &[u8]) -> bool {
        self.writer.lock().await.write_all(&frame(token, text)).await.is_ok()
    }

    /// Hands answers to those who wait for them.
    async fn hand_out(
        &self,
        mut answers: ReadHalf<DuplexStream>,
        held: &Arc<Held>,
        room: &Arc<Semaphore>,
    ) -> io::Result<()> {
        loop {
            let token = answers.read_i64_le().await?;
            let length = answers.read_u32_le().await?;
            // One that is longer than all may be waits until it is alone.
            let permit = room.clone().acquire_many_owned(length.min(ANSWERS_BYTES)).await;
            let permit = permit.map_err(|_| io::ErrorKind::BrokenPipe)?;
            let mut text = vec![0; length as usize];
            answers.read_exact(&mut text).await?;
            let text = frame(token, &text);
            let kept = held.keep(text.len());
            let sender = {
                let mut waiting = self.waiting.lock();
                let sender = waiting.get_mut(&token).and_then(VecDeque::pop_front);
                if waiting.get(&token).is_some_and(VecDeque::is_empty) {
                    waiting.remove(&token);
                }
                sender
            };
            if let Some(sender) = sender {
                let _ = sender.send(AnswerBytes { text, _kept: Some((kept, permit)) });
            }
        }
    }

    /// Waits until nobody has used the session for so long.
    async fn idle(&self, limit: Duration) {
        loop {
            let since = self.used.lock().elapsed();
            let is_waited_for = !self.waiting.lock().is_empty();
            if !is_waited_for && since >= limit {
                return;
            }
            tokio::time::sleep(if is_waited_for { limit } else { limit - since }).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_is_idle_when_nobody_waits_for_an_answer() {
        const LIMIT: Duration = Duration::from_millis(20);
        let (_answers, writer) = tokio::io::split(tokio::io::duplex(PIPE_BYTES).0);
        let session = Session {
            user: "ann".into(),
            writer: tokio::sync::Mutex::new(writer),
            waiting: Mutex::default(),
            used: Mutex::new(Instant::now()),
            closed: Notify::new(),
        };
        let (sender, _answer) = oneshot::channel();
        session.waiting.lock().entry(1).or_default().push_back(sender);
        assert!(tokio::time::timeout(10 * LIMIT, session.idle(LIMIT)).await.is_err());
        session.waiting.lock().clear();
        *session.used.lock() = Instant::now();
        let began = Instant::now();
        tokio::time::timeout(500 * LIMIT, session.idle(LIMIT)).await.unwrap();
        assert!(began.elapsed() >= LIMIT);
    }
}
