//! The task of a feed that polls the leaders of a table's partitions, and puts what comes into a queue.

use super::heirs::Division;
use super::queue::Queue;
use super::record::{ChangesWork, Keys, NewChanges, decode_change, number_of};
use crate::route::{Place, reach};
use crate::shared::Shared;
use crate::tables::{damaged, failed, key_of};
use crate::work::{Reply, Work};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tessera_document::Document;
use tessera_reql::{DocumentChange, Error, Interest, LogEvent, Pacer, Result};
use tessera_store::{Leader, Table};
use tessera_types::{ReadMode, RecordKey, RequestError};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Bytes of changes that wait for the query; then no more are asked for.
const QUEUE_BYTES: usize = 1 << 20;
/// So many events that only tell how far partitions are wake the query, and more than so many do not wait for it.
const MANY_REACHED: usize = 128;
const MOST_REACHED: usize = 1024;
/// How long a leader may wait with an answer until something changes.
const POLL: Duration = Duration::from_secs(3);
/// An answer that takes longer than that by so much is given up, and asked for again.
const GRACE: Duration = Duration::from_secs(4);
/// Between two tries where nothing was answered.
const PAUSE: Duration = Duration::from_millis(20);
/// After a partition could not be read.
const TROUBLE_PAUSE: Duration = Duration::from_secs(1);
/// How often a feed says that it needs the log. Logs go on for longer than twice this time without feeds.
const RENEWAL: Duration = Duration::from_secs(20);

/// The task that polls.
pub(super) struct Pulling {
    pub(super) shared: Arc<Shared>,
    pub(super) interest: Interest,
    pub(super) ranges: Vec<Keys>,
    pub(super) table: Arc<Table>,
    /// For each partition the last change that was taken.
    pub(super) positions: BTreeMap<u32, u64>,
    /// Partitions that are not asked now.
    pub(super) idle: BTreeSet<u32>,
    pub(super) queue: Arc<Mutex<Queue>>,
    pub(super) has_room: Arc<Notify>,
    pub(super) pacer: Arc<dyn Pacer>,
}

type Polled = (Vec<u32>, std::result::Result<Vec<Reply>, RequestError>);

impl Pulling {
    pub(super) async fn run(mut self) {
        let error = self.pull().await;
        // Where changes are not there any more, that is why.
        let error = if self.table.was_emptied() { emptied() } else { error };
        self.queue.lock().error = Some(error);
        self.pacer.wake();
    }

    /// Returns why the feed ends.
    async fn pull(&mut self) -> Error {
        let mut polls = JoinSet::new();
        let mut renewal = Instant::now() + RENEWAL;
        loop {
            while self.queue.lock().bytes() >= QUEUE_BYTES {
                // The log must stay although nobody reads it.
                if tokio::time::timeout_at(renewal, self.has_room.notified()).await.is_err() {
                    renewal = self.renew();
                }
            }
            // What was in a table that was truncated is gone, although nobody has deleted it.
            if matches!(self.table.not_serving(), RequestError::NoSuchTable(_)) || self.table.was_emptied() {
                return Error::aborted_feed();
            }
            if let Some(successor) = self.table.successor() {
                // What is asked of the old partitions is answered, or refused, soon. Then the new ones are asked.
                if polls.is_empty()
                    && let Err(error) = self.split(successor)
                {
                    return error;
                }
            }
            if self.table.successor().is_none() {
                self.ask(&mut polls);
            }
            tokio::select! {
                polled = polls.join_next(), if !polls.is_empty() => {
                    if let Some(Ok((partitions, replies))) = polled
                        && let Err(error) = self.take(partitions, replies).await
                    {
                        return error;
                    }
                }
                () = tokio::time::sleep(PAUSE), if polls.is_empty() => {}
                () = tokio::time::sleep_until(renewal) => renewal = self.renew(),
            }
        }
    }

    /// Asks the leaders of all partitions that are idle, each leader once.
    fn ask(&mut self, polls: &mut JoinSet<Polled>) {
        let mut by_leader: Vec<(Leader, Vec<u32>)> = Vec::new();
        for partition in std::mem::take(&mut self.idle) {
            let leader = self.table.leader_of(partition);
            match by_leader.iter_mut().find(|(known, _)| *known == leader && leader != Leader::Unknown) {
                Some((_, partitions)) => partitions.push(partition),
                None => by_leader.push((leader, vec![partition])),
            }
        }
        for (_, partitions) in by_leader {
            let work = |partition: &u32| {
                let (after, ranges) = (self.positions[partition], self.ranges.clone());
                let patience = u32::try_from(POLL.as_millis()).unwrap_or(u32::MAX);
                (Place::Partition(*partition), Work::Changes(ChangesWork { after, ranges, patience }))
            };
            let work: Vec<_> = partitions.iter().map(work).collect();
            let (shared, table) = (self.shared.clone(), self.table.clone());
            polls.spawn(async move {
                let asked = reach(&shared, &table, ReadMode::Single, work);
                let replies = tokio::time::timeout(POLL + GRACE, asked).await;
                (partitions, replies.unwrap_or(Err(RequestError::NotReady)))
            });
        }
    }

