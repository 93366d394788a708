//! A partition's part in transactions over partitions.
//!
//! The rules are those of [`tessera_transaction::Ledger`]; here is how a partition keeps to them. What it has logged are records
//! of its [system space](tessera_types::Space::SYSTEM), which travel in log entries, snapshots and checkpoints like all others
//! ([`encoding`]). The leader has them in memory as well ([`PartitionLedger`]), where readers and writers look for locks. A
//! request of a coordinator is carried out by the partition's loop as an operation ([`LedgerStep`]), so it is evaluated on all that is
//! logged before it, and answered when its entry is committed.

mod data;
pub(crate) mod encoding;
mod partition_ledger;
mod step;
#[cfg(test)]
mod tests;

pub use data::PartitionName;
pub(crate) use data::{FaceOperation, OnTables, Stamp};
pub(crate) use encoding::{decode_answer, decode_request, encode_answer, encode_request};
pub(crate) use partition_ledger::Overdue;
pub use partition_ledger::PartitionLedger;
pub use step::Evaluator;
pub(crate) use step::{Asked, LedgerStep, answer_if_sealed, answer_of_ended};
