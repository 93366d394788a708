//! What one node answers another one about the parts of a request: for each part `u8 what became of it`, and, if it was done,
//! `u32 length | the face's reply`. Numbers are little-endian. An answer without parts means that nothing was done.

use super::PartOutcome;
use bytes::{Buf, BufMut, Bytes};

const DONE: u8 = 0;
const NOT_DONE: u8 = 1;
const UNKNOWN: u8 = 2;

pub(crate) fn encode(outcomes: Vec<PartOutcome>) -> Bytes {
    let length = |outcome: &PartOutcome| match outcome {
        PartOutcome::Done(reply) => 5 + reply.len(),
        PartOutcome::NotDone | PartOutcome::Unknown => 1,
    };
    let mut out = Vec::with_capacity(outcomes.iter().map(length).sum());
    for outcome in outcomes {
        match outcome {
            // A frame between nodes is shorter than 4 GiB, so nobody could be told of a longer one.
            PartOutcome::Done(reply) => match u32::try_from(reply.len()) {
                Ok(length) => {
                    out.put_u8(DONE);
                    out.put_u32_le(length);
                    out.put_slice(&reply);
                }
                Err(_) => out.put_u8(UNKNOWN),
            },
            PartOutcome::NotDone => out.put_u8(NOT_DONE),
            PartOutcome::Unknown => out.put_u8(UNKNOWN),
        }
    }
    out.into()
}

/// The outcomes, without copying replies; `None` if this is no answer.
pub(super) fn decode(mut answer: Bytes) -> Option<Vec<PartOutcome>> {
    let mut outcomes = Vec::new();
    while let Ok(kind) = answer.try_get_u8() {
        outcomes.push(match kind {
            DONE => {
                let length = answer.try_get_u32_le().ok()? as usize;
                if length > answer.len() {
                    return None;
                }
                PartOutcome::Done(answer.split_to(length))
            }
            NOT_DONE => PartOutcome::NotDone,
            UNKNOWN => PartOutcome::Unknown,
            _ => return None,
        });
    }
    Some(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_back_and_what_is_cut_off_is_no_answer() {
        let outcomes = vec![
            PartOutcome::Done(Bytes::from_static(b"reply")),
            PartOutcome::NotDone,
            PartOutcome::Unknown,
            PartOutcome::Done(Bytes::new()),
        ];
        let encoded = encode(outcomes.clone());
        assert_eq!(decode(encoded.clone()), Some(outcomes));
        assert_eq!(decode(Bytes::new()), Some(Vec::new()));
        let whole_outcomes = [0, 10, 11, 12, 17];
        for length in 0..encoded.len() {
            let decoded = decode(encoded.slice(..length));
            assert_eq!(decoded.is_some(), whole_outcomes.contains(&length), "cut at {length}");
        }
        assert_eq!(decode(Bytes::from_static(&[3])), None);
    }
}
