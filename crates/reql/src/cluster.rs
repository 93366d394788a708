//! The servers of a cluster, and how tables are spread over them: what `config`, `status` and the system tables tell.

use crate::write_hook::WriteHook;
use std::sync::Arc;

/// A node that holds replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The identifier, a UUID in text.
    pub id: String,
    /// The name by which clients mean the node.
    pub name: String,
}

/// A server, and how it is reached.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// The node.
    pub server: Server,
    /// The host name or address at which it is reached.
    pub host: String,
    /// For other nodes.
    pub cluster_port: Option<u16>,
    /// For drivers; `None` if there is no such port.
    pub reql_port: Option<u16>,
    /// For the admin API; `None` if there is no such port.
    pub admin_port: Option<u16>,
    /// Whether the node that was asked has heard of it lately, or is it.
    pub is_connected: bool,
    /// What runs there, in words that begin as RethinkDB's, if it says so.
    pub version: Option<String>,
    /// The running process, if it is the one that was asked.
    pub process: Option<Process>,
}

/// The process of a node.
#[derive(Debug, Clone)]
pub struct Process {
    /// The number that the system gave the process.
    pub pid: u32,
    /// Seconds since 1970.
    pub started: f64,
}

/// Where the replicas of a shard are to be.
#[derive(Debug, Clone)]
pub struct ShardConfig {
    /// The server that leads, if one is known.
    pub primary: Option<Server>,
    /// The nodes with a replica, the leader's included.
    pub replicas: Vec<Server>,
}

/// How a table is spread, and what its writes promise.
#[derive(Debug, Clone)]
pub struct TableConfig {
    /// The partitions of the table, in their order.
    pub shards: Vec<ShardConfig>,
    /// The names of its secondary indexes.
    pub indexes: Vec<String>,
    /// Whether a write is fsynced before it is acknowledged.
    pub is_hard: bool,
    /// `majority` or `single`.
    pub write_acks: &'static str,
    /// The write hook of the table.
    pub write_hook: Option<Arc<WriteHook>>,
}

/// What a replica can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaState {
    /// It has its data and takes part.
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

/// Who serves a partition.
#[derive(Debug, Clone)]
pub struct ShardStatus {
    /// The server that leads, if one is known and reached.
    pub primary: Option<Server>,
    /// The nodes with a replica, each with what the replica can do.
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
    /// The number of partitions.
    pub shards: usize,
    /// The number of replicas of each partition.
    pub replicas: usize,
}

/// A change of what a table is.
#[derive(Debug, Clone)]
pub enum TableChange {
    /// Gives the table another database or name.
    Rename {
        /// The database afterwards.
        database: String,
        /// The name afterwards.
        name: String,
    },
    /// Whether a write waits for a majority of the replicas, or for the leader only.
    WriteAcks {
        /// Whether a majority must have a write before it is acknowledged.
        majority: bool,
    },
    /// Gives the table a write hook, or none. Writes that begin later, at any node, go through it.
    WriteHook(Option<Arc<WriteHook>>),
}
