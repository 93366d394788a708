//! Commands on their way to the partitions' loops, and their replies on the way back.
//!
//! The writes of a pipeline travel as one [`Operation`] with a part for each command and partition: one place for all
//! replies, and one wake-up when the last is there.

use super::forwarding::Merge;
use super::frame::OwnedFrame;
use super::replies::{Replies, ReplyList};
use super::watches::Watched;
use crate::commands::{self, Call, Command, CommandError, Run, SessionCommand};
use crate::kept_watches::WatchToken;
use crate::resp::{LONGEST_REPLY_BYTES, Protocol, Reply};
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tessera_store::{Operation, PartOutcome, Store, Table, Transaction, Verdict, Watch, WriteOptions};
use tessera_types::RequestError;
use tokio::sync::Notify;

/// Commands that are to be sent together.
#[derive(Default)]
pub(super) struct Batch {
    work: Vec<Work>,
    /// The partition of each part of the work.
    partitions: Vec<u32>,
    /// With the command that is counted for the reply.
    replies: Vec<(Option<&'static Command>, Awaited)>,
}

/// What a batch is for.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    Write(WriteOptions),
    /// Nothing is written, and what is read must be confirmed.
    Read,
}

/// What one part does.
enum Work {
    Command(&'static Command, OwnedFrame),
    /// The commands between MULTI and EXEC, and the watched keys.
    Transaction(Vec<(&'static Command, OwnedFrame)>, Vec<Watched>),
}

/// The reply to one command.
pub(super) enum Awaited {
    /// That of the next parts.
    Merged(Merge),
    /// Known already.
    Ready(Replies),
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// How many commands there are.
    pub(super) fn len(&self) -> usize {
        self.replies.len()
    }

    /// Whether it has a command for one of the partitions.
    pub(super) fn concerns(&self, parts: &[(u32, OwnedFrame)]) -> bool {
        self.partitions.iter().any(|pending| parts.iter().any(|(partition, _)| pending == partition))
    }

    /// Adds a command that is answered already.
    pub(super) fn push_answered(&mut self, command: &'static Command, reply: Replies) {
        self.replies.push((Some(command), Awaited::Ready(reply)));
    }

    /// Adds a command of one or more parts.
    pub(super) fn push(&mut self, command: &'static Command, parts: impl Iterator<Item = (u32, OwnedFrame)>) {
        let before = self.work.len();
        for (partition, frame) in parts {
            self.work.push(Work::Command(command, frame));
            self.partitions.push(partition);
        }
        self.replies.push((Some(command), Awaited::Merged(Merge::of(self.work.len() - before, command))));
    }

    /// Adds what EXEC carries out.
    pub(super) fn push_transaction(
        &mut self,
        partition: u32,
        commands: Vec<(&'static Command, OwnedFrame)>,
        watches: Vec<Watched>,
    ) {
        self.work.push(Work::Transaction(commands, watches));
        self.partitions.push(partition);
        self.replies.push((None, Awaited::Merged(Merge::One)));
    }

    /// The commands that are counted for the replies.
    pub(super) fn commands(&self) -> impl Iterator<Item = Option<&'static Command>> {
        self.replies.iter().map(|(command, _)| *command)
    }

    /// The first command, for the slow log.
    pub(super) fn first(&self) -> Option<OwnedFrame> {
        match self.work.first()? {
            Work::Command(_, frame) => Some(frame.clone()),
            Work::Transaction(commands, _) => commands.first().map(|(_, frame)| frame.clone()),
        }
    }

    /// Sends everything, and waits until all of it is answered. Keys that transactions hold are waited for `until` then. Without a table
    /// it has only commands that are answered already.
    pub(super) async fn run(
        self,
        store: &Store,
        table: Option<&Table>,
        mode: Mode,
        protocol: Protocol,
        until: Instant,
    ) -> Answered {
        let Self { work, partitions, replies } = self;
        let progress = Progress { replies: Replies::default(), parts: vec![0..0; work.len()], waiting: work.len() };
        let sent =
            Arc::new(SentBatch { work, protocol, until, progress: Mutex::new(progress), finished: Notify::new() });
        if let Some(table) = table.filter(|_| !partitions.is_empty()) {
            let operation: Arc<dyn Operation> = sent.clone();
            match mode {
                Mode::Write(options) => store.write(table, options, &operation, partitions),
                Mode::Read => store.read_confirmed(table, &operation, partitions),
            }
            sent.finished.notified().await;
        }
        Answered { sent, replies }
    }
}

/// A batch of which every part is answered.
pub(super) struct Answered {
    sent: Arc<SentBatch>,
    replies: Vec<(Option<&'static Command>, Awaited)>,
}

impl Answered {
    /// Whether some parts were not done, because their partitions are not led here.
    pub(super) fn has_undone(&self) -> bool {
        let progress = self.sent.progress.lock();
        progress.parts.iter().any(|part| progress.replies.is_undone_at(part.start))
    }

    /// The commands that are counted for the replies.
    pub(super) fn commands(&self) -> impl Iterator<Item = Option<&'static Command>> {
        self.replies.iter().map(|(command, _)| *command)
    }

    /// Writes the replies in order.
    pub(super) fn write(&self, out: &mut Replies) {
        self.write_each(out, |_| {});
    }

    /// The replies in order.
    pub(super) fn list(&self) -> ReplyList {
        let (mut replies, mut ends) = (Replies::default(), Vec::with_capacity(self.replies.len()));
        self.write_each(&mut replies, |out| ends.push(out.len()));
        ReplyList { replies, ends }
    }

    /// `each` is called after each reply.
    fn write_each(&self, out: &mut Replies, mut each: impl FnMut(&Replies)) {
        let progress = self.sent.progress.lock();
        let mut parts = progress.parts.iter().map(|range| progress.replies.part(range.clone()));
        for (_, awaited) in &self.replies {
            match awaited {
                Awaited::Merged(merge) => merge.write(&mut parts, self.sent.protocol, out),
                Awaited::Ready(reply) => out.push(reply.one()),
            }
            each(out);
        }
    }

    /// The parts of commands in order, each with what became of it, `None` if it was not done because its partition is not led
    /// here; and how the replies of commands are made of those of their parts.
    pub(super) fn into_parts(self) -> (Vec<AnsweredPart>, impl Iterator<Item = Awaited>) {
        let progress = self.sent.progress.lock();
        let part = |(at, work): (usize, &Work)| match work {
            Work::Command(command, frame) => {
                let reply = progress.replies.part(progress.parts[at].clone());
                let outcome = match reply.failure {
                    None => Some(PartOutcome::Done(Bytes::copy_from_slice(reply.bytes))),
                    Some(RequestError::NotReady) => None,
                    Some(failure) => Some(PartOutcome::of(failure.clone())),
                };
                Some((*command, frame.clone(), outcome))
            }
            Work::Transaction(..) => None,
        };
        let parts = self.sent.work.iter().enumerate().filter_map(part).collect();
        drop(progress);
        (parts, self.replies.into_iter().map(|(_, awaited)| awaited))
    }
}

/// A command's part, and what became of it if it need not be done elsewhere.
pub(super) type AnsweredPart = (&'static Command, OwnedFrame, Option<PartOutcome>);

struct SentBatch {
    work: Vec<Work>,
    protocol: Protocol,
    until: Instant,
    progress: Mutex<Progress>,
    /// Told once, when no part is waited for any more.
    finished: Notify,
}

struct Progress {
    /// Replies in the order in which parts were evaluated, and where each part's stands.
    replies: Replies,
    parts: Vec<Range<usize>>,
    waiting: usize,
}

impl Operation for SentBatch {
    fn evaluate(&self, part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let progress = &mut *self.progress.lock();
        let began = progress.replies.len();
        let verdict = match &self.work[part] {
            Work::Command(command, frame) => {
                match run(command, frame, self.protocol, &mut progress.replies, transaction) {
                    Ok(()) => Verdict::Commit,
                    Err(_) => Verdict::Abandon,
                }
            }
            Work::Transaction(commands, watches) => {
                run_all(commands, watches, self.protocol, &mut progress.replies, transaction)
            }
        };
        if transaction.would_wait() {
            // It is evaluated again, and replies then.
            progress.replies.truncate(began);
        }
        progress.parts[part] = began..progress.replies.len();
        verdict
    }

    fn until(&self) -> Option<Instant> {
        Some(self.until)
    }

    fn only_reads(&self, part: usize) -> bool {
        match &self.work[part] {
            Work::Command(command, _) => !command.flags.write,
            Work::Transaction(commands, _) => commands.iter().all(|(command, _)| !command.flags.write),
        }
    }

    fn answer(&self, part: usize, outcome: Result<(), RequestError>) {
        let progress = &mut *self.progress.lock();
        if let Err(error) = outcome {
            let began = progress.replies.len();
            progress.replies.error(self.protocol, &CommandError::Request(error));
            progress.parts[part] = began..progress.replies.len();
        }
        progress.waiting -= 1;
        if progress.waiting == 0 {
            self.finished.notify_one();
        }
    }
}

/// Runs a command that needs no partition, and leaves its reply in `out`.
pub(super) fn run_plain(command: &Command, frame: &OwnedFrame, protocol: Protocol, out: &mut Vec<u8>) {
    let args = frame.arguments();
    let mut reply = Reply::new(out, protocol);
    let outcome = match command.run {
        Run::Plain(run) => run(&args, &mut reply),
        // EXEC forgets watched keys anyway.
        Run::Session(SessionCommand::Unwatch) => {
            reply.ok();
            Ok(())
        }
        Run::Keyed(_) | Run::Session(_) => Err(CommandError::text("ERR this command needs its keys' partition")),
    };
    if let Err(error) = outcome {
        reply.error(&error.line());
    }
}

/// Runs a keyed command and leaves its reply, an error if that is what it is, in `out`.
pub(super) fn run(
    command: &Command,
    frame: &OwnedFrame,
    protocol: Protocol,
    out: &mut Replies,
    transaction: &mut Transaction<'_>,
) -> Result<(), CommandError> {
    let began = out.len();
    let args = frame.arguments();
    let outcome = match command.run {
        Run::Keyed(run) => run(&mut Call { args: &args, transaction, reply: out.writer(protocol) }),
        Run::Plain(_) | Run::Session(_) => {
            run_plain(command, frame, protocol, out.buffer());
            Ok(())
        }
    };
    if let Err(error) = &outcome {
        out.truncate(began);
        out.error(protocol, error);
    }
    outcome
}

/// Runs the commands of a transaction, unless a watched key was written or has expired since it was watched.
pub(super) fn run_all(
    commands: &[(&'static Command, OwnedFrame)],
    watches: &[Watched],
    protocol: Protocol,
    out: &mut Replies,
    transaction: &mut Transaction<'_>,
) -> Verdict {
    for watched in watches {
        let state = transaction.partition_state();
        let is_kept = |watch: &Watch| watch.is_in(state.watched());
        match is_overtaken(watched, is_kept, |key| digest(key, transaction)) {
            Ok(false) => continue,
            Ok(true) => out.writer(protocol).null_array(),
            // Whoever cannot look does not know that nothing has changed.
            Err(error) => out.error(protocol, &error),
        }
        return Verdict::Abandon;
    }
    let began = out.len();
    out.writer(protocol).array(commands.len());
    for (command, frame) in commands {
        let error = match run(command, frame, protocol, out, transaction) {
            Err(error @ CommandError::Request(_)) => error,
            _ if out.len() - began > LONGEST_REPLY_BYTES => CommandError::REPLY_TOO_LONG,
            _ => continue,
        };
        out.truncate(began);
        out.error(protocol, &error);
        return Verdict::Abandon;
    }
    Verdict::Commit
}

/// The digest in what a node of before has sent, or in a token.
fn digest_in(token: &[u8]) -> Vec<u8> {
    WatchToken::decode(token).map_or_else(|| token.to_vec(), |token| token.digest)
}

fn digest(key: &[u8], transaction: &mut Transaction<'_>) -> Result<String, CommandError> {
    let mut unread = Vec::new();
    commands::digest(&Call { args: &[], transaction, reply: Reply::new(&mut unread, Protocol::Resp2) }, key)
}

/// Whether a watched key was written, or has expired, since it was watched. `is_kept` says of a watch on this node whether it is still
/// told of writes, and `digest` what is under a key now.
fn is_overtaken(
    watched: &Watched,
    is_kept: impl FnOnce(&Watch) -> bool,
    digest: impl FnOnce(&[u8]) -> Result<String, CommandError>,
) -> Result<bool, CommandError> {
    let is_other = |key: &[u8], before: &[u8]| digest(key).map(|now| now.as_bytes() != before);
    match watched {
        Watched::Here(watch, _) if watch.is_touched() || !is_kept(watch) => Ok(true),
        Watched::Here(watch, before) => is_other(watch.hash_key(), before),
        Watched::Remote { key, token } => is_other(key, &digest_in(token)),
        Watched::Lost { .. } => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest that failed was once equal to another one that failed, and the transaction took place.
    #[test]
    fn a_watched_key_that_cannot_be_read_is_not_taken_for_unchanged() {
        for before in ["", "digest"] {
            let watched = Watched::Remote { key: b"k".to_vec(), token: before.into() };
            let failed = is_overtaken(&watched, |_| true, |_| Err(CommandError::Request(RequestError::NotReady)));
            assert!(matches!(failed, Err(CommandError::Request(RequestError::NotReady))));
            let read = |now: &'static str| is_overtaken(&watched, |_| true, move |_| Ok(now.into())).unwrap();
            assert_eq!((read(before), read("another")), (false, true));
        }
    }
}
