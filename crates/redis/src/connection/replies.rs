//! Replies on their way to a client or to another node, and beside them what became of commands that were not carried out: whoever
//! carries a request from node to node must know that, and does not look for it in the replies' words.

use crate::commands::CommandError;
use crate::resp::{Protocol, Reply, reply_length};
use bytes::Bytes;
use tessera_face::buffers;
use tessera_store::PartOutcome;
use tessera_types::Outcome;

/// Replies, one after the other.
#[derive(Debug, Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    /// Where a reply begins that says that its command was not done, since its partition is not led here, or that nobody knows
    /// whether it was done. In order.
    failures: Vec<(usize, Outcome)>,
}

/// One reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneReply<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) failure: Option<Outcome>,
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
        self.failures.extend(error.failure().map(|failure| (began, failure)));
        self.writer(protocol).error(&error.line());
    }

    pub(super) fn push(&mut self, reply: OneReply<'_>) {
        self.failures.extend(reply.failure.map(|failure| (self.bytes.len(), failure)));
        self.bytes.extend_from_slice(reply.bytes);
    }

    /// What became of the command whose reply begins there, if it was not carried out.
    pub(super) fn failure_at(&self, began: usize) -> Option<Outcome> {
        let at = self.failures.binary_search_by_key(&began, |(at, _)| *at).ok()?;
        Some(self.failures[at].1)
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        while self.failures.pop_if(|(at, _)| *at >= length).is_some() {}
    }

    /// Takes out all that begins there or later.
    pub(super) fn split_off(&mut self, began: usize) -> Self {
        let first = self.failures.partition_point(|(at, _)| *at < began);
        let failures = self.failures.split_off(first).into_iter().map(|(at, failure)| (at - began, failure)).collect();
        Self { bytes: self.bytes.split_off(began), failures }
    }

    /// The reply that this is, if it is one.
    pub(super) fn one(&self) -> OneReply<'_> {
        OneReply { bytes: &self.bytes, failure: self.failure_at(0) }
    }

    /// The reply in a range.
    pub(super) fn part(&self, range: std::ops::Range<usize>) -> OneReply<'_> {
        OneReply { failure: self.failure_at(range.start), bytes: &self.bytes[range] }
    }

    /// What became of each command that is answered here.
    pub(super) fn into_outcomes(self) -> Vec<PartOutcome> {
        let (mut failures, mut outcomes, mut at) = (self.failures.into_iter().peekable(), Vec::new(), 0);
        let mut rest = Bytes::from(self.bytes);
        while let Some(length) = reply_length(&rest) {
            let reply = rest.split_to(length);
            outcomes.push(match failures.next_if(|(began, _)| *began == at) {
                None => PartOutcome::Done(reply),
                Some((_, Outcome::NotDone)) => PartOutcome::NotDone,
                Some((_, Outcome::Unknown)) => PartOutcome::Unknown,
            });
            at += length;
        }
        outcomes
    }

    /// Gives this room if it has none.
    pub(super) fn take_room(&mut self) {
        buffers::take(&mut self.bytes);
    }

    /// Empties this and lends its room to others.
    pub(super) fn give_back(&mut self) {
        self.failures.clear();
        buffers::give_back(&mut self.bytes);
    }
}

/// The reply that tells a client of an outcome.
pub(super) fn reply_of(outcome: PartOutcome) -> Replies {
    match outcome.reply() {
        Ok(reply) => Replies { bytes: reply.into(), failures: Vec::new() },
        Err(error) => {
            let mut replies = Replies::default();
            // Errors look the same in both versions of the protocol.
            replies.error(Protocol::Resp2, &CommandError::Request(error));
            replies
        }
    }
}

/// The outcome that a reply tells of.
pub(super) fn outcome_of(replies: Replies) -> PartOutcome {
    match replies.failure_at(0) {
        None => PartOutcome::Done(replies.bytes.into()),
        Some(Outcome::NotDone) => PartOutcome::NotDone,
        Some(Outcome::Unknown) => PartOutcome::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_types::RequestError;

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
        let outcomes = some().into_outcomes();
        let [
            PartOutcome::Done(_),
            PartOutcome::NotDone,
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
    fn failures_follow_their_replies() {
        let whole = some();
        let second = whole.failures[0].0;
        assert_eq!(whole.failure_at(second), Some(Outcome::NotDone));
        let mut first = some();
        let rest = first.split_off(second);
        assert_eq!(rest.failure_at(0), Some(Outcome::NotDone));
        assert_eq!(first.into_outcomes().len(), 1);
        assert_eq!(rest.into_outcomes().len(), 4);
        let mut cut = some();
        cut.truncate(second);
        cut.push(whole.part(0..second));
        cut.push(OneReply { bytes: b":2\r\n", failure: Some(Outcome::Unknown) });
        let one = PartOutcome::Done(Bytes::from_static(b":1\r\n"));
        assert_eq!(cut.into_outcomes(), [one.clone(), one, PartOutcome::Unknown]);
    }

    #[test]
    fn outcomes_come_back_from_the_replies_that_tell_of_them() {
        for outcome in [PartOutcome::Done(Bytes::from_static(b"+OK\r\n")), PartOutcome::NotDone, PartOutcome::Unknown] {
            assert_eq!(outcome_of(reply_of(outcome.clone())), outcome);
        }
    }
}
