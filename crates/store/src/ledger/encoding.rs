//! The bytes of a ledger's records, and of requests and answers between nodes.
//!
//! Integers are little-endian, but in keys, which sort by node, start and number. `bytes` is `u32` length, then as many bytes;
//! a list is `u32` how many there are, then these.
//!
//! | of | bytes |
//! |---|---|
//! | key of a record | `t`, `u8` kind, then of kind 0 (intent), 1 (decision) and 2 (finished) the transaction: `u32` node, `u64` generation, `u64` number; of kind 3 (mark) `u32` node |
//! | transaction | `u32` node, `u64` generation, `u64` number |
//! | age | `u64` milliseconds since 1970, transaction |
//! | partition | `u32` table, `u32` number |
//! | lock | `u8` 0 shared, 1 exclusive; `bytes` hash key |
//! | intent | partition of the anchor, age, list of locks, writes, `bytes` reply |
//! | writes | `u8` service, or 0 for mutations; `bytes` of the operation, or mutations |
//! | decision | `u8` 0 aborted, 1 forgotten, 2 committed: then list of partitions, `bytes` reply |
//! | finished | nothing |
//! | mark | `u64` generation, `u64` number |
//! | request | `u8` 0 prepare: transaction, age, `u64` settled, partition of the anchor, list of locks, operation; 1 decide: transaction, age, `u64` settled, list of locks, operation, list of partitions; 2 recover: transaction; 3 resolve: transaction, `u8` 0 aborted, 1 committed |
//! | operation | `u8` service, `bytes` |
//! | answer | `u8` 0 prepared: `bytes` reply; 1 busy: transaction, age, partition of the anchor; 2 refused: `bytes` reply; 3 over; 4 committed; 5 committed with `bytes` reply; 6 aborted; 7 resolved |

use super::data::{FaceOperation, IntendedWrites, OnTables, PartitionName};
use bytes::{Buf, BufMut, Bytes};
use tessera_transaction::{
    Access, Age, Answer, Decide, Decision, Holder, Intent, LedgerKey, LedgerRecord, Locks, Outcome, Prepare, Request,
    TransactionId,
};
use tessera_types::{NodeId, TableId};

/// The first byte of the keys of all records of a ledger.
pub(super) const PREFIX: &[u8] = b"t";

const INTENT: u8 = 0;
const DECISION: u8 = 1;
const FINISHED: u8 = 2;
const MARK: u8 = 3;

pub(super) fn encode_key(key: LedgerKey) -> Vec<u8> {
    let mut out = PREFIX.to_vec();
    let (kind, node, number) = match key {
        LedgerKey::Intent(id) => (INTENT, id.node, Some(id)),
        LedgerKey::Decision(id) => (DECISION, id.node, Some(id)),
        LedgerKey::Finished(id) => (FINISHED, id.node, Some(id)),
        LedgerKey::Mark(node) => (MARK, node, None),
    };
    out.put_u8(kind);
    out.put_u32(node.0);
    if let Some(id) = number {
        out.put_u64(id.generation);
        out.put_u64(id.sequence);
    }
    out
}

/// The key of a record, if these bytes are one.
pub(super) fn decode_key(key: &[u8]) -> Option<LedgerKey> {
    let mut key = key.strip_prefix(PREFIX)?;
    let kind = key.try_get_u8().ok()?;
    let node = NodeId(key.try_get_u32().ok()?);
    if kind == MARK {
        return key.is_empty().then_some(LedgerKey::Mark(node));
    }
    let (generation, sequence) = (key.try_get_u64().ok()?, key.try_get_u64().ok()?);
    let id = TransactionId { node, generation, sequence };
    let key = key.is_empty().then_some(id)?;
    match kind {
        INTENT => Some(LedgerKey::Intent(key)),
        DECISION => Some(LedgerKey::Decision(key)),
        FINISHED => Some(LedgerKey::Finished(key)),
        _ => None,
    }
}

pub(super) fn encode_record(record: &LedgerRecord<OnTables>) -> Vec<u8> {
    let mut out = Vec::new();
    match record {
        LedgerRecord::Intent(intent) => {
            put_partition(&mut out, intent.anchor);
            put_age(&mut out, intent.age);
            put_locks(&mut out, &intent.locks);
            put_writes(&mut out, &intent.writes);
            put_bytes(&mut out, &intent.reply);
        }
        LedgerRecord::Decision(Decision::Aborted) => out.put_u8(0),
        LedgerRecord::Decision(Decision::Forgotten) => out.put_u8(1),
        LedgerRecord::Decision(Decision::Committed { participants, reply }) => {
            out.put_u8(2);
            put_partitions(&mut out, participants);
            put_bytes(&mut out, reply);
        }
        LedgerRecord::Finished => {}
        LedgerRecord::Mark { generation, sequence } => {
            out.put_u64_le(*generation);
            out.put_u64_le(*sequence);
        }
    }
    out
}

