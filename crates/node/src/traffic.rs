//! What partitions hold and are asked, as their leaders tell all nodes every few seconds.
//!
//! From it the node that leads the catalog evens out bytes and load, and any node shows an operator which partitions are hot.

use crate::message;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};
use tessera_cluster::{Weight, Weights};
use tessera_consensus::GroupId;
use tessera_store::Counts;
use tessera_store::hosting::{Registry, group_of, partition_of_group};
use tessera_transport::Transport;
use tessera_types::{NodeId, TableId};

/// What was told so long ago says nothing any more. Nodes tell a few times meanwhile.
const FRESH: Duration = Duration::from_secs(20);

/// What a partition holds and is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PartitionTraffic {
    /// Of each replica's records: in memory, or in files.
    pub bytes: u64,
    /// Requests and capacity units of the partition in a second.
    pub per_second: Counts,
}

/// A partition is hot when it is asked so many times as much as the table's other partitions are on average, and at least so
/// many capacity units in a second.
const HOT_FACTOR: u64 = 3;
const HOT_UNITS: u64 = 100;

/// Which of a table's partitions are hot, from the capacity units that each is asked in a second.
pub fn hot_partitions(units: &[u64]) -> Vec<bool> {
    let all: u64 = units.iter().sum();
    let others = units.len().saturating_sub(1) as u64;
    units.iter().map(|own| others > 0 && *own >= HOT_UNITS && own * others >= HOT_FACTOR * (all - own)).collect()
}

/// What nodes told last.
#[derive(Default)]
pub(crate) struct Traffic {
    told: Mutex<HashMap<NodeId, Told>>,
    /// What was counted here when it was told last.
    counted: Mutex<HashMap<GroupId, (Instant, Counts)>>,
}

struct Told {
    at: Instant,
    by_group: HashMap<GroupId, PartitionTraffic>,
}

fn encode(by_group: &HashMap<GroupId, PartitionTraffic>) -> BytesMut {
    let mut payload = BytesMut::new();
    for (group, PartitionTraffic { bytes, per_second }) in by_group {
        let Counts { reads, writes, read_units, write_units } = *per_second;
        [group.0, *bytes, reads, writes, read_units, write_units].iter().for_each(|word| payload.put_u64_le(*word));
    }
    payload
}

fn decode(mut payload: Bytes) -> HashMap<GroupId, PartitionTraffic> {
    let mut word = move || payload.try_get_u64_le().ok();
    let mut next = move || {
        let (group, bytes) = (GroupId(word()?), word()?);
        let per_second = Counts { reads: word()?, writes: word()?, read_units: word()?, write_units: word()? };
        Some((group, PartitionTraffic { bytes, per_second }))
    };
    std::iter::from_fn(&mut next).collect()
}

impl Traffic {
    /// Tells all nodes of the partitions that this one serves. Looks into the engines, so it takes a while.
    pub(crate) fn tell(&self, registry: &Registry, transport: &Transport, own: NodeId) {
        let mut by_group = HashMap::new();
        let mut counted = HashMap::new();
        let before = std::mem::take(&mut *self.counted.lock());
        for table in registry.open_tables() {
            for (partition, state) in (0..).zip(table.partitions()) {
                let group = group_of(table.id(), partition);
                let (now, counts) = (Instant::now(), state.meter().counts());
                counted.insert(group, (now, counts));
                let Some((since, earlier)) = before.get(&group).filter(|_| state.is_serving()) else {
                    continue;
                };
                let per_second = (counts - *earlier).in_a_second(now.duration_since(*since));
                let bytes = table.engine().partition_bytes(partition);
                by_group.insert(group, PartitionTraffic { bytes, per_second });
            }
        }
        *self.counted.lock() = counted;
        transport.broadcast(message::TRAFFIC, &encode(&by_group));
        self.told.lock().insert(own, Told { at: Instant::now(), by_group });
    }

    pub(crate) fn hear(&self, node: NodeId, payload: Bytes) {
        self.told.lock().insert(node, Told { at: Instant::now(), by_group: decode(payload) });
    }

    /// The traffic of a partition, if its leader has reported it within the last seconds.
    pub(crate) fn of(&self, registry: &Registry, table: TableId, partition: u32) -> Option<PartitionTraffic> {
        let leader = registry.any(table)?.known_leader(partition)?;
        let told = self.told.lock();
        let lately = told.get(&leader).filter(|told| told.at.elapsed() < FRESH)?;
        lately.by_group.get(&group_of(table, partition)).copied()
    }

    /// The weights of all partitions; none if one of these nodes has not reported within the last seconds.
    pub(crate) fn weights(&self, nodes: &BTreeSet<NodeId>) -> Option<Weights> {
        let told = self.told.lock();
        let mut weights = Weights::new();
        for node in nodes {
            let lately = told.get(node).filter(|told| told.at.elapsed() < FRESH)?;
            for (group, PartitionTraffic { bytes, per_second }) in &lately.by_group {
                let weight = Weight { bytes: *bytes, load: per_second.units() };
                weights.extend(partition_of_group(*group).map(|address| (address, weight)));
            }
        }
        Some(weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_partition_stands_out() {
        assert_eq!(hot_partitions(&[100, 100, 100, 310]), [false, false, false, true]);
        assert_eq!(hot_partitions(&[100, 100, 100, 290]), [false; 4]);
        assert_eq!(hot_partitions(&[0, 0, 99]), [false; 3]);
        assert_eq!(hot_partitions(&[0, 100]), [false, true]);
        assert_eq!(hot_partitions(&[1_000]), [false]);
    }

    #[test]
    fn what_is_told_comes_back() {
        let per_second = Counts { reads: 1, writes: 2, read_units: 3, write_units: 4 };
        let told: HashMap<_, _> =
            (0..3).map(|group| (GroupId(group), PartitionTraffic { bytes: group, per_second })).collect();
        let mut payload = encode(&told);
        assert_eq!(decode(payload.clone().freeze()), told);
        payload.truncate(payload.len() - 1);
        assert_eq!(decode(payload.freeze()).len(), 2);
    }
}
