//! What a transaction over partitions does in one of them, and how that is carried out there.
//!
//! As bytes: `u8` protocol, then for each step `u8` kind, `u32` how many strings it has, and for each string `u32` length and bytes.
//! Integers are little-endian.

use crate::commands::{self, Call, CommandError, StoredRecords, stored_records};
use crate::connection::batch;
use crate::connection::frame::OwnedFrame;
use crate::connection::replies::Replies;
use crate::kept_watches::{KeptWatches, WatchToken};
use crate::resp::{LONGEST_REPLY_BYTES, Protocol, Reply};
use crate::server::RedisServer;
use bytes::{Buf, BufMut, Bytes};
use tessera_store::{Evaluator, Transaction};

/// One step. Those of a part are carried out in their order.
pub(super) enum Step {
    /// What is under a key must have this digest.
    Unchanged { key: Vec<u8>, digest: Vec<u8> },
    /// What is under a key must have the digest of the copy that was made of it.
    Copied { key: Vec<u8>, digest: Vec<u8> },
    /// A key must not have been written since this [token](WatchToken) was given.
    Unwritten { key: Vec<u8>, token: Vec<u8> },
    /// Nothing may be under this key.
    Absent(Vec<u8>),
    /// A command, whose reply is wanted.
    Command(OwnedFrame),
    /// These records take the place of whatever is under a key.
    Put { key: Vec<u8>, records: StoredRecords },
}

/// Why a part was refused, and the whole transaction with it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A key is not as it was.
    Changed,
    /// A key is there that must not be.
    Present,
    /// A copy is not what is under the key any more.
    Outdated,
    /// The line of an error.
    Error(Vec<u8>),
}

const UNCHANGED: u8 = 0;
const ABSENT: u8 = 1;
const COMMAND: u8 = 2;
const PUT: u8 = 3;
const UNWRITTEN: u8 = 4;
const COPIED: u8 = 5;

impl Refusal {
    fn of(error: &CommandError) -> Self {
        Self::Error(error.line().as_bytes().to_vec())
    }

    fn too_long(longest: usize) -> Self {
        Self::Error(
            format!(
                "ERR the replies of one partition to a transaction over several would have more than {longest} bytes \
                 (`limits.value_bytes`), so nothing was done; ask for what is large outside of it"
            )
            .into(),
        )
    }

    fn encode(self) -> Bytes {
        match self {
            Self::Changed => Bytes::from_static(&[0]),
            Self::Present => Bytes::from_static(&[1]),
            Self::Outdated => Bytes::from_static(&[3]),
            Self::Error(line) => [&[2], &line[..]].concat().into(),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        match bytes {
            [0] => Self::Changed,
            [1] => Self::Present,
            [3] => Self::Outdated,
            [2, line @ ..] => Self::Error(line.to_vec()),
            _ => Self::Error(b"ERR another node has refused a part of the transaction in a form that this one cannot read; nothing was done".into()),
        }
    }
}

pub(super) fn encode<'a>(protocol: Protocol, steps: impl IntoIterator<Item = &'a Step>) -> Bytes {
    let mut out = vec![if protocol == Protocol::Resp3 { 3 } else { 2 }];
    for step in steps {
        match step {
            Step::Unchanged { key, digest } => put(&mut out, UNCHANGED, [&key[..], &digest[..]].into_iter()),
            Step::Copied { key, digest } => put(&mut out, COPIED, [&key[..], &digest[..]].into_iter()),
            Step::Unwritten { key, token } => put(&mut out, UNWRITTEN, [&key[..], &token[..]].into_iter()),
            Step::Absent(key) => put(&mut out, ABSENT, std::iter::once(&key[..])),
            Step::Command(frame) => put(&mut out, COMMAND, frame.arguments().into_iter()),
            Step::Put { key, records } => {
                put(&mut out, PUT, [&key[..], &stored_records::encode(records)[..]].into_iter());
            }
        }
    }
    out.into()
}

fn put<'a>(out: &mut Vec<u8>, kind: u8, strings: impl ExactSizeIterator<Item = &'a [u8]>) {
    let number = |count: usize| u32::try_from(count).expect("a command is shorter than 4 GiB");
    out.put_u8(kind);
    out.put_u32_le(number(strings.len()));
    for string in strings {
        out.put_u32_le(number(string.len()));
        out.put_slice(string);
    }
}

/// `None` if the bytes are no steps.
fn decode(mut from: Bytes) -> Option<(Protocol, Vec<Step>)> {
    let protocol = if from.try_get_u8().ok()? == 3 { Protocol::Resp3 } else { Protocol::Resp2 };
    let mut steps = Vec::new();
    while !from.is_empty() {
        let kind = from.try_get_u8().ok()?;
        let count = from.try_get_u32_le().ok()? as usize;
        (count <= from.len()).then_some(())?;
        let strings = (0..count).map(|_| {
            let length = from.try_get_u32_le().ok()? as usize;
            (length <= from.len()).then(|| from.split_to(length))
        });
        let strings: Vec<Bytes> = strings.collect::<Option<_>>()?;
        steps.push(match (kind, &strings[..]) {
            (UNCHANGED, [key, digest]) => Step::Unchanged { key: key.to_vec(), digest: digest.to_vec() },
            (UNWRITTEN, [key, token]) => Step::Unwritten { key: key.to_vec(), token: token.to_vec() },
            (COPIED, [key, digest]) => Step::Copied { key: key.to_vec(), digest: digest.to_vec() },
            (ABSENT, [key]) => Step::Absent(key.to_vec()),
            (COMMAND, [_, ..]) => Step::Command(OwnedFrame::from_arguments(strings.iter().map(|string| &string[..]))),
            (PUT, [key, records]) => Step::Put { key: key.to_vec(), records: stored_records::decode(records.clone())? },
            _ => return None,
        });
    }
    Some((protocol, steps))
}

