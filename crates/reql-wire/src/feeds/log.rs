//! The log of changes of a partition, as its loop keeps it.

use super::record::{
    LogPosition, LogState, STATE_KEY, decode_state, encode_change, from, key_of, number_at, number_of,
};
use crate::indexes::{IndexList, LIST_KEY};
use crate::work::Reply;
use bytes::Bytes;
use parking_lot::Mutex;
use tessera_engine::{Order, PageLimit};
use tessera_store::{Operation, Store, Table, Transaction, Verdict, WriteOptions};
use tessera_types::{Acks, Durability, RequestError, Space};
use tokio::sync::oneshot;

/// The shortest time for which changes are kept, and for which a log goes on after its last feed: one that is connected must have time to
/// read.
const LEAST_RETENTION: u64 = 60_000;
/// Changes that one write removes at most because they are too old or too many.
const TRIM: PageLimit = PageLimit { records: 64, bytes: 256 << 10 };
/// A log looks for changes that are too old so many times in the time for which it keeps them.
const TRIMS: u64 = 64;

/// Whether a list of indexes says that the partition keeps changes.
pub(crate) fn is_logging(list: &[u8]) -> bool {
    // The list is in the order of spaces, of which this is the first one that it may have.
    list.starts_with(&Space::CHANGES.0.to_le_bytes())
}

fn state_of(transaction: &Transaction<'_>) -> Result<Option<LogState>, RequestError> {
    let damaged = || RequestError::Corruption("the state of the log of changes".into());
    let found = transaction.get_in(Space::INDEXES, STATE_KEY)?;
    found.map(|bytes| decode_state(&bytes).ok_or_else(damaged)).transpose()
}

fn put_state(transaction: &mut Transaction<'_>, state: &LogState) {
    transaction.put_in_unchecked(Space::INDEXES, STATE_KEY, &state.encode());
}

/// Milliseconds for which changes are kept, and their bytes in this partition.
fn retention(table: &Table) -> (u64, u64) {
    let retention = table.settings().feed_retention;
    let millis = retention.feed_retention_seconds.saturating_mul(1_000).max(LEAST_RETENTION);
    (millis, retention.feed_retention_bytes / u64::from(table.schema().partitions))
}

/// Notes that a document has changed, in a partition that keeps changes. Returns whether it was noted: the log ends here if no feed has
/// needed it for long enough, or it has no room for the change.
///
/// # Errors
/// What the engine reports.
pub(crate) fn append(
    transaction: &mut Transaction<'_>,
    list: Bytes,
    primary: &[u8],
    old: Option<&Bytes>,
    new: Option<&Bytes>,
) -> Result<bool, RequestError> {
    let now = transaction.now();
    let state = state_of(transaction)?;
    // Documents so large that both would not fit into a log entry end the log, and its feeds with an error, rather than be refused.
    let fits = old.map_or(0, Bytes::len) + new.map_or(0, Bytes::len) <= transaction.table().limits().write_bytes;
    let Some(mut state) = state.filter(|state| now.get() <= state.until && fits) else {
        end(transaction, list)?;
        return Ok(false);
    };
    state.last = state.next(now);
    let (key, value) = (key_of(state.last, primary), encode_change(old, new));
    transaction.check_spare(key.len() + value.len())?;
    state.bytes += (key.len() + value.len()) as u64;
    transaction.put_in_unchecked(Space::CHANGES, &key, &value);
    trim(transaction, &mut state)?;
    put_state(transaction, &state);
    Ok(true)
}

/// Ends the log of a partition, and with it its feeds.
///
/// # Errors
/// If the list of indexes cannot be read.
pub(crate) fn end(transaction: &mut Transaction<'_>, list: Bytes) -> Result<(), RequestError> {
    let mut list = IndexList::decode(list).ok_or_else(|| RequestError::Corruption("the list of indexes".into()))?;
    list.set_logging(false);
    transaction.put_in_unchecked(Space::INDEXES, LIST_KEY, &list.encode());
    transaction.delete_in(Space::INDEXES, STATE_KEY);
    transaction.drop_space(Space::CHANGES);
    Ok(())
}

