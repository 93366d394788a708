//! Recovery: how a cluster continues when so many nodes are gone for good that groups lack a majority, and an operator
//! decides to continue.
//!
//! No leader can be elected then, so nothing can be agreed on. Instead, one pure function decides what is done. Its
//! input is what the disks of all remaining nodes hold, the [surveys](Survey), so the decision is the same on each of
//! them.
//!
//! - Nothing is guessed of a node: each one that the catalog knows is either named as lost or surveyed.
//! - A group that has a majority left stays as it is. Of one that has none, the replica whose log ends last goes on as the only
//!   member, with all that its log holds. By Raft's rule for elections that is everything that was ever committed, as long as
//!   each majority that there could have been has a voter among those that are left.
//! - The catalog goes on from one state on all nodes that are left, in a group with new replicas.
//! - The cluster gets another name, so nodes refuse each other unless both were part of this: one that was thought lost and
//!   comes back can neither vote nor overwrite anything.

use crate::catalog::{Fate, RecoveryNote};
use crate::{Catalog, CatalogFile, Placement, TableEntry, catalog_replica};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
pub use tessera_consensus::Lack;
use tessera_consensus::{Heir, Left, LoggedReplica, heir};
use tessera_types::{ClusterId, Durability, NodeId, ReplicaId, TableId, UnixMillis};

/// The number of voters with which the catalog's group starts again; other nodes have learners.
const CATALOG_VOTERS: usize = 5;

/// The content of the data directory of a remaining node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// A random number. The numbers of all surveys together make the cluster's next name.
    pub mark: ClusterId,
    /// When the survey was made.
    pub at: UnixMillis,
    /// The cluster to which the data directory belongs.
    pub cluster: ClusterId,
    /// The node to which it belongs.
    pub node: NodeId,
    /// How often the node was started: another start may change its data.
    pub starts: u64,
    /// Whether the machine went down while the node was up, so that what was not fsynced is lost.
    pub has_lost_tail: bool,
    /// Whether the data is older than the data that the node had before.
    pub is_older_copy: bool,
    /// The catalog as it is once everything in the log is applied, committed or not.
    pub catalog: CatalogFile,
    /// The node's replica of the catalog.
    pub catalog_replica: SurveyedReplica,
    /// The node's replicas of partitions, by the number of their group.
    pub replicas: BTreeMap<u64, SurveyedReplica>,
}

impl Survey {
    /// Whether another survey of the node found the same content.
    pub fn is_same(&self, other: &Self) -> bool {
        let Self { mark, at, .. } = *other;
        Self { mark, at, ..self.clone() } == *other
    }
}

/// A replica as its node's log describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurveyedReplica {
    /// The replica, with its incarnation.
    pub replica: ReplicaId,
    /// Its log, term and members.
    #[serde(flatten)]
    pub logged: LoggedReplica,
}

/// The outcome for a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Outcome {
    /// A majority of its replicas remains. It goes on as before, and gets new replicas for the lost ones.
    KeepsMajority,
    /// This replica continues alone until new ones are made.
    GoesOn {
        /// The replica that continues.
        replica: ReplicaId,
        /// Term and index of its last entry.
        end: (u64, u64),
        /// Everything up to this index is known to be committed; the rest counts too.
        committed: u64,
        /// Why acknowledged writes may be missing; `None` if none can be.
        lacks: Option<Lack>,
    },
    /// None of its records remain.
    BeginsAnew {
        /// Whether its table has a log. Tables with durability `none` start again whenever their processes end.
        had_log: bool,
    },
}

/// A partition and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveredPartition {
    /// The table of the partition.
    pub table: TableId,
    /// The name of that table.
    pub name: String,
    /// The number of the partition.
    pub partition: u32,
    /// What becomes of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What all remaining nodes do when they start next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// When the recovery was decided.
    pub at: UnixMillis,
    /// The names of the cluster, before and after.
    pub from: ClusterId,
    /// The name afterwards, which keeps out nodes that did not take part.
    pub cluster: ClusterId,
    /// The nodes that are given up. They must never come back with their old data.
    pub lost: Vec<NodeId>,
    /// The nodes that continue, each with a survey.
    pub left: Vec<NodeId>,
    /// Every partition that had a replica on a lost node.
    pub partitions: Vec<RecoveredPartition>,
    /// Whether changes of the catalog may be lost.
    pub catalog_lacks: Option<Lack>,
    /// The state with which the catalog's group starts again, its term and index, and its replicas.
    pub catalog: Catalog,
    /// Term and index of the last entry in `catalog`.
    pub catalog_end: (u64, u64),
    /// The replicas that vote on the catalog from now on.
    pub catalog_voters: Vec<ReplicaId>,
    /// The replicas that follow it without a vote.
    pub catalog_learners: Vec<ReplicaId>,
}

