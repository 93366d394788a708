//! What is measured: cells, each a workload on a table of a cluster.

use crate::driver::Protocol;
use crate::workload::KeyDistribution;
use serde::{Deserialize, Serialize};
use tessera_types::Partitioner;

/// A cluster that the suite starts, or that runs already.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClusterSpec {
    pub nodes: u16,
    /// Of every node, as `tessera local --set` takes them.
    pub settings: Vec<String>,
    /// Of one that runs already: the address of a node's admin API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
}

/// A table with its records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableSpec {
    pub engine: String,
    pub durability: String,
    pub partitions: u32,
    pub replicas: u8,
    pub fields: usize,
    pub field_bytes: usize,
    #[serde(default)]
    pub partitioner: Partitioner,
    /// Whether records expire while they are written, so that the table is not filled before.
    #[serde(default)]
    pub expires: bool,
    /// Whether the records are documents.
    #[serde(default)]
    pub is_document: bool,
}

/// How the rate of a cell is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loop {
    /// As fast as so many clients go, each waiting for its answer.
    Closed,
    /// The highest rate within [`Limits`](super::limits::Limits).
    Search,
}

/// The mix that is one query of ReQL over the table.
pub const MAP_REDUCE: &str = "map-reduce";

/// A workload on a table of a cluster. Experiments that want the same share one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub cluster: ClusterSpec,
    pub table: TableSpec,
    pub protocol: Protocol,
    /// As `tessera bench run --mix` takes it.
    pub mix: String,
    pub distribution: KeyDistribution,
    pub processes: usize,
    pub threads: usize,
    /// A read mode, if it is not the default.
    pub reads: Option<String>,
    pub kind: Loop,
    /// How many times as long as others its runs take.
    #[serde(default = "once")]
    pub times: u32,
}

fn once() -> u32 {
    1
}

impl TableSpec {
    pub fn record_bytes(&self) -> usize {
        self.fields * self.field_bytes
    }

    pub fn name(&self) -> String {
        let Self { engine, durability, partitions, replicas, fields, field_bytes, partitioner, expires, is_document } =
            self;
        let slots = if *partitioner == Partitioner::RedisSlots { "_slots" } else { "" };
        let ttl = if *expires { "_ttl" } else { "" };
        let documents = if *is_document { "_documents" } else { "" };
        format!("{engine}_{durability}_p{partitions}_r{replicas}_{fields}x{field_bytes}{slots}{ttl}{documents}")
    }
}

impl Cell {
    /// Whether it can be measured on a cluster that runs already, which has its own settings. A query cannot: the suite does not know where
    /// such a cluster listens for ReQL, and only ReQL has it.
    pub fn runs_on_others_clusters(&self) -> bool {
        self.cluster.settings.is_empty() && self.mix != MAP_REDUCE
    }

    /// The same on a cluster that runs already. It may have no face for Pegasus' clients, and does not tell where its nodes listen for
    /// those of RethinkDB, so both are measured through Redis' protocol there.
    #[must_use]
    pub fn on(self, cluster: &ClusterSpec) -> Self {
        let (protocol, partitioner) = match self.protocol {
            Protocol::Pegasus => (Protocol::RedisCluster, Partitioner::RedisSlots),
            Protocol::Rethinkdb => (Protocol::Redis, self.table.partitioner),
            other => (other, self.table.partitioner),
        };
        let table = TableSpec { partitioner, is_document: false, ..self.table };
        Self { cluster: cluster.clone(), protocol, table, ..self }
    }

    /// Names the cell, and its file.
    pub fn id(&self) -> String {
        let settings: String = self.cluster.settings.iter().map(|setting| format!("_{setting}")).collect();
        let reads = self.reads.as_ref().map_or(String::new(), |reads| format!("_{reads}"));
        let kind = if self.kind == Loop::Search { "_search" } else { "" };
        let mix = self.mix.replace(':', "to");
        let cluster = match &self.cluster.running {
            Some(url) => format!("at-{}", url.trim_start_matches("http://")),
            None => format!("n{}{settings}", self.cluster.nodes),
        };
        let id = format!(
            "{cluster}_{}_{}_{mix}{reads}_{}x{}{kind}",
            self.table.name(),
            self.protocol,
            self.processes,
            self.threads
        );
        id.replace(['.', '=', ':', '/'], "-")
    }
}
