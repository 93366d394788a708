//! What all connections of the face share.

use crate::clients::Clients;
use crate::commands::{counted_commands, find, place_of};
use crate::kept_watches::KeptWatches;
use crate::slow_log::SlowLog;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tessera_access::Authenticator;
use tessera_face::{ClientMemory, Handshakes, Tls};
use tessera_store::{FaceMeter, Store};

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
    /// The most commands that the slow log keeps.
    pub slow_log_entries: usize,
    /// What the clients of all faces may cost together.
    pub client_memory: Arc<ClientMemory>,
    /// Who may come in.
    pub authenticator: Arc<Authenticator>,
    /// Whether commands and transactions over several partitions are atomic. If not, those that must be are refused, and the others
    /// are carried out partition by partition.
    pub transactions_over_partitions: bool,
    /// How many databases `SELECT` knows, each a table that is created when it is first selected; 0 if its numbers are those of tables.
    pub databases: u32,
    /// The port that INFO shows.
    pub port: u16,
}

/// The Redis face of a node.
pub struct RedisServer {
    pub(crate) store: Store,
    pub(crate) config: RedisConfig,
    pub(crate) clients: Clients,
    pub(crate) slow_log: SlowLog,
    pub(crate) handshakes: Handshakes,
    pub(crate) started: Instant,
    pub(crate) commands: AtomicU64,
    /// Requests sent to other nodes; each may hold several commands.
    pub(crate) forwarded: AtomicU64,
    /// What clients ask.
    pub(crate) meter: Arc<FaceMeter>,
    /// The place of GET among what it counts.
    pub(crate) get: usize,
    /// Keys that commands had found, and had not found, when INFO was told to count anew.
    pub(crate) lookups_before: Mutex<(u64, u64)>,
    /// What connections to other nodes watch here.
    pub(crate) kept_watches: KeptWatches,
    pub(crate) max_clients: AtomicUsize,
    /// With it, every connection must speak TLS.
    pub(crate) tls: Option<Tls>,
}

impl RedisServer {
    pub(crate) fn new(store: Store, config: RedisConfig, tls: Option<Tls>) -> Self {
        Self {
            slow_log: SlowLog::new(config.slow_log_micros, config.slow_log_entries),
            max_clients: AtomicUsize::new(config.max_clients),
            config,
            clients: Clients::default(),
            handshakes: Handshakes::new(HANDSHAKES, HANDSHAKE),
            started: Instant::now(),
            commands: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            meter: store.meter_face("redis", counted_commands()),
            get: place_of(find(b"get")),
            lookups_before: Mutex::default(),
            kept_watches: KeptWatches::default(),
            tls,
            store,
        }
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

    /// How many keys commands have found, and how many they have not, since INFO was told to count anew.
    pub(crate) fn lookups(&self) -> (u64, u64) {
        let ((hits, misses), before) = (self.meter.lookups(), *self.lookups_before.lock());
        (hits.saturating_sub(before.0), misses.saturating_sub(before.1))
    }

    /// Commands carried out so far.
    pub fn command_count(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }
}
