//! Applying a table's [rules](Rule) to the partitions that this node leads.
//!
//! Rules are applied when the table is compacted, and once a [day](crate::compactions). What they come to goes through the log
//! like any write, so replicas stay alike, and a record that is written meanwhile is judged as it is then.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_engine::{PageLimit, Position};
use tessera_store::hosting::request_error;
use tessera_store::{Operation, Store, Table, Transaction, Verdict, WriteOptions};
use tessera_types::{Expiry, ReadMode, RecordKey, RequestError, Rule, RuleOutcome, StoredValue, ValueKind};
use tokio::sync::oneshot;

/// What is looked at in one go, and records written in one operation.
const PAGE: PageLimit = PageLimit { records: 1_000, bytes: 1 << 20 };
const WRITTEN: usize = 200;

/// What applying rules came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RulesApplied {
    /// Records that were deleted.
    pub deleted: u64,
    /// Records whose expiry was changed.
    pub changed: u64,
}

type Keys = Vec<(Bytes, Bytes)>;

/// Judges records again, and does what the rules say.
struct Apply {
    rules: Vec<Rule>,
    keys: Keys,
    deleted: AtomicU64,
    changed: AtomicU64,
    outcome: Mutex<Option<oneshot::Sender<Result<(), RequestError>>>>,
}

impl Operation for Apply {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let (mut deleted, mut changed) = (0, 0);
        for (hash_key, sort_key) in &self.keys {
            // What cannot be read or written is left as it is; a later time finds it again.
            let Ok(Some(record)) = transaction.get(hash_key, sort_key) else { continue };
            let key = RecordKey::new(hash_key, sort_key);
            match Rule::apply_all(&self.rules, &key, record.expiry, transaction.now()) {
                RuleOutcome::Keep => {}
                RuleOutcome::Delete => {
                    transaction.delete_unchecked(hash_key, sort_key);
                    deleted += 1;
                }
                RuleOutcome::ExpireAt(time) => {
                    let Expiry { key, record: own } = record.expiry;
                    // A string's expiry is that of its key; a field, or a record under a sort key, has its own.
                    let expiry = match sort_key.is_empty() && record.kind == ValueKind::Plain && own.is_none() {
                        true => Expiry::at_key(Some(time)),
                        false => Expiry { key, record: Some(time) },
                    };
                    let put = transaction.put(hash_key, sort_key, &record.value, expiry, record.kind);
                    changed += u64::from(put.is_ok());
                }
            }
        }
        self.deleted.store(deleted, Ordering::Relaxed);
        self.changed.store(changed, Ordering::Relaxed);
        Verdict::Commit
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        if let Some(sender) = self.outcome.lock().take() {
            let _ = sender.send(outcome);
        }
    }
}

/// Applies the table's rules to what this node leads.
///
/// # Errors
/// What first stood in the way of a partition; the others are done. Partitions that others lead are left to them;
/// [`RequestError::NotReady`] if one was handed over in the middle.
pub(crate) async fn apply(store: &Store, table: &Arc<Table>) -> Result<RulesApplied, RequestError> {
    let (mut applied, mut outcome) = (RulesApplied::default(), Ok(()));
    let rules = table.settings().rules.clone();
    if rules.is_empty() {
        return Ok(applied);
    }
    for partition in 0..table.schema().partitions {
        outcome = outcome.and(apply_to_partition(store, table, partition, &rules, &mut applied).await);
    }
    outcome.map(|()| applied)
}

async fn apply_to_partition(
    store: &Store,
    table: &Arc<Table>,
    partition: u32,
    rules: &[Rule],
    applied: &mut RulesApplied,
) -> Result<(), RequestError> {
    let is_led = || table.partition(partition).is_serving();
    let mut from = is_led().then_some(Position::START);
    while let Some(position) = from {
        if !is_led() {
            return Err(RequestError::NotReady);
        }
        let (page_of, page_rules) = (table.clone(), rules.to_vec());
        let page = tokio::task::spawn_blocking(move || find(&page_of, partition, &position, &page_rules));
        let (next, keys) = page.await.map_err(|_| RequestError::Interrupted)??;
        for keys in keys.chunks(WRITTEN) {
            let done = apply_to_records(store, table, partition, rules, keys.to_vec()).await?;
            applied.deleted += done.deleted;
            applied.changed += done.changed;
        }
        from = next;
    }
    Ok(())
}

async fn apply_to_records(
    store: &Store,
    table: &Arc<Table>,
    partition: u32,
    rules: &[Rule],
    keys: Keys,
) -> Result<RulesApplied, RequestError> {
    let (sender, outcome) = oneshot::channel();
    let apply = Arc::new(Apply {
        rules: rules.to_vec(),
        keys,
        deleted: AtomicU64::new(0),
        changed: AtomicU64::new(0),
        outcome: Mutex::new(Some(sender)),
    });
    let operation: Arc<dyn Operation> = apply.clone();
    store.write(table, WriteOptions::default(), &operation, [partition]);
    outcome.await.unwrap_or(Err(RequestError::Interrupted))?;
    Ok(RulesApplied { deleted: apply.deleted.load(Ordering::Relaxed), changed: apply.changed.load(Ordering::Relaxed) })
}

/// The next page's records that rules say something about, and where the one after it begins.
fn find(
    table: &Table,
    partition: u32,
    from: &Position,
    rules: &[Rule],
) -> Result<(Option<Position>, Keys), RequestError> {
    let now = table.seen_at(partition, ReadMode::Single, table.clock().now());
    let mut keys = Keys::new();
    let page = table.engine().read_page(partition, from, PAGE).map_err(request_error)?;
    for (key, stored) in page.records() {
        let live = StoredValue::decode(stored).filter(|stored| stored.is_live(now));
        if live.is_some_and(|stored| Rule::apply_all(rules, &key, stored.expiry, now) != RuleOutcome::Keep) {
            keys.push((Bytes::copy_from_slice(key.hash_key), Bytes::copy_from_slice(key.sort_key)));
        }
    }
    Ok((page.next, keys))
}
