//! The index of a partition: from hash keys to slots.
//!
//! **The problem.** A hash table that doubles stalls its writer while it moves millions of entries, and its order
//! changes as it does, so that a scan that runs in steps loses its place. A tree has order and no stalls, but reads of a
//! million records then cost 0.8 µs instead of 0.6 (`docs/decisions/0003-memory-index.md`).
//!
//! **The design** is extendible hashing. The leading bits of a hash key's 64-bit hash choose an entry of a directory,
//! which names a [`Segment`] of at most about 800 hash keys. A segment that fills up is split in two by the next
//! bit; the work is bounded by the segment, and the directory, four bytes per segment, doubles once in a long while.
//! Since leading bits choose, segments are ranges of hashes: a scan that goes segment by segment visits hash keys in
//! ranges of growing hashes, and its position is a number that stays right however segments split meanwhile.
//!
//! **Hostile keys.** CRC-64 is public and linear: anybody can make keys with equal hashes. They would all stay in one
//! segment. So inside a segment keys are placed by a second hash with a random seed, and a segment that splitting
//! would not relieve grows instead. Likewise anybody can make some 900 keys whose hashes begin with the same 28 bits but for
//! one key at each bit; splitting their segment 28 times would double the directory as often, to a gigabyte. So the directory
//! doubles only while it stays [in proportion](SPARE_DEPTH) to the segments that there are, and otherwise, too, the segment
//! grows; it is split when it is full again and there are more segments.

use super::segment::{Place, Segment};
use super::slot::{Slot, identity_of};
use ahash::RandomState;
use tessera_types::RecordKey;

/// Groups of a segment at which it is split rather than grown: 64 groups of 15 slots.
const SPLIT_GROUPS: usize = 64;
/// Bits of the hash that a directory uses at most: beyond lie 2^28 segments, more than memory holds.
const DEPTH_LIMIT: u32 = 28;
/// Bits of the hash that a directory uses at most beyond those that its segments would need if hashes were spread evenly: it
/// has at most 16 entries for each segment. Even hashes need one or two; segments of unlike depth come from keys that were
/// made for it.
const SPARE_DEPTH: u32 = 4;

pub(super) struct Index {
    /// Segment number by the leading `depth` bits of a hash.
    directory: Vec<u32>,
    depth: u32,
    segments: Vec<Split>,
    seed: RandomState,
    hash_keys: usize,
    segment_bytes: usize,
}

struct Split {
    /// Leading bits that all hashes in the segment share.
    depth: u32,
    segment: Segment,
}

/// Where a hash key's slot is. Valid until the index is next changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    segment: usize,
    place: Place,
}

/// A key on its way through a batched lookup.
pub(super) struct Lookup {
    segment: usize,
    placing: u64,
}

impl Index {
    pub(super) fn new() -> Self {
        let segment = Segment::with_groups(1);
        let segment_bytes = segment.bytes();
        Self {
            directory: vec![0],
            depth: 0,
            segments: vec![Split { depth: 0, segment }],
            seed: RandomState::new(),
            hash_keys: 0,
            segment_bytes,
        }
    }

    pub(super) fn hash_keys(&self) -> usize {
        self.hash_keys
    }

    /// Bytes of the index itself, without what slots own.
    pub(super) fn bytes(&self) -> usize {
        self.segment_bytes + self.directory.len() * size_of::<u32>()
    }

    fn segment_of(&self, hash: u64) -> usize {
        // A shift by 64 would overflow, so depth zero is told apart.
        let entry = if self.depth == 0 { 0 } else { (hash >> (64 - self.depth)) as usize };
        self.directory[entry] as usize
    }

    /// First step of a lookup: which lines it will need. Prefetches them.
    #[inline]
    pub(super) fn begin(&self, key: &RecordKey<'_>) -> Lookup {
        let lookup = Lookup { segment: self.segment_of(key.hash()), placing: self.seed.hash_one(identity_of(key)) };
        prefetch(self.segments[lookup.segment].segment.home_tags(lookup.placing));
        lookup
    }

    /// Second step: prefetches the record that probably is the one.
    #[inline]
    pub(super) fn approach(&self, lookup: &Lookup) {
        if let Some(slot) = self.segments[lookup.segment].segment.candidate(lookup.placing) {
            prefetch(slot.address());
        }
    }

