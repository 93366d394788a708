//! Replicas whose records are damaged on this node's disk: how they are replaced and reported.
//!
//! The engine says which partitions a damaged file concerns. Their replicas take part as before, since what they vote and log is
//! sound; only, they do not lead, and new replicas take their places, a few at a time, filled from a leader that is not known to be
//! damaged. When the last one of a file has gone, the engine drops the file. What is left in it of partitions that have no records
//! here is discarded.
//!
//! A replica that nobody can take the place of, since no other one has records that are not known to be damaged, keeps all that it
//! has: what is damaged is answered with an error, everything else is served, and the operator is told.
//!
//! All nodes hear of it, so that they show it, and do not ask such a replica to lead.

use crate::known_damage::DamagedReplica;
use crate::message;
use crate::node_context::NodeContext;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tessera_cluster::{CatalogCommand, Placement};
use tessera_consensus::GroupId;
use tessera_engine::{Damaged, EngineError};
use tessera_store::Table;
use tessera_store::hosting::{group_of, partition_of_group};
use tessera_types::{NodeId, ReplicaId};

/// How long after asking another replica to lead it is asked again.
const HAND_OVER_PAUSE: Duration = Duration::from_secs(5);

impl NodeContext {
    /// Has the engines look after damaged files, and tells all nodes what they found. Waits for the disk.
    pub(crate) fn look_after_damage(&self) -> Result<(), EngineError> {
        let mut found = Vec::new();
        for table in self.registry.open_tables() {
            for Damaged { partition, reason } in table.engine().look_after_damage()? {
                let group = group_of(table.id(), partition);
                // Nobody begins a replica meanwhile.
                let _settling = self.replicas.settling.lock();
                match self.replicas.with_records(group) {
                    Some(replica) => found.push(DamagedReplica { group: group.0, replica, reason }),
                    None if self.replicas.is_leaving(group) => {}
                    None => table.engine().discard(partition)?,
                }
            }
        }
        if self.damage.hear(self.identity.node, found) {
            self.tell_damage();
        }
        Ok(())
    }

    /// Tells all nodes which replicas here are damaged; one that started meanwhile, or has known of others, has not heard of it.
    pub(crate) fn tell_damage(&self) {
        let damaged = self.damage.by_node.lock().get(&self.identity.node).cloned().unwrap_or_default();
        let encoded = serde_json::to_vec(&damaged).expect("words have a JSON form");
        self.transport.broadcast(message::DAMAGED, &encoded);
    }

    pub(crate) fn hear_damage(&self, from: NodeId, payload: &[u8]) {
        // A node of another version may say it in another way.
        if let Ok(damaged) = serde_json::from_slice(payload) {
            self.damage.hear(from, damaged);
        }
    }

    /// Lets others lead what is damaged here, and has the catalog name new replicas in the place of the damaged ones, as long as fewer
    /// than `moves` partitions move in the cluster.
    pub(crate) async fn replace_damaged(&self, moves: usize) {
        let damaged = self.damage.by_node.lock().get(&self.identity.node).cloned().unwrap_or_default();
        if damaged.is_empty() {
            return;
        }
        let catalog = self.view.catalog();
        let placements = catalog.tables().flat_map(|table| &table.placement);
        let mut moving = placements.filter(|placement| placement.is_moving()).count();
        for DamagedReplica { group, replica, reason } in damaged {
            let group = GroupId(group);
            let Some((id, partition)) = partition_of_group(group) else { continue };
            let (Some(table), Some(entry)) = (self.registry.any(id), catalog.get(id)) else { continue };
            let Some(placement) = entry.placement.get(partition as usize) else { continue };
            let sound = self.sound_others(group, replica, placement);
            let Some(heir) = sound.first() else { continue };
            // Also one that leads and serves nothing, because it could not be read when it was elected.
            if table.partition(partition).is_leading() {
                self.hand_over_to(&table, partition, *heir);
                continue;
            }
            let leader = table.known_leader(partition);
            let is_led = sound.iter().any(|other| Some(other.node) == leader);
            let is_wanted = placement.on(replica.node) == Some(replica) && !placement.is_moving();
            if !is_led || !is_wanted || moving >= moves {
                continue;
            }
            let name = table.name();
            match self.store.change_catalog(CatalogCommand::Replace { table: id, partition, replica }).await {
                Ok(Ok(_)) => {
                    tracing::error!(table = %name, partition, %replica, reason, "the replica is damaged and is being replaced");
                    moving += 1;
                }
                Ok(Err(error)) => {
                    tracing::debug!(table = %name, partition, %error, "the damaged replica is not replaced now")
                }
                Err(error) => {
                    tracing::debug!(table = %name, partition, %error, "the catalog could not be changed; trying again")
                }
            }
        }
    }

