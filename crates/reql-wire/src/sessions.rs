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
/// Sessions of one user, so that no user has all of them.
const SESSIONS_OF_USER: usize = 64;
/// Requests under way at one time. Each keeps a connection to the port that it has come through, and that port has others to serve.
const REQUESTS: usize = 256;
/// Requests of one session.
const REQUESTS_OF_SESSION: usize = 32;
/// After so long without a request a session is closed.
const IDLE: Duration = Duration::from_secs(300);
/// Bytes that are on their way through a pipe, in each direction.
const PIPE_BYTES: usize = 64 << 10;
/// Bytes of all answers together that their clients have not taken yet. Who finds no room waits.
const ANSWERS_BYTES: u32 = 64 << 20;
/// The same of one session, so that a client that takes no answers does not keep others from theirs.
const ANSWERS_OF_SESSION_BYTES: u32 = 16 << 20;
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
    /// This user has as many as one user may have.
    #[error("this user has {SESSIONS_OF_USER} connections over HTTP, which is the limit")]
    TooManyOfUser,
}

/// Why a query was not asked.
#[derive(Debug, thiserror::Error)]
pub enum NotAsked {
    /// There is no token before it.
    #[error("Client is buggy (request too small).")]
    TooSmall,
    /// There are as many requests under way as there may be.
    #[error("this node, or this connection, has too many requests under way")]
    TooMany,
    /// The session ended before the query was answered.
    #[error("the connection was closed")]
    Closed,
}

/// An answer as it goes over the wire, which counts as held by its client, and its request as under way, until it is dropped.
pub struct AnswerBytes {
    text: Vec<u8>,
    _kept: Option<(Kept, Room)>,
    _request: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for AnswerBytes {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// What an answer takes of the room of its session and of that of all, until it is dropped.
type Room = [OwnedSemaphorePermit; 2];

/// The sessions of a node.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
    open: Arc<Mutex<BTreeMap<String, Arc<Session>>>>,
    requests: Arc<Semaphore>,
    room: Arc<Semaphore>,
}

struct Session {
    user: String,
    writer: tokio::sync::Mutex<WriteHalf<DuplexStream>>,
    /// Who waits for answers, by token. A query and the wish to stop it have the same one.
    waiting: Mutex<BTreeMap<i64, VecDeque<oneshot::Sender<AnswerBytes>>>>,
    used: Mutex<Instant>,
    closed: Notify,
    requests: Semaphore,
    room: Arc<Semaphore>,
}

/// Closes a session if a part of a frame is all that has gone into its pipe: what follows would be taken for the rest.
struct Sending<'a> {
    session: &'a Session,
    is_whole: bool,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            self.session.closed.notify_one();
        }
    }
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
        let (requests, room) = (Semaphore::new(REQUESTS), Semaphore::new(ANSWERS_BYTES as usize));
        Self { shared, open: Arc::default(), requests: Arc::new(requests), room: Arc::new(room) }
    }

    /// Opens a session for a user who has come in. Returns the name by which that user asks queries in it, which nobody can guess.
    ///
    /// # Errors
    /// If there are too many.
    pub fn open(&self, user: &str, address: SocketAddr) -> Result<String, NotOpened> {
        let mut open = self.open.lock();
        let of_user = open.values().filter(|session| session.user == user).count();
        // Counted before it is looked at, so that those who come through the ReQL port at this moment take this one into account.
        let clients = self.shared.connections.fetch_add(1, Ordering::Relaxed);
        let refusal = match () {
            () if open.len() >= SESSIONS || clients >= self.shared.config.max_clients => Some(NotOpened::TooMany),
            () if of_user >= SESSIONS_OF_USER => Some(NotOpened::TooManyOfUser),
            () => None,
        };
        if let Some(refusal) = refusal {
            self.shared.connections.fetch_sub(1, Ordering::Relaxed);
            self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err(refusal);
        }
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let (answers, writer) = tokio::io::split(near);
        let session = Arc::new(Session::new(user, writer));
        let id = format!("{:032x}", rand::random::<u128>());
        open.insert(id.clone(), session.clone());
        let queries = Queries::new(address, user, &self.shared.turns);
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
        let Self { shared, open, room, .. } = self;
        shared.counts.connections.fetch_add(1, Ordering::Relaxed);
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
            return Ok(AnswerBytes { text, _kept: None, _request: None });
        };
        let of_all = self.requests.clone().try_acquire_owned().map_err(|_| NotAsked::TooMany)?;
        // Whoever stops a query makes room.
        let of_session = session.requests.try_acquire();
        if of_session.is_err() && request != STOP {
            return Err(NotAsked::TooMany);
        }
        let (sender, answer) = oneshot::channel();
        session.waiting.lock().entry(token).or_default().push_back(sender);
        *session.used.lock() = Instant::now();
        let mut asked = Asked { sessions: self, session: &session, token, is_answered: false };
        let is_sent = session.send(token, &request).await;
        drop(request);
        let answer = if is_sent { answer.await.ok() } else { None };
        asked.is_answered = true;
        *session.used.lock() = Instant::now();
        let answer = answer.ok_or(NotAsked::Closed)?;
        Ok(AnswerBytes { _request: Some(of_all), ..answer })
    }

    /// Closes a session, and ends what it has under way.
    pub fn close(&self, id: &str, user: &str) {
        if let Some(session) = self.find(id, user) {
            session.closed.notify_one();
        }
    }
}