    /// Last step.
    #[inline]
    pub(super) fn finish(&self, lookup: &Lookup, key: &RecordKey<'_>) -> Option<Found> {
        let place = self.segments[lookup.segment].segment.find(lookup.placing, |slot| slot.holds(key))?;
        Some(Found { segment: lookup.segment, place })
    }

    #[inline]
    pub(super) fn find(&self, key: &RecordKey<'_>) -> Option<Found> {
        let lookup = self.begin(key);
        self.finish(&lookup, key)
    }

    pub(super) fn at(&self, found: Found) -> &Slot {
        self.segments[found.segment].segment.at(found.place)
    }

    pub(super) fn at_mut(&mut self, found: Found) -> &mut Slot {
        self.segments[found.segment].segment.at_mut(found.place)
    }

    /// The slot's hash key must not be in the index yet.
    pub(super) fn insert(&mut self, hash: u64, slot: Slot) {
        let placing = self.seed.hash_one(slot.identity());
        let mut number = self.segment_of(hash);
        while self.segments[number].segment.is_full() {
            self.make_room(number, hash);
            number = self.segment_of(hash);
        }
        self.segments[number].segment.insert(placing, slot);
        self.hash_keys += 1;
    }

    pub(super) fn remove(&mut self, found: Found) -> Slot {
        self.hash_keys -= 1;
        self.segments[found.segment].segment.remove(found.place)
    }

    /// Bits that a segment's hashes may share at most.
    fn depth_limit(&self) -> u32 {
        DEPTH_LIMIT.min(self.segments.len().ilog2() + SPARE_DEPTH)
    }

    fn make_room(&mut self, number: usize, hash: u64) {
        let split = &self.segments[number];
        let groups = split.segment.groups();
        let separates = |bit: u32| {
            let mut slots = split.segment.iter().map(|(_, slot)| slot.hash() << bit >> 63);
            let first = slots.next();
            slots.any(|side| Some(side) != first)
        };
        if groups < SPLIT_GROUPS || split.depth >= self.depth_limit() || !separates(split.depth) {
            let old = std::mem::replace(&mut self.segments[number].segment, Segment::with_groups(groups * 2));
            self.segment_bytes += self.segments[number].segment.bytes() - old.bytes();
            for slot in old.into_slots() {
                let placing = self.seed.hash_one(slot.identity());
                self.segments[number].segment.insert(placing, slot);
            }
        } else {
            self.split(number, hash);
        }
    }

    fn split(&mut self, number: usize, hash: u64) {
        let depth = self.segments[number].depth;
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|&segment| [segment, segment]).collect();
            self.depth += 1;
        }
        let groups = self.segments[number].segment.groups();
        let old = std::mem::replace(&mut self.segments[number].segment, Segment::with_groups(groups));
        let mut upper = Segment::with_groups(groups);
        self.segment_bytes += upper.bytes();
        for slot in old.into_slots() {
            let placing = self.seed.hash_one(slot.identity());
            let side = if slot.hash() << depth >> 63 == 1 { &mut upper } else { &mut self.segments[number].segment };
            side.insert(placing, slot);
        }
        self.segments[number].depth = depth + 1;
        let upper_number = u32::try_from(self.segments.len()).expect("the depth limit bounds segments");
        self.segments.push(Split { depth: depth + 1, segment: upper });

        // The directory entries that began with the segment's bits: the upper half of them now name the new segment.
        let span = 1usize << (self.depth - depth);
        let first = if depth == 0 { 0 } else { (hash >> (64 - depth)) as usize * span };
        self.directory[first + span / 2..first + span].fill(upper_number);
    }

    /// The slots of the segment that holds hash `from`, and the first hash behind the segment (`None` for the last).
    pub(super) fn segment_at(&self, from: u64) -> (impl Iterator<Item = (Found, &Slot)>, Option<u64>) {
        let number = self.segment_of(from);
        let Split { depth, segment } = &self.segments[number];
        let end = if *depth == 0 {
            None
        } else {
            (from >> (64 - depth)).checked_add(1).and_then(|next| next.checked_shl(64 - depth))
        };
        let end = end.filter(|&end| end != 0);
        (segment.iter().map(move |(place, slot)| (Found { segment: number, place }, slot)), end)
    }

    /// Gives up its segments, for what they hold to be freed some at a time.
    pub(super) fn into_segments(self) -> Segments {
        Segments { segments: self.segments, bytes: self.segment_bytes, passed: 0 }
    }
}

