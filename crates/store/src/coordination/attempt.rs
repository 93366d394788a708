//! One attempt to carry out a transaction.

use super::Coordination;
use super::part::TransactionPart;
use super::requests::ToPartitions;
use super::tables::OfTable;
use crate::ledger::{OnTables, PartitionName, decode_answer};
use crate::router::{Part, PartOutcome};
use crate::store::Store;
use crate::table::Table;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_transaction::{Answer, Coordinator, Effect, End};
use tessera_types::{Durability, RequestError, TableId};

/// Between two tries while a client waits.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
/// Between two tries to bring an attempt to its end that could not be finished.
const LONGEST_PAUSE_AFTERWARDS: Duration = Duration::from_secs(1);
/// What is asked is given at least so much time to be answered.
const LEAST_PATIENCE: Duration = Duration::from_millis(200);
/// How long partitions are looked for at a time. Then it is looked at what hinders them, since others hold keys meanwhile.
const TO_FIND: Duration = Duration::from_millis(200);
/// How long participants are told of an abort. Who was not told asks the anchor.
const TO_TELL: Duration = Duration::from_secs(10);
/// How much longer than its client's patience an attempt lasts, whose anchor has to say first that it will not commit.
const TO_REVOKE: Duration = Duration::from_secs(2);

/// An attempt under way.
pub(super) struct Attempt {
    store: Store,
    coordinator: Coordinator<OnTables>,
    anchor: PartitionName,
    /// The tables that it concerns, and how durable it is there.
    tables: BTreeMap<TableId, (Arc<Table>, Option<Durability>)>,
    /// Why a partition did not answer that was asked last; at the end, before it was given up.
    pub(super) reason: RequestError,
}

/// What an attempt came to, as far as the client is concerned.
pub(super) enum Attempted {
    End(End<OnTables>),
    /// A table was split before anything was decided. It has not taken effect, and will not.
    Split,
    /// A partition has lost its leader before anything was decided. The same holds.
    WithoutLeader,
    /// A partition cannot carry out its part, for this reason, and could not if it were asked again. The same holds.
    NotDone(RequestError),
    /// Nobody could be asked whether it has taken effect.
    Unknown,
}

/// What came of asking.
#[derive(Default)]
struct Asked {
    effects: Vec<Effect<OnTables>>,
    is_split: bool,
    /// Whether the coordinator has other questions now.
    is_progress: bool,
}

impl Attempt {
    pub(super) fn new(
        store: Store,
        coordinator: Coordinator<OnTables>,
        anchor: PartitionName,
        parts: &[TransactionPart],
    ) -> Self {
        let table = |part: &TransactionPart| (part.table.id, (part.table.clone(), part.durability));
        let tables = parts.iter().map(table).collect();
        Self { store, coordinator, anchor, tables, reason: RequestError::NotReady }
    }

    fn coordination(&self) -> &Arc<Coordination> {
        self.store.coordination()
    }

