//! What can be done to the catalog, and why not.

use super::{AmnesiacReplica, CopyReport, JoinToken, Placement, Site};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tessera_types::{
    Model, NodeId, ReplicaId, TableId, TableNameError, TableNumber, TableSchema, TableSettings, UnixMillis,
};

/// A change to the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum CatalogCommand {
    Create {
        name: String,
        schema: TableSchema,
        settings: TableSettings,
        /// Nodes that are not there now, as the node knows that leads the catalog: the table gets no replicas on them
        /// yet.
        #[serde(default)]
        absent: BTreeSet<NodeId>,
    },
    Alter {
        name: String,
        settings: TableSettings,
        /// What they were when that was decided: another change must not be lost.
        #[serde(default)]
        before: Option<TableSettings>,
    },
    SetReplicas {
        name: String,
        replicas: u8,
    },
    /// Splits a table into twice as many partitions.
    Split {
        name: String,
        partitions: u32,
        /// As of [`Create`](Self::Create).
        #[serde(default)]
        absent: BTreeSet<NodeId>,
    },
    /// Gives up splitting a table, as long as it has not begun to take effect.
    CancelSplit {
        name: String,
    },
    /// How far a partition's leader is with copying it for a split.
    Copy {
        table: TableId,
        partition: u32,
        /// A number that nobody else uses.
        attempt: u64,
        report: CopyReport,
    },
    Rename {
        name: String,
        to: String,
    },
    Drop {
        name: String,
        purge_at: UnixMillis,
    },
    /// Makes a dropped table active again, under `to` if its old name is taken.
    Recall {
        number: TableNumber,
        to: Option<String>,
    },
    /// Makes a name for tables of documents to be in.
    CreateDatabase {
        name: String,
    },
    /// Forgets a database that has no tables.
    DropDatabase {
        name: String,
    },
    /// Makes an index of a table of documents.
    CreateIndex {
        table: TableNumber,
        name: String,
        /// See [`IndexEntry::definition`](super::IndexEntry::definition).
        definition: String,
    },
    DropIndex {
        table: TableNumber,
        name: String,
    },
    RenameIndex {
        table: TableNumber,
        name: String,
        to: String,
        /// Whether an index that has the new name goes.
        overwrites: bool,
    },
    /// Forgets dropped tables whose time has come.
    Purge {
        now: UnixMillis,
    },
    /// Lets a new node in, and gives it its number: the same one again if it asks again before it has arrived.
    AddNode {
        site: Site,
        #[serde(default)]
        token: Option<JoinToken>,
    },
    /// A node that was let in has been heard of.
    Arrived {
        node: NodeId,
    },
    /// A node is found elsewhere now.
    SetSite {
        node: NodeId,
        site: Site,
    },
    /// Gives a node another replica of the catalog, because the one that it had has forgotten its votes.
    RenewCatalogReplica {
        node: NodeId,
    },
    /// Moves a node's replicas elsewhere, or no longer.
    Drain {
        node: NodeId,
        is_draining: bool,
    },
    /// Forgets a node that holds no replica.
    RemoveNode {
        node: NodeId,
    },
    /// Wants a partition's replicas on these nodes; the first is to lead. Two replicas may have a witness for the third
    /// vote.
    Place {
        table: TableId,
        partition: u32,
        nodes: Vec<NodeId>,
        witness: Option<NodeId>,
    },
    /// These replicas may have [forgotten](super::amnesiac) their votes and promises, and wait.
    #[serde(rename = "lost")]
    Amnesiac {
        replicas: Vec<AmnesiacReplica>,
    },
    /// These replicas lead their groups and serve, so new replicas can take the places of amnesiac ones.
    Led {
        groups: Vec<(TableId, u32, ReplicaId)>,
    },
    /// The records of this replica are not what the others agree on: a new one on its node takes its place.
    Replace {
        table: TableId,
        partition: u32,
        replica: ReplicaId,
    },
    /// A partition's group has these members now, which are those wanted in this version of its placement.
    Moved {
        table: TableId,
        partition: u32,
        members: Vec<ReplicaId>,
        #[serde(default)]
        version: u64,
    },
}

