//! A transaction as a face asks for it.

use super::attempt::{Attempt, Attempted};
use crate::ledger::{FaceOperation, OnTables, PartitionName};
use crate::store::Store;
use crate::table::Table;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_transaction::{Abort, Access, Age, Coordinator, End};
use tessera_types::{Durability, UnixMillis};

/// Between two attempts, after the first has given way.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// What a transaction does in one partition.
#[derive(Clone, Debug)]
pub struct TransactionPart {
    /// The partition.
    pub partition: u32,
    /// The hash keys that the operation reads and writes. No other transaction uses them meanwhile.
    pub locks: Vec<(Bytes, Access)>,
    /// What the face's [`Evaluator`](crate::Evaluator) carries out.
    pub operation: Bytes,
}

/// What became of a transaction.
pub enum Transacted {
    /// It has taken effect in all of its partitions. Their replies; that of the first part may be lost.
    Committed(BTreeMap<u32, Bytes>),
    /// A partition has refused its part, so it takes effect nowhere.
    Refused(Bytes),
    /// It takes effect nowhere, since partitions could not be asked, or it gave way to others for too long.
    NotDone,
    /// It may have taken effect, now or later.
    Unknown,
    /// It takes effect nowhere, since the table was split: it concerns the partitions of this one.
    Split(Arc<Table>),
}

impl Store {
    /// Whether transactions over partitions can be carried out: not while nodes of an older version are in the cluster.
    pub fn may_transact(&self) -> bool {
        self.coordination().is_known_to_all()
    }

    /// Carries out a transaction over partitions of a table: all parts take effect at one instant, or none does. The first part's
    /// partition decides. `service` is that of the face that understands the operations.
    ///
    /// It takes effect in an order that all clients agree on, and that is in accord with real time.
    ///
    /// Cancellation: it is carried out to its end, and nobody hears of it.
    ///
    /// # Panics
    /// If there are no parts.
    pub async fn transact(
        &self,
        table: &Arc<Table>,
        service: u8,
        durability: Option<Durability>,
        parts: Vec<TransactionPart>,
        patience: Duration,
    ) -> Transacted {
        assert!(!parts.is_empty(), "a transaction has parts");
        let (store, table) = (self.clone(), table.clone());
        let task = tokio::spawn(async move { store.attempt(table, service, durability, parts, patience).await });
        task.await.unwrap_or(Transacted::Unknown)
    }

    async fn attempt(
        self,
        table: Arc<Table>,
        service: u8,
        durability: Option<Durability>,
        parts: Vec<TransactionPart>,
        patience: Duration,
    ) -> Transacted {
        let (began, mut pause, mut age) = (Instant::now(), SHORTEST_PAUSE, None);
        let name = |partition| PartitionName { table: table.id, partition };
        loop {
            if let Some(successor) = table.successor() {
                return Transacted::Split(successor);
            }
            let (id, settled) = self.coordination().begin();
            let age = *age.get_or_insert_with(|| Age { began_millis: UnixMillis::now().get(), first: id });
            let part = |part: &TransactionPart| {
                let operation = FaceOperation { service, operation: part.operation.clone() };
                (name(part.partition), part.locks.clone(), operation)
            };
            let anchor = name(parts[0].partition);
            let coordinator = Coordinator::<OnTables>::new((id, age, settled), anchor, parts.iter().map(part));
            let mut attempt = Attempt::new(self.clone(), table.clone(), coordinator, durability);
            let attempted = attempt.run(patience).await;
            tokio::spawn(attempt.finish());
            match attempted {
                Attempted::End(End::Committed(replies)) => {
                    let of_partition = |(name, reply): (PartitionName, Bytes)| (name.partition, reply);
                    return Transacted::Committed(replies.into_iter().map(of_partition).collect());
                }
                Attempted::End(End::Aborted(Abort::Refused(_, reply))) => return Transacted::Refused(reply),
                Attempted::End(End::Aborted(Abort::GaveWay)) if began.elapsed() < patience => {}
                Attempted::End(End::Aborted(Abort::GaveWay | Abort::GivenUp)) => return Transacted::NotDone,
                Attempted::Split(successor) => return Transacted::Split(successor),
                Attempted::Unknown => return Transacted::Unknown,
            }
            // Those that gave way to one another try again at different times.
            let spread = pause * u32::try_from(id.sequence % 8).unwrap_or_default() / 8;
            tokio::time::sleep(pause + spread).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
}