    /// Carries it on until the client can be told, which waits `until` then. After that, [`Self::finish`] is to be called.
    pub(super) async fn run(&mut self, mut until: Instant) -> Attempted {
        let (mut pause, mut given_up_for) = (SHORTEST_PAUSE, None);
        loop {
            let is_undecided = self.coordinator.is_preparing();
            let left = (until - Instant::now()).max(LEAST_PATIENCE);
            let tried = Instant::now() + left.min(TO_FIND);
            // A part that waits for another transaction may be answered later than that.
            let asked = tokio::time::timeout(left, self.ask(tried)).await;
            // Partitions that have leaders answer when they need not wait for others any more.
            if asked.is_err() && self.can_prepare() {
                self.reason = RequestError::Held;
            }
            let Asked { effects, is_split, is_progress } = asked.unwrap_or_default();
            if let Some(end) = self.carry_out(effects) {
                self.reason = given_up_for.unwrap_or_else(|| self.reason.clone());
                return Attempted::End(end);
            }
            // Without a decision there is no commit. What other partitions hold is given back.
            let is_refused = self.reason.is_final();
            if is_undecided && (is_split || is_refused || !is_progress && !self.can_prepare()) {
                let effects = self.coordinator.give_up();
                self.carry_out(effects);
                return match () {
                    () if is_split => Attempted::Split,
                    () if is_refused => Attempted::NotDone(self.reason.clone()),
                    () => Attempted::WithoutLeader,
                };
            }
            if is_split {
                return Attempted::Unknown;
            }
            if is_progress {
                pause = SHORTEST_PAUSE;
                continue;
            }
            // A disk that takes nothing now will hardly do so in time. What has not taken effect can still be revoked there.
            let is_of_disk = given_up_for.is_none() && self.reason.is_of_disk();
            if Instant::now() >= until || self.is_in_vain() || is_of_disk {
                if given_up_for.is_some() {
                    return Attempted::Unknown;
                }
                given_up_for = Some(self.reason.clone());
                until = Instant::now() + TO_REVOKE;
                let effects = self.coordinator.give_up();
                if let Some(end) = self.carry_out(effects) {
                    return Attempted::End(end);
                }
            }
            self.store.another_leader(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Whether nobody can be asked any more: this node was removed, or a table was dropped.
    fn is_in_vain(&self) -> bool {
        self.tables.values().any(|(table, _)| self.store.in_vain(table).is_some())
    }

    /// Whether the partitions that have not prepared their parts yet have leaders, and the one that is to decide afterwards, and these take
    /// writes.
    fn can_prepare(&self) -> bool {
        let requests = self.coordinator.requests();
        requests
            .iter()
            .map(|(name, _)| *name)
            .chain([self.anchor])
            .all(|name| self.can_ask(name) && self.can_write(name))
    }

    fn can_write(&self, name: PartitionName) -> bool {
        let (table, _) = &self.tables[&name.table];
        table.is_splitting() || self.store.disk_refusal(table, name.partition).is_none()
    }

    fn can_ask(&self, name: PartitionName) -> bool {
        let (table, _) = &self.tables[&name.table];
        table.is_splitting() || self.store.is_led(table, name.partition)
    }

    /// Brings it to its end: its participants are told, and it is settled. Ends when there is nothing left to be told; of an abort, also
    /// when that takes too long.
    pub(super) async fn finish(mut self) {
        self.coordinator.forget_replies();
        let (mut pause, began) = (SHORTEST_PAUSE, Instant::now());
        while !self.coordinator.requests().is_empty() {
            if self.coordinator.is_settled() && began.elapsed() >= TO_TELL {
                return;
            }
            // A node that was removed is asked nothing, and asks nobody. Without the anchor, whoever holds something finds out by himself
            // what becomes of it.
            let waits_for_anchor = self.coordinator.requests().iter().any(|(name, _)| *name == self.anchor);
            if self.store.is_removed() || waits_for_anchor && self.holds_nothing(self.anchor.table) {
                self.coordination().settle(self.coordinator.id());
                return;
            }
            for (name, _) in self.coordinator.requests() {
                if self.holds_nothing(name.table) {
                    let effects = self.coordinator.receive(name, Answer::Resolved);
                    self.carry_out(effects);
                }
            }
            let left = self.coordinator.requests();
            if !left.is_empty() && !left.iter().any(|(name, _)| self.can_ask(*name)) {
                // This may last for hours, and concern many transactions: news of other partitions wake none of them.
                tokio::time::sleep(LONGEST_PAUSE_AFTERWARDS).await;
                continue;
            }
            let Asked { effects, is_progress, .. } = self.ask(Instant::now() + LONGEST_PAUSE_AFTERWARDS).await;
            self.carry_out(effects);
            if !is_progress {
                self.store.another_leader(pause).await;
                pause = (2 * pause).min(LONGEST_PAUSE_AFTERWARDS);
            }
        }
    }

    /// Whether a table was split or truncated, and so sealed after all that its partitions held was resolved; or is not there any more.
    fn holds_nothing(&self, table: TableId) -> bool {
        let is_here = |table: &Table| self.store.registry().identified(table.identity()).is_some();
        self.tables.get(&table).is_none_or(|(table, _)| table.successor().is_some() || !is_here(table))
    }

    /// Asks what is to be asked now. Partitions are looked for `until` then.
    async fn ask(&mut self, until: Instant) -> Asked {
        self.reason = RequestError::NotReady;
        let before = self.coordinator.progress();
        let requests = self.coordinator.requests();
        // Every request of the protocol may come twice.
        let part = |(name, work): (PartitionName, _)| {
            let (table, _) = &self.tables[&name.table];
            (table.clone(), Part::repeatable(name.partition, work))
        };
        let route =
            |table| ToPartitions { coordination: self.coordination().clone(), durability: self.tables[&table].1 };
        let asked = OfTable::sort(requests.into_iter().map(part));
        let answered = self.store.route_to_tables(asked, route, until).await;
        let is_split = answered.iter().any(|of| of.is_split);
        let mut effects = Vec::new();
        for OfTable { table, parts, .. } in answered {
            for part in parts {
                let from = PartitionName { table: table.id, partition: part.partition };
                match part.outcome {
                    Some(PartOutcome::Done(answer)) => {
                        let answer = decode_answer(answer);
                        effects.extend(answer.into_iter().flat_map(|answer| self.coordinator.receive(from, answer)));
                    }
                    // That there is no leader is what is said of partitions of which nothing else is known.
                    Some(PartOutcome::NotDone(reason)) if reason != RequestError::NotReady => self.reason = reason,
                    Some(PartOutcome::NotDone(_) | PartOutcome::Unknown) | None => {}
                }
            }
        }
        Asked { effects, is_split, is_progress: self.coordinator.progress() != before }
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
