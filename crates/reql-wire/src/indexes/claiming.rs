//! Claims the keys of a unique index for documents that were there before it.
//!
//! A transaction compares some documents of a partition, and claims their keys. Writers claim what they change from the moment on at which the
//! list of their partition has the index, so a document that has changed meanwhile is looked at again as it is then.

use super::build_error::BuildError;
use super::cache::indexed;
use crate::plan::Plan;
use crate::shared::Shared;
use crate::transact::Carried;
use crate::work::{Reply, Taken, Work, WriteWork};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tessera_document::{Document, EntryChanges, MAX_SECONDARY_KEY_BYTES, decode_key};
use tessera_reql::{Durability, Env, IndexDefinition, Lazy};
use tessera_store::Table;
use tessera_types::{RequestError, Space};

/// How often it is looked whether the node stops.
const PAUSE: Duration = Duration::from_millis(50);
/// How often a document is looked at again that others change.
const TRIES: usize = 1_000;

/// A document with the keys that it is to have.
#[derive(Debug)]
pub(super) struct ClaimedDocument {
    pub(super) key: Bytes,
    /// The document must still be this.
    pub(super) bytes: Bytes,
    pub(super) keys: Vec<Vec<u8>>,
}

/// What claims are made for.
pub(super) struct Claiming<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) table: &'a Arc<Table>,
    pub(super) space: Space,
    pub(super) definition: &'a IndexDefinition,
    pub(super) env: &'a Env,
}

impl Claiming<'_> {
    /// Claims the keys of documents.
    ///
    /// # Errors
    /// [`BuildError::Hindered`], if two documents have the same key.
    pub(super) fn claim(&self, mut left: Vec<ClaimedDocument>, ending: &AtomicBool) -> Result<(), BuildError> {
        // As many at one time as are not changed by others meanwhile.
        let (mut at_once, mut tries) = (left.len(), TRIES);
        while !left.is_empty() {
            let begin = left.len().saturating_sub(at_once);
            let some = left.split_off(begin);
            let (again, is_done) = self.unless_ending(ending, self.claim_some(some))??;
            left.extend(again);
            if is_done {
                (at_once, tries) = (at_once.saturating_mul(2).min(left.len()).max(1), TRIES);
            } else {
                (at_once, tries) = ((at_once / 2).max(1), tries - 1);
            }
            if tries == 0 {
                return Err(BuildError::Overtaken);
            }
        }
        Ok(())
    }

    fn unless_ending<T>(&self, ending: &AtomicBool, work: impl Future<Output = T>) -> Result<T, BuildError> {
        self.shared.runtime.block_on(async {
            tokio::pin!(work);
            loop {
                match tokio::time::timeout(PAUSE, &mut work).await {
                    Ok(done) => return Ok(done),
                    Err(_) if ending.load(Ordering::Acquire) => return Err(RequestError::ShuttingDown.into()),
                    Err(_) => {}
                }
            }
        })
    }

    /// Returns the documents that are left, as they are by now, and whether claims were made.
    async fn claim_some(&self, some: Vec<ClaimedDocument>) -> Result<(Vec<ClaimedDocument>, bool), BuildError> {
        let (mut plan, mut planned, mut left) = (Plan::default(), Vec::new(), Vec::new());
        for document in some {
            let at = planned.len();
            let claims = EntryChanges { removed: Vec::new(), added: document.keys.clone() };
            let claims = [(self.space, claims)];
            if plan.takes_any(self.table, &claims) {
                // Another document of this transaction takes the key. This one then finds it taken, and says so.
                left.push(document);
                continue;
            }
            let compared = WriteWork::comparison(document.key.clone(), Some(document.bytes.clone()));
            plan.add_document(self.table, at, &document.key, &Work::Write(compared));
            let _ = plan.add_claims(self.table, at, &document.key, &claims);
            planned.push(document);
        }
        let hindrances = match self.shared.carry_out(plan, Durability::Default).await? {
            Carried::Done => return Ok((left, true)),
            Carried::Hindered(hindrances) => hindrances,
            Carried::Split => return Err(BuildError::Overtaken),
        };
        let document = |at: usize| planned.get(at).map(|planned| (&planned.key, Some(&planned.bytes)));
        let settled = self.shared.settle(self.table, &hindrances, document).await?;
        for (at, reply) in settled {
            match (reply, planned.get_mut(at)) {
                (Reply::Differs(document), Some(planned)) => self.change(planned, document.as_ref())?,
                (Reply::Taken(taken), Some(planned)) => {
                    return Err(BuildError::Hindered(reason(&taken, &planned.key)?));
                }
                (Reply::Refused(reason), _) => return Err(BuildError::Refused(reason)),
                _ => return Err(BuildError::Damaged),
            }
        }
        // A document that is gone, or has no keys any more, needs no claims.
        left.extend(planned.into_iter().filter(|document| !document.keys.is_empty()));
        Ok((left, false))
    }

    /// Notes what a document is by now.
    fn change(&self, planned: &mut ClaimedDocument, document: Option<&Bytes>) -> Result<(), BuildError> {
        planned.keys.clear();
        if let Some(bytes) = document {
            let document = Lazy::Document(Document::trusted(bytes.clone()));
            let indexed =
                indexed(self.env, self.definition, &document, &planned.key).map_err(|_| BuildError::TooSlow)?;
            (planned.bytes, planned.keys) = (bytes.clone(), indexed.unique_keys);
        }
        Ok(())
    }
}

/// What hinders an index, for people.
fn reason(taken: &Taken, primary: &[u8]) -> Result<Bytes, BuildError> {
    let text = |key: &[u8]| decode_key(key).ok()?.to_pretty_json().ok();
    let text = |key: &[u8]| text(key).ok_or(BuildError::Damaged);
    let key = match taken.key.len() {
        ..=MAX_SECONDARY_KEY_BYTES => format!("the key `{}`", text(&taken.key)?),
        _ => "the same key".into(),
    };
    let mut documents = [text(&taken.holder)?, text(primary)?];
    documents.sort();
    let [one, other] = documents;
    Ok(format!("the documents with primary keys `{one}` and `{other}` both have {key}.").into())
}
