//! What coordinators have left behind that are gone, or cannot go on: the leader of a partition brings it to its end.

use super::places::{Place, Places};
use super::requests::{TO_LEARN, ToPartitions};
use crate::group::group_of;
use crate::ledger::{Asked, OnTables, Overdue, PartitionName, answer_of_ended, decode_answer};
use crate::router::{Part, PartOutcome};
use crate::store::Store;
use crate::table::Table;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_transaction::{Age, Answer, Outcome, Request, TransactionId};
use tessera_types::Durability;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// An intent is asked about when it is so old, and that of a coordinator that is gone when it is [`AT_ONCE`] old.
const INTENT: Duration = Duration::from_millis(700);
/// One of a transaction that was tried before is given as much time as those tries took, and no more than this: where entries take long to
/// commit, it would be aborted each time.
const RETRIED_INTENT: Duration = Duration::from_secs(3);
const AT_ONCE: Duration = Duration::from_millis(20);
/// A commit that its coordinator has not settled is finished when it is so old. Usually a later transaction of the same node
/// settles it before.
const COMMIT: Duration = Duration::from_secs(5);
/// While an intent is so old, commands are looked after that wait for it: they may have waited for others before, and are refused when
/// they have waited for too long in all.
const HOLDS_UP: Duration = Duration::from_secs(1);
/// How long a partition is looked for that does not answer. Then it is asked again at another look.
const PATIENCE: Duration = Duration::from_secs(1);