/// Removes changes that are too old or too many, but never the last one.
fn trim(transaction: &mut Transaction<'_>, state: &mut LogState) -> Result<(), RequestError> {
    let now = transaction.now().get();
    let (millis, bytes) = retention(transaction.table());
    if state.bytes <= bytes && now < state.trim_at {
        return Ok(());
    }
    let (oldest, is_full) = (number_at(now.saturating_sub(millis)), state.bytes > bytes);
    // Some room is made, so that not each write makes room for itself.
    let enough = bytes - bytes / 8;
    let start = state.floor.saturating_add(1).to_be_bytes();
    let found = transaction.scan_in(Space::CHANGES, from(&start), Order::Ascending, TRIM)?;
    let mut is_done = !found.is_cut;
    for (key, value) in found.records {
        let Some((number, _)) = number_of(&key).filter(|(number, _)| *number < state.last) else { continue };
        if number >= oldest && !(is_full && state.bytes > enough) {
            is_done = true;
            break;
        }
        transaction.delete_in(Space::CHANGES, &key);
        state.floor = number;
        state.bytes = state.bytes.saturating_sub((key.len() + value.len()) as u64);
    }
    if is_done {
        state.trim_at = now + millis / TRIMS;
        if state.floor + 1 == state.last {
            state.bytes = 0;
        }
    }
    Ok(())
}

/// Has a partition keep changes from now on, if it does not, and for as long as a feed may need them.
pub(crate) async fn begin(store: &Store, table: &Table, partition: u32) -> Result<Reply, RequestError> {
    let (sender, receiver) = oneshot::channel();
    let operation = std::sync::Arc::new(Begin { found: Mutex::new(None), sender: Mutex::new(Some(sender)) });
    let operation: std::sync::Arc<dyn Operation> = operation;
    // Changes are as durable as the writes that they are part of; what a power cut takes of this it takes of those too.
    let durability = table.schema().is_persistent().then_some(Durability::Soft);
    store.write(table, WriteOptions { durability, acks: Some(Acks::Majority) }, &operation, [partition]);
    receiver.await.unwrap_or(Err(RequestError::NotReady))
}

type Begun = Result<Reply, RequestError>;

struct Begin {
    found: Mutex<Option<(Begun, Verdict)>>,
    sender: Mutex<Option<oneshot::Sender<Begun>>>,
}

impl Begin {
    fn carry_out(transaction: &mut Transaction<'_>) -> Result<(Reply, Verdict), RequestError> {
        let list = transaction.get_in(Space::INDEXES, LIST_KEY)?.unwrap_or_default();
        let now = transaction.now();
        let wanted = retention(transaction.table()).0;
        let state = if is_logging(&list) { state_of(transaction)? } else { None };
        let position = |state: &LogState| LogPosition { floor: state.floor, last: state.last };
        if let Some(mut state) = state.filter(|state| now.get() <= state.until) {
            let is_long_enough = state.until >= now.get() + wanted / 2;
            if !is_long_enough {
                state.until = now.get() + wanted;
                put_state(transaction, &state);
            }
            let verdict = if is_long_enough { Verdict::Abandon } else { Verdict::Commit };
            return Ok((Reply::ChangesBegun(position(&state)), verdict));
        }
        // Numbers go on after those that a log before this one may have had.
        let last = state.map_or(0, |state| state.last).max(number_at(now.get()));
        let state = LogState { floor: last, last, bytes: 0, until: now.get() + wanted, trim_at: 0 };
        let mut list = IndexList::decode(list).ok_or_else(|| RequestError::Corruption("the list of indexes".into()))?;
        list.set_logging(true);
        transaction.drop_space(Space::CHANGES);
        transaction.put_in_unchecked(Space::INDEXES, LIST_KEY, &list.encode());
        put_state(transaction, &state);
        Ok((Reply::ChangesBegun(position(&state)), Verdict::Commit))
    }
}

impl Operation for Begin {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let (reply, verdict) = match Self::carry_out(transaction) {
            Ok((reply, verdict)) => (Ok(reply), verdict),
            Err(error) => (Err(error), Verdict::Abandon),
        };
        *self.found.lock() = Some((reply, verdict));
        verdict
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        if let Some(sender) = self.sender.lock().take() {
            let found = self.found.lock().take().map_or(Err(RequestError::NotReady), |(reply, _)| reply);
            let _ = sender.send(outcome.and(found));
        }
    }
}
