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
    /// Creates a table and places its replicas.
    Create {
        /// The name, which no other table that is not dropped may have.
        name: String,
        /// What cannot be changed later.
        schema: TableSchema,
        /// What can be changed later by `Alter`.
        settings: TableSettings,
        /// Nodes that are not up, according to the node that leads the catalog: the table gets no replicas on them yet.
        #[serde(default)]
        absent: BTreeSet<NodeId>,
    },
    /// Replaces all settings of a table.
    Alter {
        /// The name of the table.
        name: String,
        /// The settings as they are to be, complete.
        settings: TableSettings,
        /// The settings that this change was made from. If they have changed since, the command is refused: no change is lost.
        #[serde(default)]
        before: Option<TableSettings>,
    },
    /// Changes how many replicas each partition of a table has.
    SetReplicas {
        /// The name of the table.
        name: String,
        /// The number of replicas of each partition, from 1 to the limit.
        replicas: u8,
    },
    /// Splits a table into twice as many partitions.
    Split {
        /// The name of the table.
        name: String,
        /// The number of partitions afterwards, which must be twice the present one.
        partitions: u32,
        /// As of [`Create`](Self::Create).
        #[serde(default)]
        absent: BTreeSet<NodeId>,
    },
    /// Gives up splitting a table, as long as it has not begun to take effect.
    CancelSplit {
        /// The name of the table.
        name: String,
    },
    /// How far a partition's leader is with copying it for a split.
    Copy {
        /// The table that is being split.
        table: TableId,
        /// The number of the partition in that table.
        partition: u32,
        /// The number of the leader's attempt, which no other attempt has.
        attempt: u64,
        /// What the leader has reached.
        report: CopyReport,
    },
    /// Gives a table another name; its records and number stay.
    Rename {
        /// The name that the table has.
        name: String,
        /// The name that it gets.
        to: String,
    },
    /// Makes a table unreachable, and forgets it later.
    Drop {
        /// The name of the table.
        name: String,
        /// The time from which `Purge` may forget the table.
        purge_at: UnixMillis,
    },
    /// Makes a dropped table active again, under `to` if its old name is taken.
    Recall {
        /// The number of the dropped table.
        number: TableNumber,
        /// The name that the table gets; `None` for the one that it had.
        to: Option<String>,
    },
    /// Creates a database, which groups tables of documents under a name.
    CreateDatabase {
        /// The name of the database.
        name: String,
    },
    /// Forgets a database that has no tables.
    DropDatabase {
        /// The name of the database.
        name: String,
    },
    /// Makes an index of a table of documents.
    CreateIndex {
        /// The number of the table of documents.
        table: TableNumber,
        /// The name of the index, unique in its table.
        name: String,
        /// See [`IndexEntry::definition`](super::IndexEntry::definition).
        definition: String,
    },
    /// Removes an index and its entries.
    DropIndex {
        /// The number of the table of documents.
        table: TableNumber,
        /// The name of the index.
        name: String,
    },
    /// Gives an index another name; its entries stay.
    RenameIndex {
        /// The number of the table of documents.
        table: TableNumber,
        /// The name that the index has.
        name: String,
        /// The name that it gets.
        to: String,
        /// Whether an index that has the new name already is removed.
        overwrites: bool,
    },
    /// Forgets dropped tables whose time has come.
    Purge {
        /// The time at which the command was given; tables whose `purge_at` is not later are forgotten.
        now: UnixMillis,
    },
    /// Lets a new node in, and gives it its number: the same one again if it asks again before it has arrived.
    AddNode {
        /// The addresses and the zone of the new node.
        site: Site,
        /// The random token of the node that asks, by which it is recognised when it asks again.
        #[serde(default)]
        token: Option<JoinToken>,
    },
    /// A node that was let in has been heard of.
    Arrived {
        /// The node that was heard of.
        node: NodeId,
    },
    /// A node has other addresses now.
    SetSite {
        /// The node that has moved.
        node: NodeId,
        /// Its addresses and zone from now on.
        site: Site,
    },
    /// Gives a node another replica of the catalog, because the one that it had is amnesiac.
    RenewCatalogReplica {
        /// The node whose replica of the catalog is replaced.
        node: NodeId,
    },
    /// Moves a node's replicas to other nodes, or ends that.
    Drain {
        /// The node that is drained, or no longer.
        node: NodeId,
        /// Whether it is to be drained.
        is_draining: bool,
    },
    /// Forgets a node that holds no replica.
    RemoveNode {
        /// The node to forget.
        node: NodeId,
    },
    /// Places a partition's replicas on these nodes; the first should lead. Two replicas may have a witness for the third vote.
    Place {
        /// The table of the partition.
        table: TableId,
        /// The number of the partition.
        partition: u32,
        /// The nodes of the data replicas.
        nodes: Vec<NodeId>,
        /// The node of the witness, if there is to be one.
        witness: Option<NodeId>,
    },
    /// These replicas are [amnesiac](super::amnesiac): they may have lost votes or acknowledged entries, and wait.
    #[serde(rename = "lost")]
    Amnesiac {
        /// The replicas, of any tables.
        replicas: Vec<AmnesiacReplica>,
    },
    /// These replicas lead their groups and serve, so new replicas can take the places of amnesiac ones.
    Led {
        /// Table, partition and leading replica of each group.
        groups: Vec<(TableId, u32, ReplicaId)>,
    },
    /// The records of this replica are not what the others agree on: a new one on its node takes its place.
    Replace {
        /// The table of the partition.
        table: TableId,
        /// The number of the partition.
        partition: u32,
        /// The replica to replace.
        replica: ReplicaId,
    },
    /// A partition's group has these members now, which are those wanted in this version of its placement.
    Moved {
        /// The table of the partition.
        table: TableId,
        /// The number of the partition.
        partition: u32,
        /// The members of the group now, witnesses included.
        members: Vec<ReplicaId>,
        /// The version of the placement that the leader had reached.
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

/// What a command has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    /// Nothing that has a number of its own, such as a purge.
    Other,
    /// This table.
    Table(TableId),
    /// This node.
    Node(NodeId),
    /// This replica.
    Replica(ReplicaId),
}

