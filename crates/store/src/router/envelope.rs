//! What one node answers another one about the parts of a request: the face's replies to the parts that were done, one after the
//! other; the [reasons](super::reason) why others were not done, in the order of these parts, each with `u32` its length before it;
//! then for each part `u32` the length of its reply, [`NOT_DONE`] or [`UNKNOWN`]; if there are reasons, `u32` the length of all of
//! them; and `u32` how many numbers stand before this one. Numbers are little-endian. What became of the parts comes last, so that
//! the buffer that the face wrote its replies to becomes the message.
//!
//! A node that does not know of reasons takes them for the reply to one more part than it has asked for, and does not look at that.
//! It does not send any; then nothing is said but that there was no leader.

use super::{PartOutcome, reason};
use bytes::{Buf, BufMut, Bytes};
use std::future::Future;
use std::pin::Pin;
use tessera_types::{Outcome, RequestError};

const NOT_DONE: u32 = u32::MAX - 1;
const UNKNOWN: u32 = u32::MAX;
/// Bytes of a mark, and of the length of a reason.
const MARK: usize = 4;

/// What became of the parts of a request, in the order of the parts. One without parts means that nothing was done.
#[derive(Debug, Default)]
pub struct Envelope {
    /// The replies to the parts that were done, one after the other.
    replies: Vec<u8>,
    /// For each part the length of its reply, [`NOT_DONE`] or [`UNKNOWN`].
    marks: Vec<u32>,
    /// Why parts were not done, as they travel.
    reasons: Vec<u8>,
}

/// What becomes of the parts of a request, one outcome for each; none if the node could not read the request at all, or does not
/// know the table yet, and so did nothing.
pub type Outcomes = Pin<Box<dyn Future<Output = Envelope> + Send>>;

impl Envelope {
    /// The replies to the parts that were done, one after the other; the outcomes, with the lengths of these replies, are the
    /// parts' in their order.
    pub fn new(replies: Vec<u8>, outcomes: impl IntoIterator<Item = Result<usize, RequestError>>) -> Self {
        let mut reasons = Vec::new();
        let mark = |outcome: Result<usize, RequestError>| match outcome {
            // The reader takes a message whose lengths do not fit its replies for one that got lost.
            Ok(length) => u32::try_from(length).unwrap_or(NOT_DONE - 1).min(NOT_DONE - 1),
            Err(error) if error.outcome() == Outcome::Unknown => UNKNOWN,
            Err(reason) => {
                put_reason(&mut reasons, &reason);
                NOT_DONE
            }
        };
        let marks = outcomes.into_iter().map(mark).collect();
        Self { replies, marks, reasons }
    }

    /// The outcomes, without copying replies; `None` if the lengths do not fit the replies.
    pub fn into_outcomes(self) -> Option<Vec<PartOutcome>> {
        outcomes(self.replies.into(), self.marks.into_iter(), self.reasons.into())
    }

    pub(crate) fn encode(self) -> Bytes {
        let Self { replies: mut message, mut marks, reasons } = self;
        if !reasons.is_empty() {
            message.put_slice(&reasons);
            marks.push(length_of(reasons.len()));
        }
        message.reserve(MARK * (marks.len() + 1));
        marks.iter().for_each(|mark| message.put_u32_le(*mark));
        message.put_u32_le(length_of(marks.len()));
        message.into()
    }
}

impl FromIterator<PartOutcome> for Envelope {
    fn from_iter<I: IntoIterator<Item = PartOutcome>>(outcomes: I) -> Self {
        let mut replies = Vec::new();
        let add = |outcome: PartOutcome| {
            let reply = outcome.reply()?;
            replies.extend_from_slice(&reply);
            Ok(reply.len())
        };
        let outcomes: Vec<_> = outcomes.into_iter().map(add).collect();
        Self::new(replies, outcomes)
    }
}

fn length_of(count: usize) -> u32 {
    u32::try_from(count).expect("a request has fewer than 2^32 parts, and the reasons of all of them are short")
}

fn put_reason(reasons: &mut Vec<u8>, reason: &RequestError) {
    let began = reasons.len();
    reasons.put_u32_le(0);
    reason::encode(reasons, reason);
    let length = length_of(reasons.len() - began - MARK);
    reasons[began..began + MARK].copy_from_slice(&length.to_le_bytes());
}

/// The next of the reasons; `None` if there is no other, or it cannot be read.
fn take_reason(reasons: &mut Bytes) -> Option<RequestError> {
    let length = reasons.try_get_u32_le().ok()? as usize;
    reason::decode((length <= reasons.len()).then(|| reasons.split_to(length))?)
}

/// The outcomes that a message tells of, which answers a request of this many parts, without copying replies; `None` if it cannot be
/// read. An empty one tells of none.
pub(super) fn decode(mut message: Bytes, parts: usize) -> Option<Vec<PartOutcome>> {
    if message.is_empty() {
        return Some(Vec::new());
    }
    let count = message.split_off(message.len().checked_sub(MARK)?).get_u32_le() as usize;
    let mut marks = message.split_off(message.len().checked_sub(count.checked_mul(MARK)?)?);
    let mut reasons = Bytes::new();
    if count == parts.checked_add(1)? {
        let length = marks.split_off(MARK * parts).get_u32_le() as usize;
        reasons = message.split_off(message.len().checked_sub(length)?);
    }
    outcomes(message, marks.chunks_exact(MARK).map(|mut mark| mark.get_u32_le()), reasons)
}