impl Store {
    /// Brings transactions to their end that their coordinators have left behind in partitions that this node leads. Runs until it
    /// is dropped.
    pub async fn finish_transactions(self) {
        let places: Arc<Mutex<Places>> = Arc::default();
        let mut interval = tokio::time::interval(PAUSE);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let mut overdue = Vec::new();
            for table in self.registry().open_tables() {
                for partition in 0..table.schema.partitions {
                    let found = self.overdue(&table, partition).into_iter();
                    overdue.extend(found.map(|overdue| (place(&table, partition, &overdue), (table.clone(), overdue))));
                }
            }
            let begun = places.lock().take(overdue);
            for (place, (table, overdue)) in begun {
                let (store, places, partition) = (self.clone(), places.clone(), place.0.partition);
                tokio::spawn(async move {
                    match overdue {
                        Overdue::Intent(id, anchor) => store.recover(&table, partition, id, anchor).await,
                        Overdue::Commit(id, participants) => store.forget(&table, partition, id, &participants).await,
                    }
                    places.lock().end(&place);
                });
            }
        }
    }

    /// What is to be looked after in a partition, as far as others can be asked about it.
    fn overdue(&self, table: &Arc<Table>, partition: u32) -> Vec<Overdue> {
        let state = &table.partitions[partition as usize];
        if !state.is_serving() {
            return Vec::new();
        }
        if state.ledger.has_intents_for(HOLDS_UP) {
            self.parts().inboxes.of(table.id, partition).go_on(group_of(table.id, partition));
        }
        let now = self.parts().clock.now().get();
        let is_late = |id: TransactionId, age: Age, stood: Duration| {
            let began = Duration::from_millis(now.saturating_sub(age.began_millis));
            stood >= if self.is_abandoned(id) { AT_ONCE } else { patience(began, stood) }
        };
        let mut overdue = state.ledger.overdue(is_late, COMMIT);
        overdue.retain(|overdue| match overdue {
            Overdue::Intent(_, anchor) => self.may_ask(*anchor),
            // A participant that cannot be told of the commit keeps it from being forgotten; the others ask by themselves.
            Overdue::Commit(_, participants) => participants.iter().all(|participant| self.may_ask(*participant)),
        });
        overdue
    }

    /// Whether nobody goes on with a transaction, as far as this node knows: the node that coordinates it is not heard of, or was started
    /// again since.
    fn is_abandoned(&self, id: TransactionId) -> bool {
        self.known_starts().is_over(id.node, id.generation) || !self.is_heard(id.node)
    }

    /// Whether a partition may answer: it has a leader, or was sealed, or is not there any more.
    fn may_ask(&self, name: PartitionName) -> bool {
        let table = self.registry().any(name.table);
        let may_answer = |table: &Table| table.is_splitting() || self.is_led(table, name.partition);
        table.is_none_or(|table| may_answer(&table) || self.has_ended(name.table))
    }

    /// Asks the anchor what has become of a transaction, and resolves the intent here.
    async fn recover(&self, table: &Arc<Table>, partition: u32, id: TransactionId, anchor: PartitionName) {
        let outcome = match self.ask_partition(anchor, Request::Recover(id)).await {
            Some(Answer::Committed(_)) => Outcome::Committed,
            Some(Answer::Aborted) => Outcome::Aborted,
            _ => return,
        };
        tracing::debug!(table = %table.name(), partition, %id, ?outcome, "a transaction was left behind");
        let resolve = Asked::Request(Request::Resolve(id, outcome));
        self.finish(table, partition, resolve).await;
    }

    /// Tells the participants of a commit, and forgets it when all have resolved it.
    async fn forget(&self, table: &Arc<Table>, partition: u32, id: TransactionId, participants: &[PartitionName]) {
        for participant in participants {
            let resolve = Request::Resolve(id, Outcome::Committed);
            if self.ask_partition(*participant, resolve).await != Some(Answer::Resolved) {
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

    /// What a partition answers, wherever it is led; `None` if it could not be asked.
    ///
    /// That a table was truncated may have been taken back, which this node has not heard of yet, and the transaction may have begun since. So an
    /// answer that rests on it counts only if this node has learnt since from the catalog's leader what has become of the table.
    async fn ask_partition(&self, name: PartitionName, work: Request<OnTables>) -> Option<Answer<OnTables>> {
        let (answer, is_certain) = self.ask_by_own_catalog(name, work.clone()).await?;
        if is_certain {
            return Some(answer);
        }
        if !self.learns_from_leader(TO_LEARN).await {
            return None;
        }
        self.ask_by_own_catalog(name, work).await.map(|(answer, _)| answer)
    }

    /// What a partition answers, as far as this node knows what has become of its table, and whether it would whatever else had.
    async fn ask_by_own_catalog(
        &self,
        name: PartitionName,
        work: Request<OnTables>,
    ) -> Option<(Answer<OnTables>, bool)> {
        if self.has_ended(name.table) {
            return Some((answer_of_ended(&work), self.is_gone(name.table)));
        }
        let table = self.registry().any(name.table)?;
        let mut parts = [Part::repeatable(name.partition, work)];
        let route = ToPartitions { coordination: self.coordination().clone(), durability: durability(&table) };
        self.route(&table, &route, &mut parts, Instant::now() + PATIENCE).await;
        match parts {
            [Part { outcome: Some(PartOutcome::Done(answer)), .. }] => {
                decode_answer(answer).map(|answer| (answer, !self.may_rest_on_truncation(&table)))
            }
            _ => None,
        }
    }
}

fn place(table: &Table, partition: u32, overdue: &Overdue) -> Place {
    let (Overdue::Intent(id, _) | Overdue::Commit(id, _)) = overdue;
    (PartitionName { table: table.id, partition }, *id)
}

/// How long an intent is left alone whose coordinator is heard of, if its transaction began so long ago and it has stood for so long.
fn patience(began: Duration, stood: Duration) -> Duration {
    began.saturating_sub(stood).clamp(INTENT, RETRIED_INTENT)
}

/// Nobody here knows what the client has asked for: the resolution must be as durable as the intent, so it is as durable as can be.
fn durability(table: &Table) -> Option<Durability> {
    table.schema.is_persistent().then_some(Durability::Hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each try was once aborted after the same 0.7 seconds, so that nothing ever committed where that took longer.
    #[test]
    fn a_transaction_that_is_tried_again_is_given_more_time() {
        let (mut began, mut tries) = (Duration::ZERO, 0);
        let takes = Duration::from_secs(2);
        while patience(began + takes, takes) < takes {
            began += takes;
            tries += 1;
        }
        assert!(tries <= 2, "{tries} tries");
        assert_eq!(patience(INTENT, INTENT), INTENT);
        assert_eq!(patience(Duration::from_secs(60), INTENT), RETRIED_INTENT);
    }
}
