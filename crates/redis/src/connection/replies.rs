//! Replies on their way to a client or to another node, and beside them what became of commands that were not carried out: whoever
//! carries a request from node to node must know that, and does not look for it in the replies' words.

use crate::commands::CommandError;
use crate::resp::{Protocol, Reply, reply_length};
use tessera_face::buffers;
use tessera_store::{Envelope, PartOutcome};
use tessera_types::RequestError;

/// Replies, one after the other.
#[derive(Debug, Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    /// Where a reply begins that says that its command was not done, since its partition is not led here, or that nobody knows
    /// whether it was done; and which of these. In order.
    failures: Vec<(usize, RequestError)>,
    /// Up to here they are whole: what follows may be a part of a reply.
    complete: usize,
    /// Up to here they were sent while their connection waited.
    sent: usize,
}

/// Replies of which each can be found.
#[derive(Default)]
pub(super) struct ReplyList {
    pub(super) replies: Replies,
    /// Where each ends.
    pub(super) ends: Vec<usize>,
}

impl ReplyList {
    pub(super) fn iter(&self) -> impl Iterator<Item = OneReply<'_>> {
        (0..self.ends.len()).filter_map(|at| self.get(at))
    }

    pub(super) fn get(&self, at: usize) -> Option<OneReply<'_>> {
        let begins = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(self.replies.part(begins..*self.ends.get(at)?))
    }
}

/// One reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneReply<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) failure: Option<&'a RequestError>,
}

impl OneReply<'_> {
    pub(super) fn is_error(&self) -> bool {
        self.bytes.first() == Some(&b'-')
    }
}

impl Replies {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Notes that they are whole up to here.
    pub(super) fn note_complete(&mut self) {
        self.complete = self.bytes.len();
    }

    /// Those that are whole and were not sent.
    pub(super) fn complete_and_unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.complete.max(self.sent)]
    }

    /// Those that were not sent.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Notes that so many bytes more were sent. They stay, since others know where their replies begin.
    pub(super) fn note_sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Whether a reply says that its command was not done, since nobody leads its partition.
    pub(super) fn say_undone(&self) -> bool {
        self.failures.iter().any(|(_, failure)| *failure == RequestError::NotReady)
    }

    /// Appends what is no failure.
    pub(super) fn writer(&mut self, protocol: Protocol) -> Reply<'_> {
        Reply::new(&mut self.bytes, protocol)
    }

    /// Where replies are appended that are no failures.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends the reply to a command that failed.
    pub(super) fn error(&mut self, protocol: Protocol, error: &CommandError) {
        let began = self.bytes.len();
        self.failures.extend(error.failure().map(|failure| (began, failure.clone())));
        self.writer(protocol).error(&error.line());
    }

    pub(super) fn push(&mut self, reply: OneReply<'_>) {
        self.failures.extend(reply.failure.map(|failure| (self.bytes.len(), failure.clone())));
        self.bytes.extend_from_slice(reply.bytes);
    }

    /// Appends all of them.
    pub(super) fn append(&mut self, other: Self) {
        let began = self.bytes.len();
        self.failures.extend(other.failures.into_iter().map(|(at, failure)| (began + at, failure)));
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// What became of the command whose reply begins there, if it was not carried out.
    pub(super) fn failure_at(&self, began: usize) -> Option<&RequestError> {
        let at = self.failures.binary_search_by_key(&began, |(at, _)| *at).ok()?;
        Some(&self.failures[at].1)
    }

    /// Whether the command whose reply begins there was not done, because its partition is not led here.
    pub(super) fn is_undone_at(&self, began: usize) -> bool {
        self.failure_at(began) == Some(&RequestError::NotReady)
    }

    pub(super) fn truncate(&mut self, length: usize) {
        debug_assert!(length >= self.sent, "what was sent stays");
        self.bytes.truncate(length);
        self.complete = self.complete.min(length);
        while self.failures.pop_if(|(at, _)| *at >= length).is_some() {}
    }

    /// Takes out all that begins there or later.
    pub(super) fn split_off(&mut self, began: usize) -> Self {
        let first = self.failures.partition_point(|(at, _)| *at < began);
        let failures = self.failures.split_off(first).into_iter().map(|(at, failure)| (at - began, failure)).collect();
        Self { bytes: self.bytes.split_off(began), failures, ..Self::default() }
    }

    /// The reply that this is, if it is one.
    pub(super) fn one(&self) -> OneReply<'_> {
        OneReply { bytes: &self.bytes, failure: self.failure_at(0) }
    }

    /// The reply in a range.
    pub(super) fn part(&self, range: std::ops::Range<usize>) -> OneReply<'_> {
        OneReply { failure: self.failure_at(range.start), bytes: &self.bytes[range] }
    }

    /// What became of parts of a request, of which each has this many commands. A part's last command decides, and if it has no
    /// reply, nobody knows what became of it.
    pub(super) fn into_envelope(self, parts: &[u32]) -> Envelope {
        let Self { mut bytes, failures, .. } = self;
        let (mut failures, mut read, mut kept) = (failures.into_iter().peekable(), 0, 0);
        let mut outcomes = Vec::with_capacity(parts.len());
        for commands in parts {
            let mut last = (read, Err(RequestError::Interrupted));
            for _ in 0..*commands {
                let failure = failures.next_if(|(began, _)| *began == read).map(|(_, failure)| failure);
                let length = reply_length(&bytes[read..]);
                last =
                    (read, length.ok_or(RequestError::Interrupted).and_then(|length| failure.map_or(Ok(length), Err)));
                read += length.unwrap_or_default();
            }
            let (began, outcome) = last;
            if let Ok(length) = &outcome {
                if began > kept {
                    bytes.copy_within(began..began + length, kept);
                }
                kept += length;
            }
            outcomes.push(outcome);
        }
        bytes.truncate(kept);
        Envelope::new(bytes, outcomes)
    }

    /// Gives this room if it has none.
    pub(super) fn take_room(&mut self) {
        buffers::take(&mut self.bytes);
    }

    /// Empties this and lends its room to others.
    pub(super) fn give_back(&mut self) {
        self.failures.clear();
        (self.complete, self.sent) = (0, 0);
        buffers::give_back(&mut self.bytes);
    }
}