/// Why nothing can be decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// A recovery gives up at least one node.
    #[error("no node was named as lost")]
    NobodyLost,
    /// The number is not in the catalog that the surveys have.
    #[error("node {0} is not a node of this cluster, as far as is known here")]
    NoSuchNode(NodeId),
    /// A node cannot be lost and surveyed.
    #[error("node {0} was named as lost, and is surveyed")]
    NotLost(NodeId),
    /// Every node must be named as lost or be surveyed.
    #[error(
        "node {0} is neither named as lost nor surveyed. What it holds may be more than what is here: write a survey of its data \
         directory (`tessera recover --write-survey FILE`, with the node stopped), and give the surveys of all nodes that are \
         left; or name it as lost, too, if it is"
    )]
    NotSurveyed(NodeId),
    /// Two surveys have the same node.
    #[error("there are two surveys of node {0}")]
    SurveyedTwice(NodeId),
    /// The survey is of another cluster.
    #[error("node {0} belongs to another cluster")]
    OtherCluster(NodeId),
    /// The directory may lack acknowledged writes, and the operator has not accepted that.
    #[error(
        "the data directory of node {0} is a copy, or older than what the node had, so it may lack what it had acknowledged. If \
         there is nothing better, start the node once with `--accept-older-data`, stop it, and try again"
    )]
    OlderCopy(NodeId),
    /// No survey has a state of the catalog.
    #[error(
        "the nodes that are left had only just joined and do not know of any table yet: there is nothing to go on with"
    )]
    KnowsNothing,
    /// The cluster can continue without a recovery.
    #[error(
        "without the nodes named as lost the catalog and all partitions still have a majority, so nothing is needed: start the \
         nodes that are left, then drain and remove those that are lost"
    )]
    NothingLacksMajority,
}

fn outcome_of(table: &TableEntry, placement: &Placement, group: u64, surveys: &BTreeMap<NodeId, &Survey>) -> Outcome {
    if !table.schema.is_persistent() {
        return Outcome::BeginsAnew { had_log: false };
    }
    let has_tail = |survey: &Survey| table.schema.durability == Durability::Hard || !survey.has_lost_tail;
    let left = surveys.values().filter_map(|survey| {
        let SurveyedReplica { replica, logged } = survey.replicas.get(&group)?;
        // Replicas that the catalog does not know are ignored.
        let is_placed = placement.on(survey.node) == Some(*replica);
        is_placed.then(|| Left { replica: *replica, logged, has_tail: has_tail(survey) })
    });
    let left: Vec<_> = left.collect();
    match heir(&left) {
        Heir::Majority => Outcome::KeepsMajority,
        Heir::Nobody => Outcome::BeginsAnew { had_log: true },
        Heir::Replica { at, lacks } => {
            let LoggedReplica { end, committed, .. } = *left[at].logged;
            Outcome::GoesOn { replica: left[at].replica, end, committed, lacks }
        }
    }
}