/// The record under this key; `None` if the bytes are none.
pub(super) fn decode_record(key: LedgerKey, value: &[u8]) -> Option<LedgerRecord<OnTables>> {
    let mut value = Bytes::copy_from_slice(value);
    let from = &mut value;
    let record = match key {
        LedgerKey::Intent(_) => LedgerRecord::Intent(Intent {
            anchor: partition(from)?,
            age: age(from)?,
            locks: locks(from)?,
            writes: writes(from)?,
            reply: bytes(from)?,
        }),
        LedgerKey::Decision(_) => LedgerRecord::Decision(match from.try_get_u8().ok()? {
            0 => Decision::Aborted,
            1 => Decision::Forgotten,
            2 => Decision::Committed { participants: partitions(from)?, reply: bytes(from)? },
            _ => return None,
        }),
        LedgerKey::Finished(_) => LedgerRecord::Finished,
        LedgerKey::Mark(_) => {
            let (generation, sequence) = (from.try_get_u64_le().ok()?, from.try_get_u64_le().ok()?);
            LedgerRecord::Mark { generation, sequence }
        }
    };
    value.is_empty().then_some(record)
}

pub(crate) fn encode_request(out: &mut Vec<u8>, request: &Request<OnTables>) {
    match request {
        Request::Prepare(Prepare { id, age, settled, anchor, locks, operation }) => {
            out.put_u8(0);
            put_id(out, *id);
            put_age(out, *age);
            out.put_u64_le(*settled);
            put_partition(out, *anchor);
            put_locks(out, locks);
            put_operation(out, operation);
        }
        Request::Decide(Decide { id, age, settled, locks, operation, participants }) => {
            out.put_u8(1);
            put_id(out, *id);
            put_age(out, *age);
            out.put_u64_le(*settled);
            put_locks(out, locks);
            put_operation(out, operation);
            put_partitions(out, participants);
        }
        Request::Recover(id) => {
            out.put_u8(2);
            put_id(out, *id);
        }
        Request::Resolve(id, outcome) => {
            out.put_u8(3);
            put_id(out, *id);
            out.put_u8(u8::from(*outcome == Outcome::Committed));
        }
    }
}

pub(crate) fn decode_request(from: &mut Bytes) -> Option<Request<OnTables>> {
    Some(match from.try_get_u8().ok()? {
        0 => Request::Prepare(Prepare {
            id: id(from)?,
            age: age(from)?,
            settled: from.try_get_u64_le().ok()?,
            anchor: partition(from)?,
            locks: locks(from)?,
            operation: operation(from)?,
        }),
        1 => Request::Decide(Decide {
            id: id(from)?,
            age: age(from)?,
            settled: from.try_get_u64_le().ok()?,
            locks: locks(from)?,
            operation: operation(from)?,
            participants: partitions(from)?,
        }),
        2 => Request::Recover(id(from)?),
        3 => Request::Resolve(
            id(from)?,
            match from.try_get_u8().ok()? {
                0 => Outcome::Aborted,
                1 => Outcome::Committed,
                _ => return None,
            },
        ),
        _ => return None,
    })
}

pub(crate) fn encode_answer(answer: &Answer<OnTables>) -> Bytes {
    let mut out = Vec::new();
    match answer {
        Answer::Prepared(reply) => {
            out.put_u8(0);
            put_bytes(&mut out, reply);
        }
        Answer::Busy(Holder { id, age, anchor }) => {
            out.put_u8(1);
            put_id(&mut out, *id);
            put_age(&mut out, *age);
            put_partition(&mut out, *anchor);
        }
        Answer::Refused(reply) => {
            out.put_u8(2);
            put_bytes(&mut out, reply);
        }
        Answer::Over => out.put_u8(3),
        Answer::Committed(None) => out.put_u8(4),
        Answer::Committed(Some(reply)) => {
            out.put_u8(5);
            put_bytes(&mut out, reply);
        }
        Answer::Aborted => out.put_u8(6),
        Answer::Resolved => out.put_u8(7),
    }
    out.into()
}

pub(crate) fn decode_answer(mut from: Bytes) -> Option<Answer<OnTables>> {
    let from = &mut from;
    let answer = match from.try_get_u8().ok()? {
        0 => Answer::Prepared(bytes(from)?),
        1 => Answer::Busy(Holder { id: id(from)?, age: age(from)?, anchor: partition(from)? }),
        2 => Answer::Refused(bytes(from)?),
        3 => Answer::Over,
        4 => Answer::Committed(None),
        5 => Answer::Committed(Some(bytes(from)?)),
        6 => Answer::Aborted,
        7 => Answer::Resolved,
        _ => return None,
    };
    from.is_empty().then_some(answer)
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u32_le(number(bytes.len()));
    out.put_slice(bytes);
}

