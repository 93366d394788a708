//! Truncating a table: another one with as many partitions, but no records, takes its place, and it is dropped.
//!
//! This goes as a split does, so the new table serves nothing before all partitions of the old one are sealed: whoever reads or writes
//! meets the records of either the old table or the new one, whichever node it asks. The old table gets another number, by
//! which it can be recalled. What was sealed then counts no more: a seal says [how often](super::TableEntry::truncations) its table had
//! been truncated.

use super::super::{Catalog, CatalogError, TableEntry, TableState};
use super::Truncation;
use std::collections::BTreeSet;
use tessera_types::{Limits, NodeId, TableId, UnixMillis};

impl Truncation {
    /// Another table has taken the place of this one.
    pub(super) fn end(self, table: &mut TableEntry) {
        table.was_split = Some(table.was_split());
        table.number = self.number;
        let Self { purge_at, dropped_at, .. } = self;
        table.state = TableState::Dropped { purge_at, dropped_at, was_truncated: true };
        table.truncations += 1;
    }
}

impl Catalog {
    /// Begins to truncate a table, and returns the empty one that is to take its place.
    pub(in crate::catalog) fn truncate(
        &mut self,
        name: &str,
        purge_at: UnixMillis,
        dropped_at: Option<UnixMillis>,
        limits: &Limits,
        absent: &BTreeSet<NodeId>,
    ) -> Result<TableId, CatalogError> {
        let table = self.active(name)?;
        if table.split.is_some() {
            return Err(CatalogError::Splitting(name.into()));
        }
        let partitions = table.schema.partitions;
        let number = Truncation::number_beside(TableId(self.next_id));
        let truncation = Truncation { number, purge_at, dropped_at };
        let into = self.grow_beside(name, partitions, limits, absent, Some(truncation))?;
        self.next_id += 1;
        Ok(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CatalogCommand, Changed, CopyReport, Site};
    use tessera_types::{EngineKind, TableNumber, TableSettings};

    fn apply(catalog: &mut Catalog, command: CatalogCommand) -> Result<Changed, CatalogError> {
        catalog.apply(&command, &Limits::default())
    }

    fn truncate(catalog: &mut Catalog, name: &str) -> Result<Changed, CatalogError> {
        apply(catalog, CatalogCommand::truncate(name, UnixMillis::new(1_000)))
    }

    fn report(catalog: &mut Catalog, table: TableId, report: CopyReport) {
        let partitions = catalog.get(table).unwrap().schema.partitions;
        for partition in 0..partitions {
            apply(catalog, CatalogCommand::Copy { table, partition, attempt: 1, report }).unwrap();
        }
    }

    fn truncated(catalog: &mut Catalog, name: &str) -> TableNumber {
        let table = catalog.by_name(name).unwrap().id;
        truncate(catalog, name).unwrap();
        report(catalog, table, CopyReport::Begun);
        report(catalog, table, CopyReport::Done);
        catalog.get(table).unwrap().number
    }

    fn recall(catalog: &mut Catalog, number: TableNumber, to: Option<&str>) -> Result<Changed, CatalogError> {
        apply(catalog, CatalogCommand::Recall { number, to: to.map(Into::into) })
    }

    #[test]
    fn an_empty_table_takes_the_place_of_one_that_can_be_recalled() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        let settings = TableSettings { default_ttl_seconds: 7, ..TableSettings::default() };
        apply(&mut catalog, CatalogCommand::Alter { name: "default".into(), settings, before: None }).unwrap();
        let number = truncated(&mut catalog, "default");
        let now = catalog.by_name("default").unwrap();
        assert_eq!((now.id, now.number, now.placement.len()), (TableId(1), TableNumber(0), 16));
        assert_eq!((now.settings.default_ttl_seconds, now.was_split()), (7, false));
        let old = catalog.get(TableId(0)).unwrap();
        assert_eq!((old.number, old.is_dropped(), old.split.clone()), (TableNumber(2), true, None));
        assert_eq!(number, TableNumber(2));
        assert_eq!(recall(&mut catalog, number, None), Err(CatalogError::Exists("default".into())));
        assert_eq!(recall(&mut catalog, number, Some("before")), Ok(Changed::Table(TableId(0))));
        let recalled = catalog.by_name("before").unwrap();
        assert_eq!((recalled.number, recalled.truncations, recalled.was_split()), (number, 1, false));
        assert_eq!(catalog.by_name("default").unwrap().id, TableId(1));

        // Once more, both.
        assert_eq!(truncated(&mut catalog, "before"), TableNumber(4));
        assert_eq!(truncated(&mut catalog, "default"), TableNumber(6));
        assert_eq!(catalog.by_name("before").unwrap().number, number);
        assert_eq!(catalog.by_name("default").unwrap().number, TableNumber(0));
        assert_eq!(catalog.get(TableId(0)).unwrap().truncations, 2);
        apply(&mut catalog, CatalogCommand::Purge { now: UnixMillis::new(1_000) }).unwrap();
        assert_eq!(catalog.tables().map(|table| table.id).collect::<Vec<_>>(), [TableId(3), TableId(5)]);
    }

    #[test]
    fn a_table_is_truncated_only_when_all_its_partitions_are_sealed_and_it_can_be_given_up_before() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        truncate(&mut catalog, "default").unwrap();
        assert_eq!(truncate(&mut catalog, "default"), Err(CatalogError::Splitting("default".into())));
        let copy = |partition, report| CatalogCommand::Copy { table: TableId(0), partition, attempt: 1, report };
        for partition in 0..15 {
            apply(&mut catalog, copy(partition, CopyReport::Begun)).unwrap();
            let early = apply(&mut catalog, copy(partition, CopyReport::Done));
            assert_eq!(early, Err(CatalogError::CopyOvertaken), "a leader may not seal what another one still serves");
        }
        apply(&mut catalog, CatalogCommand::CancelSplit { name: "default".into() }).unwrap();
        assert_eq!((catalog.tables().count(), catalog.by_name("default").unwrap().split.clone()), (1, None));
        truncate(&mut catalog, "default").unwrap();
        report(&mut catalog, TableId(0), CopyReport::Begun);
        let cancel = CatalogCommand::CancelSplit { name: "default".into() };
        assert_eq!(apply(&mut catalog, cancel), Err(CatalogError::SplitTakesEffect("default".into())));
        report(&mut catalog, TableId(0), CopyReport::Done);
        assert_eq!(catalog.by_name("default").unwrap().id, TableId(3));
    }

    #[test]
    fn whether_a_table_was_split_is_known_when_it_has_been_truncated() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        let split = CatalogCommand::Split { name: "default".into(), partitions: 32, absent: BTreeSet::new() };
        truncated(&mut catalog, "default");
        assert!(!catalog.by_name("default").unwrap().was_split());
        apply(&mut catalog, split).unwrap();
        let id = catalog.by_name("default").unwrap().id;
        report(&mut catalog, id, CopyReport::Begun);
        report(&mut catalog, id, CopyReport::CaughtUp);
        report(&mut catalog, id, CopyReport::Done);
        assert!(catalog.by_name("default").unwrap().was_split());
        let before = truncated(&mut catalog, "default");
        assert!(catalog.by_name("default").unwrap().was_split());
        recall(&mut catalog, before, Some("before")).unwrap();
        assert!(catalog.by_name("before").unwrap().was_split());
    }
}
