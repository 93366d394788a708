//! A partition's ordered spaces: a B-tree each.

use super::slot::Field;
use crate::{KeyRange, Order};
use std::collections::BTreeMap;
use tessera_types::Space;

/// Bytes that a record takes besides its key and value: two fat pointers at the typical fill of a B-tree node, and allocation
/// headers.
const RECORD_OVERHEAD: usize = 48;

/// The records of one space, in order.
#[derive(Default)]
pub(super) struct SpaceRecords {
    records: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// What they take, counted as they come and go.
    bytes: usize,
}

fn bytes_of(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + RECORD_OVERHEAD
}

impl SpaceRecords {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Visits records of a range that is not empty until `visit` returns false.
    fn scan(&self, range: KeyRange<'_>, order: Order, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        let mut records = self.records.range::<[u8], _>(range);
        match order {
            Order::Ascending => _ = records.all(|(key, value)| visit(key, value)),
            Order::Descending => _ = records.rev().all(|(key, value)| visit(key, value)),
        }
    }

    /// Counts the records of a range that is not empty, `most` of them at most. Returns the key of the last one if there may be more.
    fn count(&self, range: KeyRange<'_>, most: usize) -> (u64, Option<&[u8]>) {
        let (mut count, mut last) = (0, None);
        for (key, _) in self.records.range::<[u8], _>(range).take(most) {
            count += 1;
            last = Some(&**key);
        }
        (count as u64, last.filter(|_| count == most))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        if let Some(old) = self.records.get_mut(key) {
            self.bytes += value.len();
            self.bytes -= old.len();
            if old.len() == value.len() {
                old.copy_from_slice(value);
            } else {
                *old = value.into();
            }
            return;
        }
        self.records.insert(key.into(), value.into());
        self.bytes += bytes_of(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        if let Some(value) = self.records.remove(key) {
            self.bytes -= bytes_of(key, &value);
        }
    }

    /// Takes the first records out, so many at most.
    pub(super) fn take(&mut self, records: usize) -> Vec<Field> {
        let taken: Vec<_> = std::iter::from_fn(|| self.records.pop_first()).take(records).collect();
        self.bytes -= taken.iter().map(|(key, value)| bytes_of(key, value)).sum::<usize>();
        taken
    }
}

/// The spaces that have records.
#[derive(Default)]
pub(super) struct Spaces(BTreeMap<Space, SpaceRecords>);

impl Spaces {
    pub(super) fn bytes(&self) -> usize {
        self.0.values().map(SpaceRecords::bytes).sum()
    }

    /// How many documents there are. What a node keeps for itself, and entries of indexes, are no records of the table.
    pub(super) fn documents(&self) -> usize {
        self.0.get(&Space::DOCUMENTS).map_or(0, SpaceRecords::len)
    }

    pub(super) fn get(&self, space: Space, key: &[u8]) -> Option<&[u8]> {
        self.0.get(&space)?.records.get(key).map(|value| &**value)
    }

    pub(super) fn scan(
        &self,
        space: Space,
        range: KeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) {
        if let Some(records) = self.0.get(&space) {
            records.scan(range, order, visit);
        }
    }

    /// See [`SpaceRecords::count`].
    pub(super) fn count(&self, space: Space, range: KeyRange<'_>, most: usize) -> (u64, Option<&[u8]>) {
        self.0.get(&space).map_or((0, None), |records| records.count(range, most))
    }

    /// Records of a space.
    pub(super) fn len(&self, space: Space) -> u64 {
        self.0.get(&space).map_or(0, |records| records.len() as u64)
    }

    pub(super) fn next(&self, from: Space) -> Option<Space> {
        self.0.range(from..).next().map(|(space, _)| *space)
    }

    pub(super) fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.0.entry(space).or_default().put(key, value);
    }

    pub(super) fn delete(&mut self, space: Space, key: &[u8]) {
        if let Some(records) = self.0.get_mut(&space) {
            records.delete(key);
            if records.len() == 0 {
                self.0.remove(&space);
            }
        }
    }

    /// Takes a space out with all of its records.
    pub(super) fn take(&mut self, space: Space) -> Option<SpaceRecords> {
        self.0.remove(&space)
    }

    /// All spaces with their records.
    pub(super) fn into_records(self) -> impl Iterator<Item = SpaceRecords> {
        self.0.into_values()
    }
}
