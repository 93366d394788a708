//! The records that a ledger consists of, for whoever stores it.

use crate::data::Data;
use crate::id::TransactionId;
use crate::intent::Intent;
use tessera_types::NodeId;

/// Names a record of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerKey {
    /// The intent of a transaction.
    Intent(TransactionId),
    /// What was decided about a transaction.
    Decision(TransactionId),
    /// The note that a transaction is finished here.
    Finished(TransactionId),
    /// The first transaction of a node that may not be over.
    Mark(NodeId),
}

/// A record of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerRecord<D: Data> {
    /// Under [`LedgerKey::Intent`].
    Intent(Intent<D>),
    /// Under [`LedgerKey::Decision`].
    Decision(Decision<D>),
    /// Under [`LedgerKey::Finished`].
    Finished,
    /// Under [`LedgerKey::Mark`].
    Mark {
        /// The start of the node.
        generation: u64,
        /// The number of the transaction.
        sequence: u64,
    },
}

/// What the anchor knows of a transaction that was decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision<D: Data> {
    /// It has taken effect, and some participant may not have resolved it.
    Committed {
        /// Who must resolve it.
        participants: Vec<D::Partition>,
        /// What the anchor has answered.
        reply: D::Reply,
    },
    /// All participants have resolved it, but the coordinator may ask once more.
    Forgotten,
    /// It will never take effect.
    Aborted,
}
