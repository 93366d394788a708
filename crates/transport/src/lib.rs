//! Connections between the nodes of a cluster: messages that may get lost, and requests that are answered.
//!
//! Every node dials every other one, and sends everything for that node over this one connection, on which the answers
//! come back. Frames that queue while a write is under way go out with the next write. The content of messages is
//! opaque here.
//!
//! Read first: [`Transport`], then [`frame`] (what is on the wire) and [`handshake`] (who may talk to whom).

#![warn(missing_docs)]

mod accept;
mod frame;
mod handshake;
mod handshakes;
mod idle_timer;
mod inbound;
mod outbound;
mod reported_clock;
mod secret;

pub use accept::accept;
pub use handshakes::Handshakes;
pub use outbound::{Asked, RequestFailure};
pub use reported_clock::NodeClock;
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

/// The largest number of requests of one node to another that may be unanswered at a time; further ones fail with
/// [`RequestFailure::NotSent`].
const REQUESTS_UNDER_WAY: usize = 65_536;
/// How long a node waits for an answer. It is longer than the longest thing that a node does for another one, which is
/// to count hot keys. A request that can no longer be answered fails at once.
const ANSWER: Duration = Duration::from_secs(180);

/// How often a node checks whether another one, which is about to stop, has answered everything.
const LAST_ANSWERS: Duration = Duration::from_millis(2);

/// The future of an answer.
pub type Answer = Pin<Box<dyn Future<Output = Bytes> + Send>>;

/// Handles what other nodes send.
pub trait Handler: Send + Sync + 'static {
    /// Takes messages that arrived together, each with its kind. It must not wait.
    fn messages(&self, from: NodeId, messages: &mut Vec<(u8, Bytes)>);

    /// Whether a node may belong to this cluster, as far as this node knows. A node that does not is told that it was
    /// removed, and stops serving.
    fn is_known(&self, node: NodeId) -> bool;

    /// An explanation for a node of that other cluster, in addition to that this is not its own.
    fn word_for(&self, _cluster: ClusterId) -> Option<String> {
        None
    }

    /// Whether a node may connect with this generation. The generation is on disk when this returns, so that the node
    /// cannot connect with an earlier one later. Blocks.
    ///
    /// # Errors
    /// Why it may not connect.
    fn admits(&self, node: NodeId, generation: Generation) -> Result<(), Refusal>;

    /// Another node has seen a later generation of this node than its present one: this node's disk is older than the
    /// data that it had.
    fn is_overtaken(&self, by: NodeId, known: u64);

    /// Another node says that this one was removed from the cluster.
    fn was_removed(&self, _by: NodeId) {}

    /// Answers a request. `None` comes from a node that has no identity yet: it may only ask to be let in.
    fn request(&self, from: Option<NodeId>, service: u8, payload: Bytes) -> Answer;

    /// A node has reported its clock; see [`Transport::clock`].
    fn clock_heard(&self) {}

    /// A node can be reached now, after it could not.
    fn connected(&self, _node: NodeId) {}
}

/// Why a node may not connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A generation of that number was here, and this one does not come after it.
    Overtaken {
        /// The number of the latest start that was seen.
        known: u64,
    },
    /// Its generation could not be stored.
    Failed(String),
}

/// A generation: the number of a node's start. Starts are counted in the data directory, so an older copy of it
/// continues from an earlier number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// How many starts there were, this one included.
    pub number: u64,
    /// A random number, which tells apart two starts from the same copy, because these have equal numbers.
    pub start: u64,
}

impl Generation {
    fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.number) | u128::from(self.start) << 64).to_le_bytes()
    }

    /// # Panics
    /// If the slice does not have 16 bytes.
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
    /// The versions of the protocol between nodes that this node speaks.
    versions: RangeInclusive<u8>,
    handler: Arc<dyn Handler>,
    /// How long this node waits for an answer.
    patience: Duration,
    peers: RwLock<HashMap<NodeId, Arc<Peer>>>,
    /// The runtime on which the connections live.
    runtime: OnceLock<tokio::runtime::Handle>,
    began: Instant,
}

