//! Splitting a table into twice as many partitions, under load.
//!
//! Beside the table another one grows, which no client can reach yet. The keys of an old partition belong to two new
//! ones. The leader of the old partition copies its records, and what is written meanwhile, and reports when it has
//! caught up. When all leaders have caught up, every old partition is *sealed*: a record in its log says that it takes
//! no more requests, whoever leads it. When the last of them has copied everything that it ever accepted, the new table
//! takes the old one's place, name and number.
//!
//! The catalog decides which leader copies. A leader reports before it begins to copy; from then on no earlier leader
//! can report the end. A leader reports when it has copied everything; from then on no other one can begin, which would
//! clear the new partitions. The copying itself is in the module `split` beside the driver.

mod progress;
mod truncation;

pub use progress::{CopyReport, CopyState, Split, Truncation};

use super::{Catalog, CatalogError, TableEntry, TableState};
use std::collections::BTreeSet;
use std::sync::Arc;
use tessera_types::{Limits, NodeId, Partitioner, REDIS_SLOTS, TableId, TableSchema};

impl Catalog {
    pub(super) fn split(
        &mut self,
        name: &str,
        partitions: u32,
        limits: &Limits,
        absent: &BTreeSet<NodeId>,
    ) -> Result<TableId, CatalogError> {
        let table = self.active(name)?.clone();
        if table.split.is_some() {
            return Err(CatalogError::Splitting(name.into()));
        }
        let twice = table.schema.partitions.saturating_mul(2);
        if partitions != twice {
            return Err(CatalogError::SplitInto(twice));
        }
        let is_beyond_slots =
            table.schema.partitioner == Partitioner::RedisSlots && partitions > u32::from(REDIS_SLOTS);
        if partitions > limits.partitions_per_table || is_beyond_slots {
            return Err(CatalogError::Partitions(limits.partitions_per_table.min(u32::from(REDIS_SLOTS))));
        }
        self.grow_beside(name, partitions, limits, absent, None)?;
        Ok(table.id)
    }

    /// Lets another table grow beside one that is not being split, and returns that other one, which is to take its place.
    fn grow_beside(
        &mut self,
        name: &str,
        partitions: u32,
        limits: &Limits,
        absent: &BTreeSet<NodeId>,
        truncation: Option<Truncation>,
    ) -> Result<TableId, CatalogError> {
        let table = self.active(name)?.clone();
        if self.tables.len() >= limits.tables {
            return Err(CatalogError::TooManyTables(self.tables.len()));
        }
        let into = TableId(self.next_id);
        self.next_id += 1;
        let schema = TableSchema { partitions, ..table.schema.clone() };
        let placement = self.place_new_table(&schema, absent);
        let copies = table.placement.iter().map(|_| CopyState::Waiting).collect();
        let was_split = match truncation {
            Some(_) => Some(table.was_split()),
            None => table.was_split.map(|_| true),
        };
        let growing = TableEntry {
            id: into,
            schema,
            placement,
            state: TableState::Growing,
            split: None,
            truncations: 0,
            was_split,
            ..table.clone()
        };
        self.tables.insert(into, Arc::new(growing));
        self.active(name)?.split = Some(Split { into, copies, takes_effect: false, truncation });
        Ok(into)
    }

    pub(super) fn cancel_split(&mut self, name: &str) -> Result<TableId, CatalogError> {
        let table = self.active(name)?;
        let split = table.split.as_ref().ok_or_else(|| CatalogError::NotSplitting(name.into()))?;
        if split.takes_effect {
            return Err(CatalogError::SplitTakesEffect(name.into()));
        }
        let (id, into) = (table.id, split.into);
        table.split = None;
        self.tables.remove(&into);
        Ok(id)
    }

    pub(super) fn copied(
        &mut self,
        id: TableId,
        partition: u32,
        attempt: u64,
        report: CopyReport,
    ) -> Result<TableId, CatalogError> {
        let table = self.get_mut(id).ok_or_else(|| CatalogError::NoSuchTable(id.to_string()))?;
        let split = table.split.as_mut().ok_or_else(|| CatalogError::NotSplitting(table.name.clone()))?;
        let state = split.copies.get_mut(partition as usize).ok_or(CatalogError::NoSuchPartition(id, partition))?;
        let is_its = matches!(state, CopyState::Copying(known) | CopyState::CaughtUp(known) if *known == attempt);
        *state = match report {
            // There is nothing to copy for a truncation.
            CopyReport::Begun if *state != CopyState::Done && split.truncation.is_some() => {
                CopyState::CaughtUp(attempt)
            }
            CopyReport::Begun if *state != CopyState::Done => CopyState::Copying(attempt),
            CopyReport::CaughtUp if is_its => CopyState::CaughtUp(attempt),
            CopyReport::Done if is_its && split.takes_effect => CopyState::Done,
            _ => return Err(CatalogError::CopyOvertaken),
        };
        let is_behind = |state: &CopyState| matches!(state, CopyState::Waiting | CopyState::Copying(_));
        split.takes_effect |= !split.copies.iter().any(is_behind);
        if split.copies.iter().all(|state| *state == CopyState::Done) {
            self.take_place(id);
        }
        Ok(id)
    }

