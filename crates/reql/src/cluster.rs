//! The servers of a cluster, and how tables are spread over them: what `config`, `status` and the system tables tell.

/// A node that holds replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub id: String,
    pub name: String,
}

/// A server, and how it is reached.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    pub server: Server,
    pub host: String,
    /// For other nodes.
    pub cluster_port: Option<u16>,
    /// For drivers; `None` if there is no such port.
    pub reql_port: Option<u16>,
    pub admin_port: Option<u16>,
    /// Whether the node that was asked has heard of it lately, or is it.
    pub is_connected: bool,
    /// What runs there, in words that begin as RethinkDB's, if it says so.
    pub version: Option<String>,
    /// The running process, if it is the one that was asked.
    pub process: Option<Process>,
}

#[derive(Debug, Clone)]
pub struct Process {
    pub pid: u32,
    /// Seconds since 1970.
    pub started: f64,
}

/// Where the replicas of a shard are to be.
#[derive(Debug, Clone)]
pub struct ShardConfig {
    /// The server that leads, if one is known.
    pub primary: Option<Server>,
    pub replicas: Vec<Server>,
}

#[derive(Debug, Clone)]
pub struct TableConfig {
    pub shards: Vec<ShardConfig>,
    pub indexes: Vec<String>,
    pub is_hard: bool,
    /// `majority` or `single`.
    pub write_acks: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaState {
    Ready,
    /// It gets its data.
    Transferring,
    /// Nothing was heard of its server lately.
    Disconnected,
}

impl ReplicaState {
    /// The word that RethinkDB has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Transferring => "transferring_data",
            Self::Disconnected => "disconnected",
        }
    }
}

#[derive(Debug, Clone)]
pub struct ShardStatus {
    /// The server that leads, if one is known and reached.
    pub primary: Option<Server>,
    pub replicas: Vec<(Server, ReplicaState)>,
}

/// How available a table is, each state including those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    Unavailable,
    OutdatedReads,
    /// Reads and writes: Tessera has no state between these two.
    Writes,
    AllReplicas,
}

impl ShardStatus {
    fn readiness(&self) -> Readiness {
        let is_ready = |(_, state): &(Server, ReplicaState)| *state == ReplicaState::Ready;
        match () {
            () if self.primary.is_some() && self.replicas.iter().all(is_ready) => Readiness::AllReplicas,
            () if self.primary.is_some() => Readiness::Writes,
            () if self.replicas.iter().any(is_ready) => Readiness::OutdatedReads,
            () => Readiness::Unavailable,
        }
    }
}

/// How available a table of these shards is.
pub fn readiness(shards: &[ShardStatus]) -> Readiness {
    shards.iter().map(ShardStatus::readiness).min().unwrap_or(Readiness::AllReplicas)
}

/// How a table is to be spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub shards: usize,
    pub replicas: usize,
}

/// A change of what a table is.
#[derive(Debug, Clone)]
pub enum TableChange {
    Rename {
        database: String,
        name: String,
    },
    /// Whether a write waits for a majority of the replicas, or for the leader only.
    WriteAcks {
        majority: bool,
    },
}