fn outcomes(mut replies: Bytes, marks: impl Iterator<Item = u32>, mut reasons: Bytes) -> Option<Vec<PartOutcome>> {
    let outcome = |mark| match mark {
        NOT_DONE => Some(PartOutcome::NotDone(take_reason(&mut reasons).unwrap_or(RequestError::NotReady))),
        UNKNOWN => Some(PartOutcome::Unknown),
        length if length as usize <= replies.len() => Some(PartOutcome::Done(replies.split_to(length as usize))),
        _ => None,
    };
    let outcomes = marks.map(outcome).collect::<Option<_>>()?;
    replies.is_empty().then_some(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: usize = 5;

    fn some() -> Envelope {
        let outcomes = [
            Ok(5),
            Err(RequestError::NotReady),
            Err(RequestError::Interrupted),
            Err(RequestError::NoSuchTable("t".into())),
            Ok(0),
        ];
        Envelope::new(b"reply".to_vec(), outcomes)
    }

    fn done(reply: &'static [u8]) -> PartOutcome {
        PartOutcome::Done(Bytes::from_static(reply))
    }

    fn its_outcomes() -> [PartOutcome; PARTS] {
        let no_table = PartOutcome::NotDone(RequestError::NoSuchTable("t".into()));
        [done(b"reply"), PartOutcome::NotDone(RequestError::NotReady), PartOutcome::Unknown, no_table, done(b"")]
    }

    #[test]
    fn outcomes_come_back_and_what_is_cut_off_is_no_answer() {
        assert_eq!(some().into_outcomes().unwrap(), its_outcomes());
        let encoded = some().encode();
        assert_eq!(decode(encoded.clone(), PARTS).unwrap(), its_outcomes());
        assert_eq!(Envelope::from_iter(its_outcomes()).encode(), encoded);
        assert_eq!(decode(Bytes::new(), PARTS), Some(Vec::new()));
        assert_eq!(decode(Envelope::default().encode(), PARTS), Some(Vec::new()));
        for length in 1..encoded.len() {
            assert_eq!(decode(encoded.slice(..length), PARTS), None, "cut at {length}");
        }
    }

    #[test]
    fn the_bytes_of_answers_stay() {
        let marks = b"\x05\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff\0\0\0\0";
        let reasons = b"\x01\0\0\0\x01\x06\0\0\0\x04\x01\0\0\0t";
        let message = [&b"reply"[..], reasons, marks, b"\x0f\0\0\0\x06\0\0\0"].concat();
        assert_eq!(some().encode(), message);
        // Nothing is added where everything was done.
        let all_done = Envelope::new(b"reply".to_vec(), [Ok(5)]).encode();
        assert_eq!(all_done, &b"reply\x05\0\0\0\x01\0\0\0"[..]);
        // A node that does not know of reasons sends none.
        let without = [&b"reply"[..], marks, b"\x05\0\0\0"].concat();
        let mut outcomes = its_outcomes();
        outcomes[3] = PartOutcome::NotDone(RequestError::NotReady);
        assert_eq!(decode(without.into(), PARTS).unwrap(), outcomes);
    }

    /// Such a node reads one part more than it has asked for, and [takes](super::super::part::take_outcomes) as many as it has.
    #[test]
    fn a_node_that_does_not_know_of_reasons_reads_the_outcomes_all_the_same() {
        let read = decode(some().encode(), usize::MAX - 1).unwrap();
        let kind = |outcome: &PartOutcome| match outcome {
            PartOutcome::NotDone(_) => PartOutcome::NotDone(RequestError::NotReady),
            other => other.clone(),
        };
        assert_eq!(read.len(), PARTS + 1);
        assert!(read.iter().take(PARTS).eq(its_outcomes().iter().map(kind).collect::<Vec<_>>().iter()));
    }

    #[test]
    fn a_reason_that_cannot_be_read_leaves_that_nothing_was_done() {
        let mut envelope = some();
        envelope.reasons = b"\x01\0\0\0\xff\xff\xff\xff\xff".to_vec();
        let not_ready = PartOutcome::NotDone(RequestError::NotReady);
        let read = decode(envelope.encode(), PARTS).unwrap();
        assert_eq!((&read[1], &read[3]), (&not_ready, &not_ready));
    }

    #[test]
    fn lengths_that_do_not_fit_the_replies_are_no_answer() {
        for length in [0, 4, 6, NOT_DONE as usize, usize::MAX] {
            let envelope = || Envelope::new(b"reply".to_vec(), [Ok(length)]);
            assert_eq!(envelope().into_outcomes(), None, "{length}");
            assert_eq!(decode(envelope().encode(), 1), None, "{length}");
        }
        // A count of parts for which the message has no room.
        assert_eq!(decode(Bytes::from_static(&[255; 8]), 1), None);
        // Reasons for which it has none.
        assert_eq!(decode(Bytes::from_static(b"\xfe\xff\xff\xff\x01\0\0\0\x02\0\0\0"), 1), None);
    }
}
