//! Maps by records' keys in their ordered form (see [`RecordKey::encode_ordered`]).

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use tessera_engine::{Order, SortKeyRange};
use tessera_types::{RecordKey, successor};

/// Removes the entries of `key`'s hash key.
pub(crate) fn remove_hash_key<K: Ord + Borrow<[u8]> + Clone, V>(map: &mut BTreeMap<K, V>, key: &RecordKey<'_>) {
    let prefix = RecordKey::with_hash(key.hash(), key.hash_key, b"").to_ordered_bytes();
    let of_hash_key = map.range::<[u8], _>((Bound::Included(&prefix[..]), Bound::Unbounded));
    let of_hash_key = of_hash_key.map_while(|(ordered, _)| ordered.borrow().starts_with(&prefix).then_some(ordered));
    let of_hash_key: Vec<K> = of_hash_key.cloned().collect();
    for ordered in &of_hash_key {
        map.remove(ordered.borrow());
    }
}

/// The entries of `key`'s hash key in a range of sort keys, with these, in their order.
pub(crate) fn of_hash_key<'a, K: Ord + Borrow<[u8]>, V>(
    map: &'a BTreeMap<K, V>,
    key: &RecordKey<'_>,
    range: SortKeyRange<'a>,
    order: Order,
) -> Box<dyn Iterator<Item = (&'a [u8], &'a V)> + 'a> {
    let ordered = |sort_key: &[u8]| RecordKey::with_hash(key.hash(), key.hash_key, sort_key).to_ordered_bytes();
    let prefix = ordered(b"");
    let (from, to) = (range.0.map(ordered), range.1.map(ordered));
    // A map's range panics if it ends before it begins: where ours ends is looked at below.
    let entries: Box<dyn Iterator<Item = (&'a K, &'a V)> + 'a> = match order {
        Order::Ascending => {
            let from = if from == Bound::Unbounded { Bound::Included(prefix.clone()) } else { from };
            Box::new(map.range::<[u8], _>((from.as_ref().map(|key| &key[..]), Bound::Unbounded)))
        }
        Order::Descending => {
            let to = if to == Bound::Unbounded { Bound::Excluded(successor(&prefix).into()) } else { to };
            Box::new(map.range::<[u8], _>((Bound::Unbounded, to.as_ref().map(|key| &key[..]))).rev())
        }
    };
    Box::new(entries.map_while(move |(ordered, value)| {
        let sort_key = ordered.borrow().strip_prefix(&prefix[..])?;
        RangeBounds::<[u8]>::contains(&range, sort_key).then_some((sort_key, value))
    }))
}
