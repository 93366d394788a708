use super::{Partition, SWEPT_PAGE, SWEPT_PAGES};
use crate::mutation::{encode_clear, encode_put, encode_put_in, encode_time};
use crate::{Applied, EngineStatistics, MemoryBudget, MemoryConfig, Order, PageLimit, Position, Visit};
use bytes::BytesMut;
use std::ops::Bound;
use std::sync::Arc;
use tessera_types::{Expiry, RecordKey, Space, StoredValue, UnixMillis, ValueKind};

fn new_partition(limit_bytes: u64) -> (Partition, Arc<MemoryBudget>) {
    let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes }));
    (Partition::new(budget.clone()), budget)
}

fn put(payload: &mut BytesMut, hash_key: &[u8], sort_key: &[u8], expiry: Expiry) {
    let stored = StoredValue { expiry, kind: ValueKind::Plain, payload: b"value" };
    encode_put(payload, &RecordKey::new(hash_key, sort_key), &stored);
}

fn apply(partition: &Partition, payload: &mut BytesMut) {
    let index = partition.reflected.applied() + 1;
    let payloads = [payload.split().freeze()];
    partition.apply(&Applied { partition: 0, index, term: 1, payloads: &payloads }).unwrap();
}

fn has(partition: &Partition, hash_key: &[u8]) -> bool {
    partition.get(&RecordKey::new(hash_key, b""), &mut |_| ())
}

/// Records, and hash keys.
fn counted(partition: &Partition) -> (u64, Option<u64>) {
    let mut statistics = EngineStatistics { hash_keys: Some(0), ..EngineStatistics::default() };
    partition.add_to(&mut statistics);
    (statistics.records, statistics.hash_keys)
}

/// Hash keys of one record, `large` with many, some with a few, and documents.
fn fill(partition: &Partition, records: u32) {
    let mut payload = BytesMut::new();
    for number in 0..records {
        let key = number.to_be_bytes();
        put(&mut payload, &key, b"", Expiry::NEVER);
        if number % 50 == 0 {
            put(&mut payload, b"large", &key, Expiry::at_key(Some(UnixMillis::new(9_000))));
            put(&mut payload, &[b"few", &key[..3]].concat(), &key[3..], Expiry::NEVER);
            encode_put_in(&mut payload, Space::DOCUMENTS, &key, b"document");
        }
        if number % 1_000 == 999 {
            apply(partition, &mut payload);
        }
    }
    apply(partition, &mut payload);
}

