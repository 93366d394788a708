//! What can be done to the catalog.

use super::{AmnesiacReplica, CopyReport, JoinToken, PasswordHash, Placement, Site, Survivor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tessera_types::{
    Model, NodeId, PermissionChanges, ReplicaId, Rights, Scope, TableId, TableNumber, TableSchema, TableSettings,
    UnixMillis,
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
    /// Has an empty table take the place of a table, which is dropped then.
    Truncate {
        /// The name of the table.
        name: String,
        /// The time from which `Purge` may forget what it held.
        purge_at: UnixMillis,
        /// As of [`Drop`](Self::Drop).
        #[serde(default)]
        dropped_at: Option<UnixMillis>,
        /// As of [`Create`](Self::Create).
        #[serde(default)]
        absent: BTreeSet<NodeId>,
    },
    /// Gives up splitting or truncating a table, as long as that has not begun to take effect.
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
        /// When that is; the node that leads the catalog says it. Earlier versions do not know it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dropped_at: Option<UnixMillis>,
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
    /// Makes a user.
    CreateUser {
        /// The name, which no other user may have.
        name: String,
        /// `None` lets in whoever gives the name.
        #[serde(default)]
        password: Option<PasswordHash>,
        /// What the user may do from the first moment on.
        #[serde(default)]
        rights: Rights,
    },
    /// Gives a user another password.
    AlterUser {
        /// The name of the user.
        name: String,
        /// `None` lets in whoever gives the name.
        password: Option<PasswordHash>,
    },
    /// Forgets a user.
    DropUser {
        /// The name of the user.
        name: String,
    },
    /// Changes what a user may do in one place.
    Grant {
        /// The name of the user.
        user: String,
        /// Where.
        scope: Scope,
        /// What is to be decided otherwise; what is not named stays.
        changes: PermissionChanges,
    },
    /// Makes an index of a table of documents.
    CreateIndex {
        /// The number of the table of documents.
        table: TableNumber,
        /// The name of the index, unique in its table.
        name: String,
        /// See [`IndexEntry::definition`](super::IndexEntry::definition).
        definition: String,
        /// Whether no two documents may have the same key.
        #[serde(default)]
        is_unique: bool,
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
        /// Whether its replica of the catalog has a vote. Nodes of an older version do not say so, and hear no more than that it is
        /// there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_vote: bool,
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
    /// The same; but tables without a log wait for what [survivors](Survivor) say, before they begin anew. The catalog's leader makes it of
    /// [`Self::Amnesiac`], unless a node that does not know it belongs to the cluster.
    AwaitSurvivors {
        /// The replicas, of any tables.
        amnesiac: Vec<AmnesiacReplica>,
    },
    /// What replicas of tables without a log say that have forgotten nothing.
    Survived {
        /// The replicas, of any tables.
        replicas: Vec<Survivor>,
    },
    /// These partitions of tables without a log begin anew, since no survivor has said anything.
    BeginAnew {
        /// Table, partition and version of the placement of each.
        groups: Vec<(TableId, u32, u64)>,
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
    /// Whether only nodes can read it that speak version 7 of the protocol between nodes, which know documents, users, truncation
    /// that can be undone, and survivors.
    pub fn needs_version_7(&self) -> bool {
        match self {
            Self::Truncate { .. } => true,
            Self::AwaitSurvivors { .. } | Self::Survived { .. } | Self::BeginAnew { .. } => true,
            Self::Create { schema, .. } => schema.model == Model::Document,
            Self::CreateDatabase { .. } | Self::DropDatabase { .. } => true,
            Self::CreateIndex { .. } | Self::DropIndex { .. } | Self::RenameIndex { .. } => true,
            Self::CreateUser { .. } | Self::AlterUser { .. } | Self::DropUser { .. } | Self::Grant { .. } => true,
            _ => false,
        }
    }

    /// Drops a table, which may be forgotten from that time on.
    pub fn drop(name: impl Into<String>, purge_at: UnixMillis) -> Self {
        Self::Drop { name: name.into(), purge_at, dropped_at: None }
    }

    /// To truncate a table; the leader says when, and where nobody is.
    pub fn truncate(name: impl Into<String>, purge_at: UnixMillis) -> Self {
        Self::Truncate { name: name.into(), purge_at, dropped_at: None, absent: BTreeSet::new() }
    }

    /// The same command in the form of version 7, if it has one.
    pub fn into_version_7(self) -> Self {
        match self {
            Self::Amnesiac { replicas } => Self::AwaitSurvivors { amnesiac: replicas },
            same => same,
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
