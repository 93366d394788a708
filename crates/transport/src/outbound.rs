//! The connection to another node, made anew whenever it breaks.

use crate::frame::{self, Frame, HEAD, Input, STRANGER_BYTES, WHOLE_BYTES};
use crate::idle_timer::IdleTimer;
use crate::reported_clock::{NodeClock, ReportedClock};
use crate::{Handler, Identity, REQUESTS_UNDER_WAY, Secret, Transport, handshake};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tessera_types::{NodeId, monotonic_millis};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::MissedTickBehavior;

/// Bytes that may wait for a node; further messages are dropped.
const QUEUE_BYTES: usize = 256 << 20;
/// How long dialling and the handshake may take.
const DIAL: Duration = Duration::from_secs(2);
/// How long to wait before a node that could not be reached is dialled again.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause: each time in a row that a node answers and refuses, the pause doubles up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often two nodes report to each other that they are alive.
const ALIVE: Duration = Duration::from_millis(500);
/// A connection on which nothing has arrived for this long is dead: requests that wait for an answer fail.
const DEAD: Duration = Duration::from_secs(2);

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// It never reached the other node.
    NotSent,
    /// It may or may not have been carried out.
    Lost,
}

type Waiting = oneshot::Sender<Result<Bytes, RequestFailure>>;

/// The answer to a request, which was sent when this was made. Who drops it does not hear the answer; the request may still be
/// carried out.
#[derive(Debug)]
pub struct Asked(Result<oneshot::Receiver<Result<Bytes, RequestFailure>>, RequestFailure>);

impl Asked {
    pub(crate) const NOT_SENT: Self = Self(Err(RequestFailure::NotSent));
}

impl Future for Asked {
    type Output = Result<Bytes, RequestFailure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(answer) => Pin::new(answer).poll(context).map(|answer| answer.unwrap_or(Err(RequestFailure::Lost))),
            Err(failure) => Poll::Ready(Err(*failure)),
        }
    }
}

pub(crate) struct Peer {
    own: Identity,
    secret: Secret,
    versions: RangeInclusive<u8>,
    node: NodeId,
    /// How long a request waits for its answer.
    patience: Duration,
    state: Mutex<State>,
    wake: Notify,
    began: Instant,
    was_tried: AtomicBool,
    /// Why there is no connection, by the latest attempt; empty while there is one, and before the first attempt.
    trouble: Mutex<String>,
    /// The version of the latest connection; zero before the first one.
    version: AtomicU8,
    /// When the node was last heard from, in milliseconds after `began`, plus one.
    heard: AtomicU64,
    clock: ReportedClock,
}

struct State {
    address: String,
    queue: BytesMut,
    waiting: HashMap<u64, Waiting>,
    next_number: u64,
    /// Requests below this number have been handed to the connection.
    handed_over: u64,
    /// The next request number at some times, oldest first: requests below such a number are at least that old.
    ages: VecDeque<(Instant, u64)>,
    is_connected: bool,
    /// Whether the node is about to stop, and gets no more requests over this connection.
    is_leaving: bool,
    is_closed: bool,
}

impl Peer {
    pub(crate) fn new(transport: &Transport, node: NodeId, address: String) -> Arc<Self> {
        let state = State {
            address,
            queue: BytesMut::new(),
            waiting: HashMap::new(),
            next_number: 0,
            handed_over: 0,
            ages: VecDeque::new(),
            is_connected: false,
            is_leaving: false,
            is_closed: false,
        };
        Arc::new(Self {
            own: transport.identity,
            secret: transport.secret.clone(),
            versions: transport.versions.clone(),
            node,
            patience: transport.patience,
            state: Mutex::new(state),
            wake: Notify::new(),
            began: transport.began,
            was_tried: AtomicBool::new(false),
            trouble: Mutex::default(),
            version: AtomicU8::new(0),
            heard: AtomicU64::new(0),
            clock: ReportedClock::default(),
        })
    }

    pub(crate) fn set_address(&self, address: &str) {
        let mut state = self.state.lock();
        if state.address != address {
            state.address = address.to_string();
        }
    }

    /// Sends no more requests until there is another connection.
    pub(crate) fn ask_no_more(&self) {
        self.state.lock().is_leaving = true;
    }

