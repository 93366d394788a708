//! Documents that end.
//!
//! When a document ends stands with it ([`StoredDocument`]), and nobody sees it from then on. What it has in indexes, its claims, and the space that
//! it takes are there until it is removed: by an ordinary write, so that feeds are told, which the leader of its partition makes. Its thread here finds by [`Space::ENDS`]
//! what has ended. Whoever wants to write a document under the same key, or one with a unique key of it, removes it before.

use crate::background::Background;
use crate::indexes::EVALUATION;
use crate::partition;
use crate::plan::Plan;
use crate::route::{Place, reach};
use crate::shared::Shared;
use crate::tables::{Tables, decoded, failed};
use crate::transact::Carried;
use crate::until::Until;
use crate::work::{Reply, Work};
use crate::write::{DocumentWrite, work_of};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tessera_document::Value;
use tessera_engine::{Order, PageLimit};
use tessera_reql::{Durability, Env, Result};
use tessera_store::{Leader, Table};
use tessera_types::{Model, ReadMode, RequestError, Space, StoredDocument, UnixMillis};

/// Between two looks at what has ended.
const PAUSE: Duration = Duration::from_millis(500);
/// Documents that are removed in one go.
const AT_ONCE: usize = 100;
/// So often in a partition, before the next one has its turn.
const ROUNDS: usize = 10;
/// How often it is tried because others write the documents or their indexes change.
const TRIES: usize = 20;

/// Starts the thread that removes documents.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn start(shared: Arc<Shared>) -> std::io::Result<Background> {
    Background::start("reql-expiry", move |ending| {
        while !ending.load(Ordering::Acquire) {
            remove_all(&shared, &ending);
            std::thread::park_timeout(PAUSE);
        }
    })
}

/// Removes what has ended in the partitions that this node leads.
fn remove_all(shared: &Arc<Shared>, ending: &AtomicBool) {
    let documents = |table: &Arc<Table>| table.schema().model == Model::Document;
    for table in shared.store.tables().into_iter().filter(documents) {
        for partition in 0..table.schema().partitions {
            for _ in 0..ROUNDS {
                let is_wanted = may_have_ended(shared, &table, partition) && table.leader_of(partition) == Leader::Here;
                if !is_wanted || ending.load(Ordering::Acquire) {
                    break;
                }
                let removed = ended(shared, &table, partition).and_then(|keys| match keys.len() {
                    0 => Ok(0),
                    count => shared.runtime.block_on(shared.remove_ended_now(&table, keys)).map(|_| count),
                });
                match removed {
                    Ok(AT_ONCE) => {}
                    Ok(_) => break,
                    Err(error) => {
                        if !matches!(error, RequestError::NotReady) {
                            tracing::warn!(table = %table.name(), partition, %error, "documents that have ended are not removed now");
                        }
                        break;
                    }
                }
            }
        }
    }
}

/// The key in [`Space::ENDS`] behind those of all that has ended by a time.
fn behind(time: UnixMillis) -> [u8; 8] {
    (time.get() + 1).to_be_bytes()
}

/// Whether this node leads a partition in which something may have ended. A group that rests goes on resting if nothing has.
fn may_have_ended(shared: &Shared, table: &Table, partition: u32) -> bool {
    if table.known_leader(partition) != Some(shared.store.node()) {
        return false;
    }
    let end = behind(table.seen_at(partition, ReadMode::Single, shared.store.now()));
    let range = (Bound::Unbounded, Bound::Excluded(&end[..]));
    let mut is_any = false;
    let found = table.engine().scan_space(partition, Space::ENDS, range, Order::Ascending, &mut |_, _| {
        is_any = true;
        false
    });
    is_any || found.is_err()
}

/// The primary keys of documents of a partition that have ended.
fn ended(shared: &Shared, table: &Table, partition: u32) -> core::result::Result<Vec<Bytes>, RequestError> {
    partition::read(&shared.store, table, partition, ReadMode::Single, |transaction| {
        let end = behind(transaction.seen_at());
        let range = (Bound::Unbounded, Bound::Excluded(&end[..]));
        let found = transaction.scan_in(Space::ENDS, range, Order::Ascending, PageLimit::of_records(AT_ONCE))?;
        Ok(found.records.into_iter().filter(|(key, _)| key.len() > 8).map(|(key, _)| key.slice(8..)).collect())
    })
}

