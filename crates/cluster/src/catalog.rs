//! The catalog: the nodes and tables of the cluster, and the placements of their replicas.

mod amnesiac;
mod command;
mod entries;
mod error;
mod indexes;
mod recovered;
mod shared_list;
mod split;
mod users;
mod words;

use crate::placement::{Nodes, of_new_table};
use crate::rules::{Rule, holds};
use amnesiac::Amnesiac;
pub use amnesiac::{AmnesiacReplica, Survivor, SurvivorKnows};
pub use command::{CatalogCommand, Changed};
pub use entries::{JoinToken, NodeEntry, Placement, Site, TableEntry, TableState};
pub use error::CatalogError;
pub use indexes::{IndexEntry, Indexes};
pub(crate) use recovered::Fate;
pub use recovered::RecoveryNote;
use serde::{Deserialize, Serialize};
pub use shared_list::SharedList;
pub use split::{CopyReport, CopyState, Split, Truncation};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_types::{
    Durability, EngineKind, Limits, Model, NodeId, Partitioner, ReplicaId, TableId, TableNumber, TableSchema,
    TableSettings, UnixMillis, WhenFull, check_table_name,
};
pub use users::{PasswordHash, UserEntry, UserList};

/// All nodes, and all tables, including dropped ones while they can be recalled.
///
/// Copies share the tables that are equal in them, and the equal partitions of tables that are not: see [`SharedList`].
/// So a copy is cheap, and so is comparing a copy with its original.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    nodes: BTreeMap<NodeId, NodeEntry>,
    #[serde(with = "shared_tables")]
    tables: BTreeMap<TableId, Arc<TableEntry>>,
    /// Numbers are never reused: a client that kept a table's number must not reach another table, and a node that
    /// comes back after it was removed must not be mistaken for another node.
    next_id: u32,
    next_node: u32,
    next_incarnation: u32,
    /// Incarnations of the catalog's replicas on nodes where the first one has forgotten its votes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    catalog_replicas: BTreeMap<NodeId, u32>,
    /// The recoveries that operators decided: without which nodes the cluster continued.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    recoveries: Vec<RecoveryNote>,
    /// Names of the databases that tables of documents are in; `None` stands for [the one](Self::FIRST_DATABASE) of a
    /// new cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    databases: Option<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "UserList::is_unused")]
    users: UserList,
}

/// Shared tables have the same JSON as others.
mod shared_tables {
    use super::{Arc, BTreeMap, TableEntry, TableId};
    use serde::{Deserialize, Deserializer, Serializer};

    type Tables = BTreeMap<TableId, Arc<TableEntry>>;