    /// The new table replaces the one that was split or truncated.
    fn take_place(&mut self, old: TableId) {
        let Some(mut old) = self.tables.remove(&old) else { return };
        let Some(split) = Arc::make_mut(&mut old).split.take() else { return };
        if let Some(into) = self.get_mut(split.into) {
            into.name.clone_from(&old.name);
            into.settings.clone_from(&old.settings);
            into.indexes.clone_from(&old.indexes);
            into.state = TableState::Active;
        }
        if let Some(truncation) = split.truncation {
            truncation.end(Arc::make_mut(&mut old));
            self.tables.insert(old.id, old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CatalogCommand, Changed, Site};
    use tessera_types::{EngineKind, TableNumber, TableSettings, UnixMillis};

    fn apply(catalog: &mut Catalog, command: CatalogCommand) -> Result<Changed, CatalogError> {
        catalog.apply(&command, &Limits::default())
    }

    fn split(catalog: &mut Catalog) -> Result<Changed, CatalogError> {
        apply(catalog, CatalogCommand::Split { name: "default".into(), partitions: 32, absent: Default::default() })
    }

    fn report(catalog: &mut Catalog, partition: u32, attempt: u64, report: CopyReport) -> Result<(), CatalogError> {
        let command = CatalogCommand::Copy { table: TableId(0), partition, attempt, report };
        apply(catalog, command).map(|_| ())
    }

    fn all_have_caught_up() -> Catalog {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        split(&mut catalog).unwrap();
        for partition in 0..16 {
            report(&mut catalog, partition, 1, CopyReport::Begun).unwrap();
            report(&mut catalog, partition, 1, CopyReport::CaughtUp).unwrap();
        }
        catalog
    }

    #[test]
    fn a_table_is_split_when_every_partition_is_copied() {
        let mut catalog = all_have_caught_up();
        let settings = TableSettings { default_ttl_seconds: 7, ..TableSettings::default() };
        apply(&mut catalog, CatalogCommand::Alter { name: "default".into(), settings, before: None }).unwrap();
        assert_eq!(catalog.by_name("default").unwrap().schema.partitions, 16);
        (0..16).for_each(|partition| report(&mut catalog, partition, 1, CopyReport::Done).unwrap());
        let table = catalog.by_name("default").unwrap();
        assert_eq!((table.id, table.number, table.schema.partitions), (TableId(1), TableNumber(0), 32));
        assert_eq!((table.placement.len(), table.settings.default_ttl_seconds), (32, 7));
        assert_eq!((table.split.clone(), catalog.tables().count()), (None, 1));
        let again = CatalogCommand::Split { name: "default".into(), partitions: 64, absent: Default::default() };
        assert_eq!(apply(&mut catalog, again), Ok(Changed::Table(TableId(1))));
    }

    #[test]
    fn a_copy_that_was_overtaken_cannot_end() {
        let mut catalog = all_have_caught_up();
        report(&mut catalog, 3, 2, CopyReport::Begun).unwrap();
        assert_eq!(report(&mut catalog, 3, 1, CopyReport::CaughtUp), Err(CatalogError::CopyOvertaken));
        assert_eq!(report(&mut catalog, 3, 1, CopyReport::Done), Err(CatalogError::CopyOvertaken));
        report(&mut catalog, 3, 2, CopyReport::Done).unwrap();
        assert_eq!(
            report(&mut catalog, 3, 3, CopyReport::Begun),
            Err(CatalogError::CopyOvertaken),
            "it would clear all"
        );
    }

    #[test]
    fn nothing_ends_before_all_have_caught_up() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        split(&mut catalog).unwrap();
        report(&mut catalog, 0, 1, CopyReport::Begun).unwrap();
        report(&mut catalog, 0, 1, CopyReport::CaughtUp).unwrap();
        assert_eq!(report(&mut catalog, 0, 1, CopyReport::Done), Err(CatalogError::CopyOvertaken));
    }

    #[test]
    fn a_split_can_be_cancelled_until_it_takes_effect() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        let cancel = || CatalogCommand::CancelSplit { name: "default".into() };
        assert_eq!(apply(&mut catalog, cancel()), Err(CatalogError::NotSplitting("default".into())));
        split(&mut catalog).unwrap();
        assert_eq!(split(&mut catalog), Err(CatalogError::Splitting("default".into())));
        apply(&mut catalog, cancel()).unwrap();
        assert_eq!((catalog.tables().count(), catalog.by_name("default").unwrap().split.clone()), (1, None));
        let mut catalog = all_have_caught_up();
        assert_eq!(apply(&mut catalog, cancel()), Err(CatalogError::SplitTakesEffect("default".into())));
    }

    #[test]
    fn only_twice_the_partitions_will_do() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        let before = catalog.clone();
        for partitions in [8, 16, 48] {
            let command = CatalogCommand::Split { name: "default".into(), partitions, absent: Default::default() };
            assert_eq!(apply(&mut catalog, command), Err(CatalogError::SplitInto(32)));
        }
        assert_eq!(catalog, before);
    }

    #[test]
    fn dropping_a_table_ends_its_split() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        let schema = catalog.by_name("default").unwrap().schema.clone();
        let create = CatalogCommand::Create {
            name: "t".into(),
            schema,
            settings: TableSettings::default(),
            absent: Default::default(),
        };
        apply(&mut catalog, create).unwrap();
        apply(&mut catalog, CatalogCommand::Split { name: "t".into(), partitions: 32, absent: Default::default() })
            .unwrap();
        assert_eq!(catalog.tables().count(), 3);
        let drop = CatalogCommand::drop("t", UnixMillis::new(1));
        apply(&mut catalog, drop).unwrap();
        assert_eq!(catalog.tables().count(), 2);
        apply(&mut catalog, CatalogCommand::Recall { number: TableNumber(1), to: None }).unwrap();
        assert_eq!(catalog.by_name("t").unwrap().split, None);
    }
}