impl Tables {
    /// [Removes](Shared::remove_ended_now) documents for a query.
    pub(crate) fn remove_ended(&self, table: &Arc<Table>, keys: Vec<Bytes>) -> Result<bool> {
        self.wait(self.0.remove_ended_now(table, keys)).map_err(|error| failed(&error))
    }
}

impl Shared {
    /// Removes those of these documents that have ended. Says whether there were any.
    pub(crate) async fn remove_ended_now(
        self: &Arc<Self>,
        table: &Arc<Table>,
        mut keys: Vec<Bytes>,
    ) -> core::result::Result<bool, RequestError> {
        let mut were_any = false;
        for _ in 0..TRIES {
            let asked = keys.iter().map(|key| (Place::Key(key.clone()), Work::Stored { key: key.clone() })).collect();
            let stored = reach(self, table, ReadMode::Single, asked).await?;
            let (mut plain, mut claiming) = (Vec::new(), Vec::new());
            for (key, stored) in keys.iter().zip(stored) {
                let Reply::Stored(Some(stored), now) = stored else { continue };
                match self.removal(table, key, &stored, UnixMillis::new(now)) {
                    Ok(Some(write)) if write.claims.is_empty() => plain.push(write),
                    Ok(Some(write)) => claiming.push(write),
                    Ok(None) => {}
                    Err(error) if keys.len() == 1 => return Err(error),
                    // It does not keep the others from being removed.
                    Err(error) => {
                        tracing::warn!(table = %table.name(), %error, "a document that has ended cannot be removed now");
                    }
                }
            }
            if plain.is_empty() && claiming.is_empty() {
                return Ok(were_any);
            }
            were_any = true;
            let work = plain.iter().map(|write| (Place::Key(write.work.key.clone()), Work::Write(write.work.clone())));
            let mut hindrances: Vec<(Bytes, Reply)> = Vec::new();
            let replies = reach(self, table, ReadMode::Single, work.collect()).await?;
            hindrances.extend(plain.iter().map(|write| write.work.key.clone()).zip(replies));
            let mut carried = tokio::task::JoinSet::new();
            for write in claiming {
                let (mut plan, key, shared) = (Plan::default(), write.work.key.clone(), self.clone());
                let _ = plan.add_claims(table, 0, &key, &write.claims);
                plan.add_document(table, 0, &key, &Work::Write(write.work));
                carried.spawn(async move { (key, shared.carry_out(plan, Durability::Default).await) });
            }
            for (key, carried) in carried.join_all().await {
                match carried? {
                    Carried::Done => {}
                    Carried::Hindered(found) => {
                        hindrances.extend(found.into_iter().map(|(_, reply)| (key.clone(), reply)));
                    }
                    Carried::Split => return Err(RequestError::NotReady),
                }
            }
            keys.clear();
            for (key, hindrance) in hindrances {
                if let Reply::List(list) = &hindrance {
                    let learned = self.lists.learn(table.id(), crate::plan::partition_of(table, &key), list);
                    learned.map_err(|_| RequestError::Corruption("a list of indexes".into()))?;
                }
                if hindrance != Reply::Written {
                    keys.push(key);
                }
            }
        }
        Err(RequestError::Busy)
    }

    /// The write that removes a document, if it has ended.
    fn removal(
        &self,
        table: &Table,
        key: &Bytes,
        stored: &Bytes,
        now: UnixMillis,
    ) -> core::result::Result<Option<DocumentWrite>, RequestError> {
        let decoded_document = StoredDocument::decode(stored);
        if decoded_document.is_live(now) {
            return Ok(None);
        }
        let document = stored.slice_ref(decoded_document.document);
        let damaged = |_| RequestError::Corruption("a document that has ended".into());
        let old = decoded(Some(&document)).map_err(damaged)?;
        let env = Env::for_functions(Arc::new(Until::after(EVALUATION)), Value::Null);
        let (old, new) = ((&old, Some(document)), (&Value::Null, None));
        let mut write =
            work_of(self, table, &env, key, old, new, Durability::Default).map_err(|_| RequestError::Busy)?;
        write.work.removes_ended = true;
        Ok(Some(write))
    }
}
