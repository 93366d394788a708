//! Digesting a slice of a partition's records.

use super::partition::Partition;
use super::slot::{Slot, SlotRef};
use crate::digest::Digester;
use crate::{Order, Slice, SliceDigest};
use std::ops::Bound;
use tessera_types::{RecordKey, Space};

impl Partition {
    /// Looks at no more segments than the slice lies in.
    pub(super) fn digest(&self, slice: &Slice) -> SliceDigest {
        let mut digester = Digester::new(slice, self.expiries().time());
        if let Some((space, key)) = slice.first_in_space() {
            self.digest_spaces(&mut digester, space, key);
            return digester.finish();
        }
        let mut from = slice.first_key().map(|first| first.hash());
        loop {
            let is_in = |slot: &Slot| from.is_none_or(|from| slot.hash() >= from);
            let (goes_on, next) = self.visit_segment(from.unwrap_or(0), |slots| {
                let mut slots: Vec<_> = slots.filter(|slot| is_in(slot)).map(|slot| (slot.least_key(), slot)).collect();
                slots.sort_unstable_by_key(|(key, _)| (key.hash(), key.hash_key.len(), key.hash_key, key.sort_key));
                slots.into_iter().all(|(key, slot)| add(&mut digester, &key, slot, slice))
            });
            if !goes_on {
                return digester.finish();
            }
            match next {
                Some(next) => from = Some(next),
                None => break,
            }
        }
        self.digest_spaces(&mut digester, Space(0), b"");
        digester.finish()
    }

    /// Digests what is in spaces from this key of this space on.
    fn digest_spaces(&self, digester: &mut Digester<'_>, from: Space, key: &[u8]) {
        let mut next = self.next_space(from);
        while let Some(space) = next {
            let first = if space == from { key } else { b"" };
            let mut goes_on = true;
            self.scan_space(space, (Bound::Included(first), Bound::Unbounded), Order::Ascending, &mut |key, value| {
                goes_on = digester.add_in(space, key, value);
                goes_on
            });
            next = space.0.checked_add(1).filter(|_| goes_on).and_then(|next| self.next_space(Space(next)));
        }
    }
}

fn add(digester: &mut Digester<'_>, key: &RecordKey<'_>, slot: &Slot, slice: &Slice) -> bool {
    match slot.get() {
        SlotRef::Record(record) => digester.add(key, record.value()),
        SlotRef::Fields(fields) => {
            // A slice that begins among the fields of a large hash key does not look at those before.
            let first = slice.first_key().filter(|first| first.hash() == key.hash() && first.hash_key == key.hash_key);
            let sort_key = first.map_or(&b""[..], |first| first.sort_key);
            let mut records = fields.records().range::<[u8], _>((Bound::Included(sort_key), Bound::Unbounded));
            let of = |sort_key| RecordKey::with_hash(key.hash(), key.hash_key, sort_key);
            records.all(|(sort_key, value)| digester.add(&of(sort_key), value))
        }
    }
}
