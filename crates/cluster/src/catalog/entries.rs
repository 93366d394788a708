//! What is known of nodes, tables and partitions.

use super::{Indexes, Lost, SharedList, Split};
use crate::rules::{Rule, holds};
use serde::{Deserialize, Serialize};
use tessera_types::{NodeId, ReplicaId, TableId, TableNumber, TableSchema, TableSettings, UnixMillis};

/// Where a node is: addresses, each as `HOST:PORT`, and what it shares its fate with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// For other nodes.
    pub peer: String,
    pub redis: String,
    pub admin: String,
    /// For clients of Apache Pegasus; empty if there is no such port.
    #[serde(default)]
    pub pegasus: String,
    /// For drivers of RethinkDB; empty if there is no such port.
    #[serde(default)]
    pub reql: String,
    /// Which version of Tessera runs there; empty of a node whose version does not say so yet.
    #[serde(default)]
    pub version: String,
    /// A rack, a room, a data centre: replicas are kept apart by it. Empty for a zone of its own.
    #[serde(default)]
    pub zone: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    pub id: NodeId,
    pub site: Site,
    /// Its replicas are to move elsewhere.
    #[serde(default)]
    pub is_draining: bool,
    /// It was let in and has not been heard of since. It gets no replicas, and its copy of the catalog no vote.
    #[serde(default)]
    pub is_expected: bool,
    /// What it asked to be let in with, as long as it is expected.
    #[serde(default)]
    pub(super) token: Option<JoinToken>,
}

/// What a node that wants to join makes up, so that it gets the same number when it has to ask again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JoinToken(pub String);

/// Where a partition's replicas are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The group's first members.
    pub founders: Vec<ReplicaId>,
    /// Who is to be a member; the first is to lead.
    pub wanted: Vec<ReplicaId>,
    /// Who was a member when that was last known. Other than `wanted` while replicas move.
    pub members: Vec<ReplicaId>,
    /// Who has [forgotten](super::lost) what it promised, as long as nobody leads.
    #[serde(default)]
    pub(super) lost: Vec<Lost>,
    /// Whom a move that was given up was to make members. As long as the group's leader has not said who its members are, they
    /// may be some, so their nodes keep them.
    #[serde(default)]
    pub(super) given_up: Vec<ReplicaId>,
    /// Grows whenever others are wanted.
    #[serde(default)]
    pub version: u64,
}

impl Placement {
    /// The placement of a group that begins with these replicas.
    pub(crate) fn of_founders(founders: Vec<ReplicaId>) -> Self {
        Self { wanted: founders.clone(), members: founders.clone(), founders, ..Self::default() }
    }

    pub fn is_moving(&self) -> bool {
        let (mut wanted, mut members) = (self.wanted.clone(), self.members.clone());
        wanted.sort_unstable();
        members.sort_unstable();
        wanted != members || !self.given_up.is_empty()
    }

    /// The group has these members, as a leader saw that knew this version. If others have been wanted since, it may have
    /// other members by now.
    pub(super) fn moved(&mut self, members: &[ReplicaId], version: u64) {
        if version != self.version {
            return;
        }
        self.members = members.to_vec();
        self.given_up.clear();
        let here = [&self.wanted[..], members].concat();
        self.lost.retain(|lost| here.contains(&lost.replica));
    }

    /// The replica that a node holds, or is to hold.
    pub fn on(&self, node: NodeId) -> Option<ReplicaId> {
        // A node that is to get a new replica in the place of a lost one lets go of the lost one first.
        let all = self.wanted.iter().chain(&self.members).chain(&self.given_up);
        all.into_iter().find(|replica| replica.node == node).copied()
    }

    /// Wants other replicas.
    pub(super) fn want(&mut self, wanted: Vec<ReplicaId>) {
        let before = std::mem::replace(&mut self.wanted, wanted);
        self.version += 1;
        let may_be_member = before.into_iter().chain(std::mem::take(&mut self.given_up));
        let is_kept = |replica: &ReplicaId| self.wanted.contains(replica) || self.members.contains(replica);
        if holds(Rule::GivenUpIsRemembered) {
            self.given_up = may_be_member.filter(|replica| !is_kept(replica)).collect();
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    pub id: TableId,
    pub number: TableNumber,
    pub name: String,
    pub schema: TableSchema,
    pub settings: TableSettings,
    pub state: TableState,
    /// By partition.
    pub placement: SharedList<Placement>,
    #[serde(default)]
    pub split: Option<Split>,
    #[serde(default, skip_serializing_if = "Indexes::is_unused")]
    pub indexes: Indexes,
}

impl TableEntry {
    pub fn is_dropped(&self) -> bool {
        matches!(self.state, TableState::Dropped { .. })
    }

    /// See [`Catalog::differs_in_progress_only`](super::Catalog::differs_in_progress_only).
    pub(super) fn differs_in_progress_only(&self, before: &Self) -> bool {
        let Self { id, number, name, schema, settings, state, placement, split, indexes } = self;
        let into = |split: &Option<Split>| split.as_ref().map(|split| split.into);
        (*id, *number, *state, into(split)) == (before.id, before.number, before.state, into(&before.split))
            && *name == before.name
            && *schema == before.schema
            && *settings == before.settings
            && *indexes == before.indexes
            && *placement == before.placement
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "is")]
pub enum TableState {
    Active,
    /// Takes what another one is split into, and its place when it has all; out of reach until then.
    Growing,
    /// Out of reach, with its records kept until `purge_at`.
    Dropped {
        purge_at: UnixMillis,
    },
}
