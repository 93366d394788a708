//! Connections between the nodes of a cluster: messages that may get lost, and requests that are answered.
//!
//! Every node dials every other one, and sends all it has for it over that one connection; answers come back on it. What
//! has queued while a write was under way goes out with the next one. What travels is opaque here.
//!
//! Read first: [`Transport`], then [`frame`] (what is on the wire) and [`handshake`] (who may talk to whom).

#![warn(missing_docs)]

mod frame;
mod handshake;
mod inbound;
mod outbound;
mod secret;

pub use outbound::RequestFailure;
pub use secret::Secret;

use bytes::{Bytes, BytesMut};
use outbound::Peer;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
#[cfg(doc)]
use tessera_types::monotonic_millis;
use tessera_types::{ClusterId, NodeId};
use tokio::net::TcpListener;

/// Requests of one node to another that may be without an answer at one time; who wants to ask more is told that it was not
/// asked.
const REQUESTS_UNDER_WAY: usize = 65_536;
/// How long an answer is waited for. Longer than the longest thing that a node does for another one, which is to count which
/// keys are asked for; a request of which nothing can come any more fails at once.
const ANSWER: Duration = Duration::from_secs(180);

/// How often it is looked whether a node that is about to go has answered everything.
const LAST_ANSWERS: Duration = Duration::from_millis(2);

/// An answer that is on its way.
pub type Answer = Pin<Box<dyn Future<Output = Bytes> + Send>>;

/// What a node does with what others send it.
pub trait Handler: Send + Sync + 'static {
    /// Takes the messages that came at one time, each with its kind. Must not wait.
    fn messages(&self, from: NodeId, messages: &mut Vec<(u8, Bytes)>);

    /// Whether a node may be one of this cluster, as far as is known here. One that is not is told that it was removed, and
    /// stops serving.
    fn is_known(&self, node: NodeId) -> bool;

    /// What there is to say to a node of that other cluster, beside that this is not its own.
    fn word_for(&self, _cluster: ClusterId) -> Option<String> {
        None
    }

    /// Whether a node may come with a generation, which is on disk when this returns, so that no earlier one may come later.
    /// Blocks.
    ///
    /// # Errors
    /// Why it may not.
    fn admits(&self, node: NodeId, generation: Generation) -> Result<(), Refusal>;

    /// Another node knows a later generation of this one than it has: what this node has on its disk is older than what it had.
    fn is_overtaken(&self, by: NodeId, known: u64);

    /// Another node says that this one was removed from the cluster.
    fn was_removed(&self, _by: NodeId) {}

    /// Answers a request. `None` comes from a node that has no identity yet: it may only ask to be let in.
    fn request(&self, from: Option<NodeId>, service: u8, payload: Bytes) -> Answer;

    /// A node has told what its clock says; see [`Transport::clock_distance`].
    fn clock_heard(&self) {}

    /// A node can be reached now, after it could not.
    fn connected(&self, _node: NodeId) {}
}

/// Why a node may not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A generation of that number was here, and this one does not come after it.
    Overtaken {
        /// The number of the latest start that was seen.
        known: u64,
    },
    /// It could not be written down.
    Failed(String),
}

/// Which start of a node this is. Starts are counted in the data directory, so an older copy of it counts from where it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// How many starts there were, this one included.
    pub number: u64,
    /// A random number: two starts that go on from the same copy have the same number.
    pub start: u64,
}

impl Generation {
    fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.number) | u128::from(self.start) << 64).to_le_bytes()
    }

    /// # Panics
    /// If these are not 16 bytes.
    fn of_bytes(bytes: &[u8]) -> Self {
        let word = u128::from_le_bytes(bytes.try_into().expect("sixteen bytes"));
        Self { number: word as u64, start: (word >> 64) as u64 }
    }
}

/// Who this node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster that the node belongs to.
    pub cluster: ClusterId,
    /// The number that the cluster gave the node.
    pub node: NodeId,
    /// Which start of the node this is.
    pub generation: Generation,
}

/// The connections of one node. They live on the runtime that it [serves](Transport::serve) on.
pub struct Transport {
    identity: Identity,
    secret: Secret,
    /// Of the protocol between nodes, those that this node speaks.
    versions: RangeInclusive<u8>,
    handler: Arc<dyn Handler>,
    /// How long an answer is waited for.
    patience: Duration,
    peers: RwLock<HashMap<NodeId, Arc<Peer>>>,
    /// Where connections live.
    runtime: OnceLock<tokio::runtime::Handle>,
    began: Instant,
}

impl Transport {
    /// A transport without connections, which takes what comes to `handler`. All nodes of the cluster know the same `secret`.
    pub fn new(identity: Identity, secret: Secret, handler: Arc<dyn Handler>) -> Arc<Self> {
        Arc::new(Self::with_patience(identity, secret, handler, ANSWER))
    }

