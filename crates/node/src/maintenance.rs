//! What a node does for its tables while nobody asks: removing expired records, making state durable so that the log
//! can shrink, purging dropped tables, and starting work for which there was no thread.

use crate::node_context::NodeContext;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tessera_cluster::{CATALOG_GROUP, CatalogCommand, CatalogRequest};
use tessera_store::hosting::{ClusterClock, PendingReply, WriteCommand, group_of};
use tessera_store::{Operation, Table, Transaction, Verdict};
use tessera_types::{RequestError, TableId};

/// How often expired records are looked for; each time, some pages of each partition.
const SWEEP: Duration = Duration::from_millis(100);
/// How often the log's space and dropped tables are looked after.
const ROUND: Duration = Duration::from_secs(1);
/// How often dropped tables are purged.
const PURGE: Duration = Duration::from_secs(10);

/// The thread that does it.
pub(crate) struct Maintenance {
    stopping: Arc<(Mutex<bool>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Maintenance {
    pub(crate) fn start(context: Arc<NodeContext>) -> std::io::Result<Self> {
        let stopping: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let stopped = stopping.clone();
        let thread = std::thread::Builder::new().name("maintenance".into()).spawn(move || {
            Housekeeping { context, tell_time: Arc::new(TellTime), partitions: HashMap::new() }.run(&stopped)
        })?;
        Ok(Self { stopping, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn stop(&self) {
        *self.stopping.0.lock() = true;
        self.stopping.1.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Has a partition's log told the time.
struct TellTime;

impl Operation for TellTime {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        transaction.tell_time();
        Verdict::Commit
    }

    fn answer(&self, _part: usize, _outcome: Result<(), RequestError>) {}
}

struct Housekeeping {
    context: Arc<NodeContext>,
    tell_time: Arc<dyn Operation>,
    /// Of the tables that are open.
    partitions: HashMap<(TableId, u32), NotDurable>,
}

/// What is known of a partition's entries that are not durable.
#[derive(Default)]
struct NotDurable {
    /// The durable index last told to the log.
    told: Option<u64>,
    /// Since when there have been such entries, and the index of the last one then.
    oldest: Option<(Instant, u64)>,
}

impl NotDurable {
    /// Whether the partition is to be made durable: some entries have not been for so long, or the log `holds` too much because of them.
    fn is_due(&mut self, now: Instant, applied: u64, durable: u64, holds: bool, flush_age: Duration) -> bool {
        // Another partition of the table may have been made durable, and with it what was not in this one. Later entries are younger.
        self.oldest = self.oldest.filter(|(_, last)| durable < applied.min(*last));
        if durable >= applied {
            return false;
        }
        let (since, _) = *self.oldest.get_or_insert((now, applied));
        // The log holds less once it is told what has become durable meanwhile.
        let holds = holds && self.told == Some(durable);
        holds || now.duration_since(since) >= flush_age
    }

    /// Notes that it was made durable, or could not be: then it is tried again when as much time has gone by.
    fn begin_anew(&mut self) {
        self.oldest = None;
    }

    /// Notes the durable index. Returns whether the log is to be told.
    fn tell(&mut self, durable: u64) -> bool {
        self.told.replace(durable) != Some(durable) && durable > 0
    }
}

/// Forgets dropped tables whose time has come by the cluster's clock, since the one of this node may be wrong. `None` while that time is
/// not known.
fn purge(clock: &ClusterClock) -> Option<CatalogCommand> {
    clock.is_certain().then(|| CatalogCommand::Purge { now: clock.now() })
}

impl Housekeeping {
    fn run(mut self, stopping: &(Mutex<bool>, Condvar)) {
        let (mut last_round, mut last_purge) = (Instant::now(), Instant::now());
        loop {
            {
                let mut stopping_now = stopping.0.lock();
                if !*stopping_now {
                    stopping.1.wait_for(&mut stopping_now, SWEEP);
                }
                if *stopping_now {
                    return;
                }
            }
            self.context.threads.start_waiting();
            self.context.finish_purges();
            let tables = self.context.registry.open_tables();
            for table in &tables {
                for partition in 0..table.schema().partitions {
                    table.engine().remove_expired(partition);
                }
            }
            if last_round.elapsed() >= ROUND {
                last_round = Instant::now();
                self.tell_time(&tables);
                self.shrink_log(&tables);
            }
            if last_purge.elapsed() >= PURGE {
                last_purge = Instant::now();
                if let Some(command) = purge(&self.context.clock) {
                    let request = CatalogRequest { command, reply: Box::new(|_| {}) };
                    // Only the node that leads the catalog does it. A full inbox is no reason to hurry.
                    let _ = self.context.catalog_inbox.submit(CATALOG_GROUP, request);
                }
            }
        }
    }

    /// Has the log told the time where a record may have expired that nobody writes to or asks for: then it can be removed.
    fn tell_time(&self, tables: &[Arc<Table>]) {
        let (clock, operation) = (&self.context.clock, &self.tell_time);
        for table in tables.iter().filter(|_| clock.is_certain()) {
            for (partition, state) in (0..).zip(table.partitions()) {
                let is_due = || table.engine().next_expiry(partition).is_some_and(|next| next <= clock.now());
                if state.is_serving() && is_due() {
                    let pending_reply = PendingReply::new(operation.clone(), 0);
                    let command = WriteCommand::new(pending_reply);
                    // A full inbox has writes, which tell it.
                    let _ = self.context.inboxes.submit(table, partition, command);
                }
            }
        }
    }

    fn shrink_log(&mut self, tables: &[Arc<Table>]) {
        let open: HashSet<TableId> = tables.iter().map(|table| table.id()).collect();
        self.partitions.retain(|(table, _), _| open.contains(table));
        let holding = self.context.log.groups_holding_space();
        let is_large = self.context.log.statistics().disk_bytes > self.context.config.log_limit_bytes;
        for table in tables.iter().filter(|table| table.schema().is_persistent()) {
            for partition in 0..table.schema().partitions {
                let applied = table.engine().applied_index(partition);
                let mut durable = match table.engine().durable_index(partition) {
                    Ok(durable) => durable,
                    Err(error) => {
                        tracing::warn!(table = %table.name(), partition, %error, "the durable index is unreadable");
                        continue;
                    }
                };
                let group = group_of(table.id(), partition);
                let not_durable = self.partitions.entry((table.id(), partition)).or_default();
                let holds = is_large && holding.contains(&group);
                if not_durable.is_due(Instant::now(), applied, durable, holds, self.context.config.flush_age) {
                    durable = make_durable(&self.context, table, partition).unwrap_or(durable);
                    not_durable.begin_anew();
                }
                if not_durable.tell(durable) {
                    self.context.inbox_of(table.id(), partition).durable(group, durable);
                }
            }
        }
    }
}

fn make_durable(context: &NodeContext, table: &Table, partition: u32) -> Option<u64> {
    let log_synced = || context.log.wait_synced().map_err(|error| error.to_string());
    let outcome = table.engine().make_durable(partition, &log_synced);
    if let Err(error) = &outcome {
        tracing::warn!(table = %table.name(), partition, %error, "state could not be made durable");
    }
    outcome.ok().and_then(|()| table.engine().durable_index(partition).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::TestNode;
    use tessera_store::hosting::HeardClock;
    use tessera_types::{UnixMillis, monotonic_millis};

    const HOUR: i64 = 3_600_000;
    const AGE: Duration = Duration::from_secs(600);

    /// All of them were flushed one after the other, by what was durable since the first flush.
    #[test]
    fn partitions_that_are_made_durable_together_are_flushed_once_while_they_are_written_to() {
        let mut partitions: Vec<_> = (0..4).map(|_| NotDurable::default()).collect();
        let (mut now, mut applied, mut durable, mut flushes) = (Instant::now(), 0, 0, 0);
        for _ in 0..10 * AGE.as_secs() + 50 {
            now += ROUND;
            for partition in &mut partitions {
                applied += 1;
                if partition.is_due(now, applied, durable, false, AGE) {
                    durable = applied;
                    partition.begin_anew();
                    flushes += 1;
                }
                partition.tell(durable);
            }
        }
        assert_eq!(flushes, 10);
    }

    #[test]
    fn a_log_that_is_too_large_is_told_what_is_durable_before_more_is_made_so() {
        let now = Instant::now();
        let mut partition = NotDurable::default();
        let is_due = |partition: &mut NotDurable, applied, durable| partition.is_due(now, applied, durable, true, AGE);
        assert!(!is_due(&mut partition, 10, 5));
        assert!(partition.tell(5));
        assert!(is_due(&mut partition, 10, 5));
        // Another partition was made durable.
        assert!(!is_due(&mut partition, 12, 10));
        assert!(partition.tell(10));
        assert!(!partition.tell(10));
        assert!(is_due(&mut partition, 12, 10));
        assert!(!is_due(&mut partition, 12, 12));
    }

    /// The clock of another node, by so many hours ahead of this one's.
    fn heard(hours: i64) -> Option<HeardClock> {
        let own = UnixMillis::now().get().cast_signed() - monotonic_millis().cast_signed();
        Some(HeardClock { distance: own + hours * HOUR, is_recent: true })
    }

    /// Dropped tables were purged at once by a node whose own clock was ahead.
    #[test]
    fn dropped_tables_are_purged_by_the_clock_of_the_cluster_once_that_is_known() {
        let clock = ClusterClock::default();
        assert_eq!(purge(&clock), None);
        clock.follow(&[heard(-25), None, None, None], &[]);
        assert_eq!(purge(&clock), None);
        clock.follow(&[heard(-25); 2], &[]);
        let Some(CatalogCommand::Purge { now }) = purge(&clock) else { panic!("the time is known") };
        assert!(UnixMillis::now().saturating_millis_since(now) > (24 * HOUR).cast_unsigned());
        // A node that is alone goes by its own.
        let alone = ClusterClock::default();
        alone.follow(&[], &[]);
        assert!(purge(&alone).is_some());
    }

    #[tokio::test]
    async fn a_dropped_table_is_kept_by_the_clock_of_the_cluster() {
        let node = TestNode::start(|config| config.drop_retention = Duration::from_secs(3_600));
        let clock = &node.context.clock;
        node.wait_for("the time", |_| clock.is_certain().then_some(())).await;
        // The node hears no others, and goes by its own clock again at once, but time does not go back.
        clock.follow(&[heard(25); 2], &[]);
        let kept_for = node.store.purge_time().saturating_millis_since(UnixMillis::now());
        assert!(kept_for > (25 * HOUR).cast_unsigned(), "{kept_for} ms");
    }
}
