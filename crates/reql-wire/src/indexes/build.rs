//! Makes the lists of the partitions that this node leads what the catalog says, and builds what is new.
//!
//! An index begins as one that writes keep and nobody reads. Then the partition's documents are looked at in the order of their keys:
//! the entries of a page go to the log together with the page's last key, so a new leader goes on where the old one stopped. A document
//! that changed since the page was read is left out, since the write that changed it has put its entries. Behind the last page
//! the index is built. One thread builds all indexes, each for a [while](TURN) before others have their turn, and no more bytes in a second
//! than the [setting](crate::ReqlConfig::index_bytes_per_second) says. The keys of a unique index
//! are [claimed](super::claiming) before; two documents with one key hinder it until one of them has changed.

use super::LIST_KEY;
use super::build_error::{BuildError, EVALUATION};
use super::cache::indexed;
use super::claiming::{ClaimedDocument, Claiming};
use super::list::{IndexList, ListedIndex, all_claims_keys, claimed_index, progress_key};
use super::step::{Built, BuiltDocument, SentStep, Step};
use crate::background::Background;
use crate::definition::source_of;
use crate::partition;
use crate::shared::Shared;
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tessera_cluster::Indexes;
use tessera_document::{Document, EncodedValue, Value};
use tessera_engine::{Order, PageLimit};
use tessera_reql::{Env, IndexDefinition, Lazy, Pacer};
use tessera_store::{Leader, Operation, PATIENCE, Store, Table, Transaction, WriteOptions};
use tessera_types::{Acks, Durability, Model, Pace, ReadMode, RequestError, Space, TableId};

/// Between two looks at what there is to do.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two looks at a page of which it is not settled what has ended.
const UNSETTLED_PAUSE: Duration = Duration::from_millis(2);
/// A table whose partitions here have all that they should is looked at so often: another node's partition may have come.
const SETTLED_PAUSE: Duration = Duration::from_millis(500);
/// After something went wrong with a table.
const TROUBLE_PAUSE: Duration = Duration::from_secs(2);
/// How long an index of a partition is built, and a table is looked after, before others have their turn.
const TURN: Duration = Duration::from_millis(500);
/// After the functions of an index took too long in a partition, which they are likely to do again.
const SLOW_PAUSE: Duration = Duration::from_secs(60);
/// Documents that are looked at in one go, and their bytes. The partition's loop is busy with them for about a millisecond.
const PAGE: PageLimit = PageLimit { records: 200, bytes: 512 << 10 };
/// Bytes of entries in one step, about: there may be many more of them than of documents.
const STEP_BYTES: usize = 256 << 10;
/// What a document counts at least, in bytes: it is read, and the function of the index called, however small it is.
const LEAST_BYTES: usize = 1 << 10;

/// Starts the thread that builds.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn start_building(shared: Arc<Shared>) -> std::io::Result<Background> {
    Background::start("reql-index", move |ending| {
        Building { shared, ending, due: HashMap::new(), slow: HashMap::new(), pace: Pace::default() }.run()
    })
}

/// Lets functions run for a while.
struct Deadline {
    until: Instant,
    ending: Arc<AtomicBool>,
}

impl Pacer for Deadline {
    fn goes_on(&self) -> bool {
        Instant::now() < self.until && !self.ending.load(Ordering::Acquire)
    }
}

struct Building {
    shared: Arc<Shared>,
    ending: Arc<AtomicBool>,
    /// When a table is to be looked at again, unless the catalog says something new of it.
    due: HashMap<TableId, Due>,
    /// Until when indexes of partitions are let be since their functions took too long there.
    slow: HashMap<(TableId, u32, Space), Instant>,
    /// When the next page may be looked at: requests are to have the most of the node's time.
    pace: Pace,
}

/// When a table is to be looked at again.
struct Due {
    known: Arc<Indexes>,
    at: Instant,
    /// The partition to begin with.
    first: u32,
}

impl Building {
    fn run(mut self) {
        while !self.ending.load(Ordering::Acquire) {
            let tables = self.shared.store.tables();
            self.due.retain(|id, _| tables.iter().any(|table| table.id() == *id));
            self.slow.retain(|_, until| Instant::now() < *until);
            let mut is_busy = false;
            for table in tables {
                let indexes = table.indexes();
                if table.schema().model != Model::Document || indexes.is_unused() {
                    continue;
                }
                let first = match self.due.get(&table.id()).filter(|due| due.known == indexes) {
                    Some(due) if Instant::now() < due.at => None,
                    Some(due) => Some(due.first),
                    None => Some(0),
                };
                if let Some(first) = first {
                    let (next, outcome) = self.follow(&table, &indexes, first);
                    is_busy |= next.is_some();
                    let pause = match outcome {
                        Ok(()) => SETTLED_PAUSE,
                        // No warning each time: the list says what hinders the index.
                        Err(BuildError::Hindered(_)) => TROUBLE_PAUSE,
                        Err(error) => {
                            tracing::warn!(table = %table.name(), %error, "an index cannot be built now");
                            TROUBLE_PAUSE
                        }
                    };
                    let pause = if next.is_some() { Duration::ZERO } else { pause };
                    let due = Due { known: indexes, at: Instant::now() + pause, first: next.unwrap_or(0) };
                    self.due.insert(table.id(), due);
                }
            }
            if !is_busy {
                std::thread::park_timeout(PAUSE);
            }
        }
    }

