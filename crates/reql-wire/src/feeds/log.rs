//! The log of changes of a partition, as its loop keeps it.

use super::record::{LogPosition, LogState, STATE_KEY, decode_state, encode_change, from, key_of, number_of};
use super::retention::Retention;
use crate::indexes::{IndexList, LIST_KEY};
use crate::work::Reply;
use bytes::Bytes;
use parking_lot::Mutex;
use tessera_engine::{Order, PageLimit};
use tessera_store::{Operation, Store, Table, Transaction, Verdict, WriteOptions};
use tessera_types::{Acks, Durability, RequestError, Space};
use tokio::sync::oneshot;

/// Changes that one write removes at most because they are too old or too many.
const TRIM: PageLimit = PageLimit { records: 64, bytes: 256 << 10 };

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
    let retention = Retention::of(transaction.table());
    retention.add(&mut state, (key.len() + value.len()) as u64);
    transaction.put_in_unchecked(Space::CHANGES, &key, &value);
    trim(transaction, &retention, &mut state)?;
    put_state(transaction, &state);
    Ok(true)
}

/// Ends the log of a partition, and with it its feeds. What was its last change stays known, so that the next log has greater numbers
/// whatever the clock of its leader says.
///
/// # Errors
/// If the list of indexes or the state cannot be read.
pub(crate) fn end(transaction: &mut Transaction<'_>, list: Bytes) -> Result<(), RequestError> {
    let mut list = IndexList::decode(list).ok_or_else(|| RequestError::Corruption("the list of indexes".into()))?;
    list.set_logging(false);
    transaction.put_in_unchecked(Space::INDEXES, LIST_KEY, &list.encode());
    if let Some(state) = state_of(transaction)? {
        put_state(transaction, &state.ended());
    }
    transaction.drop_space(Space::CHANGES);
    Ok(())
}

/// Removes changes that are too old or too many.
fn trim(transaction: &mut Transaction<'_>, retention: &Retention, state: &mut LogState) -> Result<(), RequestError> {
    let now = transaction.now().get();
    if !retention.is_to_be_trimmed(state, now) {
        return Ok(());
    }
    let start = state.floor.saturating_add(1).to_be_bytes();
    let found = transaction.scan_in(Space::CHANGES, from(&start), Order::Ascending, TRIM)?;
    let damaged = || RequestError::Corruption("the log of changes".into());
    let size = |(key, value): &(Bytes, Bytes)| Some((number_of(key)?.0, (key.len() + value.len()) as u64));
    let oldest = found.records.iter().map(|record| size(record).ok_or_else(damaged)).collect::<Result<Vec<_>, _>>()?;
    let gone = retention.trim(state, now, &oldest, found.is_cut);
    found.records[..gone].iter().for_each(|(key, _)| transaction.delete_in(Space::CHANGES, key));
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
        let wanted = Retention::of(transaction.table()).millis;
        let state = state_of(transaction)?;
        let position = |state: &LogState| LogPosition { floor: state.floor, last: state.last };
        if let Some(mut state) = state.filter(|state| is_logging(&list) && now.get() <= state.until) {
            let is_long_enough = state.until >= now.get() + wanted / 2;
            if !is_long_enough {
                state.until = now.get() + wanted;
                put_state(transaction, &state);
            }
            let verdict = if is_long_enough { Verdict::Abandon } else { Verdict::Commit };
            return Ok((Reply::ChangesBegun(position(&state)), verdict));
        }
        let state = LogState::begun(state, now, wanted);
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