impl CatalogCommand {
    /// Whether only nodes that know documents can read it.
    pub fn is_about_documents(&self) -> bool {
        match self {
            Self::Create { schema, .. } => schema.model == Model::Document,
            Self::CreateDatabase { .. } | Self::DropDatabase { .. } => true,
            Self::CreateIndex { .. } | Self::DropIndex { .. } | Self::RenameIndex { .. } => true,
            _ => false,
        }
    }

    /// That a partition's group has the members that are wanted.
    pub fn moved(table: TableId, partition: u32, placement: &Placement) -> Self {
        Self::Moved { table, partition, members: placement.target.clone(), version: placement.version }
    }
}

/// What a command was about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    Other,
    Table(TableId),
    Node(NodeId),
    Replica(ReplicaId),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CatalogError {
    #[error(transparent)]
    Name(#[from] TableNameError),
    #[error("a table named '{0}' exists")]
    Exists(String),
    #[error("no such table: {0}")]
    NoSuchTable(String),
    #[error("node {0} runs a version that does not know documents; give it the version of the others first")]
    OlderNode(NodeId),
    #[error("a table of documents is called DATABASE.NAME, not '{0}'")]
    DocumentTableName(String),
    #[error("a database named '{0}' exists")]
    DatabaseExists(String),
    #[error("no such database: {0}")]
    NoSuchDatabase(String),
    #[error("database '{0}' has tables; drop them first")]
    DatabaseInUse(String),
    #[error("a table of keys and values has no indexes")]
    NotOfDocuments,
    #[error("an index named '{0}' exists")]
    IndexExists(String),
    #[error("no such index: {0}")]
    NoSuchIndex(String),
    #[error("a table has at most {most} indexes, and the definition of one at most {bytes} bytes")]
    TooManyIndexes { most: usize, bytes: usize },
    #[error("documents do not expire; a table of documents can have neither a default time to live nor rules")]
    DocumentsDoNotExpire,
    #[error("table '{0}' is being split")]
    Splitting(String),
    #[error("table '{0}' is not being split")]
    NotSplitting(String),
    #[error("the split of table '{0}' is about to take effect; try again in a moment")]
    SplitTakesEffect(String),
    #[error("a table is split into twice its partitions: {0}")]
    SplitInto(u32),
    #[error("another copy of the partition has begun, or all is copied")]
    CopyOvertaken,
    #[error("table '{0}' was altered by somebody else at the same time; try again")]
    AlteredMeanwhile(String),
    #[error("the cluster has {0} tables, the limit `tables`")]
    TooManyTables(usize),
    #[error("a table has 1 to {0} partitions (the limit `partitions_per_table`)")]
    Partitions(u32),
    #[error("a rocksdb table keeps its records on disk: durability is hard or soft")]
    DurabilityOfEngine,
    #[error("table 0, 'default', can be neither dropped nor renamed: connections that choose no table use it")]
    DefaultTable,
    #[error("a partition has 1 to {0} replicas")]
    Replicas(u8),
    #[error("node {0} holds a replica of partition {2} of table {1} that is of the other kind, witness or not")]
    OtherKind(NodeId, TableId, u32),
    #[error("no such node: {0}")]
    NoSuchNode(NodeId),
    #[error("node {0} still holds {1} replicas; drain it first, or wait until they have moved")]
    NodeInUse(NodeId, usize),
    #[error(
        "the last node that is not draining cannot be drained or removed (nodes that have not arrived do not count)"
    )]
    LastNode,
    #[error("there is no partition {1} of table {0}")]
    NoSuchPartition(TableId, u32),
    #[error("replica {0} cannot be replaced now: it has been already, or replicas of its partition are moving")]
    NotReplaceable(ReplicaId),
}
