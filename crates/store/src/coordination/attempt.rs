//! One attempt to carry out a transaction.

use super::Coordination;
use super::requests::ToPartitions;
use crate::ledger::{OnTables, PartitionName, decode_answer};
use crate::router::{Part, PartOutcome};
use crate::store::Store;
use crate::table::Table;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_transaction::{Coordinator, Effect, End};
use tessera_types::{Durability, RequestError};

/// Between two tries to bring an attempt to its end that could not be finished.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);

/// An attempt under way.
pub(super) struct Attempt {
    store: Store,
    table: Arc<Table>,
    coordinator: Coordinator<OnTables>,
    durability: Option<Durability>,
}

/// What an attempt came to, as far as the client is concerned.
pub(super) enum Attempted {
    End(End<OnTables>),
    /// The table was split before anything was decided. It has not taken effect, and will not.
    Split(Arc<Table>),
    /// Nobody could be asked whether it has taken effect.
    Unknown,
}

impl Attempt {
    pub(super) fn new(
        store: Store,
        table: Arc<Table>,
        coordinator: Coordinator<OnTables>,
        durability: Option<Durability>,
    ) -> Self {
        Self { store, table, coordinator, durability }
    }

    fn coordination(&self) -> &Arc<Coordination> {
        self.store.coordination()
    }

    /// Carries it on until the client can be told. Then [`Self::finish`] is to be called.
    pub(super) async fn run(&mut self, patience: Duration) -> Attempted {
        let (began, mut pause) = (Instant::now(), SHORTEST_PAUSE);
        let mut has_given_up = false;
        loop {
            let is_undecided = self.coordinator.is_preparing();
            let (effects, successor, is_progress) = self.ask(patience).await;
            if let Some(end) = self.carry_out(effects) {
                return Attempted::End(end);
            }
            if let Some(successor) = successor {
                // All partitions were sealed, so they have no intents any more; and without a decision there is no commit.
                return if is_undecided { Attempted::Split(successor) } else { Attempted::Unknown };
            }
            if is_progress {
                pause = SHORTEST_PAUSE;
                continue;
            }
            if began.elapsed() >= patience || self.is_in_vain() {
                if has_given_up {
                    return Attempted::Unknown;
                }
                has_given_up = true;
                let effects = self.coordinator.give_up();
                if let Some(end) = self.carry_out(effects) {
                    return Attempted::End(end);
                }
            }
            self.store.another_leader(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Whether nobody can be asked any more: this node was removed, or the table was dropped.
    fn is_in_vain(&self) -> bool {
        self.store.is_removed() || self.table.not_serving() != RequestError::NotReady
    }

    /// Brings it to its end: its participants are told, and it is settled. Ends when there is nothing left to be told.
    pub(super) async fn finish(mut self) {
        let mut pause = SHORTEST_PAUSE;
        while !self.coordinator.is_settled() {
            // A table that was split has been sealed, after all that its partitions held was resolved. A node that was removed is
            // asked nothing, and asks nobody.
            let is_gone = || self.store.registry().any(self.table.id).is_none() || self.store.is_removed();
            if self.table.successor().is_some() || is_gone() {
                self.coordination().settle(self.coordinator.id());
                return;
            }
            let (effects, _, is_progress) = self.ask(LONGEST_PAUSE).await;
            self.carry_out(effects);
            if !is_progress {
                self.store.another_leader(pause).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }

    /// Asks what is to be asked now. Returns what the answers come to, the table's successor if it was split, and whether the
    /// coordinator has other questions now.
    async fn ask(&mut self, patience: Duration) -> (Vec<Effect<OnTables>>, Option<Arc<Table>>, bool) {
        let requests = self.coordinator.requests();
        // Every request of the protocol may come twice.
        let part = |(name, work): (PartitionName, _)| Part::repeatable(name.partition, work);
        let mut parts: Vec<_> = requests.into_iter().map(part).collect();
        let route = ToPartitions { coordination: self.store.coordination(), durability: self.durability };
        let successor = self.store.route(&self.table, &route, &mut parts, patience).await;
        let before = self.coordinator.progress();
        let mut effects = Vec::new();
        for part in parts {
            if let Some(PartOutcome::Done(answer)) = part.outcome
                && let Some(answer) = decode_answer(answer)
            {
                let from = PartitionName { table: self.table.id, partition: part.partition };
                effects.extend(self.coordinator.receive(from, answer));
            }
        }
        let is_progress = self.coordinator.progress() != before;
        (effects, successor, is_progress)
    }

    /// What is to be sent is asked for again in any case; here is the rest.
    fn carry_out(&self, effects: Vec<Effect<OnTables>>) -> Option<End<OnTables>> {
        let mut told = None;
        for effect in effects {
            match effect {
                Effect::Send(..) => {}
                Effect::Answer(end) => told = Some(end),
                Effect::Settle => self.coordination().settle(self.coordinator.id()),
            }
        }
        told
    }
}
