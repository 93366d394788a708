//! Writes of a partition that are evaluated but not applied yet.
//!
//! A write is judged against the state as it will be when everything before it is applied. While entries are on their
//! way to the disk that state is nowhere; the overlay holds the difference. It copies nothing: it knows where in which
//! payload a record's last write stands.

use crate::deleted_hash_keys::DeletedHashKeys;
use crate::ordered_keys;
use crate::space_writes::SpaceWrites;
use bytes::Bytes;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeBounds;
use tessera_engine::mutation::{self, Location, Mutation, SpaceLocation};
use tessera_engine::{KeyRange, Order, SortKeyRange};
use tessera_types::{RecordKey, Space, UnixMillis};

/// Calls that look into the entry being put together are given its payload as `building`.
#[derive(Default)]
pub struct Overlay {
    /// Records under the empty sort key, by hash.
    plain: HashTable<InFlight>,
    /// The others, by key in its ordered form (see [`RecordKey::encode_ordered`]), so that a hash key's are a range.
    fields: BTreeMap<Bytes, InFlight>,
    /// Hash keys that are deleted as a whole: what is applied under them is hidden.
    deleted: DeletedHashKeys,
    /// What is written to ordered spaces.
    spaces: SpaceWrites<InFlight<SpaceLocation>>,
    /// Batches are what is proposed together; counts up. This one is being put together.
    batch: u64,
    /// Whether it has writes.
    is_building: bool,
    /// The time by which the first of its writes was judged, if it has writes.
    judged_from: Option<UnixMillis>,
    /// The batch that last cleared the partition: what is applied under it is hidden.
    cleared_by: Option<u64>,
    /// The batches before, oldest first.
    proposed: VecDeque<Proposed>,
}

struct InFlight<L = Location> {
    batch: u64,
    location: L,
}

struct Proposed {
    index: u64,
    payload: Bytes,
    /// The time by which the first of its writes was judged.
    judged_from: Option<UnixMillis>,
}

/// What the overlay says about a record.
pub(crate) enum Lookup<'a> {
    /// Nothing in flight: the engine decides.
    Engine,
    Stored(&'a [u8]),
    Absent,
}

impl<L> InFlight<L> {
    fn payload<'a>(&self, proposed: &'a VecDeque<Proposed>, batch: u64, building: &'a [u8]) -> &'a [u8] {
        // As many batches lie between this one and the one being put together as stand in `proposed`.
        match (batch - self.batch) as usize {
            0 => building,
            age => &proposed[proposed.len() - age].payload,
        }
    }
}