pub(crate) fn bytes(from: &mut Bytes) -> Option<Bytes> {
    let length = from.try_get_u32_le().ok()? as usize;
    (length <= from.len()).then(|| from.split_to(length))
}

pub(crate) fn number(count: usize) -> u32 {
    u32::try_from(count).expect("a request is shorter than 4 GiB")
}

fn put_id(out: &mut Vec<u8>, id: TransactionId) {
    out.put_u32_le(id.node.0);
    out.put_u64_le(id.generation);
    out.put_u64_le(id.sequence);
}

fn id(from: &mut Bytes) -> Option<TransactionId> {
    Some(TransactionId {
        node: NodeId(from.try_get_u32_le().ok()?),
        generation: from.try_get_u64_le().ok()?,
        sequence: from.try_get_u64_le().ok()?,
    })
}

fn put_age(out: &mut Vec<u8>, age: Age) {
    out.put_u64_le(age.began_millis);
    put_id(out, age.first);
}

fn age(from: &mut Bytes) -> Option<Age> {
    Some(Age { began_millis: from.try_get_u64_le().ok()?, first: id(from)? })
}

fn put_partition(out: &mut Vec<u8>, name: PartitionName) {
    out.put_u32_le(name.table.0);
    out.put_u32_le(name.partition);
}

fn partition(from: &mut Bytes) -> Option<PartitionName> {
    let table = TableId(from.try_get_u32_le().ok()?);
    Some(PartitionName { table, partition: from.try_get_u32_le().ok()? })
}

fn put_partitions(out: &mut Vec<u8>, names: &[PartitionName]) {
    out.put_u32_le(number(names.len()));
    names.iter().for_each(|name| put_partition(out, *name));
}

fn partitions(from: &mut Bytes) -> Option<Vec<PartitionName>> {
    list(from, partition)
}

fn put_locks(out: &mut Vec<u8>, locks: &Locks<OnTables>) {
    out.put_u32_le(number(locks.len()));
    for (key, access) in locks {
        out.put_u8(u8::from(*access == Access::Exclusive));
        put_bytes(out, key);
    }
}

fn locks(from: &mut Bytes) -> Option<Locks<OnTables>> {
    list(from, |from| {
        let access = match from.try_get_u8().ok()? {
            0 => Access::Shared,
            1 => Access::Exclusive,
            _ => return None,
        };
        Some((bytes(from)?, access))
    })
}

fn put_operation(out: &mut Vec<u8>, operation: &FaceOperation) {
    out.put_u8(operation.service);
    put_bytes(out, &operation.operation);
}

fn operation(from: &mut Bytes) -> Option<FaceOperation> {
    Some(FaceOperation { service: from.try_get_u8().ok()?, operation: bytes(from)? })
}

/// Stands where the number of a service would: no face has this one.
const MUTATIONS: u8 = 0;

fn put_writes(out: &mut Vec<u8>, writes: &IntendedWrites) {
    match writes {
        IntendedWrites::Mutations(mutations) => {
            out.put_u8(MUTATIONS);
            put_bytes(out, mutations);
        }
        IntendedWrites::Operation(operation) => put_operation(out, operation),
    }
}

fn writes(from: &mut Bytes) -> Option<IntendedWrites> {
    let FaceOperation { service, operation } = operation(from)?;
    Some(match service {
        MUTATIONS => IntendedWrites::Mutations(operation),
        service => IntendedWrites::Operation(FaceOperation { service, operation }),
    })
}

