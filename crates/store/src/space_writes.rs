//! Writes to the ordered spaces of a partition, by space and key.

use std::collections::BTreeMap;
use std::ops::Bound;
use tessera_engine::{KeyRange, Order};
use tessera_types::Space;

/// What is to become of spaces. `W` says where a write stands.
///
/// Most transactions write to none: without a map there is nothing to take down when they end, which they all do.
pub(crate) struct SpaceWrites<W>(Option<BTreeMap<Space, OfSpace<W>>>);

struct OfSpace<W> {
    /// The batch in which the space was dropped. What was in it before is not seen any more.
    dropped_by: Option<u64>,
    /// What was written since.
    writes: BTreeMap<Box<[u8]>, W>,
}

impl<W> Default for SpaceWrites<W> {
    fn default() -> Self {
        Self(None)
    }
}

impl<W> Default for OfSpace<W> {
    fn default() -> Self {
        Self { dropped_by: None, writes: BTreeMap::new() }
    }
}

impl<W> SpaceWrites<W> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(BTreeMap::is_empty)
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    pub(crate) fn write(&mut self, space: Space, key: &[u8], write: W) {
        self.0.get_or_insert_default().entry(space).or_default().writes.insert(key.into(), write);
    }

    pub(crate) fn drop_space(&mut self, space: Space, batch: u64) {
        self.0.get_or_insert_default().insert(space, OfSpace { dropped_by: Some(batch), writes: BTreeMap::new() });
    }

    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Option<&W> {
        self.of(space)?.writes.get(key)
    }

    /// Whether a space was dropped: then nothing below these writes is seen.
    pub(crate) fn drops(&self, space: Space) -> bool {
        self.of(space).is_some_and(|of_space| of_space.dropped_by.is_some())
    }

    fn of(&self, space: Space) -> Option<&OfSpace<W>> {
        self.0.as_ref()?.get(&space)
    }

    /// Writes in a range of keys of a space, in order.
    pub(crate) fn range<'a>(
        &'a self,
        space: Space,
        range: KeyRange<'a>,
        order: Order,
    ) -> impl Iterator<Item = (&'a [u8], &'a W)> + use<'a, W> {
        let of_space = self.of(space).filter(|_| !is_empty(range));
        let writes = |of_space: &'a OfSpace<W>| of_space.writes.range::<[u8], _>(range);
        let (up, down) = match order {
            Order::Ascending => (of_space.map(writes), None),
            Order::Descending => (None, of_space.map(|of_space| writes(of_space).rev())),
        };
        let writes = up.into_iter().flatten().chain(down.into_iter().flatten());
        writes.map(|(key, write)| (&**key, write))
    }

    /// Spaces that were dropped, then writes.
    pub(crate) fn iter(&self) -> (impl Iterator<Item = Space>, impl Iterator<Item = (Space, &[u8], &W)>) {
        let spaces = || self.0.iter().flatten();
        let dropped = spaces().filter(|(_, of_space)| of_space.dropped_by.is_some()).map(|(space, _)| *space);
        let writes = spaces()
            .flat_map(|(space, of_space)| of_space.writes.iter().map(move |(key, write)| (*space, &**key, write)));
        (dropped, writes)
    }

    /// Forgets a write, if `is_done` says so.
    pub(crate) fn forget(&mut self, space: Space, key: &[u8], is_done: impl FnOnce(&W) -> bool) {
        if let Some(of_space) = self.0.as_mut().and_then(|spaces| spaces.get_mut(&space))
            && of_space.writes.get(key).is_some_and(is_done)
        {
            of_space.writes.remove(key);
        }
    }

    /// Forgets which spaces were dropped by this batch or an earlier one, and all of which nothing is left.
    pub(crate) fn forget_dropped(&mut self, batch: u64) {
        let Some(spaces) = &mut self.0 else { return };
        spaces.retain(|_, of_space| {
            of_space.dropped_by = of_space.dropped_by.filter(|dropped_by| *dropped_by > batch);
            of_space.dropped_by.is_some() || !of_space.writes.is_empty()
        });
    }
}

/// `BTreeMap::range` panics on a range that ends before it begins.
fn is_empty((from, to): KeyRange<'_>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}
