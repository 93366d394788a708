//! The consensus groups of partitions.

use tessera_consensus::GroupId;
use tessera_types::TableId;

/// The group of a table's partition: the table's number plus one (zero is the catalog's) above 32 bits of partition.
pub fn group_of(table: TableId, partition: u32) -> GroupId {
    GroupId((u64::from(table.0) + 1) << 32 | u64::from(partition))
}

/// The inverse of [`group_of`].
pub fn partition_of_group(group: GroupId) -> Option<(TableId, u32)> {
    let table = u32::try_from(group.0 >> 32).ok()?.checked_sub(1)?;
    // The low half is the partition by construction.
    Some((TableId(table), group.0 as u32))
}