/// Each element takes a byte or more, so no count makes this reserve more than what came.
pub(crate) fn list<T>(from: &mut Bytes, mut element: impl FnMut(&mut Bytes) -> Option<T>) -> Option<Vec<T>> {
    let count = from.try_get_u32_le().ok()? as usize;
    (count <= from.len()).then_some(())?;
    (0..count).map(|_| element(from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TransactionId = TransactionId { node: NodeId(3), generation: 7, sequence: 258 };
    const AGE: Age = Age { began_millis: 1_700_000_000_000, first: ID };
    const ANCHOR: PartitionName = PartitionName { table: TableId(5), partition: 11 };

    fn some_locks() -> Locks<OnTables> {
        vec![(Bytes::from_static(b"one"), Access::Shared), (Bytes::from_static(b""), Access::Exclusive)]
    }

    fn records() -> Vec<(LedgerKey, LedgerRecord<OnTables>)> {
        let reply = Bytes::from_static(b"reply");
        let intent = |writes| {
            let intent = Intent { anchor: ANCHOR, age: AGE, locks: some_locks(), writes, reply: reply.clone() };
            (LedgerKey::Intent(ID), LedgerRecord::Intent(intent))
        };
        let operation = FaceOperation { service: 13, operation: Bytes::from_static(b"operation") };
        let decision = |decision| (LedgerKey::Decision(ID), LedgerRecord::Decision(decision));
        vec![
            intent(IntendedWrites::Mutations(Bytes::from_static(b"writes"))),
            intent(IntendedWrites::Operation(operation)),
            decision(Decision::Aborted),
            decision(Decision::Forgotten),
            decision(Decision::Committed { participants: vec![ANCHOR], reply: reply.clone() }),
            (LedgerKey::Finished(ID), LedgerRecord::Finished),
            (LedgerKey::Mark(NodeId(9)), LedgerRecord::Mark { generation: 2, sequence: 1 << 40 }),
        ]
    }

    fn requests() -> Vec<Request<OnTables>> {
        let operation = FaceOperation { service: 3, operation: Bytes::from_static(b"SET") };
        let (id, age, settled, anchor, locks) = (ID, AGE, 200, ANCHOR, some_locks());
        let prepare = Prepare { id, age, settled, anchor, locks: locks.clone(), operation: operation.clone() };
        let participants = vec![ANCHOR, PartitionName { table: TableId(5), partition: 12 }];
        vec![
            Request::Prepare(prepare),
            Request::Decide(Decide { id, age, settled, locks, operation, participants }),
            Request::Recover(id),
            Request::Resolve(id, Outcome::Aborted),
            Request::Resolve(id, Outcome::Committed),
        ]
    }

    fn answers() -> Vec<Answer<OnTables>> {
        let reply = Bytes::from_static(b"reply");
        vec![
            Answer::Prepared(reply.clone()),
            Answer::Busy(Holder { id: ID, age: AGE, anchor: ANCHOR }),
            Answer::Refused(reply.clone()),
            Answer::Over,
            Answer::Committed(None),
            Answer::Committed(Some(reply)),
            Answer::Aborted,
            Answer::Resolved,
        ]
    }

    #[test]
    fn what_was_encoded_comes_back_and_what_is_cut_off_does_not() {
        for (key, record) in records() {
            assert_eq!(decode_key(&encode_key(key)), Some(key));
            let encoded = encode_record(&record);
            assert_eq!(decode_record(key, &encoded), Some(record));
            for length in 0..encoded.len() {
                assert_eq!(decode_record(key, &encoded[..length]), None, "{key:?} cut at {length}");
            }
        }
        for request in requests() {
            let mut encoded = Vec::new();
            encode_request(&mut encoded, &request);
            let whole = Bytes::from(encoded);
            assert_eq!(decode_request(&mut whole.clone()), Some(request));
            for length in 0..whole.len() {
                assert_eq!(decode_request(&mut whole.slice(..length)), None, "cut at {length}");
            }
        }
        for answer in answers() {
            let encoded = encode_answer(&answer);
            assert_eq!(decode_answer(encoded.clone()), Some(answer));
            for length in 0..encoded.len() {
                assert_eq!(decode_answer(encoded.slice(..length)), None, "cut at {length}");
            }
        }
        for key in [&b"seal"[..], b"sync", b"t", b"t\x04\0\0\0\x01", b"t\x03\0\0\0\x01x"] {
            assert_eq!(decode_key(key), None);
        }
    }

    /// Records of this form are in data directories.
    #[test]
    fn the_bytes_of_records_stay() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let encoded: Vec<_> =
            records().iter().map(|(key, record)| hex(&encode_key(*key)) + " " + &hex(&encode_record(record))).collect();
        let id = "03000000070000000000000002010000000000 00".replace(' ', "");
        let key = "0000000300000000000000070000000000000102";
        assert_eq!(
            encoded,
            [
                format!(
                    "7400{key} 050000000b0000000068e5cf8b010000{id}02000000\
                     00030000006f6e65010000000000060000007772697465730500000072 65706c79"
                )
                .replace("72 65", "7265"),
                format!(
                    "7400{key} 050000000b0000000068e5cf8b010000{id}0200000000030000006f6e650100000000\
                     0d090000006f7065726174696f6e050000007265706c79"
                ),
                format!("7401{key} 00"),
                format!("7401{key} 01"),
                format!("7401{key} 0201000000050000000b0000000500000072 65706c79").replace("72 65", "7265"),
                format!("7402{key} "),
                "740300000009 02000000000000000000000000010000".into(),
            ]
        );
    }
}