/// Decides how the cluster continues without the lost nodes. `group_of` returns the number of a partition's group.
///
/// # Errors
/// Why nothing can be decided.
pub fn recover(
    surveys: &[Survey],
    lost: &BTreeSet<NodeId>,
    group_of: &dyn Fn(TableId, u32) -> u64,
) -> Result<Recovery, RecoveryError> {
    let mut by_node: BTreeMap<NodeId, &Survey> = BTreeMap::new();
    for survey in surveys {
        if by_node.insert(survey.node, survey).is_some() {
            return Err(RecoveryError::SurveyedTwice(survey.node));
        }
        if survey.cluster != surveys[0].cluster {
            return Err(RecoveryError::OtherCluster(survey.node));
        }
        if survey.is_older_copy {
            return Err(RecoveryError::OlderCopy(survey.node));
        }
    }
    let best = surveys
        .iter()
        .max_by_key(|survey| (survey.catalog_replica.logged.end, survey.catalog.applied_index, survey.node));
    let Some(best) = best.filter(|_| !lost.is_empty()) else { return Err(RecoveryError::NobodyLost) };
    if let Some(node) = lost.iter().find(|node| by_node.contains_key(node)) {
        return Err(RecoveryError::NotLost(*node));
    }
    let mut catalog = best.catalog.catalog.clone();
    if let Some(node) = lost.iter().chain(by_node.keys()).find(|node| catalog.node(**node).is_none()) {
        return Err(RecoveryError::NoSuchNode(*node));
    }
    let is_accounted = |node: &NodeId| lost.contains(node) || by_node.contains_key(node);
    if let Some(node) = catalog.nodes().map(|node| node.id).find(|node| !is_accounted(node)) {
        return Err(RecoveryError::NotSurveyed(node));
    }
    let (mut partitions, mut fates) = (Vec::new(), Vec::new());
    for table in catalog.tables() {
        for (partition, placement) in (0..).zip(&table.placement) {
            let outcome = outcome_of(table, placement, group_of(table.id, partition), &by_node);
            let fate = match &outcome {
                Outcome::KeepsMajority => Fate::Keeps,
                Outcome::GoesOn { replica, .. } => Fate::Alone(*replica),
                Outcome::BeginsAnew { .. } => Fate::Anew(node_for(placement, &by_node, partition)),
            };
            fates.push((table.id, partition, fate));
            partitions.push(RecoveredPartition { table: table.id, name: table.name.clone(), partition, outcome });
        }
    }
    let of_catalog = surveys.iter().map(|survey| {
        let SurveyedReplica { replica, logged } = &survey.catalog_replica;
        Left { replica: *replica, logged, has_tail: true }
    });
    let (has_majority, catalog_lacks) = match heir(&of_catalog.collect::<Vec<_>>()) {
        Heir::Majority => (true, None),
        Heir::Replica { lacks, .. } => (false, lacks),
        Heir::Nobody => return Err(RecoveryError::KnowsNothing),
    };
    let is_alone = |it: &&RecoveredPartition| matches!(it.outcome, Outcome::GoesOn { .. });
    let may_lack = |it: &&RecoveredPartition| matches!(it.outcome, Outcome::GoesOn { lacks: Some(_), .. });
    let is_gone = |it: &&RecoveredPartition| matches!(it.outcome, Outcome::BeginsAnew { had_log: true });
    let begins_anew = |it: &&RecoveredPartition| matches!(it.outcome, Outcome::BeginsAnew { .. });
    if has_majority && !partitions.iter().any(|it| is_alone(&it) || is_gone(&it)) {
        return Err(RecoveryError::NothingLacksMajority);
    }
    let (from, at) = (best.cluster, surveys.iter().map(|survey| survey.at).max().unwrap_or(best.at));
    let note = RecoveryNote {
        at,
        lost: lost.iter().copied().collect(),
        from,
        alone: partitions.iter().filter(is_alone).count(),
        may_lack: partitions.iter().filter(may_lack).count(),
        begun_anew: partitions.iter().filter(begins_anew).count(),
    };
    let before = surveys.iter().map(|survey| survey.catalog_replica.replica.incarnation).max().unwrap_or(0);
    let before = by_node.keys().map(|node| catalog.catalog_replica(*node).incarnation).max().unwrap_or(0).max(before);
    let incarnation = before + 1;
    catalog.go_on_without(lost, incarnation, &fates, note);
    let replicas = by_node.keys().map(|node| ReplicaId { incarnation, ..catalog_replica(*node) });
    let mut catalog_voters: Vec<_> = replicas.collect();
    let catalog_learners = catalog_voters.split_off(CATALOG_VOTERS.min(catalog_voters.len()));
    let term = surveys
        .iter()
        .map(|survey| survey.catalog_replica.logged.end.0.max(survey.catalog_replica.logged.vote.0))
        .max();
    let index =
        surveys.iter().map(|survey| survey.catalog_replica.logged.end.1.max(survey.catalog.applied_index)).max();
    Ok(Recovery {
        at,
        from,
        cluster: ClusterId(surveys.iter().fold(0, |name, survey| name ^ survey.mark.0)),
        lost: lost.iter().copied().collect(),
        left: by_node.keys().copied().collect(),
        partitions,
        catalog_lacks,
        catalog,
        catalog_end: (term.unwrap_or(0) + 1, index.unwrap_or(0) + 1),
        catalog_voters,
        catalog_learners,
    })
}

/// The node on which a partition starts again: one of its target nodes, or else any remaining node.
fn node_for(placement: &Placement, left: &BTreeMap<NodeId, &Survey>, partition: u32) -> NodeId {
    let data_replicas = placement.target.iter().filter(|replica| !replica.is_witness()).map(|replica| replica.node);
    let nodes: Vec<_> = left.keys().copied().collect();
    let any = || nodes[partition as usize % nodes.len()];
    data_replicas.into_iter().find(|node| left.contains_key(node)).unwrap_or_else(any)
}

#[cfg(test)]
mod tests;