/// All of it was once freed under one hold of the lock, by the worker that applied the entry.
#[test]
fn what_a_cleared_partition_held_is_not_there_and_is_freed_bit_by_bit() {
    const RECORDS: u32 = 200_000;
    let (partition, budget) = new_partition(1 << 30);
    let empty = partition.bytes();
    fill(&partition, RECORDS);
    let full = partition.bytes();
    assert!(full > empty + u64::from(RECORDS) * 25, "{full}");
    assert!(partition.expiries().next().is_some());
    let limit = PageLimit::of_records(1_000);
    let under_way = partition.scan(&Position::START, limit, &mut |_, _| Visit::NextRecord).unwrap();

    let mut payload = BytesMut::new();
    put(&mut payload, b"before", b"", Expiry::NEVER);
    encode_clear(&mut payload);
    put(&mut payload, b"new", b"", Expiry::NEVER);
    put(&mut payload, b"large", b"", Expiry::NEVER);
    encode_put_in(&mut payload, Space(16), b"new", b"");
    apply(&partition, &mut payload);
    let check = || {
        assert_eq!(counted(&partition), (2, Some(2)));
        assert!(has(&partition, b"new") && has(&partition, b"large") && !has(&partition, b"before"));
        assert!((0..RECORDS).step_by(999).all(|number| !has(&partition, &number.to_be_bytes())));
        let mut fields = Vec::new();
        let whole = (Bound::Unbounded, Bound::Unbounded);
        partition.scan_hash_key(&RecordKey::new(b"large", b""), whole, Order::Ascending, &mut |sort_key, _| {
            fields.push(sort_key.to_vec());
            Visit::NextRecord
        });
        assert_eq!(fields, [b""]);
        for (from, expected) in [(&Position::START, 2), (&under_way, 0)] {
            let mut seen = 0;
            let next = partition.scan(from, limit, &mut |key, _| {
                assert!([&b"new"[..], b"large"].contains(&key.hash_key));
                seen += 1;
                Visit::NextRecord
            });
            assert!(next.is_none() && seen >= expected);
        }
        assert_eq!(partition.next_space(Space(0)), Some(Space(16)), "the documents are gone");
        assert!(partition.get_in(Space(16), b"new", &mut |_| ()));
        assert_eq!(partition.expiries().next(), None);
        assert_eq!(budget.used_bytes(), partition.bytes());
    };
    check();
    let mut bytes = partition.bytes();
    assert!(bytes > empty + (full - empty) / 10 * 9, "{bytes} of {full}: they take memory until they are freed");
    let mut steps = 0;
    while partition.free_doomed() {
        let after = partition.bytes();
        assert!(after <= bytes && bytes - after < 256 << 10, "{bytes}, then {after}");
        bytes = after;
        steps += 1;
    }
    assert!(steps > RECORDS / 2_000, "{steps} steps");
    check();

    let (anew, _) = new_partition(1 << 30);
    put(&mut payload, b"new", b"", Expiry::NEVER);
    put(&mut payload, b"large", b"", Expiry::NEVER);
    encode_put_in(&mut payload, Space(16), b"new", b"");
    apply(&anew, &mut payload);
    assert_eq!(partition.bytes(), anew.bytes());
    drop(partition);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn clearing_again_before_all_is_freed_loses_no_bytes() {
    let (partition, budget) = new_partition(1 << 30);
    let empty = partition.bytes();
    let mut payload = BytesMut::new();
    for _ in 0..3 {
        fill(&partition, 20_000);
        encode_clear(&mut payload);
        encode_clear(&mut payload);
        apply(&partition, &mut payload);
    }
    assert!(partition.bytes() > empty + 20_000 * 25);
    while partition.free_doomed() {}
    assert_eq!((partition.bytes(), budget.used_bytes()), (empty, empty));

    // Outside of log order all is freed when it returns.
    fill(&partition, 20_000);
    partition.clear();
    assert_eq!((partition.bytes(), budget.used_bytes(), counted(&partition)), (empty, empty, (0, Some(0))));

    fill(&partition, 20_000);
    encode_clear(&mut payload);
    apply(&partition, &mut payload);
    drop(partition);
    assert_eq!(budget.used_bytes(), 0, "what is not freed yet goes with the partition");
}

#[test]
fn what_was_cleared_is_freed_before_anything_is_evicted() {
    let (partition, budget) = new_partition(1 << 20);
    fill(&partition, 50_000);
    let mut payload = BytesMut::new();
    encode_clear(&mut payload);
    put(&mut payload, b"new", b"", Expiry::NEVER);
    apply(&partition, &mut payload);
    assert!(budget.is_exceeded());
    partition.evict();
    assert!(!budget.is_exceeded() && has(&partition, b"new"));
}

/// A partition of which the records have expired that `has_ended` says.
fn with_expired(records: u32, has_ended: impl Fn(u32) -> bool) -> Partition {
    let (partition, _) = new_partition(1 << 30);
    let mut payload = BytesMut::new();
    for number in 0..records {
        let expiry = if has_ended(number) { Expiry::at_key(Some(UnixMillis::new(1_000))) } else { Expiry::NEVER };
        put(&mut payload, &number.to_be_bytes(), b"", expiry);
    }
    encode_time(&mut payload, UnixMillis::new(2_000));
    apply(&partition, &mut payload);
    partition
}

/// A sweep once looked at a page of records, so that those that lived shortly piled up.
#[test]
fn sweeps_keep_up_where_most_records_have_expired() {
    const RECORDS: u32 = 100_000;
    let partition = with_expired(RECORDS, |number| number % 10 != 0);
    let removed: Vec<usize> = (0..10).map(|_| partition.remove_expired()).collect();
    assert!(removed.iter().sum::<usize>() > RECORDS as usize / 2, "{removed:?}");
    assert!(removed.iter().all(|removed| *removed <= SWEPT_PAGES * SWEPT_PAGE.records), "{removed:?}");
    for _ in 0..100 {
        partition.remove_expired();
    }
    let left = u64::from(RECORDS) / 10;
    assert_eq!(counted(&partition), (left, Some(left)));
}

#[test]
fn a_sweep_looks_at_one_page_where_few_records_have_expired() {
    let partition = with_expired(100_000, |number| number % 25 == 0);
    let removed = partition.remove_expired();
    assert!((1..SWEPT_PAGE.records / 4).contains(&removed), "{removed}");
}