impl Transport {
    /// A transport without connections, which passes what arrives to `handler`. All nodes of the cluster know the same
    /// `secret`.
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

    /// Accepts connections from other nodes until the future is dropped, and dials other nodes on the same runtime.
    ///
    /// # Panics
    /// If it is called outside of a tokio runtime.
    pub fn serve(self: Arc<Self>, listener: TcpListener) -> impl Future<Output = ()> + Send {
        let _ = self.runtime.set(tokio::runtime::Handle::current());
        inbound::serve(self, listener)
    }

    /// Sets the other nodes, each with its address `HOST:PORT`. A node whose address has changed is dialled at the new
    /// one from now on. Takes effect only once the transport serves.
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

    /// Sends messages of one kind, each of which `write` appends. They may get lost, but they are not reordered.
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

    /// Sends a node no more requests until it is connected again: further requests fail with
    /// [`RequestFailure::NotSent`]. Returns when the earlier ones are answered or lost.
    pub async fn ask_no_more(&self, node: NodeId) {
        let Some(peer) = self.peer(node) else { return };
        peer.ask_no_more();
        while peer.waiting() > 0 {
            tokio::time::sleep(LAST_ANSWERS).await;
        }
    }

    /// Sends a request to another node and waits for the answer.
    ///
    /// Cancellation: the request may still be carried out.
    ///
    /// # Errors
    /// [`RequestFailure`] says whether it may have been carried out.
    pub async fn request(&self, to: NodeId, service: u8, payload: &[u8]) -> Result<Bytes, RequestFailure> {
        self.ask(to, service, payload).await
    }

    /// Sends a request to another node, whether or not anybody waits for the answer.
    pub fn ask(&self, to: NodeId, service: u8, payload: &[u8]) -> Asked {
        self.peer(to).map_or(Asked::NOT_SENT, |peer| peer.ask(service, payload))
    }

    /// How long ago another node was last heard from; `None` if it was not heard from since this one started.
    pub fn silence(&self, node: NodeId) -> Option<Duration> {
        self.peer(node)?.silence()
    }

    /// Why there is no connection to another node, by the latest attempt; `None` while there is one.
    pub fn trouble(&self, node: NodeId) -> Option<String> {
        self.peer(node)?.trouble()
    }

    /// What another node has reported of its clock; `None` if it has reported nothing since this one started.
    pub fn clock(&self, node: NodeId) -> Option<NodeClock> {
        self.peer(node)?.clock()
    }

    fn heard_clock(&self, node: NodeId, clock: u64) {
        if let Some(peer) = self.peer(node) {
            peer.heard_clock(clock);
            self.handler.clock_heard();
        }
    }

    /// The version of the protocol that this node and another one speak: that of the older of the two. `None` if it
    /// could not be reached yet.
    pub fn version_with(&self, node: NodeId) -> Option<u8> {
        self.peer(node)?.version()
    }

    /// Whether a node has been dialled, with whatever outcome.
    pub fn has_tried(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| peer.was_tried())
    }

    /// Dials a node that has just dialled this one, unless they are connected.
    fn dial_now(&self, node: NodeId) {
        if let Some(peer) = self.peer(node) {
            peer.is_there();
        }
    }

    fn heard_of(&self, node: NodeId) {
        if let Some(peer) = self.peer(node) {
            peer.heard();
        }
    }
}

/// Sends a request to a node of a cluster to which this node does not belong yet.
///
/// # Errors
/// If the node cannot be reached, refuses, or does not know the secret.
pub async fn ask_stranger(address: &str, secret: &Secret, service: u8, payload: &[u8]) -> Result<Bytes, String> {
    outbound::ask_stranger(address, secret, service, payload).await
}

#[cfg(test)]
mod tests;
