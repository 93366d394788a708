//! What all connections of the face share, and how they are accepted.

use crate::clients::Clients;
use crate::connection::{Connection, carry_out};
use crate::slow_log::SlowLog;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tessera_access::Authenticator;
use tessera_face::{ClientMemory, Handshakes, Tls};
use tessera_store::Store;
use tokio::net::TcpStream;

/// TLS handshakes at one time, and how long one may take.
const HANDSHAKES: usize = 256;
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The number of the service by which nodes hand each other what clients of this face ask. Nodes of other versions know it.
pub(crate) const SERVICE: u8 = 3;

/// Settings of the face.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// Connections at one time; more are told so and closed.
    pub max_clients: usize,
    /// How long a client may take to read a part of its replies before it is dropped.
    pub write_timeout: Duration,
    /// Microseconds from which a command goes to the slow log; negative for never.
    pub slow_log_micros: i64,
    pub slow_log_entries: usize,
    /// What the clients of all faces may cost together.
    pub client_memory: Arc<ClientMemory>,
    /// Who may come in.
    pub authenticator: Arc<Authenticator>,
    /// The port that INFO shows.
    pub port: u16,
}

/// The Redis face of a node.
pub struct RedisServer {
    pub(crate) store: Store,
    pub(crate) config: RedisConfig,
    pub(crate) clients: Clients,
    pub(crate) slow_log: SlowLog,
    handshakes: Handshakes,
    pub(crate) started: Instant,
    pub(crate) commands: AtomicU64,
    /// Requests sent to other nodes; each may hold several commands.
    pub(crate) forwarded: AtomicU64,
    pub(crate) read_hits: AtomicU64,
    pub(crate) read_misses: AtomicU64,
    pub(crate) max_clients: AtomicUsize,
    tls: Option<Tls>,
}

impl RedisServer {
    /// With `tls`, every connection must speak it.
    pub fn new(store: Store, config: RedisConfig, tls: Option<Tls>) -> Arc<Self> {
        let server = Arc::new(Self {
            slow_log: SlowLog::new(config.slow_log_micros, config.slow_log_entries),
            max_clients: AtomicUsize::new(config.max_clients),
            store,
            config,
            clients: Clients::default(),
            handshakes: Handshakes::new(HANDSHAKES, HANDSHAKE),
            started: Instant::now(),
            commands: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            read_hits: AtomicU64::new(0),
            read_misses: AtomicU64::new(0),
            tls,
        });
        server.store.serve_face(SERVICE, &server, carry_out);
        server
    }

    /// Serves a connection until it ends.
    pub async fn handle(self: Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let Ok(local_address) = stream.local_addr() else { return };
        // Replies are written whole; waiting to fill packets would only delay them.
        let _ = stream.set_nodelay(true);
        let limit = self.max_clients.load(Ordering::Relaxed);
        let Some(client) = self.clients.connect(address, local_address, limit) else {
            let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
            return;
        };
        match self.handshakes.accept(stream, self.tls.as_ref()).await {
            Ok(stream) => Connection::new(self.clone(), client.clone(), Some(stream)).run().await,
            Err(error) => tracing::debug!(%address, %error, "a TLS handshake of a Redis client failed"),
        }
        self.clients.disconnect(client.id);
    }

    /// Connections now, connections so far, and connections refused.
    pub fn connection_counts(&self) -> (usize, u64, u64) {
        let clients = &self.clients;
        (clients.count(), clients.total.load(Ordering::Relaxed), clients.refused.load(Ordering::Relaxed))
    }

    /// Requests sent to other nodes so far; each may hold several commands.
    pub fn forwarded_count(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }

    /// Commands carried out so far.
    pub fn command_count(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }
}
