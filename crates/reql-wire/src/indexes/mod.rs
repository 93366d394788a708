//! Secondary indexes.
//!
//! The catalog says which indexes a table is to have. Which of them a partition's writes keep, and whether they are built, is a record
//! of the partition itself, the [list]: it changes by the partition's log, so each write knows which indexes it has to keep.
//! The node that evaluates a write computes the entries, and says from which list; the leader refuses them if that is not the partition's.
//! So nothing is ever in a document that is not in its indexes, whoever leads, and whatever any node's catalog says.
//!
//! The leader of a partition makes its list what the catalog says, and [builds](build) what is new: page by page, through the log.

mod build;
mod build_error;
mod cache;
mod claiming;
mod list;
mod progress;
mod step;

pub(crate) use build::start_building;
pub(crate) use build_error::EVALUATION;
pub(crate) use cache::{IndexChanges, ListCache, NewEntries, value_at};
pub(crate) use list::{IndexList, LIST_KEY, claims_key, stamp_of};
pub(crate) use progress::progress;