    /// Requests that have no answer yet.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.wake.notify_one();
    }

    pub(crate) fn was_tried(&self) -> bool {
        self.was_tried.load(Ordering::Acquire)
    }

    /// Has the node dialled now, if there is no connection: it has just dialled this one, so it is ready.
    pub(crate) fn is_there(&self) {
        if !self.trouble.lock().is_empty() {
            self.wake.notify_one();
        }
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        Some(self.trouble.lock().clone()).filter(|trouble| !trouble.is_empty())
    }

    /// Notes why an attempt has failed, and logs it unless the attempt before failed for the same reason.
    fn could_not_be_reached(&self, address: &str, error: String) {
        let mut trouble = self.trouble.lock();
        if error != *trouble {
            tracing::warn!(node = %self.node, address, error, "a node cannot be reached; trying on");
            *trouble = error;
        }
    }

    pub(crate) fn version(&self) -> Option<u8> {
        Some(self.version.load(Ordering::Relaxed)).filter(|version| *version > 0)
    }

    pub(crate) fn heard(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.heard.store(now + 1, Ordering::Relaxed);
    }

    pub(crate) fn heard_clock(&self, clock: u64) {
        // No clock is so wrong that this fails.
        let Ok(distance) = i64::try_from(i128::from(clock) - i128::from(monotonic_millis())) else { return };
        self.clock.report(distance, Instant::now());
    }

    pub(crate) fn clock(&self) -> Option<NodeClock> {
        self.clock.get(Instant::now())
    }

    pub(crate) fn silence(&self) -> Option<Duration> {
        let heard = self.heard.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.began.elapsed().saturating_sub(Duration::from_millis(heard)))
    }

    pub(crate) fn send<M>(&self, kind: u8, messages: &[M], write: impl Fn(&M, &mut BytesMut)) {
        let mut state = self.state.lock();
        // Messages for a node that cannot be reached are dropped; it is brought up to date when it can be reached
        // again.
        if !state.is_connected || state.queue.len() > QUEUE_BYTES {
            return;
        }
        let was_empty = state.queue.is_empty();
        for message in messages {
            if !frame::message(&mut state.queue, kind, |out| write(message, out)) {
                tracing::error!(node = %self.node, kind, "a message is too long for another node");
            }
        }
        drop(state);
        if was_empty {
            self.wake.notify_one();
        }
    }

    pub(crate) fn ask(&self, service: u8, payload: &[u8]) -> Asked {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state.lock();
            let is_full = state.queue.len() > QUEUE_BYTES || state.waiting.len() >= REQUESTS_UNDER_WAY;
            if !state.is_connected || state.is_leaving || is_full || payload.len() + HEAD > WHOLE_BYTES {
                return Asked::NOT_SENT;
            }
            let number = state.next_number;
            state.next_number += 1;
            state.waiting.insert(number, sender);
            frame::request(&mut state.queue, number, service, payload);
        }
        self.wake.notify_one();
        Asked(Ok(receiver))
    }

    /// Fails requests that have waited too long for their answers.
    fn lose_what_is_old(&self) {
        let mut state = self.state.lock();
        let now = (Instant::now(), state.next_number);
        state.ages.push_back(now);
        let mut first_in_time = 0;
        while let Some((_, number)) = state.ages.pop_front_if(|(at, _)| at.elapsed() >= self.patience) {
            first_in_time = number;
        }
        // Dropping the sender fails the request.
        state.waiting.retain(|number, _| *number >= first_in_time);
    }

    fn connected(&self) {
        let mut state = self.state.lock();
        state.queue.clear();
        state.ages.clear();
        state.is_leaving = false;
        state.is_connected = true;
    }

    /// Fails all waiting requests, and says of each whether it may have been carried out.
    fn disconnected(&self) {
        let mut state = self.state.lock();
        state.is_connected = false;
        state.queue.clear();
        let handed_over = state.handed_over;
        for (number, waiting) in state.waiting.drain() {
            let failure = if number < handed_over { RequestFailure::Lost } else { RequestFailure::NotSent };
            // Whoever waited may have given up.
            let _ = waiting.send(Err(failure));
        }
    }
}

pub(crate) async fn run(peer: Arc<Peer>, handler: Arc<dyn Handler>) {
    let mut pause = PAUSE;
    while !peer.state.lock().is_closed {
        let address = peer.state.lock().address.clone();
        let who = Some((peer.own, peer.node, &handler));
        let dialled = tokio::time::timeout(DIAL, dial(&address, &peer.secret, &peer.versions, who)).await;
        peer.was_tried.store(true, Ordering::Release);
        match dialled.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))) {
            Ok((stream, version)) => {
                peer.trouble.lock().clear();
                pause = PAUSE;
                peer.version.store(version, Ordering::Relaxed);
                peer.connected();
                peer.heard();
                handler.connected(peer.node);
                let outcome = talk(&peer, stream, &*handler).await;
                peer.disconnected();
                if let Err(error) = outcome {
                    tracing::debug!(node = %peer.node, %error, "the connection to a node broke");
                }
            }
            Err(error) => {
                pause = pause_after(&error, pause);
                peer.could_not_be_reached(&address, error.to_string());
            }
        }
        let _ = tokio::time::timeout(pause, peer.wake.notified()).await;
    }
}

