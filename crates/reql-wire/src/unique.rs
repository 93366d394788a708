//! Writes that change unique keys: each one is a transaction of the partition of the document and of those of its keys. Those of a batch
//! travel together, as many as fit into a transaction, and one that is hindered is taken out. See docs/decisions/0056.

use crate::plan::Plan;
use crate::tables::{Tables, damaged, failed};
use crate::transact::Carried;
use crate::work::{Reply, Taken, Work};
use crate::write::DocumentWrite;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use tessera_document::{MAX_SECONDARY_KEY_BYTES, decode_key};
use tessera_reql::{Durability, Error, Result, TableInfo};
use tessera_store::Table;
use tessera_types::RequestError;

/// Most writes in a transaction, and their bytes unless one has more.
const MOST_WRITES: usize = 200;
const MOST_BYTES: usize = 512 << 10;

impl Tables {
    /// Carries out writes, and adds their replies. Those without one are to be made again.
    pub(crate) fn write_claiming(
        &self,
        table: &Arc<Table>,
        writes: Vec<(usize, DocumentWrite)>,
        durability: Durability,
        replies: &mut Vec<(usize, Reply)>,
    ) -> Result<()> {
        let mut left: VecDeque<_> = batches(writes).into();
        while let Some(mut batch) = left.pop_front() {
            let more = self.wait(self.write_batch(table, &batch, durability)).map_err(|error| failed(&error))?;
            if batch.len() > 1 && more.iter().any(|(_, reply)| matches!(reply, Reply::Refused(_))) {
                // All of them may be too much for one transaction.
                left.push_front(batch.split_off(batch.len() / 2));
                left.push_front(batch);
                continue;
            }
            // One that is hindered does not keep the others from being written.
            batch.retain(|(at, _)| !more.iter().any(|(replied, _)| replied == at));
            if !more.is_empty() && !batch.is_empty() {
                left.push_front(batch);
            }
            replies.extend(more);
        }
        Ok(())
    }

    async fn write_batch(
        &self,
        table: &Arc<Table>,
        writes: &[(usize, DocumentWrite)],
        durability: Durability,
    ) -> core::result::Result<Vec<(usize, Reply)>, RequestError> {
        let mut plan = Plan::default();
        for (at, write) in writes {
            plan.add_document(table, *at, &write.work.key, &Work::Write(write.work.clone()));
            // No two of them change the same key.
            let _ = plan.add_claims(table, *at, &write.work.key, &write.claims);
        }
        let hindrances = match self.0.carry_out(plan, durability).await? {
            Carried::Done => return Ok(writes.iter().map(|(at, _)| (*at, Reply::Written)).collect()),
            Carried::Hindered(hindrances) => hindrances,
            Carried::Split => return Ok(Vec::new()),
        };
        let document = |at| {
            let (_, write) = writes.iter().find(|(place, _)| *place == at)?;
            Some((&write.work.key, write.work.old.as_ref()))
        };
        self.0.settle(table, &hindrances, document).await
    }

    /// The error of a document that cannot have a key of a unique index.
    pub(crate) fn duplicate(&self, info: &TableInfo, taken: &Taken) -> Result<Error> {
        let table = self.open(info)?;
        let indexes = table.indexes();
        let name = indexes.iter().find(|(_, index)| index.space == taken.space.0).map_or("", |(name, _)| name);
        // A longer key was cut, and cannot be shown.
        let key = (taken.key.len() <= MAX_SECONDARY_KEY_BYTES).then(|| decode_key(&taken.key));
        let key = key.transpose().map_err(|_| damaged())?;
        let holder = decode_key(&taken.holder).map_err(|_| damaged())?;
        Ok(info.duplicate_key(name, key.as_ref(), &holder))
    }
}

/// Puts writes into batches. Of those that change the same unique key only the first one is taken: what becomes of the others depends on
/// it, and so does what becomes of those that change keys of the others.
fn batches(writes: Vec<(usize, DocumentWrite)>) -> Vec<Vec<(usize, DocumentWrite)>> {
    let (mut batches, mut bytes, mut changed) = (Vec::<Vec<_>>::new(), 0, BTreeSet::new());
    for (at, write) in writes {
        let keys = || {
            let of_index = |(space, changes): &(tessera_types::Space, tessera_document::EntryChanges)| {
                let space = *space;
                changes.removed.iter().chain(&changes.added).map(move |key| (space, key.clone())).collect::<Vec<_>>()
            };
            write.claims.iter().flat_map(of_index)
        };
        // A write that waits keeps those behind it from the keys that it changes.
        let must_wait = keys().any(|key| changed.contains(&key));
        changed.extend(keys());
        if must_wait {
            continue;
        }
        let size = write.work.old.as_ref().map_or(0, bytes::Bytes::len)
            + write.work.new.as_ref().map_or(0, bytes::Bytes::len)
            + keys().map(|(_, key)| 2 * key.len()).sum::<usize>();
        bytes += size;
        match batches.last_mut() {
            Some(batch) if batch.len() < MOST_WRITES && bytes <= MOST_BYTES => batch.push((at, write)),
            _ => {
                bytes = size;
                batches.push(vec![(at, write)]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::WriteWork;
    use bytes::Bytes;
    use tessera_document::EntryChanges;
    use tessera_types::Space;

    fn write(at: usize, size: usize, removed: &[&str], added: &[&str]) -> (usize, DocumentWrite) {
        let keys = |keys: &[&str]| keys.iter().map(|key| key.as_bytes().to_vec()).collect();
        let changes = EntryChanges { removed: keys(removed), added: keys(added) };
        let mut work = WriteWork::comparison(Bytes::from(at.to_string()), None);
        work.new = Some(Bytes::from(vec![0; size]));
        (at, DocumentWrite { work, claims: vec![(Space(16), changes)] })
    }

    #[test]
    fn writes_that_change_the_same_key_are_not_made_at_once() {
        let places = |writes: Vec<_>| -> Vec<Vec<usize>> {
            let batches = batches(writes).into_iter();
            batches.map(|batch| batch.into_iter().map(|(at, _)| at).collect()).collect()
        };
        let some = vec![
            write(0, 9, &[], &["a"]),
            write(1, 9, &["b"], &["a"]),
            write(2, 9, &["a"], &[]),
            write(3, 9, &["b"], &[]),
        ];
        assert_eq!(places(some), [[0]], "what the second one waits for, the last one waits for too");
        let moved_down = vec![write(0, 9, &["b"], &["a"]), write(1, 9, &["c"], &["b"]), write(2, 9, &["d"], &["c"])];
        assert_eq!(places(moved_down), [[0]]);
        let large = vec![write(0, 9, &[], &["a"]), write(1, MOST_BYTES, &[], &["b"]), write(2, 9, &[], &["c"])];
        assert_eq!(places(large), [[0], [1], [2]]);
        let many = (0..MOST_WRITES + 1).map(|at| write(at, 9, &[], &[&at.to_string()])).collect();
        assert_eq!(places(many).iter().map(Vec::len).collect::<Vec<_>>(), [MOST_WRITES, 1]);
    }
}
