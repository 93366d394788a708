//! Having [plans](crate::plan) carried out as transactions of the store.

use crate::intent::{documents_of, hindrances};
use crate::plan::Plan;
use crate::route::SERVICE;
use crate::shared::Shared;
use crate::work::{Reply, Taken};
use bytes::Bytes;
use std::sync::Arc;
use tessera_reql::Durability;
use tessera_store::{PATIENCE, Table, Transacted};
use tessera_types::RequestError;

/// What became of a plan.
pub(crate) enum Carried {
    Done,
    /// Nothing was done: what these documents, by their places, have against it.
    Hindered(Vec<(usize, Reply)>),
    /// Nothing was done, since a table was split: the plan is to be made anew.
    Split,
}

/// A document that cannot have a key of a unique index, as it seems.
pub(crate) struct Complaint<'a> {
    pub(crate) table: &'a Arc<Table>,
    /// The document's primary key.
    pub(crate) key: &'a Bytes,
    /// What the document must be for the complaint to count.
    pub(crate) document: Option<&'a Bytes>,
    pub(crate) taken: &'a Taken,
}

fn unreadable() -> RequestError {
    RequestError::Corruption("the reply of a partition".into())
}

impl Shared {
    /// Carries out all of a plan at one instant, or nothing.
    pub(crate) async fn carry_out(&self, plan: Plan, durability: Durability) -> Result<Carried, RequestError> {
        match self.store.transact(SERVICE, plan.into_parts(durability), PATIENCE).await {
            Transacted::Committed(_) => Ok(Carried::Done),
            Transacted::Refused(refusal) => Ok(Carried::Hindered(hindrances(refusal).map_err(|_| unreadable())?)),
            Transacted::NotDone(reason) => Err(reason),
            Transacted::Unknown => Err(RequestError::Interrupted),
            Transacted::Split => Ok(Carried::Split),
        }
    }

    /// Reads the `count` documents and holders of a plan at one instant. `None` if a table was split.
    pub(crate) async fn read_at_one_instant(
        &self,
        plan: Plan,
        count: usize,
    ) -> Result<Option<Vec<Option<Bytes>>>, RequestError> {
        match self.store.read_at_one_instant(SERVICE, plan.into_parts(Durability::Soft), PATIENCE).await {
            Transacted::Committed(replies) => documents_of(count, replies).map(Some).ok_or_else(unreadable),
            Transacted::Refused(_) => Err(unreadable()),
            Transacted::NotDone(reason) => Err(reason),
            Transacted::Unknown => Err(RequestError::NotReady),
            Transacted::Split => Ok(None),
        }
    }

    /// Looks again at documents that could not have a key. What was computed from a document counts only if that was still the same
    /// when the other one had the key. Replies for each one whether it is so, or what it is now; nothing, if it is to be tried again.
    pub(crate) async fn look_again(&self, complaints: &[Complaint<'_>]) -> Result<Vec<Option<Reply>>, RequestError> {
        if complaints.is_empty() {
            return Ok(Vec::new());
        }
        let mut plan = Plan::default();
        for (at, Complaint { table, key, taken, .. }) in complaints.iter().enumerate() {
            plan.add_document(table, 2 * at, key, &crate::work::Work::Get { key: (*key).clone() });
            plan.add_holder(table, 2 * at + 1, taken.space, &taken.key);
        }
        let Some(found) = self.read_at_one_instant(plan, 2 * complaints.len()).await? else {
            return Ok(vec![None; complaints.len()]);
        };
        let judge = |(complaint, found): (&Complaint<'_>, &[Option<Bytes>])| match found {
            [document, _] if document.as_ref() != complaint.document => Some(Reply::Differs(document.clone())),
            [_, Some(holder)] if holder != complaint.key => {
                Some(Reply::Taken(Taken { holder: holder.clone(), ..complaint.taken.clone() }))
            }
            _ => None,
        };
        Ok(complaints.iter().zip(found.chunks(2)).map(judge).collect())
    }
}