/// The reply that tells a client of an outcome.
pub(super) fn reply_of(outcome: PartOutcome) -> Replies {
    match outcome.reply() {
        Ok(reply) => Replies { bytes: reply.into(), ..Replies::default() },
        Err(error) => reply_of_error(error),
    }
}

/// The reply that tells a client why nothing was done.
pub(super) fn reply_of_error(error: RequestError) -> Replies {
    let mut replies = Replies::default();
    // Errors look the same in both versions of the protocol.
    replies.error(Protocol::Resp2, &CommandError::Request(error));
    replies
}

/// The outcome that a reply tells of.
pub(super) fn outcome_of(replies: Replies) -> PartOutcome {
    match replies.failure_at(0) {
        None => PartOutcome::Done(replies.bytes.into()),
        Some(failure) => PartOutcome::of(failure.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    fn outcomes(replies: Replies, parts: &[u32]) -> Vec<PartOutcome> {
        replies.into_envelope(parts).into_outcomes().unwrap()
    }

    fn some() -> Replies {
        let mut replies = Replies::default();
        replies.writer(Protocol::Resp2).integer(1);
        replies.error(Protocol::Resp2, &RequestError::NotReady.into());
        replies.error(Protocol::Resp2, &CommandError::WRONG_TYPE);
        replies.error(Protocol::Resp2, &RequestError::Interrupted.into());
        replies.writer(Protocol::Resp2).bulk(b"-LOADING this is a value");
        replies
    }

    #[test]
    fn what_became_of_each_command_is_known_whatever_the_replies_say() {
        let outcomes = outcomes(some(), &[1; 5]);
        let [
            PartOutcome::Done(_),
            PartOutcome::NotDone(RequestError::NotReady),
            PartOutcome::Done(error),
            PartOutcome::Unknown,
            PartOutcome::Done(value),
        ] = &outcomes[..]
        else {
            panic!("{outcomes:?}")
        };
        assert!(error.starts_with(b"-WRONGTYPE") && value.starts_with(b"$24\r\n-LOADING"));
    }

    #[test]
    fn the_last_command_of_a_part_decides() {
        let done = |reply| PartOutcome::Done(Bytes::from_static(reply));
        let of = |parts: &[u32]| outcomes(some(), parts);
        assert_eq!(
            of(&[1, 2, 0, 2]),
            [
                done(b":1\r\n"),
                done(b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
                PartOutcome::Unknown,
                done(b"$24\r\n-LOADING this is a value\r\n"),
            ]
        );
        // The replies end before the commands do.
        assert_eq!(of(&[4, 2]), [PartOutcome::Unknown, PartOutcome::Unknown]);
        assert_eq!(of(&[2, 3]), [PartOutcome::NO_LEADER, done(b"$24\r\n-LOADING this is a value\r\n")]);
    }

    #[test]
    fn failures_follow_their_replies() {
        let whole = some();
        let second = whole.failures[0].0;
        assert_eq!(whole.failure_at(second), Some(&RequestError::NotReady));
        let mut first = some();
        let rest = first.split_off(second);
        assert_eq!(rest.failure_at(0), Some(&RequestError::NotReady));
        assert_eq!(first.failures, []);
        assert_eq!(rest.failures.len(), 2);
        let mut cut = some();
        cut.truncate(second);
        cut.push(whole.part(0..second));
        cut.push(OneReply { bytes: b":2\r\n", failure: Some(&RequestError::Interrupted) });
        let one = PartOutcome::Done(Bytes::from_static(b":1\r\n"));
        assert_eq!(outcomes(cut, &[1; 3]), [one.clone(), one, PartOutcome::Unknown]);
    }

    #[test]
    fn outcomes_come_back_from_the_replies_that_tell_of_them() {
        let stops = PartOutcome::NotDone(RequestError::ShuttingDown);
        let done = PartOutcome::Done(Bytes::from_static(b"+OK\r\n"));
        for outcome in [done, PartOutcome::NO_LEADER, stops, PartOutcome::Unknown] {
            assert_eq!(outcome_of(reply_of(outcome.clone())), outcome);
        }
    }
}
