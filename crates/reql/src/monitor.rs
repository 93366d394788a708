//! What the nodes of a cluster tell of themselves: the queries that run, what they have been asked and hold, and their logs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::Server;
use crate::error::Result;

/// A query that runs on a node, or has an open stream there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryJob {
    /// The identifier, a UUID in text; no two queries of a cluster have the same one.
    pub id: String,
    /// How long ago it was begun, in seconds.
    pub seconds: f64,
    /// Who asked it.
    pub user: String,
    /// The address of the client.
    pub host: String,
    /// The port of the client.
    pub port: u16,
    /// The query as a [text](crate::Query::text), or its beginning.
    pub text: String,
}

/// How often something has happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// How often it has happened in a second lately.
    pub per_second: f64,
    /// How often it has happened since the node was started.
    pub total: u64,
}

/// What a node has been asked through the protocol of RethinkDB.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeStatistics {
    /// Connections of clients.
    pub connections: u64,
    /// Those of them that have a query under way.
    pub active_connections: u64,
    /// Queries that were begun.
    pub queries: Rate,
    /// Its share of each table that it knows.
    pub tables: Vec<TableStatistics>,
}

/// What a node has been asked of a table, and holds of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TableStatistics {
    /// The identifier of the table.
    pub table: String,
    /// Documents read.
    pub read: Rate,
    /// Documents written.
    pub written: Rate,
    /// Bytes of memory that the table takes by itself: caches that tables share do not count.
    pub memory_bytes: u64,
    /// Bytes of files.
    pub disk_bytes: u64,
}

/// A line of the log of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// Nanoseconds since 1970. No two lines of a node have the same.
    pub nanos: u64,
    /// Seconds since the node was started.
    pub uptime: f64,
    /// `debug`, `info`, `notice`, `warn` or `error`.
    pub level: String,
    /// What is said.
    pub message: String,
}

/// Whoever tells what the nodes of a cluster do. Nodes that do not answer in time are told of as `None`.
pub trait Monitor: Send + Sync {
    /// The queries of each node.
    ///
    /// # Errors
    /// If nobody can tell.
    fn queries(&self) -> Result<Vec<(Server, Option<Vec<QueryJob>>)>>;

    /// Has a query end, on whichever node it runs. One that has ended already is none that this complains about.
    ///
    /// # Errors
    /// If it may be one of a node that has not answered.
    fn end_query(&self, id: &str) -> Result<()>;

    /// What each node has been asked and holds.
    ///
    /// # Errors
    /// If nobody can tell.
    fn statistics(&self) -> Result<Vec<(Server, Option<NodeStatistics>)>>;

    /// The last lines of each node's log, the oldest first.
    ///
    /// # Errors
    /// If nobody can tell.
    fn log_lines(&self) -> Result<Vec<(Server, Option<Vec<LogLine>>)>>;

    /// How long a node may be silent before tables count its replicas as disconnected.
    fn silence_limit(&self) -> Duration;
}
