//! The nodes of the cluster, and how tables are spread over them, as ReQL tells and changes it.

use crate::definition::{definition_of, write_hook_of};
use crate::identity::server_id;
use crate::route::Place;
use crate::scan::scan_work;
use crate::site::parts;
use crate::tables::{Tables, catalog_outcome, damaged, failed};
use crate::work::{Reply, Work};
use std::time::UNIX_EPOCH;
use tessera_cluster::{CatalogCommand, CatalogError, Placement};
use tessera_document::KeyRange;
use tessera_engine::Order;
use tessera_reql::{
    Env, Error, Process, ReplicaState, Result, Server, ServerStatus, Shape, ShardConfig, ShardStatus, TableChange,
    TableConfig, TableInfo,
};
use tessera_store::{AlterError, Table};
use tessera_types::{Acks, Durability, NodeId, ReadMode, ReplicaId, Space, TableSettings};

/// Documents that are looked at in each shard to know how many there are. Pages are bounded in bytes too.
const COUNTED_DOCUMENTS: usize = 1000;

/// What drivers and tools look at to know which queries they may send, and who answers them.
fn version(of_tessera: &str) -> String {
    format!("rethinkdb 2.4.4 (tessera {of_tessera})")
}

pub(crate) fn server(node: NodeId) -> Server {
    Server { id: server_id(node), name: format!("node-{node}") }
}

/// Replicas that hold records.
fn holders(replicas: &[ReplicaId]) -> impl Iterator<Item = &ReplicaId> {
    replicas.iter().filter(|replica| !replica.is_witness())
}