    /// Other replicas with records that are there and not known to be damaged.
    fn sound_others(&self, group: GroupId, replica: ReplicaId, placement: &Placement) -> Vec<ReplicaId> {
        let is_sound = |other: &&ReplicaId| {
            **other != replica
                && !other.is_witness()
                && placement.target.contains(other)
                && self.store.is_heard(other.node)
                && !self.damage.is_damaged(group, **other)
        };
        placement.current.iter().filter(is_sound).copied().collect()
    }

    fn hand_over_to(&self, table: &Table, partition: u32, heir: ReplicaId) {
        let group = group_of(table.id(), partition);
        let mut handed_over = self.damage.handed_over.lock();
        if handed_over.get(&group).is_none_or(|at| at.elapsed() >= HAND_OVER_PAUSE) {
            handed_over.insert(group, Instant::now());
            tracing::warn!(table = %table.name(), partition, %heir, "the replica that leads is damaged; another one is to lead");
            self.inbox_of(table.id(), partition).transfer_leadership(group, heir);
        }
    }

    /// Damage that is known, in words.
    pub(crate) fn damage_in_words(&self) -> Vec<String> {
        let catalog = self.view.catalog();
        let by_node = self.damage.by_node.lock().clone();
        // By node, table, what was found, and whether others have the records.
        let mut partitions: BTreeMap<(NodeId, String, String, bool), BTreeSet<u32>> = BTreeMap::new();
        for (node, DamagedReplica { group, replica, reason }) in
            by_node.into_iter().flat_map(|(node, damaged)| damaged.into_iter().map(move |damaged| (node, damaged)))
        {
            let Some((id, partition)) = partition_of_group(GroupId(group)) else { continue };
            let Some(entry) = catalog.get(id) else { continue };
            let Some(placement) = entry.placement.get(partition as usize) else { continue };
            if !placement.current.contains(&replica) {
                continue; // it has been replaced, and its node has not said so yet
            }
            let has_others = placement.current.iter().any(|other| *other != replica && !other.is_witness());
            let of_node = partitions.entry((node, entry.name.to_string(), reason, has_others)).or_default();
            of_node.insert(partition);
        }
        let describe =
            |((node, table, reason, has_others), partitions): ((NodeId, String, String, bool), BTreeSet<u32>)| {
                let numbers: Vec<_> = partitions.iter().map(u32::to_string).collect();
                let what = if has_others {
                    "new replicas take their places"
                } else {
                    "there is no other replica of them, so everything is kept: the guide to operations says what to do"
                };
                format!(
                    "table {table}: replicas of {} partitions on node {node} are damaged ({}); {what}; {reason}",
                    numbers.len(),
                    numbers.join(", ")
                )
            };
        partitions.into_iter().map(describe).collect()
    }

    /// Partitions of a table whose replicas on this node are damaged.
    pub(crate) fn damaged_here(&self, table: &Table) -> usize {
        let by_node = self.damage.by_node.lock();
        let here = by_node.get(&self.identity.node).into_iter().flatten();
        let of_table =
            here.filter(|damaged| partition_of_group(GroupId(damaged.group)).is_some_and(|(id, _)| id == table.id()));
        of_table.count()
    }
}
