//! The protocol of transactions over several partitions, as values and transitions.
//!
//! Pure: nothing here knows sockets, engines, clocks or logs. A partition's replicated part is a [`Ledger`], to which the
//! partition's leader puts requests. A node that carries out a transaction has a [`Coordinator`]. Who reads several
//! partitions at one instant has a [`ReadAttempt`].
//!
//! **The protocol** in short; `docs/decisions/0053-transactions-over-partitions.md` says why. A transaction has an *anchor*,
//! the partition of its first key, and *participants*, the other partitions. The coordinator has each participant evaluate its
//! part under locks and log the result as an *intent* (prepare). When all have, it asks the anchor to decide: one entry of the
//! anchor's log has the anchor's own writes and the *decision record*. This entry is the instant at which the transaction
//! takes effect, since all intents hold their locks by then. Afterwards the participants are told to resolve their intents:
//! to apply them or to drop them. Whoever meets an intent whose coordinator is gone asks the anchor, which logs an abort
//! if it has no decision; this makes a later commit impossible.
//!
//! **What the protocol takes for granted** of those who run it:
//! - A partition evaluates requests one after the other, each on all that is logged before, and applies entries in the
//!   order of its log.
//! - It answers a request only when the entry that the answer rests on is committed ([`Rule::AnswersWaitForCommit`]).
//! - Messages may be lost, repeated, delayed without limit and reordered.
//! - A node coordinates under a generation that it never had before, and is then known to no partition under a later one.
//!
//! `model` drives these state machines through losses and crashes with a model checker, and shows of each [`Rule`] that the
//! protocol fails without it.

#![warn(missing_docs)]

mod coordinator;
mod data;
mod id;
mod intent;
mod ledger;
mod message;
#[cfg(test)]
mod model;
mod read;
mod record;
mod rules;

pub use coordinator::{Abort, Coordinator, Effect, End};
pub use data::Data;
pub use id::{Age, TransactionId, TransactionIds, UNSETTLED};
pub use intent::{Access, Holder, Intent, Locks};
pub use ledger::{Entry, Ledger, Step};
pub use message::{Answer, Decide, Outcome, Prepare, Request};
pub use read::{ReadAttempt, ReadStep};
pub use record::{Decision, LedgerKey, LedgerRecord};
pub use rules::{Rule, Rules};
