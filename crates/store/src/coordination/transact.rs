//! A transaction as a face asks for it.

use super::attempt::{Attempt, Attempted};
use super::part::TransactionPart;
use crate::clock::ClusterClock;
use crate::ledger::{FaceOperation, OnTables, PartitionName};
use crate::store::Store;
use crate::table::{Leader, Table};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tessera_transaction::{Abort, Age, Coordinator, End, TransactionId};
use tessera_types::RequestError;

/// Between two attempts, after the first has given way.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// What became of a transaction.
pub enum Transacted {
    /// It has taken effect in all of its partitions. Their replies; that of the partition which decided may be lost.
    Committed(BTreeMap<PartitionName, Bytes>),
    /// A partition has refused its part, so it takes effect nowhere.
    Refused(Bytes),
    /// It takes effect nowhere, since partitions could not be asked, or it gave way to others for too long
    /// ([`RequestError::Contended`]).
    NotDone(RequestError),
    /// It may have taken effect, now or later.
    Unknown,
    /// It takes effect nowhere, since a table was split: the transaction concerns other partitions now.
    Split,
}

/// The age of a transaction that begins now, by the cluster's time: with this node's own clock, if that is wrong, its clients would go
/// before those of all other nodes, or after them.
fn begins_now(clock: &ClusterClock, first: TransactionId) -> Age {
    Age { began_millis: clock.now().get(), first }
}

impl Store {
    /// Whether transactions over partitions can be carried out: not while nodes of an older version are in the cluster.
    pub fn may_transact(&self) -> bool {
        self.coordination().is_known_to_all()
    }

    /// Waits until everything is applied, or dropped, that transactions have in a partition which this node leads, and that may have
    /// been acknowledged by now. Whoever reads a whole partition does not look for locks.
    ///
    /// # Errors
    /// [`RequestError::Held`] if that is not so `until` then, or [`RequestError::NotReady`] if this node does not lead the partition any
    /// more.
    pub async fn await_intents(&self, table: &Table, partition: u32, until: Instant) -> Result<(), RequestError> {
        let ledger = &table.partitions[partition as usize].ledger;
        let mut hidden = ledger.hidden();
        while !hidden.is_empty() {
            if Instant::now() >= until {
                let leads = table.leader_of(partition) == Leader::Here;
                return Err(if leads { RequestError::Held } else { RequestError::NotReady });
            }
            self.another_leader(SHORTEST_PAUSE).await;
            let still = ledger.hidden();
            hidden.retain(|id| still.contains(id));
        }
        Ok(())
    }

    /// Carries out a transaction over partitions of one or several tables: all parts take effect at one instant, or none does. The first
    /// part's partition decides; if the parts differ in durability, the first one of the hardest does. `service` is that of the face that
    /// understands the operations. What was certainly not done is tried again `until` then.
    ///
    /// It takes effect in an order that all clients agree on, and that is in accord with real time.
    ///
    /// Cancellation: it is carried out to its end, and nobody hears of it.
    ///
    /// # Panics
    /// If there are no parts.
    pub async fn transact(&self, service: u8, mut parts: Vec<TransactionPart>, until: Instant) -> Transacted {
        assert!(!parts.is_empty(), "a transaction has parts");
        TransactionPart::hardest_first(&mut parts);
        let store = self.clone();
        let task = tokio::spawn(async move {
            let transacted = store.attempt(service, parts, until).await;
            store.coordination().counters.ended(&transacted);
            transacted
        });
        task.await.unwrap_or(Transacted::Unknown)
    }

    async fn attempt(&self, service: u8, parts: Vec<TransactionPart>, until: Instant) -> Transacted {
        let (mut pause, mut age) = (SHORTEST_PAUSE, None);
        loop {
            if let Err(transacted) = self.await_writable(&parts, until).await {
                return transacted;
            }
            let Some((id, settled)) = self.coordination().begin() else {
                return Transacted::NotDone(RequestError::Busy);
            };
            let age = *age.get_or_insert_with(|| begins_now(&self.parts().clock, id));
            let part = |part: &TransactionPart| {
                let operation = FaceOperation { service, operation: part.operation.clone() };
                (part.name(), part.locks.clone(), operation)
            };
            let anchor = parts[0].name();
            let coordinator = Coordinator::<OnTables>::new((id, age, settled), anchor, parts.iter().map(part));
            let mut attempt = Attempt::new(self.clone(), coordinator, anchor, &parts);
            let attempted = attempt.run(until).await;
            let not_done = self.not_reached(&parts).unwrap_or_else(|| attempt.reason.clone());
            tokio::spawn(attempt.finish());
            match attempted {
                Attempted::End(End::Committed(replies)) => return Transacted::Committed(replies),
                Attempted::End(End::Aborted(Abort::Refused(_, reply))) => return Transacted::Refused(reply),
                Attempted::End(End::Aborted(Abort::GaveWay)) if Instant::now() < until => {}
                Attempted::End(End::Aborted(Abort::GaveWay)) => return Transacted::NotDone(RequestError::Contended),
                Attempted::End(End::Aborted(Abort::GivenUp)) => return Transacted::NotDone(not_done),
                // There is no pause: it is tried again when all partitions have leaders that take writes.
                Attempted::WithoutLeader if Instant::now() < until => {
                    self.coordination().counters.tried_again();
                    continue;
                }
                Attempted::WithoutLeader => return Transacted::NotDone(not_done),
                Attempted::NotDone(reason) => return Transacted::NotDone(reason),
                Attempted::Split => return Transacted::Split,
                Attempted::Unknown => return Transacted::Unknown,
            }
            self.coordination().counters.tried_again();
            // Those that gave way to one another try again at different times.
            let spread = pause * u32::try_from(id.sequence % 8).unwrap_or_default() / 8;
            tokio::time::sleep(pause + spread).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::HeardClock;
    use tessera_types::{NodeId, UnixMillis, monotonic_millis};

    const HOUR: u64 = 3_600_000;

    /// The clients of a node whose clock was behind once went before all others for as long.
    #[test]
    fn the_clock_of_one_node_makes_its_transactions_neither_older_nor_younger() {
        let clock = ClusterClock::default();
        let ahead = UnixMillis::now().get() + HOUR - monotonic_millis();
        let heard = HeardClock { distance: i64::try_from(ahead).unwrap(), is_recent: true };
        clock.follow(&[Some(heard), Some(heard)], &[]);
        let own = UnixMillis::now().get();
        let Age { began_millis, .. } =
            begins_now(&clock, TransactionId { node: NodeId(1), generation: 1, sequence: 0 });
        assert!(began_millis >= own + HOUR - 1_000, "{began_millis} by the cluster's time, {own} by this node's");
    }
}
