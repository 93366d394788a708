//! What is said between coordinators and partitions.

use crate::data::Data;
use crate::id::{Age, TransactionId};
use crate::intent::{Holder, Locks};

/// What has become of a transaction. Final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It has taken effect in all of its partitions.
    Committed,
    /// It takes effect nowhere.
    Aborted,
}

/// Asks a participant to evaluate its part and to keep the result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prepare<D: Data> {
    /// The transaction.
    pub id: TransactionId,
    /// How old it is.
    pub age: Age,
    /// See [`TransactionIds`](crate::TransactionIds).
    pub settled: u64,
    /// The partition that will decide.
    pub anchor: D::Partition,
    /// The keys that the operation reads and writes.
    pub locks: Locks<D>,
    /// What is evaluated.
    pub operation: D::Operation,
}

/// Asks the anchor to evaluate its own part, and to commit. All participants are prepared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decide<D: Data> {
    /// The transaction.
    pub id: TransactionId,
    /// How old it is.
    pub age: Age,
    /// See [`TransactionIds`](crate::TransactionIds).
    pub settled: u64,
    /// The keys that the operation reads and writes.
    pub locks: Locks<D>,
    /// What is evaluated.
    pub operation: D::Operation,
    /// Who must resolve the transaction before its record may go.
    pub participants: Vec<D::Partition>,
}

/// What a partition is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request<D: Data> {
    /// For a participant. Answered by [`Answer::Prepared`], [`Answer::Busy`], [`Answer::Refused`] or [`Answer::Over`].
    Prepare(Prepare<D>),
    /// For the anchor. Answered by [`Answer::Committed`], [`Answer::Aborted`], [`Answer::Busy`] or [`Answer::Refused`].
    Decide(Decide<D>),
    /// For the anchor: what has become of the transaction? If nothing has, it is aborted. Answered by [`Answer::Committed`] or
    /// [`Answer::Aborted`].
    Recover(TransactionId),
    /// For a participant: what has become of the transaction. Answered by [`Answer::Resolved`].
    Resolve(TransactionId, Outcome),
}

impl<D: Data> Request<D> {
    /// The transaction that it is about.
    pub fn id(&self) -> TransactionId {
        match self {
            Self::Prepare(prepare) => prepare.id,
            Self::Decide(decide) => decide.id,
            Self::Recover(id) | Self::Resolve(id, _) => *id,
        }
    }

    /// How old the transaction is, if the request may have to wait for another one.
    pub fn age(&self) -> Option<Age> {
        match self {
            Self::Prepare(prepare) => Some(prepare.age),
            Self::Decide(decide) => Some(decide.age),
            Self::Recover(_) | Self::Resolve(..) => None,
        }
    }
}

/// What a partition answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer<D: Data> {
    /// The participant holds its intent until the transaction is decided.
    Prepared(D::Reply),
    /// Another transaction holds a key. Nothing was done.
    Busy(Holder<D>),
    /// A condition of the operation does not hold. Nothing was done.
    Refused(D::Reply),
    /// The participant has already forgotten the transaction. It cannot commit any more, unless it has.
    Over,
    /// The transaction has taken effect. The anchor's own reply, as long as it is kept.
    Committed(Option<D::Reply>),
    /// The transaction will never take effect.
    Aborted,
    /// The participant holds nothing of the transaction any more.
    Resolved,
}
