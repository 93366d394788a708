//! What a node does for its tables while nobody asks: removing expired records, making state durable so that the log
//! can shrink, purging dropped tables, and starting work for which there was no thread.

use crate::node_context::NodeContext;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tessera_cluster::{CATALOG_GROUP, CatalogCommand, CatalogRequest};
use tessera_store::hosting::{PendingReply, WriteCommand, group_of};
use tessera_store::{Operation, Table, Transaction, Verdict};
use tessera_types::{RequestError, TableId, UnixMillis};

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
            Housekeeping { context, tell_time: Arc::new(TellTime), durable: HashMap::new(), touched: HashMap::new() }
                .run(&stopped)
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
    /// The durable index last told to the log, per partition.
    durable: HashMap<(TableId, u32), u64>,
    /// Since when a partition has had entries that are not durable.
    touched: HashMap<(TableId, u32), Instant>,
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
                let request = CatalogRequest {
                    command: CatalogCommand::Purge { now: UnixMillis::now() },
                    reply: Box::new(|_| {}),
                };
                // Only the node that leads the catalog does it. A full inbox is no reason to hurry.
                let _ = self.context.catalog_inbox.submit(CATALOG_GROUP, request);
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
        let holding = self.context.log.groups_holding_space();
        let is_large = self.context.log.statistics().disk_bytes > self.context.config.log_limit_bytes;
        for table in tables.iter().filter(|table| table.schema().is_persistent()) {
            for partition in 0..table.schema().partitions {
                let address = (table.id(), partition);
                let applied = table.engine().applied_index(partition);
                let mut durable = match table.engine().durable_index(partition) {
                    Ok(durable) => durable,
                    Err(error) => {
                        tracing::warn!(table = %table.name(), partition, %error, "the durable index is unreadable");
                        continue;
                    }
                };
                if durable >= applied {
                    self.touched.remove(&address);
                } else {
                    let since = *self.touched.entry(address).or_insert_with(Instant::now);
                    let holds = is_large && holding.contains(&group_of(table.id(), partition));
                    if holds || since.elapsed() >= self.context.config.flush_age {
                        durable = self.make_durable(table, partition).unwrap_or(durable);
                        self.touched.remove(&address);
                    }
                }
                if self.durable.insert(address, durable) != Some(durable) && durable > 0 {
                    self.context.inbox_of(table.id(), partition).durable(group_of(table.id(), partition), durable);
                }
            }
        }
    }

    fn make_durable(&self, table: &Table, partition: u32) -> Option<u64> {
        let log_synced = || self.context.log.wait_synced().map_err(|error| error.to_string());
        let outcome = table.engine().make_durable(partition, &log_synced);
        if let Err(error) = &outcome {
            tracing::warn!(table = %table.name(), partition, %error, "state could not be made durable");
        }
        outcome.ok().and_then(|()| table.engine().durable_index(partition).ok())
    }
}