impl Tables {
    pub(crate) fn servers_now(&self) -> Vec<ServerStatus> {
        let store = &self.0.store;
        let status = |node: &tessera_cluster::NodeEntry| {
            let (host, cluster_port) = parts(&node.site.peer);
            let is_here = node.id == store.node();
            ServerStatus {
                server: server(node.id),
                host: host.into(),
                cluster_port,
                reql_port: parts(&node.site.reql).1,
                admin_port: parts(&node.site.admin).1,
                is_connected: store.is_heard(node.id),
                version: (!node.site.version.is_empty()).then(|| version(&node.site.version)),
                process: is_here.then(|| Process {
                    pid: std::process::id(),
                    started: self.0.started.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64()),
                }),
            }
        };
        store.catalog().nodes().map(status).collect()
    }

    /// Where the replicas of each partition are, and are to be.
    fn placements(&self, info: &TableInfo) -> Result<(std::sync::Arc<Table>, Vec<Placement>)> {
        let table = self.open(info)?;
        let catalog = self.0.store.catalog();
        let gone = || Error::failed(format!("Table `{}` does not exist.", info.full_name()));
        let placements = catalog.get(table.id()).ok_or_else(gone)?.placement.iter().cloned().collect();
        Ok((table, placements))
    }

    pub(crate) fn config_of(&self, info: &TableInfo) -> Result<TableConfig> {
        let (table, placements) = self.placements(info)?;
        let shard = |(partition, placement): (u32, &Placement)| {
            // A leader that is to hand over still leads.
            let first = holders(&placement.target).next().map(|replica| replica.node);
            ShardConfig {
                primary: table.known_leader(partition).or(first).map(server),
                replicas: holders(&placement.target).map(|replica| server(replica.node)).collect(),
            }
        };
        Ok(TableConfig {
            shards: (0..).zip(&placements).map(shard).collect(),
            indexes: table.indexes().iter().map(|(name, _)| name.into()).collect(),
            is_hard: table.schema().durability == Durability::Hard,
            write_acks: table.settings().acks.as_str(),
            write_hook: write_hook_of(&table)?,
        })
    }

    pub(crate) fn status_of(&self, info: &TableInfo) -> Result<Vec<ShardStatus>> {
        let (table, placements) = self.placements(info)?;
        let is_heard = |node: &NodeId| self.0.store.is_heard(*node);
        let shard = |(partition, placement): (u32, &Placement)| {
            let state = |replica: &ReplicaId| match () {
                () if !is_heard(&replica.node) => ReplicaState::Disconnected,
                () if placement.current.contains(replica) => ReplicaState::Ready,
                () => ReplicaState::Transferring,
            };
            // Those that are to go serve until the others are there.
            let leaving = placement.current.iter().filter(|member| !placement.target.contains(member));
            let all = placement.target.iter().chain(leaving).filter(|replica| !replica.is_witness());
            ShardStatus {
                primary: table.known_leader(partition).filter(is_heard).map(server),
                replicas: all.map(|replica| (server(replica.node), state(replica))).collect(),
            }
        };
        Ok((0..).zip(&placements).map(shard).collect())
    }

    /// About how many documents each shard holds: as many as a page shows, if it shows all. Else as many of their size as make up
    /// the bytes of the replica on this node. Shards are shares of hashes, so one that has no replica here holds about as many as
    /// those that have.
    pub(crate) fn estimated_counts(&self, info: &TableInfo) -> Result<Vec<u64>> {
        let table = self.open(info)?;
        let all = KeyRange { start: Vec::new(), end: None };
        let page = || scan_work(Space::DOCUMENTS, &all, Order::Ascending, None, COUNTED_DOCUMENTS);
        let work =
            (0..table.schema().partitions).map(|partition| (Place::Partition(partition), Work::Scan(page()))).collect();
        let replies = self.reach(&table, ReadMode::Outdated, work)?;
        let (mut counts, mut known) = (Vec::new(), Vec::new());
        for (partition, reply) in (0..).zip(replies) {
            let Reply::Page(rows, has_more) = reply else { return Err(damaged()) };
            let seen = rows.len() as u64;
            let seen_bytes = rows.iter().map(|(key, document)| (key.len() + document.len()) as u64).sum::<u64>();
            let bytes = Some(table.engine().partition_bytes(partition)).filter(|bytes| *bytes > 0);
            let all = bytes.map(|bytes| (bytes / (seen_bytes / seen.max(1)).max(1)).max(seen));
            let count = if has_more { all } else { Some(seen) };
            known.extend(count);
            counts.push((seen, count));
        }
        let mean = known.iter().sum::<u64>() / (known.len() as u64).max(1);
        Ok(counts.into_iter().map(|(seen, count)| count.unwrap_or(mean.max(seen))).collect())
    }

    /// Has a table split until it has so many partitions, and its replicas placed. Waits for the splits, since each begins where
    /// the one before it has ended.
    pub(crate) fn spread(&self, env: &Env, info: &TableInfo, shape: &Shape) -> Result<()> {
        let table = self.open(info)?;
        let name = table.name().to_string();
        let partitions = table.schema().partitions as usize;
        let times = shape.shards / partitions;
        if !times.is_power_of_two() || times * partitions != shape.shards {
            return Err(Error::failed(format!(
                "Table `{name}` has {partitions} shards. Tessera splits each shard in two, and does not merge shards: \
                 `shards` may be {partitions}, {}, {} and so on.",
                2 * partitions,
                4 * partitions
            )));
        }
        let wanted = u8::try_from(shape.replicas).unwrap_or(u8::MAX);
        let now = self.0.store.catalog().get(table.id()).map(|entry| entry.schema.replicas);
        if now != Some(wanted) {
            let command = CatalogCommand::SetReplicas { name: name.clone(), replicas: wanted };
            catalog_outcome(self.wait(self.0.store.change_catalog(command)))?;
        }
        let mut partitions = table.schema().partitions;
        while (partitions as usize) < shape.shards {
            partitions *= 2;
            let command = CatalogCommand::Split { name: name.clone(), partitions, absent: Default::default() };
            catalog_outcome(self.wait(self.0.store.change_catalog(command)))?;
            loop {
                let table = self.open(info)?;
                let is_split = table.schema().partitions == partitions;
                if is_split && self.0.store.leaderless(table.id()) == 0 {
                    break;
                }
                tessera_reql::Source::pause(self);
                env.check()?;
            }
        }
        self.known(info, |table| {
            let catalog = self.0.store.catalog();
            catalog.get(table.id()).is_some_and(|entry| entry.schema.replicas == wanted)
        })
    }

    fn alter(&self, table: &str, change: impl Fn(&mut TableSettings)) -> Result<()> {
        let altered = self.0.store.alter_table(table, |settings| {
            change(settings);
            Ok::<(), std::convert::Infallible>(())
        });
        match self.wait(altered) {
            Ok(()) => Ok(()),
            Err(AlterError::Change(never)) => match never {},
            Err(AlterError::Catalog(error)) => Err(Error::failed(format!("{error}."))),
            Err(AlterError::Request(error)) => Err(failed(&error)),
        }
    }

    pub(crate) fn change(&self, info: &TableInfo, change: &TableChange) -> Result<()> {
        let table = self.open(info)?;
        let name = table.name().to_string();
        match change {
            TableChange::WriteAcks { majority } => {
                let acks = if *majority { Acks::Majority } else { Acks::Single };
                self.alter(&name, |settings| settings.acks = acks)?;
                self.known(info, |table| table.settings().acks == acks)
            }
            TableChange::WriteHook(hook) => {
                let hook = hook.as_ref().map(|hook| definition_of(hook.source(), hook.query()));
                self.alter(&name, |settings| settings.write_hook.clone_from(&hook))?;
                self.known(info, |table| table.settings().write_hook == hook)
            }
            TableChange::Rename { database, name: to } => {
                let to = format!("{database}.{to}");
                let rename = CatalogCommand::Rename { name, to: to.clone() };
                match self.wait(self.0.store.change_catalog(rename)) {
                    Ok(Err(CatalogError::Exists(_))) => {
                        return Err(Error::failed(format!(
                            "Can't rename table `{}` to `{to}` because table `{to}` already exists.",
                            info.full_name()
                        )));
                    }
                    outcome => catalog_outcome(outcome)?,
                }
                self.wait(self.0.until(|store| store.table_named(&to).is_some()));
                Ok(())
            }
        }
    }
}
