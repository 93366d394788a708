//! What one node answers another one about the parts of a request: the face's replies to the parts that were done, one after the
//! other, then for each part `u32` the length of its reply, [`NOT_DONE`] or [`UNKNOWN`], then `u32` how many parts there are. Numbers
//! are little-endian. What became of the parts comes last, so that the buffer that the face wrote its replies to becomes the message.

use super::PartOutcome;
use bytes::{Buf, BufMut, Bytes};
use std::future::Future;
use std::pin::Pin;
use tessera_types::Outcome;

const NOT_DONE: u32 = u32::MAX - 1;
const UNKNOWN: u32 = u32::MAX;
/// Bytes of a mark.
const MARK: usize = 4;

/// What became of the parts of a request, in the order of the parts. One without parts means that nothing was done.
#[derive(Debug, Default)]
pub struct Envelope {
    /// The replies to the parts that were done, one after the other.
    replies: Vec<u8>,
    /// For each part the length of its reply, [`NOT_DONE`] or [`UNKNOWN`].
    marks: Vec<u32>,
}

/// What becomes of the parts of a request, one outcome for each; none if the node could not read the request at all, or does not
/// know the table yet, and so did nothing.
pub type Outcomes = Pin<Box<dyn Future<Output = Envelope> + Send>>;

impl Envelope {
    /// The replies to the parts that were done, one after the other; the outcomes, with the lengths of these replies, are the
    /// parts' in their order.
    pub fn new(replies: Vec<u8>, outcomes: impl IntoIterator<Item = Result<usize, Outcome>>) -> Self {
        let mark = |outcome| match outcome {
            // The reader takes a message whose lengths do not fit its replies for one that got lost.
            Ok(length) => u32::try_from(length).unwrap_or(NOT_DONE - 1).min(NOT_DONE - 1),
            Err(Outcome::NotDone) => NOT_DONE,
            Err(Outcome::Unknown) => UNKNOWN,
        };
        Self { replies, marks: outcomes.into_iter().map(mark).collect() }
    }

    /// The outcomes, without copying replies; `None` if the lengths do not fit the replies.
    pub fn into_outcomes(self) -> Option<Vec<PartOutcome>> {
        outcomes(self.replies.into(), self.marks.into_iter())
    }

    pub(crate) fn encode(self) -> Bytes {
        let Self { mut replies, marks } = self;
        replies.reserve(MARK * (marks.len() + 1));
        marks.iter().for_each(|mark| replies.put_u32_le(*mark));
        replies.put_u32_le(u32::try_from(marks.len()).expect("a request has fewer than 2^32 parts"));
        replies.into()
    }
}

impl FromIterator<PartOutcome> for Envelope {
    fn from_iter<I: IntoIterator<Item = PartOutcome>>(outcomes: I) -> Self {
        let mut replies = Vec::new();
        let add = |outcome| match outcome {
            PartOutcome::Done(reply) => {
                replies.extend_from_slice(&reply);
                Ok(reply.len())
            }
            PartOutcome::NotDone => Err(Outcome::NotDone),
            PartOutcome::Unknown => Err(Outcome::Unknown),
        };
        let outcomes: Vec<_> = outcomes.into_iter().map(add).collect();
        Self::new(replies, outcomes)
    }
}

/// The outcomes that a message tells of, without copying replies; `None` if it cannot be read. An empty one tells of none.
pub(super) fn decode(mut message: Bytes) -> Option<Vec<PartOutcome>> {
    if message.is_empty() {
        return Some(Vec::new());
    }
    let parts = message.split_off(message.len().checked_sub(MARK)?).get_u32_le() as usize;
    let marks = message.split_off(message.len().checked_sub(parts.checked_mul(MARK)?)?);
    outcomes(message, marks.chunks_exact(MARK).map(|mut mark| mark.get_u32_le()))
}

fn outcomes(mut replies: Bytes, marks: impl Iterator<Item = u32>) -> Option<Vec<PartOutcome>> {
    let outcome = |mark| match mark {
        NOT_DONE => Some(PartOutcome::NotDone),
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

    fn some() -> Envelope {
        Envelope::new(b"reply".to_vec(), [Ok(5), Err(Outcome::NotDone), Err(Outcome::Unknown), Ok(0)])
    }

    #[test]
    fn outcomes_come_back_and_what_is_cut_off_is_no_answer() {
        let outcomes = some().into_outcomes().unwrap();
        let done = |reply| PartOutcome::Done(Bytes::from_static(reply));
        assert_eq!(outcomes, [done(b"reply"), PartOutcome::NotDone, PartOutcome::Unknown, done(b"")]);
        let encoded = some().encode();
        assert_eq!(decode(encoded.clone()), Some(outcomes));
        assert_eq!(decode(Bytes::new()), Some(Vec::new()));
        assert_eq!(decode(Envelope::default().encode()), Some(Vec::new()));
        for length in 1..encoded.len() {
            assert_eq!(decode(encoded.slice(..length)), None, "cut at {length}");
        }
    }

    #[test]
    fn lengths_that_do_not_fit_the_replies_are_no_answer() {
        for length in [0, 4, 6, NOT_DONE as usize, usize::MAX] {
            let envelope = || Envelope::new(b"reply".to_vec(), [Ok(length)]);
            assert_eq!(envelope().into_outcomes(), None, "{length}");
            assert_eq!(decode(envelope().encode()), None, "{length}");
        }
        // A count of parts for which the message has no room.
        assert_eq!(decode(Bytes::from_static(&[255; 8])), None);
    }
}
