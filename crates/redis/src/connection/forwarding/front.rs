//! Replies to commands some of which go to other nodes, in the order of the commands. Those at the front are made as soon as all that
//! belongs to them is done, whatever the commands after them wait for.

use super::Merge;
use crate::connection::replies::{OneReply, Replies, ReplyList, reply_of};
use crate::resp::Protocol;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::OnceLock;
use tessera_store::PartOutcome;

/// The replies to commands that are being carried out.
pub(in crate::connection) struct Front {
    /// How the replies of all commands are made, in their order.
    merges: Vec<Merge>,
    protocol: Protocol,
    here: OnceLock<ReplyList>,
    made: Mutex<(Merging, Replies)>,
}

impl Front {
    pub(super) fn new(merges: Vec<Merge>, protocol: Protocol) -> Self {
        Self { merges, protocol, here: OnceLock::new(), made: Mutex::default() }
    }

    /// Whether there is one command, so that no reply comes before others.
    pub(in crate::connection) fn is_of_one(&self) -> bool {
        self.merges.len() == 1
    }

    /// Notes the replies to the commands that were carried out here.
    pub(super) fn note_here(&self, replies: ReplyList) {
        // There is one list.
        let _ = self.here.set(replies);
    }

    /// Makes replies up to the first command of which a part has no outcome.
    pub(super) fn make<'a>(&self, outcome_of: impl Fn(usize) -> Option<&'a PartOutcome>) {
        let (merging, replies) = &mut *self.made.lock();
        merging.go_on(&self.merges, outcome_of, self.here.get(), self.protocol, replies, |_| {});
    }

    /// Takes out the replies that are made.
    pub(in crate::connection) fn take(&self) -> Replies {
        std::mem::take(&mut self.made.lock().1)
    }
}

/// How many commands have their replies, and what these were made of.
#[derive(Default)]
struct Merging {
    commands: usize,
    parts: usize,
    here: usize,
}

impl Merging {
    /// Appends replies up to the first command of which a part has no outcome. Those to commands that were carried out `here` are made
    /// already. `each` is called after each of them.
    fn go_on<'a>(
        &mut self,
        merges: &[Merge],
        outcome_of: impl Fn(usize) -> Option<&'a PartOutcome>,
        here: Option<&ReplyList>,
        protocol: Protocol,
        out: &mut Replies,
        mut each: impl FnMut(&mut Replies),
    ) {
        while let Some(merge) = merges.get(self.commands) {
            if let Merge::Here = merge {
                let Some(reply) = here.and_then(|here| here.get(self.here)) else { return };
                out.push(reply);
                self.here += 1;
            } else {
                let parts = self.parts..self.parts + merge.parts();
                let outcomes: SmallVec<[&PartOutcome; 4]> = parts.clone().map_while(&outcome_of).collect();
                if outcomes.len() < parts.len() {
                    return;
                }
                self.parts = parts.end;
                // Nearly everything is done, and then there are none.
                let failed = outcomes.iter().filter(|outcome| !matches!(outcome, PartOutcome::Done(_)));
                let failures: Vec<Replies> = failed.map(|outcome| reply_of((*outcome).clone())).collect();
                let mut next_failure = failures.iter();
                let mut replies = outcomes.into_iter().map(|outcome| match outcome {
                    PartOutcome::Done(reply) => OneReply { bytes: reply, failure: None },
                    PartOutcome::NotDone(_) | PartOutcome::Unknown => {
                        next_failure.next().expect("one for each failure").one()
                    }
                });
                merge.write(&mut replies, protocol, out);
            }
            self.commands += 1;
            each(out);
        }
    }
}

/// Appends the replies of commands, made of what became of their parts. `each` is called after each of them.
pub(super) fn merge(
    merges: &[Merge],
    outcomes: &[PartOutcome],
    protocol: Protocol,
    out: &mut Replies,
    each: impl FnMut(&mut Replies),
) {
    Merging::default().go_on(merges, |part| outcomes.get(part), None, protocol, out, each);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn list(replies: &[&[u8]]) -> ReplyList {
        let mut list = ReplyList::default();
        for reply in replies {
            list.replies.push(OneReply { bytes: reply, failure: None });
            list.ends.push(list.replies.len());
        }
        list
    }

    /// Replies were once made when all commands were done.
    #[test]
    fn replies_are_made_up_to_the_first_command_that_is_not_done() {
        let merges = vec![Merge::One, Merge::Here, Merge::Sum { parts: 2, is_write: true }, Merge::Here, Merge::One];
        let front = Front::new(merges, Protocol::Resp2);
        let done = |reply: &'static [u8]| Some(PartOutcome::Done(Bytes::from_static(reply)));
        let mut outcomes = [None, done(b":1\r\n"), None, done(b"$1\r\nv\r\n")];
        let made = |outcomes: &[Option<PartOutcome>]| {
            front.make(|part| outcomes[part].as_ref());
            String::from_utf8(front.take().bytes().to_vec()).unwrap().replace("\r\n", " ")
        };
        assert_eq!(made(&outcomes), "");
        outcomes[0] = done(b"+first\r\n");
        assert_eq!(made(&outcomes), "+first ");
        front.note_here(list(&[b"+here\r\n", b"+too\r\n"]));
        assert_eq!(made(&outcomes), "+here ", "the sum lacks a part");
        outcomes[2] = done(b":2\r\n");
        assert_eq!(made(&outcomes), ":3 +too $1 v ");
        assert_eq!(made(&outcomes), "", "nothing twice");
    }
}
