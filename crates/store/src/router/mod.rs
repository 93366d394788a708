//! How a request reaches the nodes that can carry it out.
//!
//! A client may ask any node for anything. The router finds the leader of each part's partition, or a replica where an outdated
//! answer will do, has the part carried out here or by the other node, and notes what became of it. Whatever certainly was not done,
//! because the partition had no leader there, is tried again for a while: this is how requests outlast a failover. A write of which
//! it is not known whether it was done is never tried again, and neither is a read that comes before it and concerns the same
//! partition.
//!
//! What the parts say, and how they travel, is the face's business: it implements [`Route`]. Between nodes an
//! [envelope] says what became of each part, beside the face's own reply, which the router never looks into, and
//! [why](reason) a part was not done. So a client hears the same whichever node it asks.

mod envelope;
mod instant;
mod part;
mod reason;
mod refusal;

pub use envelope::{Envelope, Outcomes};
pub use instant::READ_TRIES;
pub use part::{Part, PartOutcome};
pub use reason::{decode as decode_reason, encode as encode_reason};
pub(crate) use refusal::Refusal;

use crate::store::Store;
use crate::table::{Leader, Table};
use part::{Reasons, by_leader, keep_order, take_outcomes};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_transport::{Asked, RequestFailure};
use tessera_types::{NodeId, ReadMode, RequestError};
use tokio::task::JoinHandle;

/// How long a request is tried, if the client does not say how long it waits. It counts from when the request was read.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries. A group that hibernates needs a moment to wake, an election half a second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What a face adds to the router: how parts are put into words, and how they are carried out.
pub trait Route {
    /// What is to be done to one partition.
    type Work;

    /// The number of the face's [service](crate::Store::serve_face), which takes the request on the other node.
    const SERVICE: u8;

    /// Whether parts of one partition must take effect in the order in which they stand. Where they need not, parts that found no
    /// leader are tried again although later ones were carried out.
    const IN_ORDER: bool = true;

    /// The request that has another node carry out these parts.
    fn request(&self, table: &Table, parts: &[&Part<Self::Work>]) -> Vec<u8>;

    /// Carries out parts whose partitions are led here, or, of outdated reads, have a replica here.
    fn carry_out(&self, table: &Table, parts: &[&Part<Self::Work>]) -> Outcomes;

    /// What became of a part whose partition nobody leads any more, if that can be told without a leader.
    fn without_leader(&self, _table: &Table, _part: &Part<Self::Work>) -> Option<PartOutcome> {
        None
    }

    /// Parts go to another node.
    fn note_forwarded(&self);

    /// Replies of this many bytes have arrived, and are held until all parts have an outcome.
    fn note_replies(&self, _bytes: usize) {}

    /// Some of these parts have no outcome, and the router is about to wait until they may have got leaders.
    fn note_waits(&self, _parts: &[Part<Self::Work>]) {}
}

