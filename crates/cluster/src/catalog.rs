//! The nodes and tables of the cluster, and where their replicas are to be.

mod split;

use crate::placement;
use serde::{Deserialize, Serialize};
pub use split::{CopyReport, CopyState, Split};
use std::collections::BTreeMap;
use tessera_types::{
    Durability, EngineKind, Limits, Model, NodeId, Partitioner, ReplicaId, TableId, TableNameError, TableNumber,
    TableSchema, TableSettings, UnixMillis, check_table_name,
};

/// All nodes, and all tables, dropped ones included while they can be recalled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    nodes: BTreeMap<NodeId, NodeEntry>,
    tables: BTreeMap<TableId, TableEntry>,
    /// Numbers are never reused: a client that kept one must not reach another table; nor must a node that comes back
    /// after it was removed be taken for another one.
    next_id: u32,
    next_node: u32,
    next_incarnation: u32,
}

/// Where a node is: addresses, each as `HOST:PORT`, and what it shares its fate with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// For other nodes.
    pub peer: String,
    pub redis: String,
    pub admin: String,
    /// For clients of Apache Pegasus; empty if there is no such port.
    #[serde(default)]
    pub pegasus: String,
    /// A rack, a room, a data centre: replicas are kept apart by it. Empty for a zone of its own.
    #[serde(default)]
    pub zone: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    pub id: NodeId,
    pub site: Site,
    /// Its replicas are to move elsewhere.
    #[serde(default)]
    pub is_draining: bool,
}

/// Where a partition's replicas are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The group's first members.
    pub founders: Vec<ReplicaId>,
    /// Who is to be a member; the first is to lead.
    pub wanted: Vec<ReplicaId>,
    /// Who was a member when that was last known. Other than `wanted` while replicas move.
    pub members: Vec<ReplicaId>,
}

impl Placement {
    pub fn is_moving(&self) -> bool {
        let (mut wanted, mut members) = (self.wanted.clone(), self.members.clone());
        wanted.sort_unstable();
        members.sort_unstable();
        wanted != members
    }

