//! Who leads the partitions of a table, and where requests for them go.

use super::Table;
use crate::admission::LeadsAShare;
use crate::group::group_of;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tessera_types::{NodeId, ReadMode, RequestError};

/// Where requests for a partition go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This node leads the partition.
    Here,
    /// This other node leads it.
    Node(NodeId),
    /// No leader is known.
    Unknown,
}

impl LeadsAShare for Table {
    fn led_share(&self) -> f64 {
        let led = (0..self.schema.partitions).filter(|partition| self.leader_of(*partition) == Leader::Here).count();
        led as f64 / f64::from(self.schema.partitions)
    }
}

impl Table {
    /// The group may rest; then it has no lease.
    pub(super) fn wake(&self, partition: u32) {
        let state = &self.partitions[partition as usize];
        if state.begins_to_wake() {
            state.waker.wake(group_of(self.id, partition));
        }
    }

    /// The node that leads a partition, as far as this one knows. It may rest.
    pub fn known_leader(&self, partition: u32) -> Option<NodeId> {
        let state = &self.partitions[partition as usize];
        if state.is_serving() {
            return Some(self.node);
        }
        // This node was elected and does not serve yet, or no longer.
        Some(state.leader.get().1).filter(|node| node.0 != 0 && *node != self.node)
    }

    /// How far the replica here may be behind what was acknowledged; `None` if there is none that may be read, or it has not
    /// heard of a leader yet.
    pub fn lag(&self, partition: u32) -> Option<Duration> {
        let state = &self.partitions[partition as usize];
        let as_of = state.reads.as_of();
        let is_known = self.is_readable(partition) && !as_of.is_unset();
        is_known.then(|| as_of.ago())
    }

    /// The term of the latest leader of a partition that is known here; zero if none is.
    pub fn term(&self, partition: u32) -> u64 {
        self.partitions[partition as usize].leader.get().0
    }

    /// Where a read of a partition goes now.
    pub fn reader_of(&self, partition: u32, reads: ReadMode) -> Leader {
        if reads == ReadMode::Outdated && self.is_readable(partition) {
            return Leader::Here;
        }
        self.leader_of(partition)
    }

    /// Where a request for a partition goes now. Wakes a group that rests here.
    pub fn leader_of(&self, partition: u32) -> Leader {
        let state = &self.partitions[partition as usize];
        if state.is_serving() {
            // Without a lease it may have been overtaken.
            if state.reads.has_lease() {
                return Leader::Here;
            }
            self.wake(partition);
            return Leader::Unknown;
        }
        self.known_leader(partition).map_or(Leader::Unknown, Leader::Node)
    }

    /// Whether the partition's loop here takes requests, with a lease or without. A read that it makes waits until it is certain that
    /// nobody else leads.
    pub fn serves(&self, partition: u32) -> bool {
        self.partitions[partition as usize].is_serving()
    }

    /// Whether this node may answer reads of a partition that it leads at once. A group that hibernates has no lease, and is not woken.
    pub fn has_lease(&self, partition: u32) -> bool {
        let state = &self.partitions[partition as usize];
        state.is_serving() && state.reads.has_lease()
    }

    /// Why a request for a partition is not carried out here: [`RequestError::NoSuchTable`] once the table is dropped, else
    /// [`RequestError::NotReady`].
    pub fn not_serving(&self) -> RequestError {
        if self.is_dropped.load(Ordering::Acquire) && self.successor.load().is_none() {
            RequestError::NoSuchTable(self.name.load().to_string())
        } else {
            RequestError::NotReady
        }
    }

    /// Whether the replica here, if there is one, may be read although it does not lead: what it shows is never older than what it
    /// has shown before.
    pub(super) fn is_readable(&self, partition: u32) -> bool {
        let state = &self.partitions[partition as usize];
        state.is_readable_at(self.engine.applied_index(partition), || self.engine.settled_from(partition))
    }
}
