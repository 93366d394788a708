//! One partition's records: the lock, the counts, and what is done under them.

use super::MemoryBudget;
use super::doomed::{Doomed, Freed};
use super::index::{Found, Index};
use super::record::Record;
use super::reflected::Reflected;
use super::slot::{Fields, Slot, SlotRef};
use super::spaces::Spaces;
use crate::expiries::{Expiries, Noted};
use crate::mutation::{self, Mutation};
use crate::statistics::share;
use crate::{Applied, EngineError, EngineStatistics, KeyRange, Order, PageLimit, Position, SortKeyRange, Visit};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tessera_types::{RecordKey, Space, StoredValue, UnixMillis, ValueKind};

/// What a sweep for expired records looks at under one hold of the lock; it copies none of it.
const SWEPT_PAGE: PageLimit = PageLimit { records: 1_024, bytes: usize::MAX };
/// Pages of one sweep at most.
const SWEPT_PAGES: usize = 16;
/// A sweep takes another page while one in so many records of the last one had expired.
const SWEPT_SHARE: usize = 4;

/// Records that are counted under one hold of the lock.
const COUNTED_AT_ONCE: usize = 10_000;

pub(super) struct Partition {
    state: RwLock<State>,
    pub(super) reflected: Reflected,
    may_hold_sort_keys: AtomicBool,
    expiries: Expiries,
    expired_removed: AtomicU64,
    evicted: AtomicU64,
    /// Where the next sweep for expired records goes on.
    sweep_from: Mutex<Position>,
}

struct State {
    index: Index,
    /// Bytes behind the slots, and of what is doomed; those of the spaces are counted there.
    heap_bytes: usize,
    doomed: Doomed,
    records: usize,
    spaces: Spaces,
    hand: Hand,
    budget: Arc<MemoryBudget>,
}

/// Where eviction goes on: behind this slot of the segment that holds this hash.
#[derive(Clone, Copy, Default)]
struct Hand {
    segment: u64,
    behind: Option<Found>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.budget.change(self.bytes(), 0);
    }
}

impl Partition {
    pub(super) fn new(budget: Arc<MemoryBudget>) -> Self {
        let (index, doomed, hand) = (Index::new(), Doomed::default(), Hand::default());
        let state = State { index, heap_bytes: 0, doomed, records: 0, spaces: Spaces::default(), hand, budget };
        state.budget.change(0, state.bytes());
        Self {
            state: RwLock::new(state),
            reflected: Reflected::default(),
            may_hold_sort_keys: AtomicBool::new(false),
            expiries: Expiries::default(),
            expired_removed: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            sweep_from: Mutex::default(),
        }
    }

    pub(super) fn may_hold_sort_keys(&self) -> bool {
        self.may_hold_sort_keys.load(Ordering::Relaxed)
    }

    /// Says that it may hold sort keys, whatever its records are.
    pub(super) fn note_sort_keys(&self) {
        self.may_hold_sort_keys.store(true, Ordering::Relaxed);
    }

    pub(super) fn expiries(&self) -> &Expiries {
        &self.expiries
    }

    pub(super) fn get(&self, key: &RecordKey<'_>, visit: &mut dyn FnMut(&[u8])) -> bool {
        let state = self.state.read();
        let Some(value) = state.index.find(key).and_then(|found| state.value(found, key)) else { return false };
        visit(value);
        true
    }

    pub(super) fn scan_hash_key(
        &self,
        key: &RecordKey<'_>,
        range: SortKeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) {
        if is_empty(range) {
            return;
        }
        let state = self.state.read();
        let Some(found) = state.index.find(key) else { return };
        match state.index.at(found).get() {
            SlotRef::Record(record) => {
                record.mark_referenced();
                if std::ops::RangeBounds::<[u8]>::contains(&range, record.sort_key()) {
                    visit(record.sort_key(), record.value());
                }
            }
            SlotRef::Fields(fields) => {
                fields.mark_referenced();
                let mut visit_until = |(sort_key, value): (&[u8], &[u8])| visit(sort_key, value) == Visit::NextRecord;
                let mut entries = fields.records().range::<[u8], _>(range).map(|(key, value)| (&**key, &**value));
                match order {
                    Order::Ascending => _ = entries.all(&mut visit_until),
                    Order::Descending => _ = entries.rev().all(&mut visit_until),
                }
            }
        }
    }

