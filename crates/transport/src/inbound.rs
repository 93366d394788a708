//! Connections that other nodes made.

use crate::frame::{self, Frame, HEAD, Input, WHOLE_BYTES};
use crate::idle_timer::IdleTimer;
use crate::{Answer, Handshakes, REQUESTS_UNDER_WAY, Transport, accept, handshake};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tessera_types::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

/// How long a node may take to introduce itself.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long the connection of a node without identity may last.
const STRANGER: Duration = Duration::from_secs(60);
/// A connection that was silent for this long has no live node at its other end; a live node reports far more often.
const IDLE: Duration = Duration::from_secs(10);
/// The largest number of connections that have not introduced themselves.
pub(crate) const HANDSHAKES: usize = 64;
/// The largest number of connections without identity, which know the secret all the same.
const STRANGERS: usize = 64;
/// The largest number of connections from nodes of the cluster.
const CONNECTIONS: usize = 1_024;
/// When this many bytes of answers wait for a node to read them, no more of its requests are read.
const ANSWER_BYTES: usize = 256 << 20;
/// After requests have been carried out for this long, others have a turn.
const TURN: Duration = Duration::from_millis(1);

pub(crate) async fn serve(transport: Arc<Transport>, listener: TcpListener) {
    let handshakes = Arc::new(Handshakes::new(HANDSHAKES, HANDSHAKE));
    let (strangers, nodes) = (Arc::new(Semaphore::new(STRANGERS)), Arc::new(Semaphore::new(CONNECTIONS)));
    loop {
        let (stream, address) = accept(&listener).await;
        let (transport, handshakes) = (transport.clone(), handshakes.clone());
        let (strangers, nodes) = (strangers.clone(), nodes.clone());
        tokio::spawn(async move {
            let serve = async {
                let mut stream = stream;
                let Some(from) = handshakes.run(introduced(&transport, &mut stream)).await? else {
                    let _one_of_few = strangers.try_acquire().map_err(|_| too_many())?;
                    let serve = connection(transport, stream, None);
                    return tokio::time::timeout(STRANGER, serve).await.map_err(|_| timed_out())?;
                };
                let _one_of_many = nodes.try_acquire().map_err(|_| too_many())?;
                transport.dial_now(from);
                connection(transport, stream, Some(from)).await
            };
            if let Err(error) = serve.await {
                tracing::debug!(%address, %error, "a connection from another node ended");
            }
        });
    }
}

fn timed_out() -> io::Error {
    io::Error::from(io::ErrorKind::TimedOut)
}

fn too_many() -> io::Error {
    io::Error::other("there are too many connections")
}

async fn introduced(transport: &Transport, stream: &mut TcpStream) -> io::Result<Option<NodeId>> {
    stream.set_nodelay(true)?;
    handshake::receive(stream, &transport.secret, transport.identity(), &transport.versions, &transport.handler).await
}

/// Answers that wait to be written.
#[derive(Default)]
struct Answers {
    queue: Mutex<BytesMut>,
    wake: Notify,
    /// Requests that are not answered yet.
    under_way: AtomicUsize,
    /// Notified when there are fewer waiting answers, or fewer unanswered requests.
    room: Notify,
}

impl Answers {
    fn has_room(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) < REQUESTS_UNDER_WAY && self.queue.lock().len() < ANSWER_BYTES
    }

    fn begin(self: &Arc<Self>, number: u64) -> Owed {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Owed { answers: self.clone(), number, is_answered: false }
    }
}

/// An answer that another node waits for. If its future ends without an answer, because of a panic for example, the
/// other node is told that it failed.
struct Owed {
    answers: Arc<Answers>,
    number: u64,
    is_answered: bool,
}

impl Owed {
    fn answer(mut self, answer: &Bytes) {
        if answer.len() + HEAD <= WHOLE_BYTES {
            self.is_answered = true;
            frame::response(&mut self.answers.queue.lock(), self.number, answer);
        } else {
            tracing::error!(bytes = answer.len(), "an answer is too long for another node");
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if !self.is_answered {
            frame::failed(&mut self.answers.queue.lock(), self.number);
        }
        self.answers.wake.notify_one();
        if self.answers.under_way.fetch_sub(1, Ordering::Relaxed) >= REQUESTS_UNDER_WAY {
            self.answers.room.notify_one();
        }
    }
}

/// Answers a request. Most need not wait for anything, and then it is done here and now: a task would cost as much as they do.
fn carry_out(owed: Owed, mut answer: Answer) {
    // It is polled again by its task if it waits, so that nobody need be woken for it yet.
    let mut context = Context::from_waker(Waker::noop());
    match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(&mut context))) {
        Ok(Poll::Ready(answer)) => owed.answer(&answer),
        Ok(Poll::Pending) => drop(tokio::spawn(async move { owed.answer(&answer.await) })),
        // The panic was reported, as in a task; the other node is told.
        Err(_) => {}
    }
}

async fn connection(transport: Arc<Transport>, stream: TcpStream, from: Option<NodeId>) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let answers = Arc::new(Answers::default());
    let read = async {
        let mut input = if from.is_some() { Input::of_node() } else { Input::of_stranger() };
        let (mut messages, mut requests) = (Vec::new(), Vec::new());
        // The connection of a node without identity has a limited time as a whole.
        let mut idle = IdleTimer::new(if from.is_some() { IDLE } else { STRANGER });
        loop {
            if idle.read(&mut reader, &mut input.bytes).await? == 0 {
                return Ok(());
            }
            if let Some(node) = from {
                transport.heard_of(node);
            }
            while let Some(frame) = input.take()? {
                match (frame, from) {
                    (Frame::Message { kind, payload }, Some(_)) => messages.push((kind, payload)),
                    (Frame::Request { number, service, payload }, _) => requests.push((number, service, payload)),
                    (Frame::Alive { clock }, from) => {
                        if let Some(node) = from {
                            // The node is told why when it dials again.
                            if !transport.handler.is_known(node) {
                                return Err(io::Error::other(handshake::removed(node)));
                            }
                            transport.heard_clock(node, clock);
                        }
                        frame::alive(&mut answers.queue.lock());
                        answers.wake.notify_one();
                    }
                    (Frame::Response { .. } | Frame::Failed { .. } | Frame::Message { .. }, _) => {
                        return Err(io::Error::other("a frame that has no place here"));
                    }
                }
            }
            if let Some(node) = from.filter(|_| !messages.is_empty()) {
                transport.handler.messages(node, &mut messages);
                messages.clear();
            }
            let mut began = Instant::now();
            for (number, service, payload) in requests.drain(..) {
                carry_out(answers.begin(number), transport.handler.request(from, service, payload));
                if began.elapsed() > TURN {
                    tokio::task::yield_now().await;
                    began = Instant::now();
                }
            }
            while !answers.has_room() {
                answers.room.notified().await;
            }
        }
    };
    let write = async {
        let mut output = BytesMut::new();
        loop {
            answers.wake.notified().await;
            std::mem::swap(&mut *answers.queue.lock(), &mut output);
            writer.write_all(&output).await?;
            if output.len() >= ANSWER_BYTES {
                answers.room.notify_one();
            }
            output.clear();
        }
    };
    tokio::select! {
        outcome = read => outcome,
        outcome = write => outcome,
    }
}
