//! What coordinators have left behind that are gone, or cannot go on: the leader of a partition brings it to its end.

use super::requests::ToPartitions;
use crate::ledger::{Asked, OnTables, Overdue, PartitionName, decode_answer};
use crate::router::{Part, PartOutcome};
use crate::store::Store;
use crate::table::{Table, group_of};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_transaction::{Answer, Outcome, Request, TransactionId};
use tessera_types::Durability;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// An intent is asked about when it is so old, and that of a coordinator whose node is not heard of when it is [`AT_ONCE`] old.
const INTENT: Duration = Duration::from_millis(700);
const AT_ONCE: Duration = Duration::from_millis(20);
/// A commit that its coordinator has not settled is finished when it is so old. Usually a later transaction of the same node
/// settles it before.
const COMMIT: Duration = Duration::from_secs(5);
/// While an intent is so old, commands are looked after that wait for it: they may have waited for others before, and are refused when
/// they have waited for too long in all.
const HOLDS_UP: Duration = Duration::from_secs(1);
/// So many are looked after at one time.
const AT_ONE_TIME: usize = 64;
/// How long a partition is looked for that does not answer. Then it is asked again at another look.
const PATIENCE: Duration = Duration::from_secs(1);

/// One that is being looked after, in which partition.
type Place = (PartitionName, TransactionId);

impl Store {
    /// Brings transactions to their end that their coordinators have left behind in partitions that this node leads. Runs until it
    /// is dropped.
    pub async fn finish_transactions(self) {
        let under_way: Arc<Mutex<HashSet<Place>>> = Arc::default();
        let mut interval = tokio::time::interval(PAUSE);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            for table in self.registry().open_tables() {
                for partition in 0..table.schema.partitions {
                    self.look_after(&table, partition, &under_way);
                }
            }
        }
    }

    fn look_after(&self, table: &Arc<Table>, partition: u32, under_way: &Arc<Mutex<HashSet<Place>>>) {
        let state = &table.partitions[partition as usize];
        if !state.is_serving() {
            return;
        }
        if state.ledger.has_intents_for(HOLDS_UP) {
            self.parts().inboxes.of(table.id, partition).go_on(group_of(table.id, partition));
        }
        let patience = |id: TransactionId| if self.is_heard(id.node) { INTENT } else { AT_ONCE };
        for overdue in state.ledger.overdue(patience, COMMIT) {
            let (Overdue::Intent(id, _) | Overdue::Commit(id, _)) = overdue;
            let name = PartitionName { table: table.id, partition };
            {
                let mut under_way = under_way.lock();
                if under_way.len() >= AT_ONE_TIME || !under_way.insert((name, id)) {
                    continue;
                }
            }
            let (store, table, under_way) = (self.clone(), table.clone(), under_way.clone());
            tokio::spawn(async move {
                match overdue {
                    Overdue::Intent(id, anchor) => store.recover(&table, partition, id, anchor).await,
                    Overdue::Commit(id, participants) => store.forget(&table, partition, id, &participants).await,
                }
                under_way.lock().remove(&(name, id));
            });
        }
    }

    /// Asks the anchor what has become of a transaction, and resolves the intent here.
    async fn recover(&self, table: &Arc<Table>, partition: u32, id: TransactionId, anchor: PartitionName) {
        let outcome = match self.ask_partition(anchor, Request::Recover(id)).await {
            Some(Answer::Committed(_)) => Outcome::Committed,
            Some(Answer::Aborted) => Outcome::Aborted,
            // A table that was split was sealed when all that it had committed was resolved. For one that was dropped, and then deleted
            // before that, nobody can know any more.
            None if self.is_gone(anchor.table) => Outcome::Aborted,
            _ => return,
        };
        tracing::debug!(table = %table.name(), partition, ?id, ?outcome, "a transaction was left behind");
        let resolve = Asked::Request(Request::Resolve(id, outcome));
        self.finish(table, partition, resolve).await;
    }

    /// Tells the participants of a commit, and forgets it when all have resolved it.
    async fn forget(&self, table: &Arc<Table>, partition: u32, id: TransactionId, participants: &[PartitionName]) {
        for participant in participants {
            let resolve = Request::Resolve(id, Outcome::Committed);
            let answer = self.ask_partition(*participant, resolve).await;
            if answer != Some(Answer::Resolved) && !self.is_gone(participant.table) {
                return;
            }
        }
        self.finish(table, partition, Asked::Forget(id)).await;
    }

    async fn finish(&self, table: &Arc<Table>, partition: u32, step: Asked) {
        // The next look finds what was not done.
        if self.coordination().ask_here(table, durability(table), partition, step).await.is_ok() {
            self.coordination().counters.recovered();
        }
    }

    /// Has a partition answer, wherever it is led; `None` if it could not be asked.
    async fn ask_partition(&self, name: PartitionName, work: Request<OnTables>) -> Option<Answer<OnTables>> {
        let table = self.registry().any(name.table)?;
        let mut parts = [Part::repeatable(name.partition, work)];
        let route = ToPartitions { coordination: self.coordination().clone(), durability: durability(&table) };
        self.route(&table, &route, &mut parts, Instant::now() + PATIENCE).await;
        match parts {
            [Part { outcome: Some(PartOutcome::Done(answer)), .. }] => decode_answer(answer),
            _ => None,
        }
    }
}

/// Nobody here knows what the client has asked for: the resolution must be as durable as the intent, so it is as durable as can be.
fn durability(table: &Table) -> Option<Durability> {
    table.schema.is_persistent().then_some(Durability::Hard)
}
