//! What transactions are about.

use std::fmt::Debug;
use std::hash::Hash;

/// A value that the protocol carries and compares, and does not look into.
pub trait Carried: Clone + Debug + Eq + Ord + Hash + Send + Sync {}

impl<T: Clone + Debug + Eq + Ord + Hash + Send + Sync> Carried for T {}

/// The kinds of values that the protocol carries. A type without values implements it, and names them.
pub trait Data: Carried + Copy {
    /// Names a partition of a table.
    type Partition: Carried + Copy;
    /// What is locked.
    type Key: Carried;
    /// What a partition is asked to evaluate.
    type Operation: Carried;
    /// What an evaluation writes: puts and deletes.
    type Writes: Carried;
    /// What an evaluation answers to the client.
    type Reply: Carried;
    /// Tells whether what was read has changed since: it must differ after each write and each change of the leader.
    type Stamp: Carried;
}
