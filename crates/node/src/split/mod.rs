//! Splitting a table: what the leader of an old partition does to get its records into the two new ones that take its place.
//! What the cluster agrees on meanwhile is in `tessera_cluster`'s module `catalog::split`.
//!
//! 1. The leader tells the catalog that it begins, and clears the two new partitions.
//! 2. It puts a *tap* on what its partition applies ([`Outflow`](tessera_store::hosting::Outflow)), and copies its records page by page; after each page it
//!    sends what the tap has caught by then. What the tap caught may be older than the page, never what comes after it: in the end every record
//!    is what was written last.
//! 3. When it has caught up, and all other partitions have, it *seals* its partition: the last entry of the log to change
//!    anything is a record in the system's space ([`seal`]). Whoever leads from then on finds it and
//!    serves nothing; what waits is tried again by the faces, in the new table.
//! 4. It sends the rest of what the tap caught, and tells the catalog that it is done.
//!
//! A leader that is deposed leaves it to its successor, which begins anew. What an earlier one sent and is still on its way
//! must do no harm ([`steps`]): a new partition is cleared only if nothing has changed since the copier looked, and takes
//! records only from the copier that cleared it, both as its own leader knows; and the copier looks before it tells
//! the catalog that it begins, so that one that looked earlier, and clears later, finds a change. One that has caught up and
//! finds in the catalog that another has begun begins anew itself, since the other one may never end.

mod copier;
mod page;
mod seal;
mod sorter;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use copier::Copiers;
pub(crate) use seal::is_sealed;
pub(crate) use steps::take_step;