/// The segments of an index that nobody looks into any more.
pub(super) struct Segments {
    segments: Vec<Split>,
    /// Bytes of the segments themselves.
    bytes: usize,
    /// Places of the last segment whose slots have been taken out.
    passed: usize,
}

impl Segments {
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes of the segments themselves, without what slots own.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Hands over slots of one segment until `take` returns false. Returns the segment once it has none left.
    pub(super) fn take_slots(&mut self, mut take: impl FnMut(Slot) -> bool) -> Option<Segment> {
        let segment = &mut self.segments.last_mut()?.segment;
        for slot in segment.take_slots(self.passed) {
            self.passed += 1;
            if slot.is_some_and(|slot| !take(slot)) {
                return None;
            }
        }
        self.passed = 0;
        let Split { segment, .. } = self.segments.pop()?;
        self.bytes -= segment.bytes();
        Some(segment)
    }
}

#[inline]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching is a hint and faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::super::slot::Fields;
    use super::*;

    /// Many keys; fewer where each step is slow.
    const MANY: u32 = if cfg!(miri) { 3_000 } else { 50_000 };

    fn insert(index: &mut Index, hash_key: &[u8]) {
        let key = RecordKey::new(hash_key, b"");
        index.insert(key.hash(), Slot::record(Record::new(&key, b"value")));
    }

    /// Visits all slots, segment by segment, and counts them.
    fn all_of(index: &Index) -> usize {
        let (mut visited, mut from) = (0, 0);
        loop {
            let (slots, next) = index.segment_at(from);
            for (_, slot) in slots {
                assert!(slot.hash() >= from && next.is_none_or(|end| slot.hash() < end));
                visited += 1;
            }
            match next {
                Some(next) => from = next,
                None => return visited,
            }
        }
    }

    #[test]
    fn a_scan_by_segments_visits_every_key_once_in_ranges_of_growing_hashes() {
        let mut index = Index::new();
        for number in 0..MANY {
            insert(&mut index, &number.to_be_bytes());
        }
        assert_eq!(all_of(&index), MANY as usize);
        let segments = index.segments.len();
        assert!(segments > MANY as usize / 1_600, "{MANY} keys were split over {segments} segments");
        assert!(index.bytes() < MANY as usize * 20, "{} bytes of index", index.bytes());
    }

    /// Inserts a key that counts as one of this hash: for splitting it is the hash that a slot keeps that matters.
    fn insert_hash(index: &mut Index, hash: u64) {
        let mut fields = Fields::new(hash, &hash.to_be_bytes());
        fields.put(b"", b"");
        index.insert(hash, Slot::fields(Box::new(fields)));
    }

    #[test]
    fn keys_that_share_long_beginnings_do_not_double_the_directory() {
        let mut index = Index::new();
        // One key for each leading bit in which it differs from the crowd, and a crowd that shares all of these.
        for bit in 0..28 {
            insert_hash(&mut index, 1 << (63 - bit));
        }
        for number in 0..u64::from(2 * MANY) {
            insert_hash(&mut index, number);
        }
        assert_eq!(index.hash_keys(), 2 * MANY as usize + 28);
        let entries = index.directory.len();
        assert!(entries <= index.segments.len() << SPARE_DEPTH, "{entries} entries for {}", index.segments.len());
        assert!(index.bytes() < 4 << 20, "{} bytes of index", index.bytes());
        assert_eq!(all_of(&index), 2 * MANY as usize + 28);

        // Once there are others, too, the crowd's segment is split as far as that helps.
        for number in 0..u64::from(2 * MANY) {
            insert(&mut index, &number.to_be_bytes());
        }
        assert_eq!(all_of(&index), 4 * MANY as usize + 28);
        assert!(index.directory.len() <= index.segments.len() << SPARE_DEPTH);
    }

    #[test]
    fn keys_of_one_hash_grow_a_segment_instead_of_splitting_it_for_ever() {
        // The hash of a slot only matters where segments split; equal hashes are simulated by one key's hash.
        let mut index = Index::new();
        let hash = RecordKey::new(b"victim", b"").hash();
        let keys = if cfg!(miri) { 200 } else { 3_000 };
        for _ in 0..keys {
            // Same identity on purpose: hash and placement both collide, the worst case.
            index.insert(hash, Slot::record(Record::new(&RecordKey::new(b"victim", b""), b"")));
        }
        assert_eq!(index.hash_keys(), keys);
        assert_eq!(index.segments.len(), 1);
    }
}
