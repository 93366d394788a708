//! A small open-addressing table of slots: the unit in which the index grows.
//!
//! Fifteen slots form a group with one byte of tag each, so that a lookup reads one line of tags and then, nearly
//! always, the one slot that matches. A full group passes what hashes to it on to the next and raises its overflow
//! mark; a lookup goes on only past such a mark, which makes removal a plain clearing without tombstones.

use super::slot::Slot;

const GROUP: usize = 15;
/// Position of the overflow mark among a group's tags.
const OVERFLOW: usize = GROUP;
const EMPTY: u8 = 0;

pub(super) struct Segment {
    tags: Box<[[u8; GROUP + 1]]>,
    slots: Box<[[Option<Slot>; GROUP]]>,
    count: usize,
}

/// A place in a segment that holds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    group: usize,
    at: usize,
}

impl Segment {
    /// `groups` is a power of two.
    pub(super) fn with_groups(groups: usize) -> Self {
        debug_assert!(groups.is_power_of_two());
        Self {
            tags: vec![[EMPTY; GROUP + 1]; groups].into_boxed_slice(),
            slots: (0..groups).map(|_| [const { None }; GROUP]).collect(),
            count: 0,
        }
    }

    pub(super) fn groups(&self) -> usize {
        self.tags.len()
    }

    /// Seven eighths: beyond, probe sequences grow long.
    pub(super) fn is_full(&self) -> bool {
        self.count >= self.groups() * GROUP * 7 / 8
    }

    /// Bytes of the segment itself.
    pub(super) fn bytes(&self) -> usize {
        self.groups() * (GROUP + 1 + GROUP * size_of::<Option<Slot>>())
    }

    fn home(&self, placing: u64) -> usize {
        // The mask keeps it below the group count.
        (placing as usize) & (self.groups() - 1)
    }

    /// Where a lookup will look first, for prefetching.
    pub(super) fn home_tags(&self, placing: u64) -> *const u8 {
        self.tags[self.home(placing)].as_ptr()
    }

    /// Finds the slot that `is_it` recognises among those placed by the hash `placing`.
    #[inline]
    pub(super) fn find(&self, placing: u64, is_it: impl Fn(&Slot) -> bool) -> Option<Place> {
        let tag = tag_of(placing);
        let mut group = self.home(placing);
        for _ in 0..self.groups() {
            let tags = &self.tags[group];
            let mut matches = matching(tags, tag);
            while matches != 0 {
                let at = matches.trailing_zeros() as usize;
                if self.slots[group][at].as_ref().is_some_and(&is_it) {
                    return Some(Place { group, at });
                }
                matches &= matches - 1;
            }
            if tags[OVERFLOW] == EMPTY {
                return None;
            }
            group = (group + 1) & (self.groups() - 1);
        }
        None
    }

    /// The first slot whose tag matches, right or wrong: what to prefetch next.
    #[inline]
    pub(super) fn candidate(&self, placing: u64) -> Option<&Slot> {
        let group = self.home(placing);
        let matches = matching(&self.tags[group], tag_of(placing));
        if matches == 0 { None } else { self.slots[group][matches.trailing_zeros() as usize].as_ref() }
    }

    pub(super) fn at(&self, place: Place) -> &Slot {
        self.slots[place.group][place.at].as_ref().expect("a place holds a slot")
    }

    pub(super) fn at_mut(&mut self, place: Place) -> &mut Slot {
        self.slots[place.group][place.at].as_mut().expect("a place holds a slot")
    }

    /// The segment must not be [full](Self::is_full), and must not hold the slot's hash key yet.
    pub(super) fn insert(&mut self, placing: u64, slot: Slot) {
        let mut group = self.home(placing);
        loop {
            let free = matching(&self.tags[group], EMPTY);
            if free != 0 {
                let at = free.trailing_zeros() as usize;
                self.tags[group][at] = tag_of(placing);
                self.slots[group][at] = Some(slot);
                self.count += 1;
                return;
            }
            self.tags[group][OVERFLOW] = 1;
            group = (group + 1) & (self.groups() - 1);
        }
    }

    pub(super) fn remove(&mut self, place: Place) -> Slot {
        self.tags[place.group][place.at] = EMPTY;
        self.count -= 1;
        self.slots[place.group][place.at].take().expect("a place holds a slot")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &Slot)> {
        self.slots.iter().enumerate().flat_map(|(group, slots)| {
            slots.iter().enumerate().filter_map(move |(at, slot)| slot.as_ref().map(|slot| (Place { group, at }, slot)))
        })
    }

    /// Takes out what the places from this number on hold, place by place. Only of a segment that nobody looks into any more: it
    /// keeps its tags.
    pub(super) fn take_slots(&mut self, from: usize) -> impl Iterator<Item = Option<Slot>> {
        self.slots.as_flattened_mut()[from..].iter_mut().map(Option::take)
    }

    pub(super) fn into_slots(self) -> impl Iterator<Item = Slot> {
        self.slots.into_iter().flatten().flatten()
    }
}

/// Seven bits of the hash that [`Segment::home`] does not use, never equal to [`EMPTY`].
fn tag_of(placing: u64) -> u8 {
    (placing >> 57) as u8 | 0x80
}

/// A bit for each of the group's slots whose tag is `tag`. Written so that the compiler makes one vector comparison of it.
#[inline]
fn matching(tags: &[u8; GROUP + 1], tag: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: SSE2 is part of x86-64, and the load reads the array's 16 bytes.
        let mask = unsafe {
            let group = _mm_loadu_si128(tags.as_ptr().cast::<__m128i>());
            _mm_movemask_epi8(_mm_cmpeq_epi8(group, _mm_set1_epi8(tag.cast_signed())))
        };
        mask.cast_unsigned() & ((1 << GROUP) - 1)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        (0..GROUP).filter(|&at| tags[at] == tag).fold(0, |mask, at| mask | 1 << at)
    }
}