/// Why the catalog refused a command. A refused command changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CatalogError {
    /// The name of a table or database breaks the rule for names.
    #[error(transparent)]
    Name(#[from] TableNameError),
    /// A table that is not dropped has this name already.
    #[error("a table named '{0}' exists")]
    Exists(String),
    /// No table that is not dropped has this name or number.
    #[error("no such table: {0}")]
    NoSuchTable(String),
    /// Tables of documents need the cluster protocol of this version on every node.
    #[error("node {0} runs a version that does not know documents; give it the version of the others first")]
    OlderNode(NodeId),
    /// The name has no database before it.
    #[error("a table of documents is called DATABASE.NAME, not '{0}'")]
    DocumentTableName(String),
    /// A database has this name already.
    #[error("a database named '{0}' exists")]
    DatabaseExists(String),
    /// No database has this name.
    #[error("no such database: {0}")]
    NoSuchDatabase(String),
    /// The database still has tables.
    #[error("database '{0}' has tables; drop them first")]
    DatabaseInUse(String),
    /// An index was asked for on a table of keys and values.
    #[error("a table of keys and values has no indexes")]
    NotOfDocuments,
    /// An index of the table has this name already.
    #[error("an index named '{0}' exists")]
    IndexExists(String),
    /// The table has no index of this name.
    #[error("no such index: {0}")]
    NoSuchIndex(String),
    /// The table has as many indexes as it may have, or the definition is too long.
    #[error("a table has at most {most} indexes, and the definition of one at most {bytes} bytes")]
    TooManyIndexes {
        /// The most indexes of a table.
        most: usize,
        /// The most bytes of a definition.
        bytes: usize,
    },
    /// The settings would let documents expire, and then their index entries would outlive them.
    #[error("documents do not expire; a table of documents can have neither a default time to live nor rules")]
    DocumentsDoNotExpire,
    /// The command must wait until the split has ended.
    #[error("table '{0}' is being split")]
    Splitting(String),
    /// There is no split to cancel.
    #[error("table '{0}' is not being split")]
    NotSplitting(String),
    /// The partitions are being sealed, so the split cannot be cancelled any more.
    #[error("the split of table '{0}' is about to take effect; try again in a moment")]
    SplitTakesEffect(String),
    /// A split makes twice the partitions, and the value is that number.
    #[error("a table is split into twice its partitions: {0}")]
    SplitInto(u32),
    /// The report is of an earlier attempt to copy the partition, and is ignored.
    #[error("another copy of the partition has begun, or all is copied")]
    CopyOvertaken,
    /// The settings are no longer what the command expected (`before`).
    #[error("table '{0}' was altered by somebody else at the same time; try again")]
    AlteredMeanwhile(String),
    /// The limit of tables is reached; the value is that limit.
    #[error("the cluster has {0} tables, the limit `tables`")]
    TooManyTables(usize),
    /// The number of partitions is zero or above the limit, which is the value.
    #[error("a table has 1 to {0} partitions (the limit `partitions_per_table`)")]
    Partitions(u32),
    /// Durability `none` was asked for on RocksDB.
    #[error("a rocksdb table keeps its records on disk: durability is hard or soft")]
    DurabilityOfEngine,
    /// Table 0 always exists under its name.
    #[error("table 0, 'default', can be neither dropped nor renamed: connections that choose no table use it")]
    DefaultTable,
    /// The number of replicas is zero or above the limit, which is the value.
    #[error("a partition has 1 to {0} replicas")]
    Replicas(u8),
    /// The node holds a data replica of that partition where a witness was asked for, or the other way round.
    #[error("node {0} holds a replica of partition {2} of table {1} that is of the other kind, witness or not")]
    OtherKind(NodeId, TableId, u32),
    /// No node has this number.
    #[error("no such node: {0}")]
    NoSuchNode(NodeId),
    /// The node, and how many replicas it still holds.
    #[error("node {0} still holds {1} replicas; drain it first, or wait until they have moved")]
    NodeInUse(NodeId, usize),
    /// At least one node must be left that can take replicas.
    #[error(
        "the last node that is not draining cannot be drained or removed (nodes that have not arrived do not count)"
    )]
    LastNode,
    /// The table has fewer partitions.
    #[error("there is no partition {1} of table {0}")]
    NoSuchPartition(TableId, u32),
    /// Replacing a replica must wait for the moves of its partition.
    #[error("replica {0} cannot be replaced now: it has been already, or replicas of its partition are moving")]
    NotReplaceable(ReplicaId),
}
