//! Having [plans](crate::plan) carried out as transactions of the store.

use crate::intent::{documents_of, hindrances};
use crate::plan::Plan;
use crate::route::SERVICE;
use crate::shared::Shared;
use crate::work::{Reply, Taken, Work};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
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
struct Complaint<'a> {
    /// The document's primary key.
    key: &'a Bytes,
    /// What the document must be for the complaint to count.
    document: Option<&'a Bytes>,
    taken: &'a Taken,
}

fn unreadable() -> RequestError {
    RequestError::Corruption("the reply of a partition".into())
}

impl Shared {
    /// Carries out all of a plan at one instant, or nothing.
    pub(crate) async fn carry_out(&self, plan: Plan, durability: Durability) -> Result<Carried, RequestError> {
        match self.store.transact(SERVICE, plan.into_parts(durability), Instant::now() + PATIENCE).await {
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
        match self
            .store
            .read_at_one_instant(SERVICE, plan.into_parts(Durability::Soft), Instant::now() + PATIENCE)
            .await
        {
            Transacted::Committed(replies) => documents_of(count, replies).map(Some).ok_or_else(unreadable),
            Transacted::Refused(_) => Err(unreadable()),
            Transacted::NotDone(reason) => Err(reason),
            Transacted::Unknown => Err(RequestError::NotReady),
            Transacted::Split => Ok(None),
        }
    }

    /// Settles what hinders documents of a table, by their places: those that could not have a key are looked at again, since what was computed
    /// from a document counts only if that was still the same when the other one had the key. `document` gives the primary key of a place, and what
    /// the document there must be. Documents without a reply are to be tried again.
    pub(crate) async fn settle<'a>(
        self: &Arc<Self>,
        table: &Arc<Table>,
        hindrances: &[(usize, Reply)],
        document: impl Fn(usize) -> Option<(&'a Bytes, Option<&'a Bytes>)>,
    ) -> Result<Vec<(usize, Reply)>, RequestError> {
        let (mut replies, mut complaints) = (Vec::new(), BTreeMap::new());
        for (at, reply) in hindrances {
            match (reply, document(*at)) {
                (Reply::Taken(taken), Some((key, document))) => {
                    complaints.entry(*at).or_insert(Complaint { key, document, taken });
                }
                (Reply::Taken(_), None) => {}
                (reply, _) => replies.push((*at, reply.clone())),
            }
        }
        if complaints.is_empty() {
            return Ok(replies);
        }
        // A document that has ended gives its keys up when it is removed.
        let holders = complaints.values().map(|complaint| complaint.taken.holder.clone()).collect();
        if !self.remove_ended_now(table, holders).await? {
            replies.extend(self.look_again(table, &complaints).await?);
        }
        Ok(replies)
    }

    /// Replies for each complaint whether it is so, or what the document is now; nothing, if it is to be tried again.
    async fn look_again(
        &self,
        table: &Arc<Table>,
        complaints: &BTreeMap<usize, Complaint<'_>>,
    ) -> Result<Vec<(usize, Reply)>, RequestError> {
        let mut plan = Plan::default();
        for (at, Complaint { key, taken, .. }) in complaints.values().enumerate() {
            plan.add_document(table, 2 * at, key, &Work::Get { key: (*key).clone() });
            plan.add_holder(table, 2 * at + 1, taken.space, &taken.key);
        }
        let Some(found) = self.read_at_one_instant(plan, 2 * complaints.len()).await? else { return Ok(Vec::new()) };
        let judge = |((at, complaint), found): ((&usize, &Complaint<'_>), &[Option<Bytes>])| match found {
            [document, _] if document.as_ref() != complaint.document => Some((*at, Reply::Differs(document.clone()))),
            [_, Some(holder)] if holder != complaint.key => {
                Some((*at, Reply::Taken(Taken { holder: holder.clone(), ..complaint.taken.clone() })))
            }
            _ => None,
        };
        Ok(complaints.iter().zip(found.chunks(2)).filter_map(judge).collect())
    }
}