impl Evaluator for RedisServer {
    fn evaluate(&self, operation: &Bytes, transaction: &mut Transaction<'_>) -> Result<Bytes, Bytes> {
        let unreadable = CommandError::text(
            "ERR a part of the transaction cannot be read by the node that was to carry it out; nothing was done",
        );
        let (protocol, steps) = decode(operation.clone()).ok_or_else(|| Refusal::of(&unreadable).encode())?;
        let mut replies = Replies::default();
        // A partition keeps the replies of a transaction in its log until that is decided.
        let longest =
            if transaction.may_write() { transaction.table().limits().value_bytes } else { LONGEST_REPLY_BYTES };
        for step in &steps {
            carry_out(step, protocol, &self.kept_watches, &mut replies, transaction).map_err(Refusal::encode)?;
            if replies.len() > longest {
                return Err(Refusal::too_long(longest).encode());
            }
        }
        Ok(std::mem::take(replies.buffer()).into())
    }
}

fn carry_out(
    step: &Step,
    protocol: Protocol,
    watches: &KeptWatches,
    replies: &mut Replies,
    transaction: &mut Transaction<'_>,
) -> Result<(), Refusal> {
    let mut unread = Vec::new();
    let failed = |error: CommandError| Refusal::of(&error);
    let mut call = Call { args: &[], transaction, reply: Reply::new(&mut unread, Protocol::Resp2) };
    let is_same = |call: &Call<'_, '_>, key: &[u8], digest: &[u8]| {
        commands::digest(call, key).map_err(failed).map(|now| now.as_bytes() == digest)
    };
    match step {
        Step::Unchanged { key, digest } => {
            if is_same(&call, key, digest)? {
                Ok(())
            } else {
                Err(Refusal::Changed)
            }
        }
        Step::Copied { key, digest } => {
            if is_same(&call, key, digest)? {
                Ok(())
            } else {
                Err(Refusal::Outdated)
            }
        }
        Step::Unwritten { key, token } => {
            let is_written = match WatchToken::decode(token) {
                Some(token) => {
                    let list = call.transaction.partition_state().watched();
                    let is_touched = watches.find(&token).is_none_or(|watch| watch.is_touched() || !watch.is_in(list));
                    // A write that was evaluated before the watch began, and not applied when the key was read, shows in the digest.
                    is_touched || !is_same(&call, key, &token.digest)?
                }
                // The connection's node is of a version that knows digests only.
                None => !is_same(&call, key, token)?,
            };
            if is_written { Err(Refusal::Changed) } else { Ok(()) }
        }
        Step::Absent(key) => match call.value(key).map_err(failed)? {
            Some(_) => Err(Refusal::Present),
            None => Ok(()),
        },
        Step::Put { key, records } => call.put_records(key, records).map_err(failed),
        Step::Command(frame) => {
            let command = commands::find(frame.argument(0)).ok_or_else(|| {
                failed(CommandError::text(
                    "ERR the node that was to carry out a part of the transaction does not know one of its commands; nothing was done",
                ))
            })?;
            match batch::run(command, frame, protocol, replies, transaction) {
                // As in a transaction of one partition: what the store refuses is given up as a whole.
                Err(error @ CommandError::Request(_)) => Err(failed(error)),
                Err(CommandError::Reply(_)) | Ok(()) => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_back_and_what_is_cut_off_does_not() {
        let command = OwnedFrame::from_arguments([&b"SET"[..], b"k", b""].into_iter());
        let steps = [
            Step::Unchanged { key: b"a".to_vec(), digest: vec![b'0'; 64] },
            Step::Unwritten { key: b"u".to_vec(), token: b"00:1:2".to_vec() },
            Step::Copied { key: b"c".to_vec(), digest: vec![b'1'; 64] },
            Step::Absent(b"b".to_vec()),
            Step::Command(command),
            Step::Put { key: b"c".to_vec(), records: Vec::new() },
        ];
        let encoded = encode(Protocol::Resp3, &steps);
        let (protocol, decoded) = decode(encoded.clone()).unwrap();
        assert_eq!((protocol, decoded.len()), (Protocol::Resp3, steps.len()));
        assert_eq!(encode(protocol, &decoded), encoded);
        let ends: Vec<usize> = (0..=steps.len()).map(|count| encode(Protocol::Resp3, &steps[..count]).len()).collect();
        for length in (0..encoded.len()).filter(|length| !ends.contains(length)) {
            assert!(decode(encoded.slice(..length)).is_none(), "cut at {length}");
        }
    }

    #[test]
    fn refusals_come_back() {
        let refusals =
            || [Refusal::Changed, Refusal::Present, Refusal::Outdated, Refusal::Error(b"ERR x".to_vec())].into_iter();
        for (refusal, again) in refusals().zip(refusals()) {
            assert_eq!(Refusal::decode(&refusal.encode()), again);
        }
    }
}
