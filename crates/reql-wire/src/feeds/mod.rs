//! Changefeeds over the cluster: how the changes of documents are kept, and how they come to the node that a client asked.
//!
//! **Changes are records.** While a table has feeds, each write of a document also puts what the document was and is into
//! [`Space::CHANGES`](tessera_types::Space::CHANGES) of its partition, in the same log entry ([`log`], [`record`]). So changes are
//! committed with the write and in its order, every replica has them, and they survive restarts; a new leader has them because it has
//! the log, a replica that moves because the snapshot has all spaces, and the partitions of a split because records of this space go
//! where their documents go, under their old numbers. Whether a partition keeps changes stands in its list of indexes, which each write
//! reads anyhow: without feeds nothing is added to a write.
//!
//! **Feeds pull.** A feed knows a position for each partition, the number of the last change that it has ([`tail`], [`pull`]). It asks the leader
//! for what comes after, and the leader answers when there is something ([`mod@poll`]). What is lost on the way is asked for again, so that
//! nothing is missed and nothing comes twice, whoever leads. A position that is not in the log any more, or not yet, ends the feed with
//! an error.
//!
//! See docs/decisions/0055.

mod heirs;
mod log;
mod poll;
mod pull;
mod queue;
mod record;
mod retention;
mod tail;
mod waiters;

pub(crate) use heirs::Division;
pub(crate) use log::{append, begin, end, is_logging};
pub(crate) use poll::poll;
pub(crate) use record::{ChangesWork, LogPosition, NewChanges, STATE_KEY, decode_state};
pub(crate) use waiters::Waiters;
