//! The catalog's entries: nodes, tables and placements.

use super::{Amnesiac, Indexes, SharedList, Split};
use crate::rules::{Rule, holds};
use serde::{Deserialize, Serialize};
use tessera_types::{NodeId, ReplicaId, TableId, TableNumber, TableSchema, TableSettings, UnixMillis};

/// Where a node is: its addresses, each as `HOST:PORT`, and its zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The address for other nodes.
    pub peer: String,
    /// The address for Redis clients, as HOST:PORT.
    pub redis: String,
    /// The address of the admin API, as HOST:PORT.
    pub admin: String,
    /// The address for clients of Apache Pegasus; empty if there is no such port.
    #[serde(default)]
    pub pegasus: String,
    /// Another one for them, which they are told as that of a meta server; empty if there is none, and of a node whose version
    /// does not say so yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pegasus_meta: String,
    /// For drivers of RethinkDB; empty if there is no such port.
    #[serde(default)]
    pub reql: String,
    /// Which version of Tessera runs there; empty of a node whose version does not say so yet.
    #[serde(default)]
    pub version: String,
    /// A rack, a room or a data centre: nodes of one zone are likely to fail together, so replicas are kept in
    /// different zones. Empty for a zone of its own.
    #[serde(default)]
    pub zone: String,
}

impl Site {
    /// Where clients of Apache Pegasus look for a meta server; empty if they cannot reach the node.
    pub fn pegasus_meta(&self) -> &str {
        if self.pegasus_meta.is_empty() { &self.pegasus } else { &self.pegasus_meta }
    }
}

/// A node as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// The node's number, which is never given to another node.
    pub id: NodeId,
    /// The addresses and the zone of the node.
    pub site: Site,
    /// Whether the node is being drained: its replicas move to other nodes.
    #[serde(default)]
    pub is_draining: bool,
    /// Whether it was let in and has not been heard from since. It gets no replicas, and its copy of the catalog gets
    /// no vote.
    #[serde(default)]
    pub is_expected: bool,
    /// Whether it has been a member of no partition's group, and had no vote of the catalog, since it was let in. The cluster's time is
    /// told without its clock, so that nodes that were never of use cannot hold it up. Once it is not new it never is again. Entries of
    /// before do not say so, and are not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_new: bool,
    /// The token with which it asked to be let in, as long as it is expected.
    #[serde(default)]
    pub(super) token: Option<JoinToken>,
}

impl NodeEntry {
    /// The node with which a cluster begins.
    pub(super) fn of_first(id: NodeId, site: Site) -> Self {
        Self { id, site, is_draining: false, is_expected: false, is_new: false, token: None }
    }

    /// A node that is let in.
    pub(super) fn let_in(id: NodeId, site: Site, token: Option<JoinToken>) -> Self {
        Self { id, site, is_draining: false, is_expected: true, is_new: true, token }
    }
}

/// A random token of a node that wants to join, by which it gets the same number if it has to ask again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JoinToken(pub String);

/// Where a partition's replicas are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The members with which the group begins.
    #[serde(rename = "founders")]
    pub initial_members: Vec<ReplicaId>,
    /// The members that the catalog wants; the first should lead.
    #[serde(rename = "wanted")]
    pub target: Vec<ReplicaId>,
    /// The members that the group last reported. They differ from `target` while replicas move.
    #[serde(rename = "members")]
    pub current: Vec<ReplicaId>,
    /// [Amnesiac](super::amnesiac) replicas, as long as the group has no leader.
    #[serde(default, rename = "lost")]
    pub(super) amnesiac: Vec<Amnesiac>,
    /// The replica that goes on as the only voter, because the other one has lost everything; until a move has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) survivor: Option<ReplicaId>,
    /// Replicas that a move would have made members, before it was given up. Until the group's leader has reported its
    /// members, these replicas may be members, so their nodes keep them.
    #[serde(default)]
    pub(super) given_up: Vec<ReplicaId>,
    /// Counts the changes of `target`.
    #[serde(default)]
    pub version: u64,
}

impl Placement {
    /// The placement of a group that begins with these replicas.
    pub(crate) fn of_initial_members(initial_members: Vec<ReplicaId>) -> Self {
        Self { target: initial_members.clone(), current: initial_members.clone(), initial_members, ..Self::default() }
    }