    async fn take(
        &mut self,
        partitions: Vec<u32>,
        replies: std::result::Result<Vec<Reply>, RequestError>,
    ) -> Result<()> {
        let mut is_new = false;
        match replies {
            // Nobody answers for them now.
            Err(_) => tokio::time::sleep(PAUSE).await,
            Ok(replies) => {
                for (partition, reply) in partitions.iter().zip(replies) {
                    match reply {
                        Reply::Changes(changes) => is_new |= self.append(*partition, changes)?,
                        Reply::Refused(reason) => {
                            tracing::warn!(%reason, "changes of a partition cannot be read now");
                            tokio::time::sleep(TROUBLE_PAUSE).await;
                        }
                        _ => return Err(damaged()),
                    }
                }
            }
        }
        self.idle.extend(partitions);
        if is_new {
            self.pacer.wake();
        }
        Ok(())
    }

    fn append(&mut self, part: u32, changes: NewChanges) -> Result<bool> {
        if changes.is_lost {
            return Err(lost());
        }
        let mut queue = self.queue.lock();
        let is_new = !changes.records.is_empty();
        for (key, value) in changes.records {
            let (at, primary) = number_of(&key).ok_or_else(damaged)?;
            let (old, new) = decode_change(value).ok_or_else(damaged)?;
            let document = |bytes: Option<bytes::Bytes>| bytes.map(Document::trusted);
            let change = DocumentChange { part, at, key: primary.to_vec(), old: document(old), new: document(new) };
            queue.push(LogEvent::Change(change));
        }
        let before = self.positions.insert(part, changes.reached);
        // It only makes tokens newer, so it need not be told each time.
        if before != Some(changes.reached) && queue.len() < MOST_REACHED {
            queue.push(LogEvent::Reached { part, at: changes.reached });
        }
        Ok(is_new || queue.len() >= MANY_REACHED)
    }

    /// Goes on in the table that has taken the place of this one.
    fn split(&mut self, successor: Arc<Table>) -> Result<()> {
        let before = self.table.schema().partitions;
        let wanted = partitions_of(&successor, &self.interest)?;
        let division = division_of(&successor);
        let (mut positions, mut events) = (BTreeMap::new(), Vec::new());
        for (of, at) in std::mem::take(&mut self.positions) {
            let heirs = division.heirs(of, before).into_iter();
            let into: Vec<u32> = heirs.filter(|heir| wanted.contains(heir)).collect();
            positions.extend(into.iter().map(|heir| (*heir, at)));
            events.push(LogEvent::Split { of, into });
        }
        self.queue.lock().split(successor.clone(), events);
        self.idle = positions.keys().copied().collect();
        (self.positions, self.table) = (positions, successor);
        self.pacer.wake();
        Ok(())
    }

    /// Says that the logs are needed. Returns when to say it again.
    fn renew(&self) -> Instant {
        for partition in self.positions.keys().copied() {
            let (shared, table) = (self.shared.clone(), self.table.clone());
            self.shared.runtime.spawn(async move {
                let work = vec![(Place::Partition(partition), Work::BeginChanges)];
                if let Err(error) = reach(&shared, &table, ReadMode::Single, work).await {
                    tracing::debug!(error = %failed(&error), "a feed could not say that it needs the changes of a partition");
                }
            });
        }
        Instant::now() + RENEWAL
    }
}

fn emptied() -> Error {
    Error::failed("Changefeed aborted (unavailable): the table was truncated.")
}

fn lost() -> Error {
    Error::failed(
        "Changefeed aborted (unavailable): changes that it had not read are not retained any more (`feed_retention`).",
    )
}

/// The partitions that may have something of interest.
pub(super) fn partitions_of(table: &Table, interest: &Interest) -> Result<BTreeSet<u32>> {
    let all = || (0..table.schema().partitions).collect();
    let Interest::Keys(ranges) = interest else { return Ok(all()) };
    let mut partitions = BTreeSet::new();
    for range in ranges {
        let Some(key) = range.only_key() else { return Ok(all()) };
        partitions.insert(table.partition_of(&RecordKey::new(&key_of(key)?, b"")));
    }
    Ok(partitions)
}

pub(super) fn division_of(table: &Table) -> Division {
    Division { partitioner: table.schema().partitioner, partitions: table.schema().partitions }
}
