//! A part of a request: what concerns one partition, and what became of it.
//!
//! Parts of one partition are in the order of the client's pipeline. Some may be asked again when an answer says that they were not
//! done, or is lost; never one that comes before a part that was done, or may have been: it would see what came after it, or undo
//! that.

use crate::table::Leader;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use tessera_transport::RequestFailure;
use tessera_types::{NodeId, Outcome, ReadMode, RequestError};

/// What became of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartOutcome {
    /// It was carried out. The reply is in the face's own words; it may be an error of the command, or a refusal such as of a
    /// value that is too large, after which nothing was changed.
    Done(Bytes),
    /// It certainly had no effect, for this reason: nobody who leads its partition could be asked, or whoever does could not
    /// carry it out.
    NotDone(RequestError),
    /// It may have taken effect, now or later.
    Unknown,
}

impl PartOutcome {
    /// Nobody who leads the partition could be asked.
    pub const NO_LEADER: Self = Self::NotDone(RequestError::NotReady);

    /// What became of a part that failed.
    pub fn of(failure: RequestError) -> Self {
        match failure.outcome() {
            Outcome::NotDone => Self::NotDone(failure),
            Outcome::Unknown => Self::Unknown,
        }
    }

    /// The failure that this outcome is, or the reply.
    ///
    /// # Errors
    /// The reason why it was not done; [`RequestError::Interrupted`] if it is not known whether it was.
    pub fn reply(self) -> Result<Bytes, RequestError> {
        match self {
            Self::Done(reply) => Ok(reply),
            Self::NotDone(reason) => Err(reason),
            Self::Unknown => Err(RequestError::Interrupted),
        }
    }
}

/// What is to be done to one partition.
#[derive(Clone, Debug)]
pub struct Part<W> {
    /// The number of the partition.
    pub partition: u32,
    /// Who may answer a read; only the leader carries out writes, which say [`ReadMode::Single`].
    pub reads: ReadMode,
    /// Whether it does no harm twice.
    pub is_repeatable: bool,
    /// What the face wants done, in the form that its [`Route`](crate::Route) understands.
    pub work: W,
    /// `None` as long as it is still to be done.
    pub outcome: Option<PartOutcome>,
}

impl<W> Part<W> {
    /// One that is for the leader, is still to be done, and does no harm twice.
    pub(crate) fn repeatable(partition: u32, work: W) -> Self {
        Self { partition, reads: ReadMode::Single, is_repeatable: true, work, outcome: None }
    }

    /// The part will not be tried again, for this reason.
    pub(super) fn give_up(&mut self, reason: RequestError) {
        self.outcome = Some(PartOutcome::NotDone(reason));
    }
}

pub(super) fn without_outcome<W>(parts: &[Part<W>]) -> usize {
    parts.iter().filter(|part| part.outcome.is_none()).count()
}

/// Which parts go to whom, this node being `None`. Those whose leader is not known stay out.
///
/// All of a partition go to one node: its leader is looked up once, since it may change meanwhile, and of two parts that go
/// different ways the later one could take effect first. Only outdated reads, of which no order is promised, go their own ways.
pub(super) fn by_leader<W>(
    parts: &[Part<W>],
    mut place_of: impl FnMut(u32, ReadMode) -> Leader,
) -> BTreeMap<Option<NodeId>, Vec<usize>> {
    let mut places: BTreeMap<(u32, bool), Leader> = BTreeMap::new();
    let mut by_leader: BTreeMap<Option<NodeId>, Vec<usize>> = BTreeMap::new();
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| part.outcome.is_none()) {
        let is_outdated = part.reads == ReadMode::Outdated;
        let place = places.entry((part.partition, is_outdated)).or_insert_with(|| place_of(part.partition, part.reads));
        match *place {
            Leader::Here => by_leader.entry(None).or_default().push(at),
            Leader::Node(node) => by_leader.entry(Some(node)).or_default().push(at),
            Leader::Unknown => {}
        }
    }
    by_leader
}

/// Why parts without an outcome were not done when they were last asked for, by their places. For one that is not here, there was
/// no leader who could be asked.
#[derive(Default)]
pub(super) struct Reasons(BTreeMap<usize, RequestError>);

impl Reasons {
    /// All parts are to be asked for again.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether a part was refused since a disk takes no writes.
    pub(super) fn is_of_disk(&self, at: usize) -> bool {
        self.0.get(&at).is_some_and(RequestError::is_of_disk)
    }

    pub(super) fn take(&mut self, at: usize) -> RequestError {
        self.0.remove(&at).unwrap_or(RequestError::NotReady)
    }
}

/// Notes what an answer says of the parts that it was asked for. Those that certainly were not done stay without an outcome, if they may
/// be done when they are tried again, and so do those that do no harm twice and of which nobody knows. Returns how many bytes the replies have.
pub(super) fn take_outcomes<W>(
    parts: &mut [Part<W>],
    which: &[usize],
    answer: Result<Vec<PartOutcome>, RequestFailure>,
    reasons: &mut Reasons,
) -> usize {
    let mut outcomes = match answer {
        // Refused as a whole: the other node is just starting, or does not know the table yet.
        Ok(outcomes) if outcomes.is_empty() => return 0,
        Err(RequestFailure::NotSent) => return 0,
        Ok(outcomes) => outcomes,
        Err(RequestFailure::Lost) => Vec::new(),
    }
    .into_iter();
    let mut bytes = 0;
    for at in which {
        let part = &mut parts[*at];
        part.outcome = match outcomes.next().unwrap_or(PartOutcome::Unknown) {
            PartOutcome::NotDone(reason) if !reason.is_final() => {
                reasons.0.insert(*at, reason);
                None
            }
            PartOutcome::Unknown if part.is_repeatable => None,
            outcome => Some(outcome),
        };
        if let Some(PartOutcome::Done(reply)) = &part.outcome {
            bytes += reply.len();
        }
    }
    bytes
}

