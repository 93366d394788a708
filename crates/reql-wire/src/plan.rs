//! What a transaction over partitions is to do with documents, and with the claims to their unique keys, sorted by partition.
//!
//! The operation of a part is work, each one after its `u32` place in the list of all documents. See docs/decisions/0056.

use crate::work::{ClaimWork, Work};
use bytes::{BufMut as _, Bytes};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use tessera_document::EntryChanges;
use tessera_reql::Durability;
use tessera_store::{Access, PartitionName, Table, TransactionPart};
use tessera_types::{RecordKey, Space, TableId};

/// The parts of a transaction, with that of the first document at first.
#[derive(Default)]
pub(crate) struct Plan {
    places: BTreeMap<PartitionName, usize>,
    parts: Vec<PlannedPart>,
    claims: BTreeMap<(TableId, Space, Bytes), PlannedClaim>,
}

/// What is asked of one partition.
struct PlannedPart {
    table: Arc<Table>,
    partition: u32,
    locks: Vec<Bytes>,
    operation: Vec<u8>,
}

struct PlannedClaim {
    table: Arc<Table>,
    /// The place of the document that takes the key; if none does, of one that gives it up.
    at: usize,
    work: ClaimWork,
}

/// Two documents of one transaction take the same key of a unique index.
pub(crate) struct TakenTwice {
    pub(crate) space: Space,
    pub(crate) key: Bytes,
    /// The primary key of the first of them.
    pub(crate) first: Bytes,
}

impl Plan {
    /// Something is done with a document.
    pub(crate) fn add_document(&mut self, table: &Arc<Table>, at: usize, key: &Bytes, work: &Work) {
        self.add(table, at, (key, key.clone()), work);
    }

    /// The holder of a key of a unique index is looked for.
    pub(crate) fn add_holder(&mut self, table: &Arc<Table>, at: usize, space: Space, key: &Bytes) {
        self.add(table, at, (key, claim_lock(space, key)), &Work::Holder { space, key: key.clone() });
    }

    /// A document takes and gives up keys of unique indexes.
    pub(crate) fn add_claims(
        &mut self,
        table: &Arc<Table>,
        at: usize,
        primary: &Bytes,
        claims: &[(Space, EntryChanges)],
    ) -> Result<(), TakenTwice> {
        for (space, changes) in claims {
            for key in &changes.removed {
                self.claim(table, at, *space, key).work.leaving.push(primary.clone());
            }
            for key in &changes.added {
                let planned = self.claim(table, at, *space, key);
                if let Some(first) = planned.work.taking.replace(primary.clone()) {
                    return Err(TakenTwice { space: *space, key: planned.work.key.clone(), first });
                }
                planned.at = at;
            }
        }
        Ok(())
    }

    /// Whether a document takes one of the keys already that these changes take.
    pub(crate) fn takes_any(&self, table: &Table, claims: &[(Space, EntryChanges)]) -> bool {
        let mut keys = claims.iter().flat_map(|(space, changes)| changes.added.iter().map(|key| (*space, key)));
        keys.any(|(space, key)| {
            let planned = self.claims.get(&(table.id(), space, Bytes::copy_from_slice(key)));
            planned.is_some_and(|planned| planned.work.taking.is_some())
        })
    }

    fn claim(&mut self, table: &Arc<Table>, at: usize, space: Space, key: &[u8]) -> &mut PlannedClaim {
        let key = Bytes::copy_from_slice(key);
        match self.claims.entry((table.id(), space, key.clone())) {
            Entry::Occupied(planned) => planned.into_mut(),
            Entry::Vacant(unplanned) => {
                let work = ClaimWork { space, key, leaving: Vec::new(), taking: None };
                unplanned.insert(PlannedClaim { table: table.clone(), at, work })
            }
        }
    }

    /// `placed` is the key that leads to the partition, and the name under which it is locked.
    fn add(&mut self, table: &Arc<Table>, at: usize, placed: (&Bytes, Bytes), work: &Work) {
        let name = PartitionName { table: table.id(), partition: partition_of(table, placed.0) };
        let place = *self.places.entry(name).or_insert_with(|| {
            let (table, partition) = (table.clone(), name.partition);
            self.parts.push(PlannedPart { table, partition, locks: Vec::new(), operation: Vec::new() });
            self.parts.len() - 1
        });
        let part = &mut self.parts[place];
        part.locks.push(placed.1);
        part.operation.put_u32_le(u32::try_from(at).expect("a query has fewer documents"));
        work.encode(&mut part.operation);
    }

    pub(crate) fn into_parts(mut self, durability: Durability) -> Vec<TransactionPart> {
        for ((_, space, key), PlannedClaim { table, at, work }) in std::mem::take(&mut self.claims) {
            self.add(&table, at, (&key, claim_lock(space, &key)), &Work::Claim(work));
        }
        let part = |PlannedPart { table, partition, locks, operation }: PlannedPart| TransactionPart {
            partition,
            durability: match durability {
                _ if !table.schema().is_persistent() => None,
                Durability::Default => None,
                Durability::Soft => Some(tessera_types::Durability::Soft),
                Durability::Hard => Some(tessera_types::Durability::Hard),
            },
            table,
            locks: locks.into_iter().map(|key| (key, Access::Exclusive)).collect(),
            operation: operation.into(),
        };
        self.parts.into_iter().map(part).collect()
    }
}

pub(crate) fn partition_of(table: &Table, key: &[u8]) -> u32 {
    table.partition_of(&RecordKey::new(key, b""))
}

fn claim_lock(space: Space, key: &[u8]) -> Bytes {
    let name = space.claims().lock_key(key).expect("claims are locked");
    Bytes::from(name.into_owned())
}
