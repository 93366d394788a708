//! What a partition's leader answers a feed that asks for changes: at once if there are some, else when some come, or after a while.

use super::record::{ChangesWork, NewChanges, STATE_KEY, decode_state, from, is_wanted, number_of};
use super::retention::Retention;
use crate::partition;
use crate::shared::Shared;
use crate::work::Reply;
use std::sync::Arc;
use std::time::Duration;
use tessera_engine::{Order, PageLimit};
use tessera_store::{Store, Table};
use tessera_types::{ReadMode, RequestError, Space};
use tokio::time::Instant;

/// Changes that are read of a partition at one time, and their bytes.
const PAGE: PageLimit = PageLimit { records: 1_000, bytes: 256 << 10 };
/// The fewest bytes of changes that are passed over before a poll that wants none of them is answered.
const LEAST_PASSED: u64 = 4 << 10;
/// How often a poll that waits looks whether this node still leads.
const LOOK: Duration = Duration::from_millis(200);
/// Writes that are acknowledged before they are applied wake a poll too early: it looks again after these times.
const SOON_MILLIS: [u64; 5] = [5, 10, 20, 50, 100];

/// What one look at the log of a partition has found.
struct Found {
    changes: NewChanges,
    /// Bytes that were looked at, wanted or not.
    looked: usize,
    /// Whether there are more changes already.
    has_more: bool,
}

/// The next changes of a partition. Nothing is waited for.
fn read(store: &Store, table: &Table, partition: u32, work: &ChangesWork) -> Result<Found, RequestError> {
    partition::read(store, table, partition, ReadMode::Single, |transaction| {
        let found = transaction.scan_in(Space::CHANGES, from(&work.start()), Order::Ascending, PAGE)?;
        // Looked at behind the changes: what is gone by then and was not asked for was not missed.
        let state = transaction.get_in(Space::INDEXES, STATE_KEY)?.and_then(|state| decode_state(&state));
        let is_there = state.is_some_and(|state| state.has(work.after));
        let last = found.records.last().and_then(|(key, _)| number_of(key));
        let reached = last.map_or(work.after, |(number, _)| number);
        let is_asked_for = |key: &[u8]| number_of(key).is_some_and(|(_, primary)| is_wanted(&work.ranges, primary));
        let looked = found.records.iter().map(|(key, value)| key.len() + value.len()).sum();
        let records = found.records.into_iter().filter(|(key, _)| is_asked_for(key)).collect();
        let changes = NewChanges { is_lost: !is_there, reached, records };
        Ok(Found { changes, looked, has_more: found.is_cut })
    })
}

/// The changes of several partitions, as soon as one of them has some.
pub(crate) async fn poll(
    shared: &Arc<Shared>,
    table: &Arc<Table>,
    mut asked: Vec<(u32, ChangesWork)>,
) -> Vec<Result<Reply, RequestError>> {
    let patience = asked.iter().map(|(_, work)| work.patience).min().unwrap_or(0);
    let until = Instant::now() + Duration::from_millis(u64::from(patience));
    let places = asked.iter().map(|(partition, work)| (*partition, &work.ranges[..]));
    // Whoever does not want most changes must not fall behind because of them: so many at most are passed over before it is told how
    // far the log is.
    let most_passed = (Retention::of(table).bytes / 4).max(LEAST_PASSED);
    let waiting = shared.waiters.wait(table.id(), most_passed, places);
    let mut soon = SOON_MILLIS.len();
    let mut passed = vec![0; asked.len()];
    loop {
        let mut found = Vec::with_capacity(asked.len());
        let mut bytes = 0;
        for (partition, work) in &asked {
            if bytes >= PAGE.bytes {
                // One answer has no room for the changes of many partitions.
                let changes = NewChanges { is_lost: false, reached: work.after, records: Vec::new() };
                found.push(Ok(Found { changes, looked: 0, has_more: true }));
                continue;
            }
            let (store, table, partition, work) = (shared.store.clone(), table.clone(), *partition, work.clone());
            let read = move || read(&store, &table, partition, &work);
            let read = shared.store.disk_readers().read(read).await;
            let records = read.iter().flat_map(|found| &found.changes.records);
            bytes += records.map(|(key, value)| key.len() + value.len()).sum::<usize>();
            found.push(read);
        }
        for (passed, found) in passed.iter_mut().zip(&found) {
            *passed += found.as_ref().map_or(0, |found| found.looked as u64);
        }
        let says_something = |found: &Result<Found, RequestError>| match found {
            Ok(found) => found.changes.is_lost || !found.changes.records.is_empty(),
            Err(_) => true,
        };
        let is_far = passed.iter().any(|passed| *passed >= most_passed);
        if is_far || found.iter().any(says_something) || Instant::now() >= until {
            return found.into_iter().map(|found| found.map(|found| Reply::Changes(found.changes))).collect();
        }
        // Changes that are not asked for are not looked at again.
        let mut has_more = false;
        for ((_, work), found) in asked.iter_mut().zip(found.into_iter().flatten()) {
            if found.changes.reached > work.after {
                (work.after, soon) = (found.changes.reached, SOON_MILLIS.len());
            }
            has_more |= found.has_more;
        }
        if has_more {
            continue;
        }
        loop {
            let pause = SOON_MILLIS.get(soon).map_or(LOOK, |millis| Duration::from_millis(*millis));
            let is_woken = tokio::time::timeout(pause, waiting.woken.notified()).await.is_ok();
            if is_woken {
                soon = 0;
                break;
            }
            if soon < SOON_MILLIS.len() {
                soon += 1;
                break;
            }
            let leads = |partition: u32| table.known_leader(partition) == Some(shared.store.node());
            let is_over = shared.is_stopping() || asked.iter().any(|(partition, _)| !leads(*partition));
            if is_over {
                return asked.iter().map(|_| Err(RequestError::NotReady)).collect();
            }
            if Instant::now() >= until {
                let nothing = |after| NewChanges { is_lost: false, reached: after, records: Vec::new() };
                return asked.iter().map(|(_, work)| Ok(Reply::Changes(nothing(work.after)))).collect();
            }
        }
    }
}
