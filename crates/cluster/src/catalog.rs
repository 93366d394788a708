//! The tables of the cluster.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tessera_types::{
    Durability, EngineKind, Limits, Model, Partitioner, TableId, TableNameError, TableSchema, TableSettings,
    UnixMillis, check_table_name,
};

/// All tables, dropped ones included while they can be recalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    tables: BTreeMap<TableId, TableEntry>,
    /// Numbers are never reused: a client that kept one must not reach another table.
    next_id: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    pub id: TableId,
    pub name: String,
    pub schema: TableSchema,
    pub settings: TableSettings,
    pub state: TableState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "is")]
pub enum TableState {
    Active,
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
        id: TableId,
        to: Option<String>,
    },
    /// Forgets dropped tables whose time has come.
    Purge {
        now: UnixMillis,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    #[error(transparent)]
    Name(#[from] TableNameError),
    #[error("a table named '{0}' exists")]
    Exists(String),
    #[error("no such table: {0}")]
    NoSuchTable(String),
    #[error("the cluster has {0} tables, the limit `tables`")]
    TooManyTables(usize),
    #[error("a table has 1 to {0} partitions (the limit `partitions_per_table`)")]
    Partitions(u32),
    #[error("a rocksdb table keeps its records on disk: durability is hard or soft")]
    DurabilityOfEngine,
    #[error("table 0, 'default', can be neither dropped nor renamed: connections that choose no table use it")]
    DefaultTable,
}

/// Partitions of the table that is made at first start.
const DEFAULT_TABLE_PARTITIONS: u32 = 16;

impl Default for Catalog {
    /// The catalog of a new cluster: the table `default`.
    fn default() -> Self {
        let schema = TableSchema {
            engine: EngineKind::Rocksdb,
            partitions: DEFAULT_TABLE_PARTITIONS,
            partitioner: Partitioner::Crc64,
            model: Model::Kv,
            durability: Durability::Hard,
        };
        let (id, name) = (TableId(0), "default".to_string());
        let entry = TableEntry { id, name, schema, settings: TableSettings::default(), state: TableState::Active };
        Self { tables: BTreeMap::from([(id, entry)]), next_id: 1 }
    }
}

impl Catalog {
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
    pub fn apply(&mut self, command: &CatalogCommand, limits: &Limits) -> Result<Option<TableId>, CatalogError> {
        match command {
            CatalogCommand::Create { name, schema, settings } => {
                self.create(name, schema.clone(), settings.clone(), limits).map(Some)
            }
            CatalogCommand::Alter { name, settings } => {
                let table = self.active(name)?;
                table.settings = settings.clone();
                Ok(Some(table.id))
            }
            CatalogCommand::Rename { name, to } => {
                check_table_name(to)?;
                if self.by_name(to).is_some() {
                    return Err(CatalogError::Exists(to.clone()));
                }
                let table = self.active(name)?;
                if table.id == TableId(0) {
                    return Err(CatalogError::DefaultTable);
                }
                table.name.clone_from(to);
                Ok(Some(table.id))
            }
            CatalogCommand::Drop { name, purge_at } => {
                let table = self.active(name)?;
                if table.id == TableId(0) {
                    return Err(CatalogError::DefaultTable);
                }
                table.state = TableState::Dropped { purge_at: *purge_at };
                Ok(Some(table.id))
            }
            CatalogCommand::Recall { id, to } => {
                let dropped = |table: &&TableEntry| table.state != TableState::Active;
                let table = self.tables.get(id).filter(dropped);
                let table = table.ok_or_else(|| CatalogError::NoSuchTable(format!("dropped table number {id}")))?;
                let name = to.clone().unwrap_or_else(|| table.name.clone());
                check_table_name(&name)?;
                if self.by_name(&name).is_some() {
                    return Err(CatalogError::Exists(name));
                }
                if let Some(table) = self.tables.get_mut(id) {
                    table.name = name;
                    table.state = TableState::Active;
                }
                Ok(Some(*id))
            }
            CatalogCommand::Purge { now } => {
                self.tables.retain(|_, table| match table.state {
                    TableState::Active => true,
                    TableState::Dropped { purge_at } => purge_at > *now,
                });
                Ok(None)
            }
        }
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
        let id = TableId(self.next_id);
        self.next_id += 1;
        self.tables.insert(id, TableEntry { id, name: name.into(), schema, settings, state: TableState::Active });
        Ok(id)
    }
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
        let mut catalog = Catalog::default();
        let mut apply = |command| catalog.apply(&command, &limits);
        let drop = |name: &str, at| CatalogCommand::Drop { name: name.into(), purge_at: UnixMillis::new(at) };
        assert_eq!(apply(create("a")), Ok(Some(TableId(1))));
        assert_eq!(apply(create("a")), Err(CatalogError::Exists("a".into())));
        assert_eq!(apply(drop("a", 100)), Ok(Some(TableId(1))));
        assert_eq!(apply(drop("a", 100)), Err(CatalogError::NoSuchTable("a".into())));
        assert_eq!(apply(create("a")), Ok(Some(TableId(2))));
        let recall = |to: Option<&str>| CatalogCommand::Recall { id: TableId(1), to: to.map(Into::into) };
        assert_eq!(apply(recall(None)), Err(CatalogError::Exists("a".into())));
        assert_eq!(apply(recall(Some("old"))), Ok(Some(TableId(1))));
        assert_eq!(apply(drop("old", 100)), Ok(Some(TableId(1))));
        assert_eq!(apply(CatalogCommand::Purge { now: UnixMillis::new(99) }), Ok(None));
        assert_eq!(apply(recall(Some("old"))), Ok(Some(TableId(1))));
        assert_eq!(apply(drop("old", 100)), Ok(Some(TableId(1))));
        assert_eq!(apply(CatalogCommand::Purge { now: UnixMillis::new(100) }), Ok(None));
        assert!(matches!(apply(recall(None)), Err(CatalogError::NoSuchTable(_))));
        assert_eq!(apply(create("next")), Ok(Some(TableId(3))), "numbers are not reused");
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let limits = Limits { tables: 2, ..Limits::default() };
        let mut catalog = Catalog::default();
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
}