    /// The replica that a node holds, or is to hold.
    pub fn on(&self, node: NodeId) -> Option<ReplicaId> {
        // A node that is to get a new replica in the place of a lost one lets go of the lost one first.
        self.wanted.iter().chain(&self.members).find(|replica| replica.node == node).copied()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    pub id: TableId,
    pub number: TableNumber,
    pub name: String,
    pub schema: TableSchema,
    pub settings: TableSettings,
    pub state: TableState,
    /// By partition.
    pub placement: Vec<Placement>,
    #[serde(default)]
    pub split: Option<Split>,
}

impl TableEntry {
    pub fn is_dropped(&self) -> bool {
        matches!(self.state, TableState::Dropped { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "is")]
pub enum TableState {
    Active,
    /// Takes what another one is split into, and its place when it has all; out of reach until then.
    Growing,
    /// Out of reach, with its records kept until `purge_at`.
    Dropped {
        purge_at: UnixMillis,
    },
}

/// A change to the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum CatalogCommand {
    Create {
        name: String,
        schema: TableSchema,
        settings: TableSettings,
    },
    Alter {
        name: String,
        settings: TableSettings,
        /// What they were when that was decided: another change must not be lost.
        #[serde(default)]
        before: Option<TableSettings>,
    },
    SetReplicas {
        name: String,
        replicas: u8,
    },
    /// Splits a table into twice as many partitions.
    Split {
        name: String,
        partitions: u32,
    },
    /// Gives up splitting a table, as long as it has not begun to take effect.
    CancelSplit {
        name: String,
    },
    /// How far a partition's leader is with copying it for a split.
    Copy {
        table: TableId,
        partition: u32,
        /// A number that nobody else uses.
        attempt: u64,
        report: CopyReport,
    },
    Rename {
        name: String,
        to: String,
    },
    Drop {
        name: String,
        purge_at: UnixMillis,
    },
    /// Makes a dropped table active again, under `to` if its old name is taken.
    Recall {
        number: TableNumber,
        to: Option<String>,
    },
    /// Forgets dropped tables whose time has come.
    Purge {
        now: UnixMillis,
    },
    /// Lets a new node in, and gives it its number.
    AddNode {
        site: Site,
    },
    /// A node is found elsewhere now.
    SetSite {
        node: NodeId,
        site: Site,
    },
    /// Moves a node's replicas elsewhere, or no longer.
    Drain {
        node: NodeId,
        is_draining: bool,
    },
    /// Forgets a node that holds no replica.
    RemoveNode {
        node: NodeId,
    },
    /// Wants a partition's replicas on these nodes; the first is to lead. Two replicas may have a witness for the third vote.
    Place {
        table: TableId,
        partition: u32,
        nodes: Vec<NodeId>,
        witness: Option<NodeId>,
    },
    /// These replicas may have forgotten what they voted and promised. Others are to take their places, which get
    /// everything from those that are left; see [`Changed::Renewed`] for when too few are.
    Renew {
        lost: Vec<(TableId, u32, ReplicaId)>,
    },
    /// A partition's group has these members now.
    Moved {
        table: TableId,
        partition: u32,
        members: Vec<ReplicaId>,
    },
}

/// What a command was about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    Other,
    Table(TableId),
    Node(NodeId),
    /// Replicas were [lost](CatalogCommand::Renew). Where a majority would be, nobody has more than they do: on a table with
    /// a log those named here go on as they are; one without a log begins anew, empty.
    Renewed {
        go_on: Vec<(TableId, u32)>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CatalogError {
    #[error(transparent)]
    Name(#[from] TableNameError),
    #[error("a table named '{0}' exists")]
    Exists(String),
    #[error("no such table: {0}")]
    NoSuchTable(String),
    #[error("table '{0}' is being split")]
    Splitting(String),
    #[error("table '{0}' is not being split")]
    NotSplitting(String),
    #[error("the split of table '{0}' is about to take effect; try again in a moment")]
    SplitTakesEffect(String),
    #[error("a table is split into twice its partitions: {0}")]
    SplitInto(u32),
    #[error("another copy of the partition has begun, or all is copied")]
    CopyOvertaken,
    #[error("table '{0}' was altered by somebody else at the same time; try again")]
    AlteredMeanwhile(String),
    #[error("the cluster has {0} tables, the limit `tables`")]
    TooManyTables(usize),
    #[error("a table has 1 to {0} partitions (the limit `partitions_per_table`)")]
    Partitions(u32),
    #[error("a rocksdb table keeps its records on disk: durability is hard or soft")]
    DurabilityOfEngine,
    #[error("table 0, 'default', can be neither dropped nor renamed: connections that choose no table use it")]
    DefaultTable,
    #[error("a partition has 1 to {0} replicas")]
    Replicas(u8),
    #[error("node {0} holds a replica of partition {2} of table {1} that is of the other kind, witness or not")]
    OtherKind(NodeId, TableId, u32),
    #[error("no such node: {0}")]
    NoSuchNode(NodeId),
    #[error("node {0} still holds {1} replicas; drain it first, or wait until they have moved")]
    NodeInUse(NodeId, usize),
    #[error("the last node that is not draining cannot be drained or removed")]
    LastNode,
    #[error("there is no partition {1} of table {0}")]
    NoSuchPartition(TableId, u32),
}

/// Partitions of the table that is made at first start.
const DEFAULT_TABLE_PARTITIONS: u32 = 16;

impl Catalog {
    /// The catalog of a new cluster: its first node, and the table `default`.
    pub fn of_new_cluster(site: Site) -> Self {
        let first = NodeId(1);
        let schema = TableSchema {
            engine: EngineKind::Rocksdb,
            partitions: DEFAULT_TABLE_PARTITIONS,
            partitioner: Partitioner::Crc64,
            model: Model::Kv,
            durability: Durability::Hard,
            replicas: TableSchema::DEFAULT_REPLICAS,
        };
        let mut catalog = Self { next_node: 2, ..Self::default() };
        catalog.nodes.insert(first, NodeEntry { id: first, site, is_draining: false });
        catalog.insert("default", schema, TableSettings::default());
        catalog
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeEntry> {
        self.nodes.values()
    }

    pub fn node(&self, id: NodeId) -> Option<&NodeEntry> {
        self.nodes.get(&id)
    }

    /// How many replicas a node holds, or is to hold.
    pub fn replicas_on(&self, node: NodeId) -> usize {
        let placements = self.tables.values().flat_map(|table| &table.placement);
        placements.filter(|placement| placement.on(node).is_some()).count()
    }

    pub fn tables(&self) -> impl Iterator<Item = &TableEntry> {
        self.tables.values()
    }

    pub fn get(&self, id: TableId) -> Option<&TableEntry> {
        self.tables.get(&id)
    }

    /// The active table of that name.
    pub fn by_name(&self, name: &str) -> Option<&TableEntry> {
        self.tables.values().find(|table| table.name == name && table.state == TableState::Active)
    }

    fn active(&mut self, name: &str) -> Result<&mut TableEntry, CatalogError> {
        let mut tables = self.tables.values_mut();
        let found = tables.find(|table| table.name == name && table.state == TableState::Active);
        found.ok_or_else(|| CatalogError::NoSuchTable(name.into()))
    }

    /// Carries out a command and returns the table that it concerns. On error nothing has changed.
    ///
    /// # Errors
    /// Why the command cannot be carried out.
    pub fn apply(&mut self, command: &CatalogCommand, limits: &Limits) -> Result<Changed, CatalogError> {
        match command {
            CatalogCommand::Create { name, schema, settings } => {
                self.create(name, schema.clone(), settings.clone(), limits).map(Changed::Table)
            }
            CatalogCommand::Alter { name, settings, before } => {
                let table = self.active(name)?;
                if before.as_ref().is_some_and(|before| *before != table.settings) {
                    return Err(CatalogError::AlteredMeanwhile(name.clone()));
                }
                table.settings = settings.clone();
                Ok(Changed::Table(table.id))
            }
            CatalogCommand::SetReplicas { name, replicas } => {
                let table = self.active(name)?;
                check_replicas(&TableSchema { replicas: *replicas, ..table.schema.clone() })?;
                table.schema.replicas = *replicas;
                let (id, into) = (table.id, table.split.as_ref().map(|split| split.into));
                if let Some(growing) = into.and_then(|into| self.tables.get_mut(&into)) {
                    growing.schema.replicas = *replicas;
                }
                Ok(Changed::Table(id))
            }
            CatalogCommand::Split { name, partitions } => self.split(name, *partitions, limits).map(Changed::Table),
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
                Ok(Changed::Table(table.id))
            }
            CatalogCommand::Drop { name, purge_at } => {
                let table = self.active(name)?;
                if table.number == TableNumber(0) {
                    return Err(CatalogError::DefaultTable);
                }
                let is_splitting = table.split.is_some();
                if is_splitting {
                    self.cancel_split(name)?;
                }
                let table = self.active(name)?;
                table.state = TableState::Dropped { purge_at: *purge_at };
                Ok(Changed::Table(table.id))
            }
            CatalogCommand::Recall { number, to } => {
                let is_it = |table: &&TableEntry| table.number == *number && table.is_dropped();
                let table = self.tables.values().find(is_it);
                let table = table.ok_or_else(|| CatalogError::NoSuchTable(format!("dropped table number {number}")))?;
                let id = table.id;
                let name = to.clone().unwrap_or_else(|| table.name.clone());
                check_table_name(&name)?;
                if self.by_name(&name).is_some() {
                    return Err(CatalogError::Exists(name));
                }
                if let Some(table) = self.tables.get_mut(&id) {
                    table.name = name;
                    table.state = TableState::Active;
                }
                Ok(Changed::Table(id))
            }
            CatalogCommand::Purge { now } => {
                self.tables.retain(|_, table| match table.state {
                    TableState::Active | TableState::Growing => true,
                    TableState::Dropped { purge_at } => purge_at > *now,
                });
                Ok(Changed::Other)
            }
            CatalogCommand::AddNode { site } => {
                let id = NodeId(self.next_node);
                self.next_node += 1;
                self.nodes.insert(id, NodeEntry { id, site: site.clone(), is_draining: false });
                Ok(Changed::Node(id))
            }
            CatalogCommand::SetSite { node, site } => {
                self.nodes.get_mut(node).ok_or(CatalogError::NoSuchNode(*node))?.site = site.clone();
                Ok(Changed::Node(*node))
            }
            CatalogCommand::Drain { node, is_draining } => {
                let others = self.nodes.values().any(|other| other.id != *node && !other.is_draining);
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
                if self.nodes.len() == 1 {
                    return Err(CatalogError::LastNode);
                }
                self.nodes.remove(node);
                Ok(Changed::Node(*node))
            }
            CatalogCommand::Place { table, partition, nodes, witness } => {
                if let Some(unknown) = nodes.iter().chain(witness).find(|node| !self.nodes.contains_key(node)) {
                    return Err(CatalogError::NoSuchNode(*unknown));
                }
                let before = self.placement(*table, *partition)?.clone();
                let kinds = nodes.iter().map(|node| (*node, false)).chain(witness.map(|node| (node, true)));
                let kinds: Vec<_> = kinds.collect();
                // The old one would have to go before its vote is another's.
                let is_other = |node, kind| before.on(node).is_some_and(|there| there.is_witness() != kind);
                if let Some((node, _)) = kinds.iter().find(|(node, kind)| is_other(*node, *kind)) {
                    return Err(CatalogError::OtherKind(*node, *table, *partition));
                }
                let replica =
                    |(node, kind): (NodeId, bool)| before.on(node).unwrap_or_else(|| self.new_replica(node, kind));
                let wanted = kinds.into_iter().map(replica).collect();
                self.placement(*table, *partition)?.wanted = wanted;
                Ok(Changed::Table(*table))
            }
            CatalogCommand::Renew { lost } => {
                let mut go_on = Vec::new();
                for (table, partition, replica) in lost {
                    if !self.renew(*table, *partition, *replica) {
                        go_on.push((*table, *partition));
                    }
                }
                Ok(Changed::Renewed { go_on })
            }
            CatalogCommand::Moved { table, partition, members } => {
                self.placement(*table, *partition)?.members.clone_from(members);
                Ok(Changed::Table(*table))
            }
        }
    }

    fn placement(&mut self, table: TableId, partition: u32) -> Result<&mut Placement, CatalogError> {
        let placement = self.tables.get_mut(&table).and_then(|table| table.placement.get_mut(partition as usize));
        placement.ok_or(CatalogError::NoSuchPartition(table, partition))
    }

    fn new_replica(&mut self, node: NodeId, is_witness: bool) -> ReplicaId {
        self.next_incarnation += 1;
        let incarnation = self.next_incarnation;
        if is_witness { ReplicaId::new_witness(node, incarnation) } else { ReplicaId { node, incarnation } }
    }

    /// Puts another replica in the place of one that was lost, or others in the place of all. Returns false if the lost one
    /// is to go on.
    fn renew(&mut self, table: TableId, partition: u32, lost: ReplicaId) -> bool {
        let Ok(placement) = self.placement(table, partition).cloned() else { return true };
        if placement.on(lost.node) != Some(lost) {
            return true; // it has been renewed, or is to go
        }
        let is_left = |member: &&ReplicaId| **member != lost && placement.on(member.node) == Some(**member);
        let remain = placement.members.iter().filter(is_left).count();
        let is_volatile = self.tables.get(&table).is_some_and(|table| !table.schema.is_persistent());
        let mut after = placement.clone();
        if remain > placement.members.len() / 2 {
            let other = self.new_replica(lost.node, lost.is_witness());
            after.wanted.iter_mut().filter(|wanted| **wanted == lost).for_each(|wanted| *wanted = other);
        } else if is_volatile {
            let renewed = placement.wanted.iter().map(|old| self.new_replica(old.node, old.is_witness()));
            after.founders = renewed.collect();
            after.wanted.clone_from(&after.founders);
            after.members.clone_from(&after.founders);
        } else {
            return false;
        }
        self.placement(table, partition).map(|placement| *placement = after).is_ok()
    }

    /// Replicas for each partition of a new table.
    fn place_new_table(&mut self, schema: &TableSchema) -> Vec<Placement> {
        let nodes = placement::of_new_table(self, schema.partitions, usize::from(schema.replicas));
        let placement = nodes.into_iter().map(|placement::Nodes { keepers, witness }| {
            let mut replicas: Vec<_> = keepers.into_iter().map(|node| self.new_replica(node, false)).collect();
            replicas.extend(witness.map(|node| self.new_replica(node, true)));
            Placement { founders: replicas.clone(), wanted: replicas.clone(), members: replicas }
        });
        placement.collect()
    }

    fn insert(&mut self, name: &str, schema: TableSchema, settings: TableSettings) -> TableId {
        let placement = self.place_new_table(&schema);
        let id = TableId(self.next_id);
        self.next_id += 1;
        let (number, name, state) = (TableNumber(id.0), name.into(), TableState::Active);
        self.tables.insert(id, TableEntry { id, number, name, schema, settings, state, placement, split: None });
        id
    }

    fn create(
        &mut self,
        name: &str,
        schema: TableSchema,
        settings: TableSettings,
        limits: &Limits,
    ) -> Result<TableId, CatalogError> {
        check_table_name(name)?;
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
        Ok(self.insert(name, schema, settings))
    }
}

fn check_replicas(schema: &TableSchema) -> Result<(), CatalogError> {
    if !(1..=TableSchema::REPLICAS_CEILING).contains(&schema.replicas) {
        return Err(CatalogError::Replicas(TableSchema::REPLICAS_CEILING));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(engine: EngineKind) -> TableSchema {
        TableSchema {
            engine,
            partitions: 4,
            partitioner: Partitioner::Crc64,
            model: Model::Kv,
            durability: TableSchema::default_durability(engine),
            replicas: 1,
        }
    }

    fn create(name: &str) -> CatalogCommand {
        CatalogCommand::Create {
            name: name.into(),
            schema: schema(EngineKind::Memory),
            settings: TableSettings::default(),
        }
    }

    #[test]
    fn a_table_lives_is_dropped_recalled_and_purged() {
        let limits = Limits::default();
        let mut catalog = Catalog::of_new_cluster(Site::default());
        let mut apply = |command| catalog.apply(&command, &limits);
        let drop = |name: &str, at| CatalogCommand::Drop { name: name.into(), purge_at: UnixMillis::new(at) };
        assert_eq!(apply(create("a")), Ok(Changed::Table(TableId(1))));
        assert_eq!(apply(create("a")), Err(CatalogError::Exists("a".into())));
        assert_eq!(apply(drop("a", 100)), Ok(Changed::Table(TableId(1))));
        assert_eq!(apply(drop("a", 100)), Err(CatalogError::NoSuchTable("a".into())));
        assert_eq!(apply(create("a")), Ok(Changed::Table(TableId(2))));
        let recall = |to: Option<&str>| CatalogCommand::Recall { number: TableNumber(1), to: to.map(Into::into) };
        assert_eq!(apply(recall(None)), Err(CatalogError::Exists("a".into())));
        assert_eq!(apply(recall(Some("old"))), Ok(Changed::Table(TableId(1))));
        assert_eq!(apply(drop("old", 100)), Ok(Changed::Table(TableId(1))));
        assert_eq!(apply(CatalogCommand::Purge { now: UnixMillis::new(99) }), Ok(Changed::Other));
        assert_eq!(apply(recall(Some("old"))), Ok(Changed::Table(TableId(1))));
        assert_eq!(apply(drop("old", 100)), Ok(Changed::Table(TableId(1))));
        assert_eq!(apply(CatalogCommand::Purge { now: UnixMillis::new(100) }), Ok(Changed::Other));
        assert!(matches!(apply(recall(None)), Err(CatalogError::NoSuchTable(_))));
        assert_eq!(apply(create("next")), Ok(Changed::Table(TableId(3))), "numbers are not reused");
    }

    #[test]
    fn a_change_of_settings_that_does_not_know_another_is_refused() {
        let mut catalog = Catalog::of_new_cluster(Site::default());
        let with_ttl = |seconds| TableSettings { default_ttl_seconds: seconds, ..TableSettings::default() };
        let mut alter = |before, settings| {
            let command = CatalogCommand::Alter { name: "default".into(), settings, before };
            catalog.apply(&command, &Limits::default())
        };
        let first = TableSettings::default();
        assert!(alter(Some(first.clone()), with_ttl(1)).is_ok());
        assert_eq!(alter(Some(first), with_ttl(2)), Err(CatalogError::AlteredMeanwhile("default".into())));
        assert!(alter(Some(with_ttl(1)), with_ttl(2)).is_ok());
        assert!(alter(None, with_ttl(3)).is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let limits = Limits { tables: 2, ..Limits::default() };
        let mut catalog = Catalog::of_new_cluster(Site::default());
        let before = catalog.clone();
        let of = |schema| CatalogCommand::Create { name: "t".into(), schema, settings: TableSettings::default() };
        let volatile = TableSchema { durability: Durability::None, ..schema(EngineKind::Rocksdb) };
        assert_eq!(catalog.apply(&of(volatile), &limits), Err(CatalogError::DurabilityOfEngine));
        let none = TableSchema { partitions: 0, ..schema(EngineKind::Memory) };
        assert_eq!(catalog.apply(&of(none), &limits), Err(CatalogError::Partitions(4_096)));
        let rename = CatalogCommand::Rename { name: "default".into(), to: "other".into() };
        assert_eq!(catalog.apply(&rename, &limits), Err(CatalogError::DefaultTable));
        assert_eq!(catalog, before);
        catalog.apply(&create("a"), &limits).unwrap();
        assert_eq!(catalog.apply(&create("b"), &limits), Err(CatalogError::TooManyTables(2)));
    }

    #[test]
    fn a_lost_replica_is_renewed_unless_a_majority_is() {
        let mut catalog = Catalog::of_new_cluster(Site::default());
        let mut apply = |command| catalog.apply(&command, &Limits::default()).unwrap();
        for _ in 0..2 {
            apply(CatalogCommand::AddNode { site: Site::default() });
        }
        let of = |name: &str, engine| CatalogCommand::Create {
            name: name.into(),
            schema: TableSchema { replicas: 3, ..schema(engine) },
            settings: TableSettings::default(),
        };
        assert_eq!(apply(of("volatile", EngineKind::Memory)), Changed::Table(TableId(1)));
        assert_eq!(apply(of("logged", EngineKind::Rocksdb)), Changed::Table(TableId(2)));
        for (table, is_volatile) in [(TableId(1), true), (TableId(2), false)] {
            let at = |catalog: &Catalog| catalog.get(table).unwrap().placement[0].clone();
            let mut renew = |replica| match catalog
                .apply(&CatalogCommand::Renew { lost: vec![(table, 0, replica)] }, &Limits::default())
            {
                Ok(Changed::Renewed { go_on }) => (go_on.is_empty(), at(&catalog)),
                other => panic!("{other:?}"),
            };
            let (_, first) = renew(ReplicaId { node: NodeId(1), incarnation: 9_999 });
            let (is_renewed, second) = renew(first.members[0]);
            assert!(is_renewed && second.wanted[1..] == first.wanted[1..] && second.members == first.members);
            assert!(second.wanted[0] != first.wanted[0] && second.wanted[0].node == first.wanted[0].node);
            assert_eq!(renew(first.members[0]), (true, second.clone()), "once");
            let (is_renewed, third) = renew(second.members[1]);
            assert_eq!(is_renewed, is_volatile);
            if is_volatile {
                assert_eq!((&third.founders, &third.members), (&third.wanted, &third.wanted), "it begins anew");
                assert!(third.wanted.iter().all(|replica| !second.wanted.contains(replica)));
            } else {
                assert_eq!(third, second, "it goes on");
            }
        }
    }
}