    /// Whether the group's members differ, or may differ, from those that the catalog wants.
    pub fn is_moving(&self) -> bool {
        let (mut target, mut current) = (self.target.clone(), self.current.clone());
        target.sort_unstable();
        current.sort_unstable();
        target != current || !self.given_up.is_empty()
    }

    /// A leader that knew this version of the placement reports the group's members. If the target has changed since,
    /// the group may have other members by now, and the report is ignored.
    pub(super) fn moved(&mut self, members: &[ReplicaId], version: u64) {
        if version != self.version {
            return;
        }
        self.current = members.to_vec();
        self.survivor = None;
        self.given_up.clear();
        let here = [&self.target[..], members].concat();
        self.amnesiac.retain(|lost| here.contains(&lost.replica));
    }

    /// The replica that a node holds, or should hold.
    pub fn on(&self, node: NodeId) -> Option<ReplicaId> {
        // A node that replaces its replica removes the old one first.
        let all = self.target.iter().chain(&self.current).chain(&self.given_up);
        all.into_iter().find(|replica| replica.node == node).copied()
    }

    /// Sets the members that the catalog wants.
    pub(super) fn set_target(&mut self, target: Vec<ReplicaId>) {
        let before = std::mem::replace(&mut self.target, target);
        self.version += 1;
        let may_be_member = before.into_iter().chain(std::mem::take(&mut self.given_up));
        let is_kept = |replica: &ReplicaId| self.target.contains(replica) || self.current.contains(replica);
        if holds(Rule::GivenUpIsRemembered) {
            self.given_up = may_be_member.filter(|replica| !is_kept(replica)).collect();
        }
    }
}

/// A table as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    /// The identifier, which is never given to another table. A split makes a table with another one.
    pub id: TableId,
    /// The number by which clients name the table (`SELECT` in Redis); it stays when the table is split.
    pub number: TableNumber,
    /// The name; a dropped table may have the name of another table.
    pub name: String,
    /// What was fixed when the table was created.
    pub schema: TableSchema,
    /// What can be changed.
    pub settings: TableSettings,
    /// Whether clients can reach the table.
    pub state: TableState,
    /// The placements of its partitions, in their order.
    pub placement: SharedList<Placement>,
    /// The split under way, if there is one.
    #[serde(default)]
    pub split: Option<Split>,
    /// The secondary indexes of a table of documents.
    #[serde(default, skip_serializing_if = "Indexes::is_unused")]
    pub indexes: Indexes,
    /// How often an empty table has taken its place. It may have been recalled each time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub truncations: u32,
    /// Whether it came about by a split, if its identifier and its number do not say so since it, or one before it, was truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) was_split: Option<bool>,
}

/// What is mostly not said.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl TableEntry {
    /// Whether the table was dropped and can still be recalled.
    pub fn is_dropped(&self) -> bool {
        matches!(self.state, TableState::Dropped { .. })
    }

    /// Whether an empty table has taken its place, and it was not recalled since: all its partitions are sealed.
    pub fn is_sealed(&self) -> bool {
        matches!(self.state, TableState::Dropped { was_truncated: true, .. })
    }

    /// Whether it came about by a split.
    pub fn was_split(&self) -> bool {
        self.was_split.unwrap_or(self.id.0 != self.number.0)
    }

    /// See [`Catalog::differs_in_progress_only`](super::Catalog::differs_in_progress_only).
    pub(super) fn differs_in_progress_only(&self, before: &Self) -> bool {
        let Self { id, number, name, schema, settings, state, placement, split, indexes, truncations, was_split } =
            self;
        let into = |split: &Option<Split>| split.as_ref().map(|split| split.into);
        (*id, *number, *state, into(split)) == (before.id, before.number, before.state, into(&before.split))
            && *name == before.name
            && *schema == before.schema
            && *settings == before.settings
            && *indexes == before.indexes
            && (*truncations, *was_split) == (before.truncations, before.was_split)
            && *placement == before.placement
    }
}

/// Whether clients can reach a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "is")]
pub enum TableState {
    /// Clients can reach it.
    Active,
    /// Another table is being split into this one. Clients cannot reach it until it replaces that table.
    Growing,
    /// Clients cannot reach it; its records are kept until `purge_at`.
    Dropped {
        /// The time from which the table may be forgotten.
        purge_at: UnixMillis,
        /// When it was dropped; absent if an earlier version did it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dropped_at: Option<UnixMillis>,
        /// Whether an empty table has taken its place: then its partitions are sealed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        was_truncated: bool,
    },
}