impl Overlay {
    pub(crate) fn get<'a>(&'a self, key: &RecordKey<'_>, building: &'a [u8]) -> Lookup<'a> {
        if self.plain.is_empty() && self.fields.is_empty() && self.deleted.is_empty() && self.cleared_by.is_none() {
            return Lookup::Engine;
        }
        let in_flight = if key.sort_key.is_empty() {
            self.plain.find(key.hash(), |in_flight| {
                in_flight.location.key(in_flight.payload(&self.proposed, self.batch, building)) == *key
            })
        } else {
            self.fields.get(&key.to_ordered_bytes())
        };
        match in_flight {
            Some(in_flight) => match self.stored(in_flight, building) {
                Some(stored) => Lookup::Stored(stored),
                None => Lookup::Absent,
            },
            None if self.hides_engine(key.hash_key) => Lookup::Absent,
            None => Lookup::Engine,
        }
    }

    fn stored<'a>(&'a self, in_flight: &InFlight, building: &'a [u8]) -> Option<&'a [u8]> {
        in_flight.location.value(in_flight.payload(&self.proposed, self.batch, building))
    }

    /// Whether what the engine holds under a hash key is about to be deleted, with the hash key or with the partition.
    pub(crate) fn hides_engine(&self, hash_key: &[u8]) -> bool {
        self.cleared_by.is_some() || self.deleted.contains(hash_key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.proposed.is_empty() && !self.is_building
    }

    /// The time by which the first of all writes was judged that are not applied yet.
    pub fn judged_from(&self) -> Option<UnixMillis> {
        self.proposed.front().map_or(self.judged_from, |first| first.judged_from)
    }

    /// What is written next was judged by this time.
    pub(crate) fn judged(&mut self, at: UnixMillis) {
        self.judged_from.get_or_insert(at);
    }

    pub(crate) fn may_hold_sort_keys(&self) -> bool {
        !self.fields.is_empty()
    }

    /// Records of `key`'s hash key in flight in a range of sort keys, in order: sort key and stored value, `None` for deletions.
    pub(crate) fn of_hash_key<'a>(
        &'a self,
        key: &RecordKey<'_>,
        range: SortKeyRange<'a>,
        order: Order,
        building: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let empty: &[u8] = b"";
        let plain = match self.get(&RecordKey::with_hash(key.hash(), key.hash_key, empty), building) {
            _ if !RangeBounds::<[u8]>::contains(&range, empty) => None,
            Lookup::Stored(stored) => Some((empty, Some(stored))),
            // A partition that is cleared, or a deleted hash key, has nothing; the caller knows.
            Lookup::Absent => Some((empty, None)),
            Lookup::Engine => None,
        };
        let fields = (!self.fields.is_empty()).then(|| ordered_keys::of_hash_key(&self.fields, key, range, order));
        let fields = fields.into_iter().flatten();
        let fields = fields.map(move |(sort_key, in_flight)| (sort_key, self.stored(in_flight, building)));
        let (first, last) = match order {
            Order::Ascending => (plain, None),
            Order::Descending => (None, plain),
        };
        first.into_iter().chain(fields).chain(last)
    }

    /// What is said about a record of a space.
    pub(crate) fn get_in<'a>(&'a self, space: Space, key: &[u8], building: &'a [u8]) -> Lookup<'a> {
        match self.spaces.get(space, key) {
            Some(in_flight) => self.stored_in(in_flight, building).map_or(Lookup::Absent, Lookup::Stored),
            None if self.hides_space(space) => Lookup::Absent,
            None => Lookup::Engine,
        }
    }

    fn stored_in<'a>(&'a self, in_flight: &InFlight<SpaceLocation>, building: &'a [u8]) -> Option<&'a [u8]> {
        in_flight.location.value(in_flight.payload(&self.proposed, self.batch, building))
    }

    /// Whether what the engine holds of a space is about to go.
    pub(crate) fn hides_space(&self, space: Space) -> bool {
        self.cleared_by.is_some() || self.spaces.drops(space)
    }

    /// Records of a space in flight in a range of keys, in order: key and value, `None` for deletions.
    pub(crate) fn of_space<'a>(
        &'a self,
        space: Space,
        range: KeyRange<'a>,
        order: Order,
        building: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let writes = self.spaces.range(space, range, order);
        writes.map(move |(key, in_flight)| (key, self.stored_in(in_flight, building)))
    }

    /// Notes a write to a space of the batch being put together.
    pub(crate) fn write_in(&mut self, space: Space, key: &[u8], location: SpaceLocation) {
        self.is_building = true;
        self.spaces.write(space, key, InFlight { batch: self.batch, location });
    }

    pub(crate) fn drop_space(&mut self, space: Space) {
        self.is_building = true;
        self.spaces.drop_space(space, self.batch);
    }

    /// Notes a write of the batch being put together.
    pub(crate) fn write(&mut self, location: Location, building: &[u8]) {
        self.is_building = true;
        let key = location.key(building);
        let in_flight = InFlight { batch: self.batch, location };
        if !key.sort_key.is_empty() {
            self.fields.insert(key.to_ordered_bytes(), in_flight);
            return;
        }
        let (proposed, batch) = (&self.proposed, self.batch);
        let is_same = |other: &InFlight| other.location.key(other.payload(proposed, batch, building)) == key;
        match self.plain.entry(key.hash(), is_same, |other| other.location.hash()) {
            Entry::Occupied(mut old) => *old.get_mut() = in_flight,
            Entry::Vacant(place) => _ = place.insert(in_flight),
        }
    }

    /// Notes that all records under a hash key are deleted.
    pub(crate) fn delete_hash_key(&mut self, hash_key: &[u8], building: &[u8]) {
        self.is_building = true;
        let key = RecordKey::new(hash_key, b"");
        let (proposed, batch) = (&self.proposed, self.batch);
        let is_same = |other: &InFlight| other.location.key(other.payload(proposed, batch, building)) == key;
        if let Ok(found) = self.plain.find_entry(key.hash(), is_same) {
            found.remove();
        }
        ordered_keys::remove_hash_key(&mut self.fields, &key);
        self.deleted.insert(hash_key, batch);
    }

    pub(crate) fn clear(&mut self) {
        self.is_building = true;
        self.plain.clear();
        self.fields.clear();
        self.deleted.clear();
        self.spaces.clear();
        self.cleared_by = Some(self.batch);
    }

    /// Everything written since the last call is in log entry `index`.
    pub fn proposed(&mut self, index: u64, payload: Bytes) {
        self.proposed.push_back(Proposed { index, payload, judged_from: self.judged_from.take() });
        self.batch += 1;
        self.is_building = false;
    }

    /// Entries up to `index` are in the engine.
    pub fn applied(&mut self, index: u64) {
        while let Some(first) = self.proposed.front().filter(|first| first.index <= index) {
            let applied = self.batch - self.proposed.len() as u64;
            if self.proposed.len() == 1 && !self.is_building {
                // Nothing else is in flight.
                self.plain.clear();
                self.fields.clear();
                self.deleted.clear();
                self.spaces.clear();
            } else {
                // The engine has read the payload, so it is whole.
                for mutation in mutation::decode(&first.payload).flatten() {
                    let key = match mutation {
                        Mutation::Put { key, .. } | Mutation::Delete { key } => key,
                        Mutation::PutIn { space, key, .. } | Mutation::DeleteIn { space, key } => {
                            self.spaces.forget(space, key, |in_flight| in_flight.batch == applied);
                            continue;
                        }
                        _ => continue,
                    };
                    // A later batch may have written the record again.
                    if key.sort_key.is_empty() {
                        let is_done = |in_flight: &InFlight| {
                            in_flight.batch == applied && in_flight.location.key(&first.payload) == key
                        };
                        if let Ok(done) = self.plain.find_entry(key.hash(), is_done) {
                            done.remove();
                        }
                    } else {
                        let ordered = key.to_ordered_bytes();
                        if self.fields.get(&ordered).is_some_and(|in_flight| in_flight.batch == applied) {
                            self.fields.remove(&ordered);
                        }
                    }
                }
            }
            if !self.spaces.is_empty() {
                self.spaces.forget_dropped(applied);
            }
            self.deleted.forget(applied);
            if self.cleared_by.is_some_and(|cleared| cleared <= applied) {
                self.cleared_by = None;
            }
            self.proposed.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use std::ops::Bound;
    use tessera_types::{Expiry, StoredValue, ValueKind};

    const ALL: SortKeyRange<'static> = (Bound::Unbounded, Bound::Unbounded);

    /// An overlay and the entry being put together.
    #[derive(Default)]
    struct Fixture {
        overlay: Overlay,
        building: BytesMut,
    }

    impl Fixture {
        fn write(&mut self, key: &RecordKey<'_>, payload: Option<&str>) {
            let stored = payload.map(|payload| payload.as_bytes());
            let location = match stored {
                Some(payload) => {
                    let value = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload };
                    mutation::encode_put(&mut self.building, key, &value)
                }
                None => mutation::encode_delete(&mut self.building, key),
            };
            self.overlay.write(location, &self.building);
        }

        fn clear(&mut self) {
            mutation::encode_clear(&mut self.building);
            self.overlay.clear();
        }

        fn proposed(&mut self, index: u64) {
            self.overlay.proposed(index, self.building.split().freeze());
        }

        fn is_stored(&self, key: &RecordKey<'_>, expected: &str) -> bool {
            matches!(self.overlay.get(key, &self.building), Lookup::Stored(stored) if &stored[1..] == expected.as_bytes())
        }

        fn is_absent(&self, key: &RecordKey<'_>) -> bool {
            matches!(self.overlay.get(key, &self.building), Lookup::Absent)
        }

        fn is_left_to_engine(&self, key: &RecordKey<'_>) -> bool {
            matches!(self.overlay.get(key, &self.building), Lookup::Engine)
        }
    }

    #[test]
    fn a_record_is_seen_until_its_last_write_is_applied() {
        for (a, b) in [(&b"a"[..], &b"b"[..]), (b"", b"b"), (b"b", b"")] {
            let mut fixture = Fixture::default();
            let (a, b) = (RecordKey::new(b"k", a), RecordKey::new(b"k", b));
            fixture.write(&a, Some("1"));
            fixture.proposed(10);
            fixture.write(&a, Some("2"));
            fixture.write(&b, None);
            assert!(fixture.is_stored(&a, "2") && fixture.is_absent(&b));
            fixture.proposed(11);
            assert!(fixture.is_stored(&a, "2") && fixture.is_absent(&b));
            assert_eq!(fixture.overlay.of_hash_key(&a, ALL, Order::Ascending, &fixture.building).count(), 2);
            fixture.overlay.applied(10);
            assert!(fixture.is_stored(&a, "2") && fixture.overlay.may_hold_sort_keys());
            fixture.write(&b, Some("3"));
            fixture.overlay.applied(11);
            assert!(fixture.is_left_to_engine(&a) && fixture.is_stored(&b, "3"));
            fixture.proposed(12);
            fixture.overlay.applied(12);
            assert!(fixture.is_left_to_engine(&b) && !fixture.overlay.may_hold_sort_keys());
        }
    }

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let mut fixture = Fixture::default();
        let (a, b) = (RecordKey::with_hash(7, b"a", b""), RecordKey::with_hash(7, b"b", b""));
        fixture.write(&a, Some("1"));
        fixture.write(&b, Some("2"));
        assert!(fixture.is_stored(&a, "1") && fixture.is_stored(&b, "2"));
        fixture.proposed(1);
        fixture.write(&b, Some("3"));
        fixture.overlay.applied(1);
        assert!(fixture.is_left_to_engine(&a) && fixture.is_stored(&b, "3"));
    }

    #[test]
    fn a_clear_hides_the_engine_until_it_is_applied() {
        let mut fixture = Fixture::default();
        let (a, b) = (RecordKey::new(b"a", b""), RecordKey::new(b"b", b""));
        fixture.write(&a, Some("1"));
        fixture.proposed(1);
        fixture.clear();
        fixture.write(&b, Some("2"));
        fixture.proposed(2);
        fixture.overlay.applied(1);
        assert!(fixture.is_absent(&a) && fixture.is_stored(&b, "2"));
        fixture.overlay.applied(2);
        assert!(fixture.is_left_to_engine(&a) && !fixture.overlay.hides_engine(b"a"));
    }
}
