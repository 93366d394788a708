//! The tables that this node has open.

use crate::table::{Table, TableIdentity};
use arc_swap::ArcSwap;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tessera_types::{TableId, TableNumber};

/// The tables that can be reached, swapped as a whole when the catalog changes.
#[derive(Default)]
pub struct Registry {
    tables: ArcSwap<Tables>,
}

/// Open tables, by what they are found by.
#[derive(Clone, Default)]
pub struct Tables {
    by_id: BTreeMap<TableId, Arc<Table>>,
    by_number: BTreeMap<TableNumber, Arc<Table>>,
    by_name: HashMap<String, Arc<Table>>,
    /// Every open table, with those that grow and those that can be recalled.
    open: BTreeMap<TableId, Arc<Table>>,
}

impl Tables {
    /// Adds a table that is open. Requests reach it if it is active.
    pub fn insert(&mut self, name: &str, is_active: bool, table: Arc<Table>) {
        if is_active {
            self.by_id.insert(table.id(), table.clone());
            self.by_number.insert(table.number(), table.clone());
            self.by_name.insert(name.into(), table.clone());
        }
        self.open.insert(table.id(), table);
    }

    /// The active tables, by number.
    pub fn active(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.by_number.values()
    }

    /// The active table with this identifier.
    pub fn active_by_id(&self, id: TableId) -> Option<&Arc<Table>> {
        self.by_id.get(&id)
    }

    /// The active table with this number.
    pub fn numbered(&self, number: TableNumber) -> Option<&Arc<Table>> {
        self.by_number.get(&number)
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Table>> {
        self.by_name.get(name)
    }

    /// Every open table, active or not.
    pub fn open(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.open.values()
    }

    /// The open table with this identifier, active or not.
    pub fn any(&self, id: TableId) -> Option<&Arc<Table>> {
        self.open.get(&id)
    }
}

impl Registry {
    /// The tables as they are now; a later change makes another set.
    pub fn tables(&self) -> Arc<Tables> {
        self.tables.load_full()
    }

    /// Replaces the tables.
    pub fn set(&self, tables: Arc<Tables>) {
        self.tables.store(tables);
    }

    /// An open table, active or not.
    pub fn any(&self, id: TableId) -> Option<Arc<Table>> {
        self.tables.load().any(id).cloned()
    }

    /// The open table that another node means, active or not; `None` too if one of the two nodes has not heard yet that it was truncated.
    pub(crate) fn identified(&self, identity: TableIdentity) -> Option<Arc<Table>> {
        self.any(identity.id).filter(|table| table.identity() == identity)
    }

    /// Every open table, active or not.
    pub fn open_tables(&self) -> Vec<Arc<Table>> {
        self.tables.load().open().cloned().collect()
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&Tables) -> T) -> T {
        look(&self.tables.load())
    }
}