/// What comes later in the pipeline must not take effect earlier: when a partition began to serve halfway, what came before that
/// stays undone. So does a read whose answer was lost, if a write that came after it went the same way: asked again, the read could
/// see that.
pub(super) fn keep_order<W>(parts: &mut [Part<W>], which: &[usize], reasons: &mut Reasons) {
    let is_done = |at: &usize| parts[*at].outcome.is_some();
    if which.iter().all(is_done) || !which.iter().any(is_done) {
        return;
    }
    let mut served = BTreeSet::new();
    for at in which.iter().rev() {
        let part = &mut parts[*at];
        if part.outcome.is_some() {
            served.insert(part.partition);
        } else if served.contains(&part.partition) {
            part.give_up(reasons.take(*at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(partition: u32, is_repeatable: bool) -> Part<()> {
        Part { partition, reads: ReadMode::Single, is_repeatable, work: (), outcome: None }
    }

    fn outcomes(parts: &[Part<()>]) -> Vec<Option<PartOutcome>> {
        parts.iter().map(|part| part.outcome.clone()).collect()
    }

    fn take(parts: &mut [Part<()>], answer: Result<Vec<PartOutcome>, RequestFailure>) {
        let which: Vec<usize> = (0..parts.len()).collect();
        let mut reasons = Reasons::default();
        take_outcomes(parts, &which, answer, &mut reasons);
        keep_order(parts, &which, &mut reasons);
    }

    /// A leader was killed after it had done everything and before it could say so. The read that came first was asked again, and
    /// its successor answered what the write after it had left.
    #[test]
    fn a_read_whose_answer_was_lost_with_that_of_a_later_write_is_not_asked_again() {
        let (read, write) = (|partition| part(partition, true), |partition| part(partition, false));
        let mut parts = [read(1), read(2), write(1), read(1), read(2)];
        take(&mut parts, Err(RequestFailure::Lost));
        assert_eq!(outcomes(&parts), [Some(PartOutcome::NO_LEADER), None, Some(PartOutcome::Unknown), None, None]);
    }

    #[test]
    fn what_came_before_something_done_stays_undone() {
        let done = PartOutcome::Done(Bytes::from_static(b"1"));
        let mut parts = [part(1, true), part(1, false), part(1, true)];
        let stops = PartOutcome::NotDone(RequestError::ShuttingDown);
        take(&mut parts, Ok(vec![stops.clone(), done.clone(), stops.clone()]));
        assert_eq!(outcomes(&parts), [Some(stops), Some(done), None]);
    }

    #[test]
    fn what_would_be_refused_again_is_not_tried_again() {
        let refusals = [RequestError::TooManyRecords { allowed: 1 }, RequestError::DiskFull, RequestError::NotReady];
        let mut parts = [part(1, false), part(2, false), part(3, false)];
        take(&mut parts, Ok(refusals.into_iter().map(PartOutcome::of).collect()));
        let refused = PartOutcome::NotDone(RequestError::TooManyRecords { allowed: 1 });
        assert_eq!(outcomes(&parts), [Some(refused), None, None]);
    }

    #[test]
    fn parts_of_which_an_answer_says_nothing_may_have_been_done() {
        let done = PartOutcome::Done(Bytes::from_static(b"1"));
        let mut parts = [part(1, false), part(2, false), part(3, true)];
        take(&mut parts, Ok(vec![done.clone()]));
        assert_eq!(outcomes(&parts), [Some(done), Some(PartOutcome::Unknown), None]);
    }

    #[test]
    fn what_was_not_sent_or_was_refused_as_a_whole_is_tried_again() {
        for answer in [Err(RequestFailure::NotSent), Ok(Vec::new())] {
            let mut parts = [part(1, false), part(2, true)];
            take(&mut parts, answer);
            assert_eq!(without_outcome(&parts), 2);
        }
    }

    /// Each part once went to whoever led when its turn came.
    #[test]
    fn parts_of_one_partition_go_to_one_node_whoever_leads_meanwhile() {
        let parts = [part(1, true), part(2, true), part(1, false), part(2, false), part(1, true)];
        let mut looks = 0;
        let by_leader = by_leader(&parts, |_, _| {
            looks += 1;
            Leader::Node(NodeId(looks))
        });
        let which: Vec<_> = by_leader.into_values().collect();
        assert_eq!(which, [vec![0, 2, 4], vec![1, 3]]);
    }

    #[test]
    fn outdated_reads_go_their_own_way() {
        let outdated = Part { reads: ReadMode::Outdated, ..part(1, true) };
        let parts = [part(1, true), outdated];
        let by_leader = by_leader(&parts, |_, reads| match reads {
            ReadMode::Outdated => Leader::Here,
            _ => Leader::Unknown,
        });
        assert_eq!(by_leader.into_iter().collect::<Vec<_>>(), [(None, vec![1])]);
    }
}