    fn with_patience(identity: Identity, secret: Secret, handler: Arc<dyn Handler>, patience: Duration) -> Self {
        let (peers, runtime) = (RwLock::default(), OnceLock::new());
        let versions = handshake::VERSIONS;
        Self { identity, secret, versions, handler, patience, peers, runtime, began: Instant::now() }
    }

    /// Who this node is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Takes connections from other nodes until the future is dropped, and makes those to them on the same runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn serve(self: Arc<Self>, listener: TcpListener) -> impl Future<Output = ()> + Send {
        let _ = self.runtime.set(tokio::runtime::Handle::current());
        inbound::serve(self, listener)
    }

    /// Makes the nodes that this one talks to those given, each under its address `HOST:PORT`. A node that comes back
    /// under another address is dialled there from now on. Does nothing yet before it serves.
    pub fn set_peers(self: &Arc<Self>, addresses: &HashMap<NodeId, String>) {
        let Some(runtime) = self.runtime.get() else { return };
        let mut peers = self.peers.write();
        peers.retain(|node, peer| {
            let stays = addresses.contains_key(node);
            if !stays {
                peer.close();
            }
            stays
        });
        for (node, address) in addresses.iter().filter(|(node, _)| **node != self.identity.node) {
            match peers.get(node) {
                Some(peer) => peer.set_address(address),
                None => {
                    let peer = Peer::new(self, *node, address.clone());
                    runtime.spawn(outbound::run(peer.clone(), self.handler.clone()));
                    peers.insert(*node, peer);
                }
            }
        }
    }

    fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        self.peers.read().get(&node).cloned()
    }

    /// Sends messages of one kind, each of which `write` appends. They may get lost, but none stays behind a later one.
    pub fn send<M>(&self, to: NodeId, kind: u8, messages: &[M], write: impl Fn(&M, &mut BytesMut)) {
        if let Some(peer) = self.peer(to) {
            peer.send(kind, messages, write);
        }
    }

    /// Sends a message to all other nodes.
    pub fn broadcast(&self, kind: u8, payload: &[u8]) {
        for peer in self.peers.read().values() {
            peer.send(kind, &[payload], |payload, out| out.extend_from_slice(payload));
        }
    }

    /// Asks a node nothing more, until it is connected anew: further requests are [`RequestFailure::NotSent`]. Returns when those
    /// that it was asked are answered or lost.
    pub async fn ask_no_more(&self, node: NodeId) {
        let Some(peer) = self.peer(node) else { return };
        peer.ask_no_more();
        while peer.waiting() > 0 {
            tokio::time::sleep(LAST_ANSWERS).await;
        }
    }

    /// Asks another node.
    ///
    /// Cancellation: the request may still be carried out.
    ///
    /// # Errors
    /// [`RequestFailure`] says whether it may have been carried out.
    pub async fn request(&self, to: NodeId, service: u8, payload: &[u8]) -> Result<Bytes, RequestFailure> {
        let peer = self.peer(to).ok_or(RequestFailure::NotSent)?;
        peer.request(service, payload).await
    }

    /// How long ago another node was last heard of; `None` for one that was not heard of since this one started.
    pub fn silence(&self, node: NodeId) -> Option<Duration> {
        self.peer(node)?.silence()
    }

    /// By how many milliseconds another node's clock is ahead of [`monotonic_millis`] of this process, as far as was heard.
    pub fn clock_distance(&self, node: NodeId) -> Option<i64> {
        self.peer(node)?.clock_distance()
    }

    fn heard_clock(&self, node: NodeId, clock: u64) {
        if let Some(peer) = self.peer(node) {
            peer.heard_clock(clock);
            self.handler.clock_heard();
        }
    }

    /// The version of the protocol that this node and another one speak: that of the older of the two. `None` if it could not be
    /// reached yet.
    pub fn version_with(&self, node: NodeId) -> Option<u8> {
        self.peer(node)?.version()
    }

    /// Whether a node has been dialled, with whatever outcome.
    pub fn has_tried(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| peer.was_tried())
    }

    fn heard_of(&self, node: NodeId) {
        if let Some(peer) = self.peer(node) {
            peer.heard();
        }
    }
}

/// Asks a node of a cluster that this node does not belong to yet.
///
/// # Errors
/// If the node cannot be reached, or refuses, or does not know the secret.
pub async fn ask_stranger(address: &str, secret: &Secret, service: u8, payload: &[u8]) -> Result<Bytes, String> {
    outbound::ask_stranger(address, secret, service, payload).await
}

#[cfg(test)]
mod tests;