/// How long to wait after a failed attempt, where the pause before was `last`. A node that is not there yet is to be found as soon
/// as it is; one that refuses will hardly do otherwise a moment later.
fn pause_after(error: &io::Error, last: Duration) -> Duration {
    if handshake::is_refusal(error) { (2 * last).min(LONGEST_PAUSE) } else { PAUSE }
}

/// Dials with the latest of the versions that the other node speaks, and returns which that is.
async fn dial(
    address: &str,
    secret: &Secret,
    versions: &RangeInclusive<u8>,
    who: Option<(Identity, NodeId, &Arc<dyn Handler>)>,
) -> io::Result<(TcpStream, u8)> {
    let mut refused = io::Error::from(io::ErrorKind::Unsupported);
    for version in versions.clone().rev() {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        match handshake::introduce(&mut stream, secret, version, who).await {
            Ok(()) => return Ok((stream, version)),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => refused = error,
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

/// Returns when the connection has broken.
async fn talk(peer: &Peer, stream: TcpStream, handler: &dyn Handler) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let read = async {
        let (mut input, mut idle) = (Input::of_node(), IdleTimer::new(DEAD));
        loop {
            if idle.read(&mut reader, &mut input.bytes).await? == 0 {
                return Ok(());
            }
            peer.heard();
            while let Some(frame) = input.take()? {
                let (number, outcome) = match frame {
                    Frame::Response { number, payload } => (number, Ok(payload)),
                    Frame::Failed { number } => (number, Err(RequestFailure::Lost)),
                    Frame::Alive { clock } => {
                        peer.heard_clock(clock);
                        handler.clock_heard();
                        continue;
                    }
                    Frame::Message { .. } | Frame::Request { .. } => {
                        return Err(io::Error::other("a frame that has no place here"));
                    }
                };
                let waiting = peer.state.lock().waiting.remove(&number);
                // Whoever waited may have given up.
                let _ = waiting.map(|waiting| waiting.send(outcome));
            }
        }
    };
    let write = async {
        let mut output = BytesMut::new();
        // The clock is reported first, so that a node which receives a vote of this node knows its clock.
        frame::alive(&mut output);
        writer.write_all(&output).await?;
        output.clear();
        let mut alive = tokio::time::interval_at((Instant::now() + ALIVE).into(), ALIVE);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_time = tokio::select! {
                biased;
                _ = alive.tick() => true,
                () = peer.wake.notified() => false,
            };
            {
                let mut state = peer.state.lock();
                if state.is_closed {
                    return Ok(());
                }
                std::mem::swap(&mut state.queue, &mut output);
                state.handed_over = state.next_number;
            }
            if is_time {
                frame::alive(&mut output);
                peer.lose_what_is_old();
            }
            writer.write_all(&output).await?;
            output.clear();
        }
    };
    tokio::select! {
        outcome = read => outcome,
        outcome = write => outcome,
    }
}

pub(crate) async fn ask_stranger(address: &str, secret: &Secret, service: u8, payload: &[u8]) -> Result<Bytes, String> {
    if payload.len() + HEAD > STRANGER_BYTES {
        return Err(format!("a node without identity may ask with {STRANGER_BYTES} bytes at most"));
    }
    let ask = async {
        let (mut stream, _) = dial(address, secret, &handshake::VERSIONS, None).await?;
        let mut output = BytesMut::new();
        frame::request(&mut output, 0, service, payload);
        stream.write_all(&output).await?;
        let mut input = Input::of_node();
        loop {
            match input.take()? {
                Some(Frame::Response { payload, .. }) => return Ok(payload),
                Some(Frame::Failed { .. }) => return Err(io::Error::other("the node failed to answer")),
                _ => {}
            }
            if stream.read_buf(&mut input.bytes).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
        }
    };
    let in_time = tokio::time::timeout(10 * DIAL, ask).await.map_err(|_| "no answer in time".to_string())?;
    in_time.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node with another secret was once asked ten times a second for ever.
    #[test]
    fn who_refuses_is_asked_less_and_less_often() {
        let refusal = io::Error::from(io::ErrorKind::PermissionDenied);
        let mut pauses = vec![PAUSE];
        pauses.extend((0..6).scan(PAUSE, |pause, _| {
            *pause = pause_after(&refusal, *pause);
            Some(*pause)
        }));
        let millis: Vec<_> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(pause_after(&io::Error::from(io::ErrorKind::ConnectionRefused), LONGEST_PAUSE), PAUSE);
    }
}
