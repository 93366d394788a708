//! What a participant has promised, and the locks that keep the promise.

use crate::data::Data;
use crate::id::{Age, TransactionId};

/// What a transaction does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// It reads the key: others may read it too.
    Shared,
    /// It writes the key, or may: nobody else reads or writes it.
    Exclusive,
}

/// The keys that a transaction needs in one partition.
pub type Locks<D> = Vec<(<D as Data>::Key, Access)>;

/// The result of a participant's part, logged and hidden until the transaction is decided. As long as it is there, its keys are
/// locked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Intent<D: Data> {
    /// The partition that has the decision.
    pub anchor: D::Partition,
    /// How old the transaction is.
    pub age: Age,
    /// What is locked. Also what was only read: another transaction that writes it would have to come after this one, and
    /// could otherwise take effect before.
    pub locks: Locks<D>,
    /// What takes effect if the transaction commits.
    pub writes: D::Writes,
    /// What was answered, for a request that comes again.
    pub reply: D::Reply,
}

/// Who holds a lock that somebody else wants, and where to ask what has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder<D: Data> {
    /// The transaction.
    pub id: TransactionId,
    /// How old it is.
    pub age: Age,
    /// The partition that has its decision.
    pub anchor: D::Partition,
}
