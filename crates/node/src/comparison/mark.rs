//! What travels: the mark in the log that says what is to be digested, and the digest that a replica answers with.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use tessera_engine::{Slice, SliceDigest};
use tessera_store::{Operation, Transaction, Verdict};
use tessera_types::{NodeId, RequestError};
use tokio::sync::oneshot;

/// Limits of one slice: live records, their bytes, and records looked at including expired ones.
const RECORDS: u64 = 1_000;
const BYTES: u64 = 256 << 10;
const SCANNED_RECORDS: u64 = 20_000;

/// The mark with which an entry of a partition's log begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The node that compares.
    pub(super) node: NodeId,
    /// A number of the comparison that nobody else uses, and of the slice in it.
    pub(super) comparison: u64,
    pub(super) number: u32,
    pub(super) slice: Slice,
}

/// The slice of that range, with the usual limits.
pub(super) fn slice(from: Bytes, to: Option<Bytes>) -> Slice {
    Slice { from, to, records: RECORDS, bytes: BYTES, scanned: SCANNED_RECORDS }
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32_le(u32::try_from(bytes.len()).expect("keys are limited"));
    out.put_slice(bytes);
}

fn take_bytes(rest: &mut Bytes) -> Option<Bytes> {
    let length = rest.try_get_u32_le().ok()? as usize;
    (rest.len() >= length).then(|| rest.split_to(length))
}

impl Mark {
    pub(super) fn encode(&self) -> BytesMut {
        let Self { node, comparison, number, slice } = self;
        let mut out = BytesMut::new();
        out.put_u32_le(node.0);
        out.put_u64_le(*comparison);
        out.put_u32_le(*number);
        [slice.records, slice.bytes, slice.scanned].iter().for_each(|word| out.put_u64_le(*word));
        put_bytes(&mut out, &slice.from);
        out.put_u8(u8::from(slice.to.is_some()));
        slice.to.iter().for_each(|to| put_bytes(&mut out, to));
        out
    }

    /// `None` if the bytes are no such mark.
    pub(super) fn decode(mut bytes: Bytes) -> Option<Self> {
        let node = NodeId(bytes.try_get_u32_le().ok()?);
        let comparison = bytes.try_get_u64_le().ok()?;
        let number = bytes.try_get_u32_le().ok()?;
        let mut word = || bytes.try_get_u64_le().ok();
        let (records, limit, scanned) = (word()?, word()?, word()?);
        let from = take_bytes(&mut bytes)?;
        let to = if bytes.try_get_u8().ok()? == 1 { Some(take_bytes(&mut bytes)?) } else { None };
        Some(Self { node, comparison, number, slice: Slice { from, to, records, bytes: limit, scanned } })
    }
}

/// What a replica has in a slice; `None` if it cannot say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) comparison: u64,
    pub(super) number: u32,
    pub(super) digest: Option<SliceDigest>,
}

impl Answer {
    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.comparison);
        out.put_u32_le(self.number);
        let Some(SliceDigest { records, bytes, hash, next, is_cut }) = &self.digest else { return };
        out.put_u64_le(*records);
        out.put_u64_le(*bytes);
        out.put_u128_le(*hash);
        out.put_u8(u8::from(*is_cut));
        next.iter().for_each(|next| put_bytes(out, next));
    }

    pub(super) fn decode(mut bytes: Bytes) -> Option<Self> {
        let comparison = bytes.try_get_u64_le().ok()?;
        let number = bytes.try_get_u32_le().ok()?;
        if bytes.is_empty() {
            return Some(Self { comparison, number, digest: None });
        }
        let (records, length) = (bytes.try_get_u64_le().ok()?, bytes.try_get_u64_le().ok()?);
        let (hash, is_cut) = (bytes.try_get_u128_le().ok()?, bytes.try_get_u8().ok()? == 1);
        let next = if bytes.is_empty() { None } else { Some(take_bytes(&mut bytes)?) };
        let digest = Some(SliceDigest { records, bytes: length, hash, next, is_cut });
        Some(Self { comparison, number, digest })
    }
}

/// Puts a mark into the log.
pub(super) struct Propose {
    pub(super) node: NodeId,
    pub(super) comparison: u64,
    pub(super) number: u32,
    pub(super) from: Bytes,
    pub(super) to: Option<Bytes>,
    pub(super) outcome: Mutex<Option<oneshot::Sender<Result<(), RequestError>>>>,
}

impl Operation for Propose {
    fn evaluate(&self, _part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let Self { node, comparison, number, .. } = *self;
        let slice = slice(self.from.clone(), self.to.clone());
        let mark = Mark { node, comparison, number, slice };
        if transaction.mark(&mark.encode()) {
            return Verdict::Commit;
        }
        if let Some(outcome) = self.outcome.lock().take() {
            // Entries cannot be closed now: another replica is to lead.
            let _ = outcome.send(Err(RequestError::NotReady));
        }
        Verdict::Abandon
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        if let Some(sender) = self.outcome.lock().take() {
            let _ = sender.send(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_answers_come_back() {
        for to in [None, Some(Bytes::from_static(b"to"))] {
            let slice = slice(Bytes::from_static(b"from"), to.clone());
            let mark = Mark { node: NodeId(3), comparison: u64::MAX, number: 9, slice };
            assert_eq!(Mark::decode(mark.encode().freeze()), Some(mark.clone()));
            let bytes = mark.encode().freeze();
            assert!((0..bytes.len()).all(|end| Mark::decode(bytes.slice(..end)).is_none()));

            let digest = SliceDigest { records: 1, bytes: 2, hash: u128::MAX - 3, next: to, is_cut: true };
            for digest in [None, Some(digest)] {
                let answer = Answer { comparison: 4, number: 5, digest };
                let mut bytes = BytesMut::new();
                answer.encode(&mut bytes);
                assert_eq!(Answer::decode(bytes.freeze()), Some(answer));
            }
        }
    }
}
