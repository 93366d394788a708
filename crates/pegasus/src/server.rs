//! What all connections of the face share.

use crate::access::Openings;
use crate::calls::{COUNTED, Scanners};
use crate::hot_key_searches::Searches;
use crate::wire::Shared;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tessera_face::ClientMemory;
use tessera_store::{FaceMeter, Store};

/// The number of the service by which nodes hand each other what clients of this face ask. Nodes of other versions know it.
pub(crate) const SERVICE: u8 = 6;

/// Settings of the face.
#[derive(Clone, Debug)]
pub struct PegasusConfig {
    /// Connections at one time; more are closed.
    pub max_clients: usize,
    /// How long a client may take to read a part of its replies before it is dropped.
    pub write_timeout: Duration,
    /// What the clients of all faces may cost together.
    pub client_memory: Arc<ClientMemory>,
    /// Longest write, in bytes: longer requests cannot be meant.
    pub write_bytes: usize,
    /// Where clients reach this node, as `HOST:PORT`.
    pub address: String,
    /// Where the node keeps its data: the disk that it tells of is the one that this is on.
    pub data_directory: PathBuf,
    /// To whom the face is open.
    pub open_to: Openings,
}

/// The Pegasus face of a node.
pub struct PegasusServer {
    pub(crate) store: Store,
    pub(crate) config: PegasusConfig,
    /// What responses say about who made them.
    pub(crate) address: Shared,
    pub(crate) scanners: Scanners,
    pub(crate) hot_keys: Searches,
    pub(crate) requests: AtomicU64,
    /// What clients ask.
    pub(crate) meter: Arc<FaceMeter>,
    pub(crate) forwarded: AtomicU64,
    pub(crate) connections: AtomicUsize,
}

impl PegasusServer {
    pub(crate) fn new(store: Store, config: PegasusConfig) -> Self {
        Self {
            meter: store.meter_face("pegasus", COUNTED),
            store,
            address: config.address.as_str().into(),
            config,
            scanners: Scanners::default(),
            hot_keys: Searches::default(),
            requests: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
        }
    }

    /// Connections now.
    pub fn connection_count(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Requests so far, and those of them that another node carried out.
    pub fn request_counts(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.forwarded.load(Ordering::Relaxed))
    }
}