impl Store {
    /// Has the leader of its partition carry out every part that has no outcome yet. Parts of one partition take effect in
    /// the order in which they stand, if the face [asks for that](Route::IN_ORDER).
    ///
    /// Returns `None` when all parts have an outcome. Those that were not done are tried `until` then, once at least, and as long as
    /// some of them make progress; after that, once the table is dropped, or at once if the disk of the only node that can lead takes no
    /// writes, they are [`PartOutcome::NotDone`], for the reason that was heard last. Returns the successor of the table if the table was split: the parts that have no outcome were not done, and belong to
    /// the successor's partitions.
    ///
    /// Cancellation: parts that are under way are carried out to their end, and nobody hears what became of them.
    pub async fn route<R: Route>(
        &self,
        table: &Arc<Table>,
        route: &R,
        parts: &mut [Part<R::Work>],
        until: Instant,
    ) -> Option<Arc<Table>> {
        // Some may have been done already, where this node led their partitions until it lost them.
        let keep_order = |parts: &mut [_], which: &[usize], reasons: &mut _| {
            if R::IN_ORDER {
                keep_order(parts, which, reasons);
            }
        };
        let (all, mut reasons): (Vec<usize>, _) = ((0..parts.len()).collect(), Reasons::default());
        keep_order(parts, &all, &mut reasons);
        let mut pause = SHORTEST_PAUSE;
        let mut left = part::without_outcome(parts);
        while left > 0 {
            if let Some(successor) = table.successor() {
                return Some(successor);
            }
            for part in parts.iter_mut().filter(|part| part.outcome.is_none()) {
                part.outcome = route.without_leader(table, part);
            }
            let place_of = |partition, reads| match reads {
                ReadMode::Outdated => self.outdated_reader_of(table, partition),
                ReadMode::Single | ReadMode::Majority => table.leader_of(partition),
            };
            let mut asked = Vec::new();
            reasons.clear();
            for (node, which) in by_leader(parts, place_of) {
                let these: Vec<_> = which.iter().map(|at| &parts[*at]).collect();
                let answer = match node {
                    None => Answering::Here(tokio::spawn(answered(route.carry_out(table, &these)))),
                    Some(node) => {
                        route.note_forwarded();
                        Answering::There(self.transport().ask(node, R::SERVICE, &route.request(table, &these)))
                    }
                };
                asked.push((which, answer));
            }
            for (which, answer) in asked {
                let answer = answer.outcomes(which.len()).await;
                route.note_replies(take_outcomes(parts, &which, answer, &mut reasons));
                keep_order(parts, &which, &mut reasons);
            }
            let left_before = std::mem::replace(&mut left, part::without_outcome(parts));
            if left == 0 {
                break;
            }
            if left < left_before {
                // One answer may not have had room for all replies.
                pause = SHORTEST_PAUSE;
                continue;
            }
            let in_vain = self.in_vain(table);
            for (_, part) in parts.iter_mut().enumerate().filter(|(at, _)| reasons.is_of_disk(*at)) {
                // A disk that takes nothing now will hardly do so in time, and nobody else can lead.
                if let Some(refusal) = self.disk_refusal(table, part.partition).filter(|it| !it.has_heir) {
                    part.give_up(refusal.reason);
                    left -= 1;
                }
            }
            if left == 0 {
                break;
            }
            if Instant::now() >= until || in_vain.is_some() {
                for (at, part) in parts.iter_mut().enumerate().filter(|(_, part)| part.outcome.is_none()) {
                    part.give_up(in_vain.clone().unwrap_or_else(|| reasons.take(at)));
                }
                break;
            }
            route.note_waits(parts);
            self.another_leader(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        None
    }

    /// Why nobody will carry out a request for a table, however often it is tried, if that is known here.
    pub(crate) fn in_vain(&self, table: &Table) -> Option<RequestError> {
        let reason = if self.is_removed() { RequestError::Removed } else { table.not_serving() };
        (reason != RequestError::NotReady).then_some(reason)
    }

    /// Has the face of another node that serves this number carry out a request of this many parts that a client made here. No
    /// outcomes mean that it could not read the request, or has no such service.
    ///
    /// # Errors
    /// If no answer has come.
    pub async fn ask_face(
        &self,
        service: u8,
        node: NodeId,
        request: &[u8],
        parts: usize,
    ) -> Result<Vec<PartOutcome>, RequestFailure> {
        Answering::There(self.transport().ask(node, service, request)).outcomes(parts).await
    }

    /// Waits until a partition may have got a leader, or a lease, or `pause` has passed.
    pub async fn another_leader(&self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.leader_news().notified()).await;
    }

    /// Where a read that may be outdated goes: to a replica here, or to the leader, or to any other replica that is heard of.
    fn outdated_reader_of(&self, table: &Table, partition: u32) -> Leader {
        let replicas = || {
            let catalog = self.catalog();
            let placement = catalog.get(table.id)?.placement.get(partition as usize)?;
            let mut nodes =
                placement.current.iter().filter(|replica| !replica.is_witness()).map(|replica| replica.node);
            nodes.find(|node| self.is_heard(*node))
        };
        match table.reader_of(partition, ReadMode::Outdated) {
            Leader::Node(node) if self.is_heard(node) => Leader::Node(node),
            Leader::Here => Leader::Here,
            _ => replicas().map_or(Leader::Unknown, Leader::Node),
        }
    }
}

/// Parts that are being carried out, whether or not anybody waits for the answer.
enum Answering {
    Here(JoinHandle<Result<Vec<PartOutcome>, RequestFailure>>),
    There(Asked),
}

impl Answering {
    /// What became of the parts, of which there are so many.
    async fn outcomes(self, parts: usize) -> Result<Vec<PartOutcome>, RequestFailure> {
        match self {
            Self::Here(answer) => answer.await.unwrap_or(Err(RequestFailure::Lost)),
            // What cannot be read says nothing about what was done.
            Self::There(answer) => envelope::decode(answer.await?, parts).ok_or(RequestFailure::Lost),
        }
    }
}

async fn answered(outcomes: Outcomes) -> Result<Vec<PartOutcome>, RequestFailure> {
    outcomes.await.into_outcomes().ok_or(RequestFailure::Lost)
}
