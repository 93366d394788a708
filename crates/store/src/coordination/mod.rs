//! Carrying out transactions over partitions: what the node does that a client asked.
//!
//! The protocol is that of [`tessera_transaction::Coordinator`], one for each attempt ([`attempt`]). Its requests travel by the
//! [router](crate::router) ([`requests`]), which finds the leaders of their partitions and asks again what was not answered. What
//! coordinators leave behind that are gone is brought to an end by the leaders of the partitions where it stands ([`left_over`]).

mod attempt;
mod counts;
mod instant;
mod leaders;
mod left_over;
mod part;
mod places;
mod requests;
mod tables;
mod transact;

pub use counts::TransactionCounts;
pub(crate) use instant::answer_instant;
pub use part::TransactionPart;
pub(crate) use requests::carry_out;
pub use transact::Transacted;

use crate::ledger::Evaluator;
use crate::store_parts::StoreParts;
use crate::table::Table;
use counts::Counters;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tessera_transaction::{TransactionId, TransactionIds};
use tessera_types::NodeId;

/// The version of the protocol between nodes from which on they take part in transactions over partitions.
const KNOWS_TRANSACTIONS: u8 = 7;

/// To another node, replies that come when so many bytes have gathered are held back, and it asks again: what it gets at a time is held in
/// memory on both sides.
const ANSWER_BYTES: usize = 4 << 20;

/// What a node needs to coordinate transactions, and to take part in them.
pub(crate) struct Coordination {
    parts: Arc<StoreParts>,
    ids: Mutex<TransactionIds>,
    /// Those who understand the operations of faces, by the numbers of their services.
    evaluators: RwLock<BTreeMap<u8, Weak<dyn Evaluator>>>,
    counters: Counters,
}

impl Coordination {
    pub(crate) fn new(parts: Arc<StoreParts>) -> Self {
        let identity = &parts.identity;
        let ids = TransactionIds::new(identity.node, identity.generation.number);
        Self { parts, ids: Mutex::new(ids), evaluators: RwLock::default(), counters: Counters::default() }
    }

    /// Has the operations of a face evaluated, as long as `evaluator` is there.
    ///
    /// # Panics
    /// If the service has an evaluator already.
    pub(crate) fn add<E: Evaluator + 'static>(&self, service: u8, evaluator: &Arc<E>) {
        let evaluator: Weak<E> = Arc::downgrade(evaluator);
        let is_free = self.evaluators.write().insert(service, evaluator).is_none();
        assert!(is_free, "service {service} has an evaluator");
    }

    /// How transactions went so far.
    pub(crate) fn counts(&self) -> TransactionCounts {
        let open =
            |table: &Arc<Table>| table.partitions.iter().map(|state| state.ledger.open_count() as u64).sum::<u64>();
        self.counters.counts(self.parts.registry.open_tables().iter().map(open).sum())
    }

    fn evaluator(&self, service: u8) -> Option<Arc<dyn Evaluator>> {
        self.evaluators.read().get(&service)?.upgrade()
    }

    /// Whether all nodes of the cluster, as far as this one has spoken with them, know of transactions over partitions: one that does
    /// not would take no notice of intents.
    fn is_known_to_all(&self) -> bool {
        let older =
            |node: NodeId| self.parts.transport.version_with(node).is_some_and(|version| version < KNOWS_TRANSACTIONS);
        !self.parts.view.catalog().nodes().any(|node| older(node.id))
    }

    /// A name for a transaction, and which ones are settled. `None` if too many are not.
    fn begin(&self) -> Option<(TransactionId, u64)> {
        let mut ids = self.ids.lock();
        Some((ids.begin()?, ids.settled()))
    }

    fn settle(&self, id: TransactionId) {
        self.ids.lock().settle(id);
    }
}
