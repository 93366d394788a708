//! Which transaction is which, which is older, and which are over.

use std::collections::BTreeSet;
use std::fmt;
use tessera_types::NodeId;

/// Names a transaction. Given once; a transaction that is tried again gets another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// The node that coordinates it.
    pub node: NodeId,
    /// How often that node was started.
    pub generation: u64,
    /// Counts the transactions of that start.
    pub sequence: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.node, self.generation, self.sequence)
    }
}

/// How long a client has waited for its transaction. The older of two that want the same key waits, the younger one gives
/// way. A transaction that is tried again keeps its age, so it becomes the oldest one at last. Nothing but the order matters:
/// a clock that is wrong makes a node's transactions wait longer or shorter than others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Age {
    /// When the client asked, in milliseconds since the Unix epoch.
    pub began_millis: u64,
    /// Tells apart what began in the same millisecond.
    pub first: TransactionId,
}

/// So many transactions of a node may be under way, or wait until all of their partitions can be told how they ended. More are not
/// begun: the node keeps each in memory until then.
pub const UNSETTLED: usize = 1 << 14;

/// The names that a node gives to the transactions that it coordinates.
///
/// Partitions must remember a transaction as long as one of its messages may still arrive, which may be late. So each request
/// says which transactions of its node are *settled*: those before the first one that is not. Whatever still arrives of them is
/// refused, and whoever asks about one that is still known somewhere hears that it is aborted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionIds {
    node: NodeId,
    generation: u64,
    next: u64,
    unsettled: BTreeSet<u64>,
}

impl TransactionIds {
    /// The names of a node that was started so often.
    pub fn new(node: NodeId, generation: u64) -> Self {
        Self { node, generation, next: 0, unsettled: BTreeSet::new() }
    }

    /// A name for a transaction that begins; `None` if [too many](UNSETTLED) are not settled.
    pub fn begin(&mut self) -> Option<TransactionId> {
        if self.unsettled.len() >= UNSETTLED {
            return None;
        }
        let sequence = self.next;
        self.next += 1;
        self.unsettled.insert(sequence);
        Some(TransactionId { node: self.node, generation: self.generation, sequence })
    }

    /// Partitions may forget this transaction: all of its participants have resolved it, or it is aborted, and whoever asks about it
    /// later is told so.
    pub fn settle(&mut self, id: TransactionId) {
        debug_assert_eq!((id.node, id.generation), (self.node, self.generation));
        self.unsettled.remove(&id.sequence);
    }

    /// All transactions of this start with smaller numbers are settled.
    pub fn settled(&self) -> u64 {
        self.unsettled.first().copied().unwrap_or(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_not_settled_holds_back_those_after_it() {
        let mut ids = TransactionIds::new(NodeId(1), 7);
        let [first, second, third] = [(); 3].map(|()| ids.begin().unwrap());
        assert_eq!(ids.settled(), first.sequence);
        ids.settle(second);
        assert_eq!(ids.settled(), first.sequence);
        ids.settle(first);
        assert_eq!(ids.settled(), third.sequence);
        ids.settle(third);
        assert_eq!(ids.settled(), ids.begin().unwrap().sequence);
    }

    /// Of those that nobody could settle there was once no end.
    #[test]
    fn there_is_an_end_of_those_that_are_not_settled() {
        let mut ids = TransactionIds::new(NodeId(1), 7);
        let first = ids.begin().unwrap();
        assert_eq!(std::iter::from_fn(|| ids.begin()).count(), UNSETTLED - 1);
        ids.settle(first);
        assert!(ids.begin().is_some() && ids.begin().is_none());
    }
}