    pub(super) fn serialize<S: Serializer>(tables: &Tables, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(tables.iter().map(|(id, table)| (id, &**table)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Tables, D::Error> {
        let tables = BTreeMap::<TableId, TableEntry>::deserialize(deserializer)?;
        Ok(tables.into_iter().map(|(id, table)| (id, Arc::new(table))).collect())
    }
}

impl Catalog {
    /// The catalog of a new cluster: its first node, and the table `default`, which is in this engine.
    pub fn of_new_cluster(site: Site, engine: EngineKind) -> Self {
        let first = NodeId(1);
        let schema = TableSchema {
            engine,
            partitions: TableSchema::DEFAULT_PARTITIONS,
            partitioner: Partitioner::Crc64,
            model: Model::Kv,
            primary_key: None,
            durability: Durability::Hard,
            replicas: TableSchema::DEFAULT_REPLICAS,
        };
        let mut catalog = Self { next_node: 2, ..Self::default() };
        catalog.nodes.insert(first, NodeEntry::of_first(first, site));
        catalog.insert("default", schema, TableSettings::default(), &BTreeSet::new());
        catalog
    }

    /// The same, of a cluster that was founded at this time: the tables that it has were created then.
    #[must_use]
    pub fn founded_at(mut self, time: UnixMillis) -> Self {
        for table in self.tables.values_mut() {
            Arc::make_mut(table).settings.created_at = Some(time);
        }
        self
    }

    /// The catalog with which a node that joins begins. The node learns of tables from the catalog's log alone: a
    /// snapshot of that may be older than this copy, and tables that the node had already opened would seem to be gone.
    #[must_use]
    pub fn without_tables(&self) -> Self {
        Self { tables: BTreeMap::new(), ..self.clone() }
    }

    /// The nodes that were let in and not removed, by rising number.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeEntry> {
        self.nodes.values()
    }

    /// The node with this number, unless it was never let in or has been removed.
    pub fn node(&self, id: NodeId) -> Option<&NodeEntry> {
        self.nodes.get(&id)
    }

    /// A node's replica of the catalog.
    pub fn catalog_replica(&self, node: NodeId) -> ReplicaId {
        ReplicaId { node, incarnation: self.catalog_replicas.get(&node).copied().unwrap_or(0) }
    }

    /// Whether such a node exists, or may exist without this copy of the catalog knowing it yet. A removed node does
    /// not exist.
    pub fn may_be_a_node(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id) || id.0 >= self.next_node
    }

    /// How many replicas a node holds, or should hold.
    pub fn replicas_on(&self, node: NodeId) -> usize {
        let placements = self.tables.values().flat_map(|table| &table.placement);
        placements.filter(|placement| placement.on(node).is_some()).count()
    }

    /// All tables, by rising identifier: active, growing and dropped ones.
    pub fn tables(&self) -> impl Iterator<Item = &TableEntry> {
        self.tables.values().map(|table| &**table)
    }

    /// The table with this identifier, whatever its state is.
    pub fn get(&self, id: TableId) -> Option<&TableEntry> {
        self.tables.get(&id).map(|table| &**table)
    }

    /// Whether there was a table with this identifier, and is none any more: neither it nor another one will ever have it again.
    pub fn is_over(&self, id: TableId) -> bool {
        id.0 < self.next_id && !self.tables.contains_key(&id)
    }

    /// A table, to change it.
    fn get_mut(&mut self, id: TableId) -> Option<&mut TableEntry> {
        self.tables.get_mut(&id).map(Arc::make_mut)
    }

    /// Whether this catalog differs from `before` only in the progress of splits: it has the same nodes, and the same
    /// tables with the same replicas.
    pub fn differs_in_progress_only(&self, before: &Self) -> bool {
        let Self {
            nodes,
            tables,
            next_id,
            next_node,
            next_incarnation,
            catalog_replicas,
            recoveries,
            databases,
            users,
        } = self;
        let numbers = |catalog: &Self| (catalog.next_id, catalog.next_node, catalog.next_incarnation);
        let is_alike = |(one, other): (&Arc<TableEntry>, &Arc<TableEntry>)| {
            Arc::ptr_eq(one, other) || one.differs_in_progress_only(other)
        };
        (*next_id, *next_node, *next_incarnation) == numbers(before)
            && *nodes == before.nodes
            && *catalog_replicas == before.catalog_replicas
            && *recoveries == before.recoveries
            && *databases == before.databases
            && *users == before.users
            && tables.len() == before.tables.len()
            && tables.values().zip(before.tables.values()).all(is_alike)
    }

    /// The database that a new cluster has.
    pub const FIRST_DATABASE: &str = "test";

    /// The names of the databases that tables of documents are in. The name of such a table begins with that of its
    /// database, and a dot.
    pub fn databases(&self) -> BTreeSet<String> {
        let first = || BTreeSet::from([Self::FIRST_DATABASE.to_string()]);
        let mut databases = self.databases.clone().unwrap_or_else(first);
        let documents =
            self.tables().filter(|table| table.schema.model == Model::Document && table.state == TableState::Active);
        databases.extend(documents.filter_map(|table| Some(table.name.split_once('.')?.0.to_string())));
        databases
    }

    /// The active table with this name.
    pub fn by_name(&self, name: &str) -> Option<&TableEntry> {
        self.tables().find(|table| table.name == name && table.state == TableState::Active)
    }

    fn active(&mut self, name: &str) -> Result<&mut TableEntry, CatalogError> {
        let id = self.by_name(name).map(|table| table.id);
        id.and_then(|id| self.get_mut(id)).ok_or_else(|| CatalogError::NoSuchTable(name.into()))
    }

    /// Carries out a command and returns the table that it concerns. On error nothing has changed.
    ///
    /// # Errors
    /// Why the command cannot be carried out.
    pub fn apply(&mut self, command: &CatalogCommand, limits: &Limits) -> Result<Changed, CatalogError> {
        match command {
            CatalogCommand::Create { name, schema, settings, absent } => {
                self.create(name, schema.clone(), settings.clone(), limits, absent).map(Changed::Table)
            }
            CatalogCommand::Alter { name, settings, before } => {
                let table = self.active(name)?;
                // A node of an earlier version does not know when the table was created.
                let of_table = |settings: &TableSettings| settings.of_table_created_at(table.settings.created_at);
                if before.as_ref().is_some_and(|before| of_table(before) != table.settings) {
                    return Err(CatalogError::AlteredMeanwhile(name.clone()));
                }
                check_documents(&table.schema, settings)?;
                table.settings = of_table(settings);
                Ok(Changed::Table(table.id))
            }
            CatalogCommand::SetReplicas { name, replicas } => {
                let table = self.active(name)?;
                check_replicas(&TableSchema { replicas: *replicas, ..table.schema.clone() })?;
                table.schema.replicas = *replicas;
                let (id, into) = (table.id, table.split.as_ref().map(|split| split.into));
                if let Some(growing) = into.and_then(|into| self.get_mut(into)) {
                    growing.schema.replicas = *replicas;
                }
                Ok(Changed::Table(id))
            }
            CatalogCommand::Split { name, partitions, absent } => {
                self.split(name, *partitions, limits, absent).map(Changed::Table)
            }
            CatalogCommand::Truncate { name, purge_at, dropped_at, absent } => {
                self.truncate(name, *purge_at, *dropped_at, limits, absent).map(Changed::Table)
            }
            CatalogCommand::CancelSplit { name } => self.cancel_split(name).map(Changed::Table),
            CatalogCommand::Copy { table, partition, attempt, report } => {
                self.copied(*table, *partition, *attempt, *report).map(Changed::Table)
            }
            CatalogCommand::Rename { name, to } => {
                check_table_name(to)?;
                if self.by_name(to).is_some() {
                    return Err(CatalogError::Exists(to.clone()));
                }
                let table = self.active(name)?;
                if table.number == TableNumber(0) {
                    return Err(CatalogError::DefaultTable);
                }
                table.name.clone_from(to);
                let id = table.id;
                self.users.table_was_renamed(name, to);
                Ok(Changed::Table(id))
            }
            CatalogCommand::Drop { name, purge_at, dropped_at } => {
                let table = self.active(name)?;
                if table.number == TableNumber(0) {
                    return Err(CatalogError::DefaultTable);
                }
                let is_splitting = table.split.is_some();
                if is_splitting {
                    self.cancel_split(name)?;
                }
                let table = self.active(name)?;
                let (purge_at, dropped_at) = (*purge_at, *dropped_at);
                table.state = TableState::Dropped { purge_at, dropped_at, was_truncated: false };
                let id = table.id;
                self.users.table_was_dropped(name);
                Ok(Changed::Table(id))
            }
            CatalogCommand::Recall { number, to } => {
                let is_it = |table: &&TableEntry| table.number == *number && table.is_dropped();
                let table = self.tables().find(is_it);
                let table = table.ok_or_else(|| CatalogError::NoSuchTable(format!("dropped table number {number}")))?;
                let id = table.id;
                let name = to.clone().unwrap_or_else(|| table.name.clone());
                check_table_name(&name)?;
                if self.by_name(&name).is_some() {
                    return Err(CatalogError::Exists(name));
                }
                if let Some(table) = self.get_mut(id) {
                    table.name = name;
                    table.state = TableState::Active;
                }
                Ok(Changed::Table(id))
            }
            CatalogCommand::CreateDatabase { name } => {
                check_table_name(name)?;
                let mut databases = self.databases();
                if !databases.insert(name.clone()) {
                    return Err(CatalogError::DatabaseExists(name.clone()));
                }
                self.databases = Some(databases);
                Ok(Changed::Other)
            }
            CatalogCommand::DropDatabase { name } => {
                let mut databases = self.databases();
                if !databases.remove(name) {
                    return Err(CatalogError::NoSuchDatabase(name.clone()));
                }
                let prefix = format!("{name}.");
                let is_in_it = |table: &TableEntry| {
                    table.schema.model == Model::Document
                        && table.state == TableState::Active
                        && table.name.starts_with(&prefix)
                };
                if self.tables().any(is_in_it) {
                    return Err(CatalogError::DatabaseInUse(name.clone()));
                }
                self.databases = Some(databases);
                self.users.database_was_dropped(name);
                Ok(Changed::Other)
            }
            CatalogCommand::CreateUser { name, password, rights } => {
                self.create_user(name, password.as_ref(), rights).map(|()| Changed::Other)
            }
            CatalogCommand::AlterUser { name, password } => {
                self.users.set_password(name, password.as_ref()).map(|()| Changed::Other)
            }
            CatalogCommand::DropUser { name } => self.users.drop(name).map(|()| Changed::Other),
            CatalogCommand::Grant { user, scope, changes } => self.grant(user, scope, changes).map(|()| Changed::Other),
            CatalogCommand::CreateIndex { table, name, definition, is_unique } => {
                self.change_indexes(*table, |indexes| indexes.create(name, definition, *is_unique))
            }
            CatalogCommand::DropIndex { table, name } => self.change_indexes(*table, |indexes| indexes.drop(name)),
            CatalogCommand::RenameIndex { table, name, to, overwrites } => {
                self.change_indexes(*table, |indexes| indexes.rename(name, to, *overwrites))
            }
            CatalogCommand::Purge { now } => {
                self.tables.retain(|_, table| match table.state {
                    TableState::Active | TableState::Growing => true,
                    TableState::Dropped { purge_at, .. } => purge_at > *now,
                });
                Ok(Changed::Other)
            }
            CatalogCommand::AddNode { site, token } => {
                let asked_before = |node: &&NodeEntry| {
                    node.is_expected && token.is_some() && node.token == *token && holds(Rule::TokensAreKnown)
                };
                let known = self.nodes.values().find(asked_before).map(|node| node.id);
                let id = known.unwrap_or(NodeId(self.next_node));
                self.next_node += u32::from(known.is_none());
                let (site, token) = (site.clone(), token.clone());
                self.nodes.insert(id, NodeEntry::let_in(id, site, token));
                Ok(Changed::Node(id))
            }
            CatalogCommand::Arrived { node, has_vote } => {
                let entry = self.nodes.get_mut(node).ok_or(CatalogError::NoSuchNode(*node))?;
                entry.is_expected = false;
                entry.token = None;
                entry.is_new &= !has_vote;
                Ok(Changed::Node(*node))
            }
            CatalogCommand::SetSite { node, site } => {
                self.nodes.get_mut(node).ok_or(CatalogError::NoSuchNode(*node))?.site = site.clone();
                Ok(Changed::Node(*node))
            }
            CatalogCommand::RenewCatalogReplica { node } => {
                self.nodes.get(node).ok_or(CatalogError::NoSuchNode(*node))?;
                *self.catalog_replicas.entry(*node).or_default() += 1;
                Ok(Changed::Replica(self.catalog_replica(*node)))
            }
            CatalogCommand::Drain { node, is_draining } => {
                let stays = |other: &NodeEntry| other.id != *node && !other.is_draining && !other.is_expected;
                let others = self.nodes.values().any(stays);
                let entry = self.nodes.get_mut(node).ok_or(CatalogError::NoSuchNode(*node))?;
                if *is_draining && !others {
                    return Err(CatalogError::LastNode);
                }
                entry.is_draining = *is_draining;
                Ok(Changed::Node(*node))
            }
            CatalogCommand::RemoveNode { node } => {
                self.nodes.get(node).ok_or(CatalogError::NoSuchNode(*node))?;
                let held = self.replicas_on(*node);
                if held > 0 {
                    return Err(CatalogError::NodeInUse(*node, held));
                }
                if !self.nodes.values().any(|other| other.id != *node && !other.is_expected) {
                    return Err(CatalogError::LastNode);
                }
                self.nodes.remove(node);
                self.catalog_replicas.remove(node);
                Ok(Changed::Node(*node))
            }
            CatalogCommand::Place { table, partition, nodes, witness } => {
                if let Some(unknown) = nodes.iter().chain(witness).find(|node| !self.nodes.contains_key(node)) {
                    return Err(CatalogError::NoSuchNode(*unknown));
                }
                let before = self.placement(*table, *partition)?.clone();
                let kinds = nodes.iter().map(|node| (*node, false)).chain(witness.map(|node| (node, true)));
                let kinds: Vec<_> = kinds.collect();
                // The old replica would have to be removed before the new one may vote.
                let is_other = |node, kind| before.on(node).is_some_and(|there| there.is_witness() != kind);
                if let Some((node, _)) = kinds.iter().find(|(node, kind)| is_other(*node, *kind)) {
                    return Err(CatalogError::OtherKind(*node, *table, *partition));
                }
                let replica =
                    |(node, kind): (NodeId, bool)| before.on(node).unwrap_or_else(|| self.new_replica(node, kind));
                let target = kinds.into_iter().map(replica).collect();
                self.placement(*table, *partition)?.set_target(target);
                Ok(Changed::Table(*table))
            }
            CatalogCommand::Amnesiac { replicas } => {
                replicas.iter().for_each(|lost| self.note_amnesiac(lost, false));
                Ok(Changed::Other)
            }
            CatalogCommand::AwaitSurvivors { amnesiac } => {
                amnesiac.iter().for_each(|lost| self.note_amnesiac(lost, true));
                Ok(Changed::Other)
            }
            CatalogCommand::Survived { replicas } => {
                replicas.iter().for_each(|survivor| self.note_survivor(survivor));
                Ok(Changed::Other)
            }
            CatalogCommand::BeginAnew { groups } => {
                groups.iter().for_each(|(table, partition, version)| {
                    self.give_survivors_up(*table, *partition, *version);
                });
                Ok(Changed::Other)
            }
            CatalogCommand::Led { groups } => {
                groups.iter().for_each(|(table, partition, leader)| self.led(*table, *partition, *leader));
                Ok(Changed::Other)
            }
            CatalogCommand::Replace { table, partition, replica } => {
                let placement = self.placement(*table, *partition)?;
                let is_settled = !placement.is_moving() && placement.amnesiac.is_empty();
                let mut target = placement.target.clone();
                let place = target.iter_mut().find(|target| *target == replica && is_settled && !replica.is_witness());
                let place = place.ok_or(CatalogError::NotReplaceable(*replica))?;
                // Not before: what is refused changes nothing, and an assignment evaluates its right side first.
                *place = self.new_replica(replica.node, false);
                self.placement(*table, *partition)?.set_target(target);
                Ok(Changed::Table(*table))
            }
            CatalogCommand::Moved { table, partition, members, version } => {
                let placement = self.placement(*table, *partition)?;
                placement.moved(members, *version);
                let members = placement.current.clone();
                self.note_members(&members);
                Ok(Changed::Table(*table))
            }
        }
    }

    fn placement(&mut self, table: TableId, partition: u32) -> Result<&mut Placement, CatalogError> {
        let placement = self.get_mut(table).and_then(|table| table.placement.get_mut(partition as usize));
        placement.ok_or(CatalogError::NoSuchPartition(table, partition))
    }

    fn new_replica(&mut self, node: NodeId, is_witness: bool) -> ReplicaId {
        self.next_incarnation += 1;
        let incarnation = self.next_incarnation;
        if is_witness { ReplicaId::new_witness(node, incarnation) } else { ReplicaId { node, incarnation } }
    }

    /// The nodes of a group's members are not new any more.
    fn note_members(&mut self, members: &[ReplicaId]) {
        for member in members {
            if let Some(node) = self.nodes.get_mut(&member.node) {
                node.is_new = false;
            }
        }
    }

    /// Replicas for each partition of a new table.
    fn place_new_table(&mut self, schema: &TableSchema, absent: &BTreeSet<NodeId>) -> SharedList<Placement> {
        let (nodes, tables): (Vec<_>, Vec<_>) = (self.nodes().collect(), self.tables().collect());
        let nodes = of_new_table(&nodes, &tables, schema.partitions, usize::from(schema.replicas), absent);
        let placement = nodes.into_iter().map(|Nodes { data_replicas, witness }| {
            let mut replicas: Vec<_> = data_replicas.into_iter().map(|node| self.new_replica(node, false)).collect();
            replicas.extend(witness.map(|node| self.new_replica(node, true)));
            self.note_members(&replicas);
            Placement::of_initial_members(replicas)
        });
        placement.collect()
    }

    fn insert(
        &mut self,
        name: &str,
        schema: TableSchema,
        settings: TableSettings,
        absent: &BTreeSet<NodeId>,
    ) -> TableId {
        let placement = self.place_new_table(&schema, absent);
        let id = TableId(self.next_id);
        self.next_id += 1;
        let (number, name, state) = (TableNumber(id.0), name.into(), TableState::Active);
        let table = TableEntry {
            id,
            number,
            name,
            schema,
            settings,
            state,
            placement,
            split: None,
            indexes: Indexes::default(),
            truncations: 0,
            was_split: None,
        };
        self.tables.insert(id, Arc::new(table));
        id
    }

    fn change_indexes(
        &mut self,
        number: TableNumber,
        change: impl FnOnce(&mut Indexes) -> Result<(), CatalogError>,
    ) -> Result<Changed, CatalogError> {
        let is_it = |table: &&TableEntry| table.number == number && table.state == TableState::Active;
        let table = self.tables().find(is_it).map(|table| table.id);
        let missing = || CatalogError::NoSuchTable(format!("number {number}"));
        let table = table.and_then(|id| self.get_mut(id)).ok_or_else(missing)?;
        if table.schema.model != Model::Document {
            return Err(CatalogError::NotOfDocuments);
        }
        change(&mut table.indexes)?;
        Ok(Changed::Table(table.id))
    }

    fn create(
        &mut self,
        name: &str,
        schema: TableSchema,
        settings: TableSettings,
        limits: &Limits,
        absent: &BTreeSet<NodeId>,
    ) -> Result<TableId, CatalogError> {
        check_table_name(name)?;
        if schema.model == Model::Document && name.split_once('.').is_none_or(|(_, table)| table.contains('.')) {
            return Err(CatalogError::DocumentTableName(name.into()));
        }
        if self.by_name(name).is_some() {
            return Err(CatalogError::Exists(name.into()));
        }
        if self.tables.len() >= limits.tables {
            return Err(CatalogError::TooManyTables(self.tables.len()));
        }
        if !(1..=limits.partitions_per_table).contains(&schema.partitions) {
            return Err(CatalogError::Partitions(limits.partitions_per_table));
        }
        if schema.engine == EngineKind::Rocksdb && schema.durability == Durability::None {
            return Err(CatalogError::DurabilityOfEngine);
        }
        check_replicas(&schema)?;
        check_documents(&schema, &settings)?;
        Ok(self.insert(name, schema, settings, absent))
    }
}

/// Rules and eviction are for records that are ordered by hash; documents are in ordered spaces, and have entries in indexes.
fn check_documents(schema: &TableSchema, settings: &TableSettings) -> Result<(), CatalogError> {
    if schema.model != Model::Document {
        return Ok(());
    }
    if !settings.rules.is_empty() {
        return Err(CatalogError::RulesForDocuments);
    }
    match settings.when_full {
        WhenFull::Refuse => Ok(()),
        WhenFull::Evict => Err(CatalogError::EvictsDocuments),
    }
}

fn check_replicas(schema: &TableSchema) -> Result<(), CatalogError> {
    if !(1..=TableSchema::REPLICAS_CEILING).contains(&schema.replicas) {
        return Err(CatalogError::Replicas(TableSchema::REPLICAS_CEILING));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
