//! What all connections of the face share, and how they are accepted.

use crate::access::Openings;
use crate::calls::Scanners;
use crate::connection::Connection;
use crate::forward;
use crate::meta::Searches;
use crate::wire::Shared;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tessera_face::{ClientMemory, Stream};
use tessera_store::Store;
use tokio::net::TcpStream;

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
    pub(crate) forwarded: AtomicU64,
    connections: AtomicUsize,
}

impl PegasusServer {
    /// The face of a node whose records are in `store`. It takes what other nodes ask of this face from now on.
    pub fn new(store: Store, config: PegasusConfig) -> Arc<Self> {
        let server = Arc::new(Self {
            store,
            address: config.address.as_str().into(),
            config,
            scanners: Scanners::default(),
            hot_keys: Searches::default(),
            requests: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
        });
        server.store.serve_face(SERVICE, &server, |server, request| {
            Box::pin(async move { forward::carry_out(&server, request).await })
        });
        server
    }

    /// Serves a connection until it ends.
    pub async fn handle(self: Arc<Self>, stream: TcpStream, address: SocketAddr) {
        // Replies are written whole; waiting to fill packets would only delay them.
        let _ = stream.set_nodelay(true);
        let Some(access) = self.config.open_to.access(address.ip()) else {
            tracing::debug!(%address, "the Pegasus face is closed to a client");
            return;
        };
        if self.connections.fetch_add(1, Ordering::Relaxed) < self.config.max_clients {
            let memory = self.config.client_memory.join();
            // The clients know no TLS.
            let stream = Stream::Plain(stream);
            tokio::select! {
                outcome = Connection::new(self.clone(), stream, access, memory.clone()).run() => {
                    if let Err(error) = outcome {
                        tracing::debug!(%address, %error, "a connection of a Pegasus client ended");
                    }
                }
                () = memory.evicted() => tracing::warn!(
                    %address,
                    bytes = memory.bytes(),
                    "clients hold more than `clients.memory_limit_bytes`, and this one, which holds the most, is closed"
                ),
            }
        } else {
            tracing::warn!(%address, limit = self.config.max_clients, "too many connections of Pegasus clients");
        }
        self.connections.fetch_sub(1, Ordering::Relaxed);
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
