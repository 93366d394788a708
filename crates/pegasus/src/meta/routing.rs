//! Where a table's partitions are led.

use super::messages::{PartitionConfiguration, QueryConfigRequest, QueryConfigResponse};
use crate::server::PegasusServer;
use crate::wire::{Address, ErrorCode, Gpid};
use tessera_cluster::{Catalog, Placement};
use tessera_store::Table;
use tessera_types::{NodeId, Partitioner};

pub(super) async fn query(server: &PegasusServer, request: &QueryConfigRequest) -> QueryConfigResponse {
    let failed = |error: &str| QueryConfigResponse { error: ErrorCode(error.into()), ..Default::default() };
    let Some(table) = server.store.find_table(|store| store.table_named(&request.table)).await else {
        return failed("ERR_OBJECT_NOT_FOUND");
    };
    if table.schema().partitioner != Partitioner::Crc64 {
        // Clients would look for keys where they are not.
        return failed("ERR_INVALID_PARAMETERS");
    }
    let catalog = server.store.catalog();
    let Some(entry) = catalog.get(table.id()) else { return failed("ERR_OBJECT_NOT_FOUND") };
    let is_asked = |partition: &(u32, &Placement)| {
        request.partitions.is_empty() || request.partitions.iter().any(|asked| u32::try_from(*asked) == Ok(partition.0))
    };
    let partitions = (0..).zip(&entry.placement).filter(is_asked);
    QueryConfigResponse {
        error: ErrorCode("ERR_OK".into()),
        table: id(table.number().0),
        partition_count: id(table.schema().partitions),
        is_stateful: true,
        partitions: partitions
            .map(|(partition, placement)| {
                let replicas = i32::from(entry.schema.replicas);
                PartitionConfiguration { replicas, ..configuration(server, &catalog, &table, partition, placement) }
            })
            .collect(),
    }
}

/// Numbers of tables and partitions are small.
pub(super) fn id(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Where a node's Pegasus clients reach it.
pub(super) fn address(catalog: &Catalog, node: NodeId) -> Address {
    catalog.node(node).map(|node| Address::parse(&node.site.pegasus)).unwrap_or_default()
}

fn configuration(
    server: &PegasusServer,
    catalog: &Catalog,
    table: &Table,
    partition: u32,
    placement: &Placement,
) -> PartitionConfiguration {
    let store = &server.store;
    let is_reachable = |node: &NodeId| store.is_heard(*node) && address(catalog, *node) != Address::default();
    let holders: Vec<NodeId> =
        placement.current.iter().filter(|replica| !replica.is_witness()).map(|replica| replica.node).collect();
    // While nobody leads, any node does: it waits for who will, and hands the request on. Clients want a primary.
    let primary = table
        .known_leader(partition)
        .filter(is_reachable)
        .or_else(|| holders.iter().copied().find(is_reachable))
        .unwrap_or_else(|| store.node());
    let secondaries = holders.iter().filter(|node| **node != primary && is_reachable(node));
    PartitionConfiguration {
        partition: Gpid::new(id(table.number().0), id(partition)),
        // Below one, clients take a partition for one that is not there yet.
        ballot: i64::try_from(table.term(partition).max(1)).unwrap_or(i64::MAX),
        replicas: 0,
        primary: address(catalog, primary),
        secondaries: secondaries.map(|node| address(catalog, *node)).collect(),
        last_drops: Vec::new(),
        last_committed_decree: i64::try_from(table.applied_index(partition)).unwrap_or(i64::MAX),
        flags: 0,
    }
}