    pub(super) fn scan(
        &self,
        from: &Position,
        mut limit: PageLimit,
        visit: &mut dyn FnMut(RecordKey<'_>, &[u8]) -> Visit,
    ) -> Option<Position> {
        let place = |key: &RecordKey<'_>| (key.hash(), key.hash_key.len());
        let first = from.key();
        let mut hash = from.hash();
        // The hash of the last record of the page, once it is full.
        let mut full = None;
        loop {
            // Taken anew for each segment, so that a writer waits for one segment, and for one page, at most.
            let state = self.state.read();
            let (slots, next) = state.index.segment_at(hash);
            let is_in = |key: &RecordKey<'_>| (place(key), key.hash_key) >= (place(&first), first.hash_key);
            let slots = slots.map(|(_, slot)| (slot.least_key(), slot)).filter(|(key, _)| is_in(key));
            let mut slots: Vec<(RecordKey<'_>, &Slot)> = slots.collect();
            slots.sort_unstable_by_key(|(key, _)| (place(key), key.hash_key, key.sort_key));
            for (key, slot) in slots {
                let is_first = place(&key) == place(&first) && key.hash_key == first.hash_key;
                let sort_keys = if is_first { first.sort_key } else { b"" };
                for (sort_key, value) in slot.records_from(sort_keys) {
                    let key = RecordKey::with_hash(key.hash(), key.hash_key, sort_key);
                    if let Some(last) = full {
                        return Some(Position::after(last, &key));
                    }
                    if !limit.take(&key, value) {
                        full = Some(key.hash());
                    }
                    if visit(key, value) == Visit::NextHashKey {
                        break;
                    }
                }
            }
            hash = next?;
            if full.is_some() {
                return Some(Position::of_hash(hash));
            }
        }
    }

    /// Shows the slots of the segment that holds hash `from`, and returns with what came of that the first hash behind it.
    pub(super) fn visit_segment<T>(
        &self,
        from: u64,
        visit: impl FnOnce(&mut dyn Iterator<Item = &Slot>) -> T,
    ) -> (T, Option<u64>) {
        let state = self.state.read();
        let (slots, next) = state.index.segment_at(from);
        (visit(&mut slots.map(|(_, slot)| slot)), next)
    }

    pub(super) fn apply(&self, applied: &Applied<'_>) -> Result<(), EngineError> {
        let mut state = self.state.write();
        let before = state.bytes();
        let mut noted = None;
        for payload in applied.payloads {
            state.prefetch(payload);
            let mut rest = &payload[..];
            loop {
                while let Some((key, value, behind)) = mutation::split_put(rest) {
                    self.put(&mut state, &key, value, &mut noted)?;
                    rest = behind;
                }
                let Some(mutation) = mutation::decode_next(&mut rest) else { break };
                match mutation? {
                    Mutation::Put { key, value } => self.put(&mut state, &key, value, &mut noted)?,
                    Mutation::Delete { key } => state.delete(&key),
                    Mutation::DeleteHashKey { key } => state.delete_hash_key(&key),
                    Mutation::Clear => {
                        state.clear();
                        self.reflected.cleared();
                        noted.get_or_insert_default().clear();
                    }
                    Mutation::Time(time) => noted.get_or_insert_default().time(time),
                    Mutation::Mark { .. } => {}
                    Mutation::PutIn { space, key, value } => state.spaces.put(space, key, value),
                    Mutation::DeleteIn { space, key } => state.spaces.delete(space, key),
                    Mutation::DropSpace { space } => state.drop_space(space),
                }
            }
        }
        let freed = state.free_some();
        state.budget.change(before, state.bytes());
        if let Some(noted) = noted {
            self.expiries.take(&noted);
        }
        self.reflected.set_applied(applied.index);
        drop(state);
        drop(freed);
        Ok(())
    }

    /// Puts one record outside of log order: while a checkpoint is loaded.
    pub(super) fn load(&self, key: &RecordKey<'_>, value: &[u8]) -> Result<(), EngineError> {
        let mut noted = Noted::default();
        self.note_put(key, value, &mut noted)?;
        self.expiries.take(&noted);
        let mut state = self.state.write();
        let before = state.bytes();
        state.put(key, value);
        state.budget.change(before, state.bytes());
        Ok(())
    }

    /// Puts one record of a space outside of log order: while a checkpoint is loaded.
    pub(super) fn load_in(&self, space: Space, key: &[u8], value: &[u8]) {
        let mut state = self.state.write();
        let before = state.bytes();
        state.spaces.put(space, key, value);
        state.budget.change(before, state.bytes());
    }

    pub(super) fn get_in(&self, space: Space, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> bool {
        self.state.read().spaces.get(space, key).map(visit).is_some()
    }

    pub(super) fn scan_space(
        &self,
        space: Space,
        range: KeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) {
        if !is_empty(range) {
            self.state.read().spaces.scan(space, range, order, visit);
        }
    }

    /// Which share of a space's records have keys up to and including this one. They are counted, some at a time, so that nobody waits
    /// long for the lock.
    pub(super) fn share_up_to(&self, space: Space, key: &[u8]) -> f64 {
        let (mut counted, mut last): (u64, Option<Box<[u8]>>) = (0, None);
        loop {
            let state = self.state.read();
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let (count, cut) = state.spaces.count(space, (from, Bound::Included(key)), COUNTED_AT_ONCE);
            counted += count;
            match cut {
                Some(cut) => last = Some(cut.into()),
                None => return share(counted, state.spaces.len(space)),
            }
        }
    }

    pub(super) fn next_space(&self, from: Space) -> Option<Space> {
        self.state.read().spaces.next(from)
    }

    /// Takes the time that a checkpoint tells.
    pub(super) fn load_time(&self, time: UnixMillis) {
        let mut noted = Noted::default();
        noted.time(time);
        self.expiries.take(&noted);
    }

    #[inline]
    fn put(
        &self,
        state: &mut State,
        key: &RecordKey<'_>,
        value: &[u8],
        noted: &mut Option<Noted>,
    ) -> Result<(), EngineError> {
        if !key.sort_key.is_empty() || value.first().is_some_and(|&flags| flags != 0) {
            self.note_put(key, value, noted.get_or_insert_default())?;
        }
        state.put(key, value);
        Ok(())
    }

    fn note_put(&self, key: &RecordKey<'_>, value: &[u8], noted: &mut Noted) -> Result<(), EngineError> {
        let stored = StoredValue::decode(value)
            .ok_or_else(|| EngineError::Corruption("a put carries bytes that are no stored value".into()))?;
        if !key.sort_key.is_empty() || stored.kind == ValueKind::UnnamedField {
            self.note_sort_keys();
        }
        noted.put(&stored);
        Ok(())
    }

    /// Removes all records outside of log order, and frees them before it returns. Nobody waits for the lock until that is done.
    pub(super) fn clear(&self) {
        let mut state = self.state.write();
        let before = state.bytes();
        state.clear();
        state.budget.change(before, state.bytes());
        let mut noted = Noted::default();
        noted.clear();
        self.expiries.take(&noted);
        drop(state);
        while self.free_doomed() {}
    }

    /// Frees a step of what was removed, without the lock. Returns whether there was something.
    pub(super) fn free_doomed(&self) -> bool {
        if self.state.read().doomed.is_empty() {
            return false;
        }
        let mut state = self.state.write();
        let before = state.bytes();
        let freed = state.free_some();
        state.budget.change(before, state.bytes());
        drop(state);
        freed.is_some()
    }

    /// Looks at some pages: at one where few records have expired, at more where they would pile up.
    pub(super) fn remove_expired(&self) -> usize {
        let time = self.expiries.time();
        if time == UnixMillis::new(0) {
            return 0; // the log has told no time yet
        }
        let mut removed = 0;
        let mut from = self.sweep_from.lock();
        for _ in 0..SWEPT_PAGES {
            let (mut seen, mut ended) = (0, Vec::new());
            let next = self.scan(&from, SWEPT_PAGE, &mut |key, value| {
                seen += 1;
                if has_ended(value, time) {
                    ended.push((key.hash_key.to_vec(), key.sort_key.to_vec()));
                }
                Visit::NextRecord
            });
            removed += self.remove_ended(&ended);
            // A large hash key, too, is gone through faster than others: it would take minutes.
            let has_many = ended.len() * SWEPT_SHARE >= seen;
            let goes_on = next.as_ref().is_some_and(|next| has_many || next.is_within_hash());
            *from = next.unwrap_or_default();
            if !goes_on {
                break;
            }
        }
        removed
    }

    /// Removes the records of these keys that have ended. They may have been written anew since they were seen.
    fn remove_ended(&self, keys: &[(Vec<u8>, Vec<u8>)]) -> usize {
        if keys.is_empty() {
            return 0;
        }
        let mut removed = 0;
        let mut state = self.state.write();
        // As it is under the lock: it begins anew where the partition was cleared since the keys were seen.
        let time = self.expiries.time();
        let before = state.bytes();
        for (hash_key, sort_key) in keys {
            let key = RecordKey::new(hash_key, sort_key);
            let found = state.index.find(&key).and_then(|found| state.value(found, &key));
            if found.is_some_and(|value| has_ended(value, time)) {
                state.delete(&key);
                removed += 1;
            }
        }
        state.budget.change(before, state.bytes());
        self.expired_removed.fetch_add(removed as u64, Ordering::Relaxed);
        removed
    }

    /// Second-chance eviction: the hand passes over the slots, spares what was used since it last came by, and drops the
    /// rest until the node is within its budget or the hand has come by the end of the partition twice.
    pub(super) fn evict(&self) {
        let mut rounds = 0;
        while rounds < 2 {
            // Taken anew for each segment, so that readers wait for one at most.
            let mut state = self.state.write();
            if !state.budget.is_exceeded() {
                break;
            }
            let before = state.bytes();
            if let Some(freed) = state.free_some() {
                state.budget.change(before, state.bytes());
                drop(state);
                drop(freed);
                continue;
            }
            // Another table's or partition's writer may have freed enough meanwhile.
            let over = state.budget.used_bytes().saturating_sub(state.budget.limit_bytes()) as usize;
            let Hand { segment, behind } = state.hand;
            let (slots, next) = state.index.segment_at(segment);
            let mut slots = slots.filter(|(found, _)| behind.is_none_or(|behind| *found > behind));
            let (mut victims, mut victims_bytes) = (Vec::new(), 0);
            let hand = loop {
                let Some((found, slot)) = slots.next() else {
                    rounds += usize::from(next.is_none());
                    break Hand { segment: next.unwrap_or(0), behind: None };
                };
                if slot.take_referenced() {
                    continue;
                }
                victims.push(found);
                victims_bytes += slot.bytes();
                if victims_bytes > over {
                    break Hand { segment, behind: Some(found) };
                }
            };
            drop(slots);
            state.hand = hand;
            for found in victims {
                let records = state.remove(found);
                self.evicted.fetch_add(records as u64, Ordering::Relaxed);
            }
            state.budget.change(before, state.bytes());
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.state.read().bytes() as u64
    }

    pub(super) fn hash_keys(&self) -> u64 {
        self.state.read().index.hash_keys() as u64
    }

    pub(super) fn add_to(&self, statistics: &mut EngineStatistics) {
        let state = self.state.read();
        statistics.records += (state.records + state.spaces.documents()) as u64;
        if let Some(hash_keys) = &mut statistics.hash_keys {
            *hash_keys += state.index.hash_keys() as u64;
        }
        statistics.memory_bytes += state.bytes() as u64;
        statistics.expired_removed += self.expired_removed.load(Ordering::Relaxed);
        statistics.evicted += self.evicted.load(Ordering::Relaxed);
    }
}

/// Three passes over the batch: find the lines of the index, find the records, read the records. While one key waits
/// for memory the others' requests are under way, which is where a batch gains over single reads.
pub(super) fn multi_get(
    partitions: &[Partition],
    reads: &[(u32, RecordKey<'_>)],
    visit: &mut dyn FnMut(usize, Option<&[u8]>),
) {
    /// How many misses are worth having under way at once.
    const WINDOW: usize = 16;
    for (window_number, window) in reads.chunks(WINDOW).enumerate() {
        // A window's partitions in ascending order, each locked once: read locks of one thread must not nest, since a
        // writer that waits between them would block the second.
        let mut wanted: [u32; WINDOW] = [u32::MAX; WINDOW];
        for (at, (partition, _)) in window.iter().enumerate() {
            wanted[at] = *partition;
        }
        wanted[..window.len()].sort_unstable();
        let mut guards: [Option<(u32, RwLockReadGuard<'_, State>)>; WINDOW] = [const { None }; WINDOW];
        let mut locked = 0;
        for &partition in &wanted[..window.len()] {
            if locked == 0 || guards[locked - 1].as_ref().is_none_or(|(number, _)| *number != partition) {
                guards[locked] = Some((partition, partitions[partition as usize].state.read()));
                locked += 1;
            }
        }
        let state_of = |partition: u32| {
            let at = guards[..locked].iter().flatten().position(|(number, _)| *number == partition);
            &guards[at.expect("every partition of the window was locked")].as_ref().expect("filled up to `locked`").1
        };
        let states: [Option<&State>; WINDOW] =
            std::array::from_fn(|at| window.get(at).map(|(partition, _)| &**state_of(*partition)));

        let mut lookups: [Option<super::index::Lookup>; WINDOW] = [const { None }; WINDOW];
        for (at, (_, key)) in window.iter().enumerate() {
            lookups[at] = states[at].map(|state| state.index.begin(key));
        }
        for at in 0..window.len() {
            if let (Some(state), Some(lookup)) = (states[at], &lookups[at]) {
                state.index.approach(lookup);
            }
        }
        for (at, (_, key)) in window.iter().enumerate() {
            let value = states[at]
                .zip(lookups[at].as_ref())
                .and_then(|(state, lookup)| state.index.finish(lookup, key).and_then(|found| state.value(found, key)));
            visit(window_number * WINDOW + at, value);
        }
    }
}

fn has_ended(value: &[u8], time: UnixMillis) -> bool {
    StoredValue::decode(value).is_some_and(|stored| !stored.is_live(time))
}

/// `BTreeMap::range` panics on a range that ends before it begins.
fn is_empty((from, to): SortKeyRange<'_>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}

impl State {
    fn bytes(&self) -> usize {
        self.heap_bytes + self.index.bytes() + self.spaces.bytes()
    }

    fn value(&self, found: Found, key: &RecordKey<'_>) -> Option<&[u8]> {
        match self.index.at(found).get() {
            SlotRef::Record(record) => {
                record.mark_referenced();
                (record.sort_key() == key.sort_key).then(|| record.value())
            }
            SlotRef::Fields(fields) => {
                fields.mark_referenced();
                fields.records().get(key.sort_key).map(|value| &**value)
            }
        }
    }

    /// Requests the lines that the first mutations of a payload will need, all at once.
    fn prefetch(&self, payload: &[u8]) {
        const WINDOW: usize = 16;
        let mut rest = payload;
        let keys = std::iter::from_fn(|| {
            if let Some((key, _, behind)) = mutation::split_put(rest) {
                rest = behind;
                return Some(Some(key));
            }
            Some(match mutation::decode_next(&mut rest)? {
                Ok(Mutation::Put { key, .. } | Mutation::Delete { key } | Mutation::DeleteHashKey { key }) => Some(key),
                _ => None,
            })
        });
        let mut keys = keys.take(WINDOW).flatten();
        let (Some(first), Some(second)) = (keys.next(), keys.next()) else {
            return; // alone it would be needed before it had arrived
        };
        let mut lookups: [Option<super::index::Lookup>; WINDOW] = [const { None }; WINDOW];
        for (lookup, key) in lookups.iter_mut().zip([first, second].into_iter().chain(keys)) {
            *lookup = Some(self.index.begin(&key));
        }
        for lookup in lookups.iter().flatten() {
            self.index.approach(lookup);
        }
    }

    fn put(&mut self, key: &RecordKey<'_>, value: &[u8]) {
        let Some(found) = self.index.find(key) else {
            let record = Record::new(key, value);
            self.heap_bytes += record.bytes();
            self.records += 1;
            self.index.insert(key.hash(), Slot::record(record));
            return;
        };
        let slot = self.index.at_mut(found);
        if let Some(record) = slot.record_mut().filter(|record| record.sort_key() == key.sort_key) {
            if record.overwrite(value) {
                return;
            }
            let before = slot.bytes();
            *slot = Slot::record(Record::new(key, value));
            self.heap_bytes += slot.bytes();
            self.heap_bytes -= before;
            return;
        }
        let before = slot.bytes();
        if let SlotRef::Record(first) = slot.get() {
            let mut fields = Fields::new(key.hash(), key.hash_key);
            fields.put(first.sort_key(), first.value());
            *slot = Slot::fields(Box::new(fields));
        }
        let is_new = slot.fields_mut().expect("just made so").put(key.sort_key, value);
        self.records += usize::from(is_new);
        self.heap_bytes += slot.bytes();
        self.heap_bytes -= before;
    }

    fn delete(&mut self, key: &RecordKey<'_>) {
        let Some(found) = self.index.find(key) else { return };
        let slot = self.index.at_mut(found);
        let Some(fields) = slot.fields_mut() else {
            if self.value(found, key).is_some() {
                let record = self.index.remove(found).into_record().expect("not fields");
                self.heap_bytes -= record.bytes();
                self.records -= 1;
            }
            return;
        };
        let before = fields.bytes();
        if !fields.remove(key.sort_key) {
            return;
        }
        self.records -= 1;
        if fields.records().len() == 1 {
            let (sort_key, value) = fields.take(1).pop().expect("one is left");
            let last = RecordKey::with_hash(key.hash(), key.hash_key, &sort_key);
            *slot = Slot::record(Record::new(&last, &value));
        }
        self.heap_bytes += slot.bytes();
        self.heap_bytes -= before;
    }

    fn delete_hash_key(&mut self, key: &RecordKey<'_>) {
        if let Some(found) = self.index.find(key) {
            self.remove(found);
        }
    }

    /// Removes a hash key with all of its records. Returns how many these were.
    fn remove(&mut self, found: Found) -> usize {
        let slot = self.index.remove(found);
        let records = slot.records();
        self.records -= records;
        self.heap_bytes -= self.doomed.add_or_drop(slot);
        records
    }

    /// Takes a step of what is doomed out, to be dropped without the lock. Returns `None` if there is nothing.
    fn free_some(&mut self) -> Option<Freed> {
        let (freed, bytes) = self.doomed.take_some()?;
        self.heap_bytes -= bytes;
        Some(freed)
    }

    fn drop_space(&mut self, space: Space) {
        if let Some(records) = self.spaces.take(space) {
            self.heap_bytes += records.bytes();
            self.doomed.add_space(records);
        }
    }

    /// Removes all records, which are freed later.
    fn clear(&mut self) {
        let segments = std::mem::replace(&mut self.index, Index::new()).into_segments();
        self.heap_bytes += segments.bytes();
        self.doomed.add_segments(segments);
        for records in std::mem::take(&mut self.spaces).into_records() {
            self.heap_bytes += records.bytes();
            self.doomed.add_space(records);
        }
        self.records = 0;
        self.hand = Hand::default(); // it stood at a slot of the former index
    }
}

#[cfg(test)]
mod tests;
