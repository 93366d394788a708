//! Splitting a table: what the leader of an old partition does to get its records into the two new ones that take its place.
//! What the cluster agrees on meanwhile is in `tessera_cluster`'s module `catalog::split`.
//!
//! 1. The leader tells the catalog that it begins, and clears the two new partitions.
//! 2. It opens a *tap* on what its partition applies ([`ChangeCapture`](tessera_store::hosting::ChangeCapture)), and copies its
//!    records page by page; after each page it sends the writes that the tap has caught by then. Such a write may be older than the
//!    page, but a write that comes after the page is always sent after it: in the end every record is as it was written last.
//! 3. When it has caught up, and all other partitions have, it *seals* its partition: the last entry of the log to change
//!    anything is a record in the system's space ([`seal`]). Whoever leads from then on finds it and
//!    serves nothing; what waits is tried again by the faces, in the new table.
//! 4. It sends the rest of what the tap caught, and tells the catalog that it is done.
//!
//! A table is truncated in the same way, but nothing is copied: the new partitions begin empty, and the old table is kept for as long
//! as it can be recalled. If it is, its partitions serve again ([`resume`]).
//!
//! When a leader steps down, its successor starts the copy again. Steps that an earlier leader has sent may still be on their way,
//! and must do no harm ([`steps`]). So a new partition is cleared only if nothing has changed since the copier asked for its state,
//! and takes records only from the copier that cleared it; the leader of the new partition decides both. A copier asks for the state
//! before it tells the catalog that it begins: so if two copiers ask, the one that clears later finds a change. A copier that has
//! caught up, and finds in the catalog that another one has begun, starts again itself, since the other one may never end.

mod copier;
mod page;
mod resume;
mod seal;
mod sorter;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use copier::Copiers;
pub(crate) use resume::resume_stopped;
pub(crate) use steps::take_step;