impl Session {
    fn new(user: &str, writer: WriteHalf<DuplexStream>) -> Self {
        Self {
            user: user.into(),
            writer: tokio::sync::Mutex::new(writer),
            waiting: Mutex::default(),
            used: Mutex::new(Instant::now()),
            closed: Notify::new(),
            requests: Semaphore::new(REQUESTS_OF_SESSION),
            room: Arc::new(Semaphore::new(ANSWERS_OF_SESSION_BYTES as usize)),
        }
    }

    /// Returns whether the session still takes queries.
    ///
    /// Cancellation: the session ends, unless nothing was sent yet.
    async fn send(&self, token: i64, text: &[u8]) -> bool {
        let frame = frame(token, text);
        let mut writer = self.writer.lock().await;
        let mut sending = Sending { session: self, is_whole: false };
        let is_sent = writer.write_all(&frame).await.is_ok();
        sending.is_whole = true;
        is_sent
    }

    /// Waits until an answer of so many bytes has room. One that is longer than all of a session may be waits until it is alone there.
    async fn room(&self, of_all: &Arc<Semaphore>, bytes: u32) -> io::Result<Room> {
        let bytes = bytes.min(ANSWERS_OF_SESSION_BYTES);
        let closed = |_| io::ErrorKind::BrokenPipe;
        let of_session = self.room.clone().acquire_many_owned(bytes).await.map_err(closed)?;
        Ok([of_session, of_all.clone().acquire_many_owned(bytes).await.map_err(closed)?])
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
            let room = self.room(room, length).await?;
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
                let _ = sender.send(AnswerBytes { text, _kept: Some((kept, room)), _request: None });
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

    const SOON: Duration = Duration::from_secs(20);

    fn session() -> (Session, DuplexStream) {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        (Session::new("ann", tokio::io::split(near).1), far)
    }

    #[tokio::test]
    async fn a_session_is_idle_when_nobody_waits_for_an_answer() {
        const LIMIT: Duration = Duration::from_millis(20);
        let (session, _far) = session();
        let (sender, _answer) = oneshot::channel();
        session.waiting.lock().entry(1).or_default().push_back(sender);
        assert!(tokio::time::timeout(10 * LIMIT, session.idle(LIMIT)).await.is_err());
        session.waiting.lock().clear();
        *session.used.lock() = Instant::now();
        let began = Instant::now();
        tokio::time::timeout(500 * LIMIT, session.idle(LIMIT)).await.unwrap();
        assert!(began.elapsed() >= LIMIT);
    }

    /// What came next was taken for the rest of the frame.
    #[tokio::test]
    async fn a_session_ends_with_a_frame_that_is_cut_off() {
        let (session, mut far) = session();
        let long = vec![b' '; 2 * PIPE_BYTES];
        let cut = tokio::time::timeout(Duration::from_millis(10), session.send(1, &long)).await;
        assert!(cut.is_err(), "the pipe is full");
        tokio::time::timeout(SOON, session.closed.notified()).await.expect("the session is closed");
        // One that was sent whole, or not begun, changes nothing.
        let mut rest = vec![0; PIPE_BYTES];
        far.read_exact(&mut rest).await.unwrap();
        assert!(session.send(2, STOP).await);
        let writer = session.writer.lock().await;
        assert!(tokio::time::timeout(Duration::from_millis(10), session.send(3, STOP)).await.is_err());
        drop(writer);
        assert!(tokio::time::timeout(Duration::from_millis(10), session.closed.notified()).await.is_err());
    }

    /// Their answers filled the room of all sessions, which ended one after the other.
    #[tokio::test]
    async fn who_takes_no_answers_leaves_room_for_others() {
        let all = Arc::new(Semaphore::new(ANSWERS_BYTES as usize));
        let ((greedy, _first), (other, _second)) = (session(), session());
        let taken = greedy.room(&all, u32::MAX).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(10), greedy.room(&all, 1)).await.is_err());
        let room = tokio::time::timeout(SOON, other.room(&all, ANSWERS_OF_SESSION_BYTES)).await;
        drop(room.expect("others have room").unwrap());
        drop(taken);
        let room = tokio::time::timeout(SOON, greedy.room(&all, 1)).await;
        drop(room.expect("there is room again").unwrap());
    }
}