    /// Does what there is to do for a table's partitions here, from one on. If that takes long it ends before, and tells with which
    /// partition it is to go on.
    fn follow(&mut self, table: &Arc<Table>, indexes: &Indexes, first: u32) -> (Option<u32>, Result<(), BuildError>) {
        let (began, mut outcome) = (Instant::now(), Ok(()));
        for partition in first..table.schema().partitions {
            if table.leader_of(partition) != Leader::Here || self.ending.load(Ordering::Acquire) {
                continue;
            }
            if began.elapsed() >= TURN {
                return (Some(partition), outcome);
            }
            let done = self.follow_partition(table, indexes, partition);
            // Who leads now goes on.
            if table.leader_of(partition) == Leader::Here {
                match done {
                    Ok(true) => {}
                    Ok(false) => return (Some(partition), outcome),
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
        }
        (None, outcome)
    }

    /// Does what there is to do for a partition. `false` if that takes longer than others are to wait.
    fn follow_partition(&mut self, table: &Arc<Table>, indexes: &Indexes, partition: u32) -> Result<bool, BuildError> {
        let shared = self.shared.clone();
        let place = Place { store: &shared.store, table, partition, ending: &self.ending.clone() };
        let mut list = place.list()?;
        let mut known: Vec<Space> = list.indexes().map(|index| index.space).chain(place.claimed()?).collect();
        known.sort_unstable();
        known.dedup();
        for space in known.into_iter().filter(|space| indexes.is_dropped(*space)) {
            list = place.step(Step::Drop(space))?;
        }
        for (_, index) in indexes.iter() {
            let space = Space(index.space);
            if list.get(space).is_none() {
                let definition = source_of(&index.definition).ok_or(BuildError::Damaged)?;
                list = place.step(Step::Begin(space, definition))?;
            }
        }
        let is_slow = |index: &ListedIndex| self.slow.contains_key(&(table.id(), partition, index.space));
        let unbuilt: Vec<ListedIndex> = list.0.into_iter().filter(|index| !index.is_built && !is_slow(index)).collect();
        let (mut is_done, mut outcome) = (true, Ok(()));
        for index in unbuilt {
            let built = match self.build(&place, &index) {
                Err(BuildError::Hindered(reason)) if index.hindrance.as_ref() != Some(&reason) => {
                    let index = index.space.0;
                    // What the keys are is for those who may read the table: `index_status` tells them.
                    tracing::warn!(table = %table.name(), index, "a unique index cannot be built, since documents have the same key");
                    place.step(Step::Hinder(Space(index), reason.clone()))?;
                    Err(BuildError::Hindered(reason))
                }
                Err(BuildError::TooSlow) => {
                    self.slow.insert((table.id(), partition, index.space), Instant::now() + SLOW_PAUSE);
                    Err(BuildError::TooSlow)
                }
                built => built,
            };
            // The others do not wait for it.
            match built {
                Ok(is_built) => is_done &= is_built,
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        if is_done { outcome.map(|()| true) } else { Ok(false) }
    }

    /// Waits until the next page may be looked at, and returns the time then; `None` if the node stops before.
    fn next_turn(&self) -> Option<Instant> {
        while !self.ending.load(Ordering::Acquire) {
            let now = Instant::now();
            let turn = self.pace.next(now);
            if turn == now {
                return Some(now);
            }
            std::thread::park_timeout(turn - now);
        }
        None
    }

    /// Builds an index of a partition for a while. `false` if it is not built then.
    fn build(&mut self, place: &Place<'_>, index: &ListedIndex) -> Result<bool, BuildError> {
        let began = Instant::now();
        let definition = IndexDefinition::from_source(index.definition.to_vec().into(), String::new());
        let definition = definition.ok_or(BuildError::Damaged)?;
        let mut is_hindered = index.hindrance.is_some();
        loop {
            let Some(turn) = self.next_turn() else { return Ok(false) };
            if place.table.indexes().is_dropped(index.space) {
                return Err(BuildError::Overtaken);
            }
            let Page { records, is_last, version } = place.page(index.space)?;
            let mut bytes_of_page = 0;
            let deadline = Deadline { until: Instant::now() + EVALUATION, ending: self.ending.clone() };
            let env = Env::for_functions(Arc::new(deadline), Value::Null);
            let (mut documents, mut bytes_of_entries) = (Vec::with_capacity(records.len()), 0);
            let claiming = Claiming {
                shared: &self.shared,
                table: place.table,
                space: index.space,
                definition: &definition,
                env: &env,
            };
            let mut claimed = Vec::new();
            for (key, bytes) in records {
                // Read as it is, it would have other entries, or none.
                EncodedValue::check(&bytes).map_err(|_| BuildError::Damaged)?;
                let document = Lazy::Document(Document::trusted(bytes.clone()));
                let indexed = indexed(&env, &definition, &document, &key).map_err(|_| BuildError::TooSlow)?;
                let entries = indexed.entries.iter().map(Vec::len).sum::<usize>();
                bytes_of_entries += entries;
                bytes_of_page += (key.len() + bytes.len() + entries).max(LEAST_BYTES);
                if !indexed.unique_keys.is_empty() {
                    claimed.push(ClaimedDocument { key: key.clone(), bytes: bytes.clone(), keys: indexed.unique_keys });
                }
                documents.push(BuiltDocument { key, bytes, entries: indexed.entries });
                if bytes_of_entries >= STEP_BYTES {
                    claiming.claim(std::mem::take(&mut claimed), &self.ending)?;
                    let documents = std::mem::take(&mut documents);
                    place.step(Step::Build(index.space, Built { documents, version }))?;
                    bytes_of_entries = 0;
                }
            }
            if !documents.is_empty() {
                claiming.claim(claimed, &self.ending)?;
                place.step(Step::Build(index.space, Built { documents, version }))?;
            }
            self.pace.note(turn, bytes_of_page as u64, self.shared.config.index_bytes_per_second);
            if is_hindered {
                // What hindered it was in this page, and is not any more.
                place.step(Step::Hinder(index.space, Bytes::new()))?;
                is_hindered = false;
            }
            if is_last {
                return place.step(Step::Finish(index.space)).map(|_| true);
            }
            if began.elapsed() >= TURN {
                return Ok(false);
            }
        }
    }
}

/// Documents of a partition that are to be looked at.
struct Page {
    /// Keys and documents.
    records: Vec<(Bytes, Bytes)>,
    is_last: bool,
    /// The version of the partition of which they are, if no write came between.
    version: Option<u64>,
}

/// A partition that this node leads.
struct Place<'a> {
    store: &'a Store,
    table: &'a Arc<Table>,
    partition: u32,
    ending: &'a AtomicBool,
}

impl Place<'_> {
    fn list(&self) -> Result<IndexList, BuildError> {
        let bytes = partition::read(self.store, self.table, self.partition, ReadMode::Single, |transaction| {
            transaction.get_in(Space::INDEXES, LIST_KEY)
        })?;
        IndexList::decode(bytes.unwrap_or_default()).ok_or(BuildError::Damaged)
    }

    /// The indexes to whose keys there may be claims here.
    fn claimed(&self) -> Result<Vec<Space>, BuildError> {
        let (first, last) = all_claims_keys();
        let range = (Bound::Included(&first[..]), Bound::Included(&last[..]));
        let found = partition::read(self.store, self.table, self.partition, ReadMode::Single, |transaction| {
            transaction.scan_in(Space::INDEXES, range, Order::Ascending, PageLimit::of_records(usize::MAX))
        })?;
        Ok(found.records.iter().filter_map(|(key, _)| claimed_index(key)).collect())
    }

    /// The next documents that an index is to hold.
    fn page(&self, space: Space) -> Result<Page, BuildError> {
        let version = || self.table.version(self.partition);
        let read = |transaction: &Transaction<'_>| {
            let behind = transaction.get_in(Space::INDEXES, &progress_key(space))?;
            let start = behind.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            transaction.scan_in(Space::DOCUMENTS, (start, Bound::Unbounded), Order::Ascending, PAGE)
        };
        // By the same time each time: what may let documents live on that have ended by then is applied soon.
        let (now, until) = (self.store.now(), Instant::now() + PATIENCE);
        loop {
            let before = version();
            let found = partition::read_if_settled(self.table, self.partition, ReadMode::Single, now, read)?;
            if let Some(page) = found {
                let version = before.filter(|before| version() == Some(*before));
                return Ok(Page { records: page.records, is_last: !page.is_cut, version });
            }
            // Others are served meanwhile where this node has no lease.
            if self.ending.load(Ordering::Acquire) || !self.table.may_settle(self.partition, until) {
                return Err(RequestError::NotReady.into());
            }
            std::thread::park_timeout(UNSETTLED_PAUSE);
        }
    }

    /// Has the partition's loop do a step, and returns the list behind it.
    fn step(&self, step: Step) -> Result<IndexList, BuildError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let operation: Arc<dyn Operation> = Arc::new(SentStep::new(step, sender));
        // What a power cut takes of a step it takes of all later ones, so it is made again. The next step reads what this one has
        // applied, so it must not be answered before.
        let durability = self.table.schema().is_persistent().then_some(Durability::Soft);
        let options = WriteOptions { durability, acks: Some(Acks::Majority) };
        self.store.write(self.table, options, &operation, [self.partition]);
        // A node that is stopping may answer no more.
        let outcome = loop {
            match receiver.recv_timeout(PAUSE) {
                Err(RecvTimeoutError::Timeout) if !self.ending.load(Ordering::Acquire) => {}
                outcome => break outcome.unwrap_or(Err(RequestError::Interrupted))?,
            }
        };
        outcome.ok_or(BuildError::Overtaken)
    }
}
