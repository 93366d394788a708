//! What a store consists of, which the node keeps too.

use crate::clock::ClusterClock;
use crate::cluster_view::ClusterView;
use crate::disk_readers::DiskReaders;
use crate::inboxes::Inboxes;
use crate::operation::{Operation, PendingReply, WriteCommand, WriteOptions};
use crate::registry::Registry;
use crate::table::Table;
use std::sync::Arc;
use std::time::Duration;
use tessera_cluster::CatalogRequest;
use tessera_consensus::{Inbox, SharedLog};
use tessera_engine::{MemoryBudget, RocksStore};
use tessera_transport::{Identity, Transport};
use tessera_types::{Acks, RequestError};
use tokio::sync::Notify;

/// What a store consists of. The node that opens it keeps these too, and writes what it knows into them.
pub struct StoreParts {
    /// The names of this node and of its cluster.
    pub identity: Identity,
    /// The tables that are open here.
    pub registry: Arc<Registry>,
    /// The catalog and the leader of its group, as far as this node knows.
    pub view: Arc<ClusterView>,
    /// The cluster's time.
    pub clock: Arc<ClusterClock>,
    /// The connections to other nodes.
    pub transport: Arc<Transport>,
    /// The log of all groups here.
    pub log: Arc<SharedLog>,
    /// The memory that records of memory tables may take.
    pub memory: Arc<MemoryBudget>,
    /// The RocksDB instance of all tables on RocksDB.
    pub rocks: Arc<RocksStore>,
    /// The threads that read what no cache has.
    pub disk_readers: Arc<DiskReaders>,
    /// The queue of the worker that drives the catalog's group.
    pub catalog_inbox: Arc<Inbox<CatalogRequest>>,
    /// Where writes go.
    pub inboxes: Arc<Inboxes>,
    /// Told whenever a partition gets a leader, here or elsewhere.
    pub leader_news: Arc<Notify>,
    /// How long the records of a dropped table are kept.
    pub drop_retention: Duration,
}

impl StoreParts {
    /// As [`Store::write`](crate::Store::write); with `confirm`, a majority must confirm the leader before it answers a part that changes nothing.
    pub(crate) fn write(
        &self,
        table: &Table,
        options: WriteOptions,
        confirm: bool,
        operation: &Arc<dyn Operation>,
        partitions: impl IntoIterator<Item = u32>,
    ) {
        let leader_acked = options.acks.unwrap_or(table.settings.load().acks) == Acks::Single;
        let is_backlogged = table.schema.is_persistent() && self.log.is_backlogged();
        let admitted = table
            .sync_for(options.durability)
            .and_then(|sync| if is_backlogged { Err(RequestError::Busy) } else { Ok(sync) });
        let replies = partitions
            .into_iter()
            .enumerate()
            .map(|(part, partition)| (partition, PendingReply::new(operation.clone(), part)));
        let sync = match admitted {
            Ok(sync) => sync,
            Err(error) => return replies.for_each(|(_, reply)| reply.answer(Err(error.clone()))),
        };
        let command =
            |(partition, reply)| (partition, WriteCommand { sync, leader_acked, confirm, ..WriteCommand::new(reply) });
        for (command, error) in self.inboxes.submit_all(table, replies.map(command)) {
            command.pending_reply.answer(Err(error));
        }
    }
}
