//! A node: the tables that it hosts, its part in the cluster, and what an operator may ask of it.

use crate::catalog_follower::CatalogFollower;
use crate::comparison::{self, Comparison};
use crate::maintenance::Maintenance;
use crate::node_context::NodeContext;
use crate::replicas::Aside;
use crate::rules::RulesApplied;
use crate::snapshot::Progress;
use crate::traffic::PartitionTraffic;
use crate::{boot, compactions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tessera_store::hosting::{group_of, partition_of_group};
use tessera_store::{Store, Table};
use tessera_types::{NodeId, RequestError, TableId, UnixMillis};

/// After this time at the latest the catalog knows what a node that was started again has forgotten, if it can be changed.
const FORGOTTEN_IS_KNOWN: Duration = Duration::from_secs(10);

/// A node that runs. Cheap to clone; [`Self::shut_down`] ends it.
#[derive(Clone)]
pub struct Node {
    pub(crate) context: Arc<NodeContext>,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) catalog_follower: Arc<CatalogFollower>,
}

impl Node {
    /// What faces call.
    pub fn store(&self) -> &Store {
        &self.context.store
    }

    /// The traffic of a partition, if its leader has reported it within the last seconds.
    pub fn traffic_of(&self, table: TableId, partition: u32) -> Option<PartitionTraffic> {
        self.context.traffic.of(&self.context.registry, table, partition)
    }

    /// How far nodes are with fetching a partition's records.
    pub fn fetches(&self, table: TableId, partition: u32) -> Vec<(NodeId, Progress)> {
        let group = group_of(table, partition);
        let fetches = self.context.fetches.lock();
        let of_node = |(node, fetches): (&NodeId, &Vec<_>)| {
            fetches.iter().find(|(fetched, _)| *fetched == group).map(|(_, progress)| (*node, *progress))
        };
        fetches.iter().filter_map(of_node).collect()
    }

    /// Replicas on this node that cannot go on since their log and their state do not fit together, in words.
    pub fn set_aside(&self) -> Vec<String> {
        let describe = |(group, _, Aside { reason, .. })| match partition_of_group(group) {
            Some((table, partition)) => {
                let name = self.context.registry.any(table).map(|table| table.name());
                let name = name.map_or_else(|| table.to_string(), |name| name.to_string());
                format!("table {name}: partition {partition} on this node is set aside: {reason}")
            }
            None => format!(
                "the catalog on this node is set aside: {reason}. Another one takes its place as soon as the other nodes can agree to that"
            ),
        };
        self.context.replicas.all_aside().into_iter().map(describe).collect()
    }

    /// Replicas whose records are damaged on their nodes' disks, in words, as far as this node has heard of them.
    pub fn damage(&self) -> Vec<String> {
        self.context.damage_in_words()
    }

    /// What an operator is told while this node does not know the cluster's time, so that nothing expires.
    pub fn lack_of_time(&self) -> Option<String> {
        self.context.lack_of_time()
    }

    /// Why engines here do not take what is committed, if one does not.
    pub fn refused_writes(&self) -> Option<String> {
        self.context.refused_writes.reason()
    }

    /// How many partitions of a table have a replica on this node whose records are damaged.
    pub fn damaged_here(&self, table: &Table) -> usize {
        self.context.damaged_here(table)
    }

    /// Replicas on this node.
    pub fn replicas_held(&self) -> usize {
        self.context.replicas.held()
    }

    /// How many partitions this node began to lead.
    pub fn elections_won(&self) -> u64 {
        self.context.elections_won.load(Ordering::Relaxed)
    }

    /// Applies a table's rules to what this node leads of it, and has its engine merge what can be merged here.
    ///
    /// # Errors
    /// What stood in the way of the rules, or what the engine reports.
    pub async fn compact(&self, table: &Arc<Table>) -> Result<RulesApplied, RequestError> {
        compactions::compact(self.store(), table).await
    }

    /// Compares the replicas of all partitions of a table, wherever they are led; `bytes_per_second` in place of the rate that is
    /// configured, zero for none.
    pub async fn compare(&self, table: &Arc<Table>, bytes_per_second: Option<u64>) -> Comparison {
        comparison::compare(&self.context, table, bytes_per_second).await
    }

    /// What is known of comparisons of a table: partitions that differ, in words, and when the one that was compared least
    /// lately was, if all were since this node started.
    pub fn compared(&self, table: &Table) -> (Vec<String>, Option<UnixMillis>) {
        self.context.comparisons.compared_of(table)
    }

    /// Slices in which this node found replicas to differ.
    pub fn differences_found(&self) -> u64 {
        self.context.comparisons.differences_found()
    }

    /// Lets other nodes lead what this one leads, as far as they can, and answers what it has taken, so that clients of other nodes
    /// notice nothing when it stops. What it has taken may only be answered once the new leader has told that it counts.
    pub async fn transfer_leaderships(&self) {
        self.context.transfer_leaderships().await;
    }

    /// Waits until the node has to start again, since it was told that its data is older than what it had.
    pub async fn must_start_again(&self) {
        self.context.must_start_again.notified().await;
    }

    /// Whether a node was started again so recently that the catalog may not yet know what it has forgotten: replicas of tables
    /// without a log are empty then.
    pub fn may_have_forgotten(&self, node: NodeId) -> bool {
        let NodeContext { identity, began, generations, .. } = &*self.context;
        if node == identity.node {
            return identity.generation.number > 1 && began.elapsed() < FORGOTTEN_IS_KNOWN;
        }
        generations.was_started_again_within(node, FORGOTTEN_IS_KNOWN)
    }

    /// Whether this node's data is older than what it had, and it has not got new replicas for all of its own yet.
    pub fn is_overtaken(&self) -> bool {
        self.context.is_overtaken && self.context.owes_renewal.load(Ordering::Relaxed)
    }

    /// Stops taking writes, makes durable what was taken, and closes the files. Workers end by themselves.
    pub fn shut_down(&self) {
        self.maintenance.stop();
        self.catalog_follower.stop();
        for inbox in self.context.inboxes.all() {
            inbox.stop();
        }
        self.context.catalog_inbox.stop();
    }

    /// The rest of [`Self::shut_down`], once the workers have ended.
    pub fn close(&self) {
        self.context.log.close();
        if self.context.log.status().is_writing()
            && let Err(error) = boot::end(&self.context.directory.boot())
        {
            tracing::warn!(%error, "the clean end is not written down");
        }
        self.context.disk_readers.close();
        self.context.rocks.shut_down();
    }
}
