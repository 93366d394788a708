//! What a group and its log have to do with each other: what must go to the log, and what waits until the log has it.

use crate::log::LogRecord;
use raft::eraftpb::Message;
use std::collections::VecDeque;
use std::time::Duration;

/// How often the log of a witness on disk is truncated.
const TRUNCATE_INTERVAL: Duration = Duration::from_secs(1);

/// Where the log is, and when an entry in it counts as persisted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LogKind {
    /// In memory, where an entry counts at once. A replica whose process ended has forgotten its votes.
    InMemory,
    /// On disk. An entry that does not ask for an fsync may count earlier.
    OnDisk,
    /// On disk. Every entry is fsynced before it counts.
    Fsynced,
}

/// What a [Ready](raft::Ready) waits for.
pub(super) enum Awaits {
    /// Its records survive the process.
    Stage,
    /// Its records are fsynced, or those of an earlier one.
    Fsync,
}

/// The group's side of its log.
pub(super) struct GroupLog {
    kind: LogKind,
    /// Records that must go to the log before any other record of the group.
    owed: Vec<LogRecord>,
    /// Numbers of Readies that wait for the log, with the messages that must not be sent before the log has them.
    waiting: VecDeque<(u64, Vec<Message>)>,
    /// Number of the last Ready that waits, or waited, for an fsync.
    synced_ready: u64,
    /// Messages that may be sent now, because their Ready is persisted.
    released: Vec<Message>,
    /// On a witness: the index up to which its log on disk was truncated, and when.
    truncated: (u64, Duration),
}

impl GroupLog {
    pub(super) fn new(kind: LogKind, owed: Vec<LogRecord>) -> Self {
        Self {
            kind,
            owed,
            waiting: VecDeque::new(),
            synced_ready: 0,
            released: Vec::new(),
            truncated: (0, Duration::ZERO),
        }
    }

    pub(super) fn is_on_disk(&self) -> bool {
        self.kind != LogKind::InMemory
    }

    /// Whether all that counts as persisted is fsynced.
    pub(super) fn is_fsynced(&self) -> bool {
        self.kind == LogKind::Fsynced
    }

    pub(super) fn take_owed(&mut self, records: &mut Vec<LogRecord>) {
        records.append(&mut self.owed);
    }

    /// Whether a Ready must wait for the log. One that [has something for it](Self::hold_back) must, and so must all that
    /// come after one that waits: a Ready that is reported as persisted counts for all before it, so none may overtake one
    /// that still waits.
    pub(super) fn must_wait(&self, has_records: bool) -> bool {
        self.is_on_disk() && (has_records || !self.waiting.is_empty())
    }

    /// Keeps the messages of a Ready until the log has its records, which are fsynced with `sync`.
    pub(super) fn hold_back(&mut self, ready: u64, messages: Vec<Message>, sync: bool) -> Awaits {
        if sync {
            self.synced_ready = ready;
        }
        self.waiting.push_back((ready, messages));
        match self.waiting.front() {
            Some((first, _)) if *first <= self.synced_ready => Awaits::Fsync,
            _ => Awaits::Stage,
        }
    }

    /// The log has persisted the Ready of that number, and all before it.
    pub(super) fn persisted(&mut self, ready: u64) {
        while let Some((_, messages)) = self.waiting.pop_front_if(|(waiting, _)| *waiting <= ready) {
            self.released.extend(messages);
        }
    }

    /// The messages that waited for the log, and may be sent now.
    pub(super) fn take_released(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.released)
    }

    /// Whether a witness, whose log in memory begins behind `index`, truncates its log on disk there now. It does so at once
    /// if there will be no other occasion soon.
    pub(super) fn truncate(&mut self, index: u64, now: Duration, at_once: bool) -> bool {
        let (truncated, at) = self.truncated;
        let is_due = self.is_on_disk() && index > truncated && (at_once || now >= at + TRUNCATE_INTERVAL);
        if is_due {
            self.truncated = (index, now);
        }
        is_due
    }
}
