//! The steps in which a partition's list of indexes becomes what the catalog says, each of them one entry of the partition's log.

use super::list::{IndexList, claims_key, progress_key};
use super::{LIST_KEY, stamp_of};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::mpsc;
use tessera_store::{Operation, Transaction, Verdict};
use tessera_types::{RequestError, Space};

/// A document with what an index is to hold of it.
pub(super) struct BuiltDocument {
    pub(super) key: Bytes,
    /// The document must still be this.
    pub(super) bytes: Bytes,
    pub(super) entries: Vec<Vec<u8>>,
}

/// Documents that an index is to hold.
pub(super) struct Built {
    pub(super) documents: Vec<BuiltDocument>,
    /// The [version](tessera_store::Table::version) of the partition of which the documents are, if it is known: whoever finds the
    /// partition at it need not look at them again.
    pub(super) version: Option<u64>,
}

/// A step in the partition's log.
pub(super) enum Step {
    Begin(Space, Bytes),
    Build(Space, Built),
    Finish(Space),
    /// Note what hinders a unique index.
    Hinder(Space, Bytes),
    Drop(Space),
}

/// The list behind a step; `None` if the step cannot be made on the list as it is.
pub(super) type Done = Result<Option<IndexList>, RequestError>;

/// A step that the partition's loop is asked to make.
pub(super) struct SentStep {
    step: Step,
    found: Mutex<Option<Done>>,
    sender: mpsc::SyncSender<Done>,
}

impl SentStep {
    /// The outcome is sent to `sender`.
    pub(super) fn new(step: Step, sender: mpsc::SyncSender<Done>) -> Self {
        Self { step, found: Mutex::new(None), sender }
    }
}

impl Step {
    /// Returns the list as it is then; `None` if it is not one that the step can be made on.
    fn carry_out(&self, transaction: &mut Transaction<'_>) -> Done {
        let bytes = transaction.get_in(Space::INDEXES, LIST_KEY)?.unwrap_or_default();
        let before = stamp_of(&bytes);
        let Some(mut list) = IndexList::decode(bytes) else { return Ok(None) };
        let is_unbuilt = |list: &IndexList, space| list.get(space).is_some_and(|index| !index.is_built);
        match self {
            // What transactions over partitions have here was made for the list as it is.
            Self::Begin(..) | Self::Finish(_) | Self::Hinder(..) | Self::Drop(_) => transaction.await_no_intents()?,
            Self::Build(..) => {}
        }
        match self {
            Self::Begin(space, definition) => list.begin(*space, definition.clone()),
            Self::Build(space, Built { documents, version }) if is_unbuilt(&list, *space) => {
                let now = transaction.table().version(transaction.partition()).filter(|_| !transaction.is_behind());
                let is_unchanged = version.is_some() && now == *version;
                for document in documents {
                    let is_same = |found: Option<Bytes>| found.as_ref() == Some(&document.bytes);
                    if is_unchanged || is_same(transaction.get_in(Space::DOCUMENTS, &document.key)?) {
                        for entry in &document.entries {
                            transaction.put_in(*space, entry, b"")?;
                        }
                    }
                }
                if let Some(last) = documents.last() {
                    transaction.put_in(Space::INDEXES, &progress_key(*space), &last.key)?;
                }
            }
            Self::Finish(space) if is_unbuilt(&list, *space) => {
                list.finish(*space);
                transaction.delete_in(Space::INDEXES, &progress_key(*space));
            }
            Self::Hinder(space, reason) => list.hinder(*space, reason),
            Self::Drop(space) => {
                list.drop(*space);
                if transaction.get_in(Space::INDEXES, &claims_key(*space))?.is_some() {
                    transaction.delete_in(Space::INDEXES, &claims_key(*space));
                    transaction.drop_space(space.claims());
                }
                transaction.delete_in(Space::INDEXES, &progress_key(*space));
                transaction.drop_space(*space);
            }
            Self::Build(..) | Self::Finish(_) => return Ok(None),
        }
        let after = list.encode();
        if stamp_of(&after) != before {
            transaction.put_in(Space::INDEXES, LIST_KEY, &after)?;
        }
        Ok(Some(list))
    }
}

impl Operation for SentStep {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let done = self.step.carry_out(transaction);
        let verdict = if matches!(done, Ok(Some(_))) { Verdict::Commit } else { Verdict::Abandon };
        *self.found.lock() = Some(done);
        verdict
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        let found = self.found.lock().take().unwrap_or(Ok(None));
        let _ = self.sender.try_send(outcome.and(found));
    }
}
