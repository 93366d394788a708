//! Point reads: reads of one key each that are made together, as the GETs of a pipeline and the keys of an MGET are.
//!
//! What the caches have is answered at once and where the connection lives. The rest waits for the disk in the threads that the
//! store has for it, all of it at one time, while other connections have their turn. Replies stay in order: those that come after
//! one that waits are held until it is there.
//!
//! **The GETs of a connection take effect in order in each partition.** Keys that are read beside one another are read in any order,
//! which nobody can tell if the partition did not change meanwhile. If it did, they are read again, one after the other.

use super::replies::Replies;
use crate::commands::{Call, CommandError, Value};
use crate::resp::{Protocol, Reply};
use smallvec::SmallVec;
use std::ops::Range;
use tessera_engine::from_caches;
use tessera_store::{InstantScope, Table, Transaction};
use tessera_types::{EngineKind, ReadMode, RecordKey, RequestError, StoredValue, UnixMillis, ValueKind};

pub(super) type Keys<'a> = SmallVec<[RecordKey<'a>; 16]>;

/// What is under a key that is no string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NoString {
    /// Nothing: the table has no hashes.
    Nothing,
    /// What may be a hash, which is an error.
    Error,
    /// What counts as nothing.
    Null,
}

/// The partition of each key, and its version.
pub(super) type Versions = SmallVec<[(u32, Option<u64>); 16]>;

/// The partition of each of several keys, and its version. What one key alone reads is of one instant anyway.
pub(super) fn versions(table: &Table, keys: &[RecordKey<'_>]) -> Versions {
    let version_of = |key: &RecordKey<'_>| {
        let partition = table.partition_of(key);
        (partition, table.version(partition))
    };
    if keys.len() > 1 { keys.iter().map(version_of).collect() } else { Versions::new() }
}

/// Whether all keys of each partition, or of the table, were read at one instant: [versions](Table::version) were the same before and
/// after.
pub(super) fn is_one_instant(table: &Table, reads: ReadMode, scope: InstantScope, versions: &Versions) -> bool {
    let has_locks = |(partition, _): &(u32, Option<u64>)| table.has_locks(*partition);
    if scope == InstantScope::Table && reads != ReadMode::Outdated && versions.iter().any(has_locks) {
        return false;
    }
    let is_changed = |(partition, before): &&(u32, Option<u64>)| !table.is_one_instant(*partition, reads, *before);
    let mut changed: SmallVec<[u32; 16]> =
        versions.iter().filter(is_changed).map(|(partition, _)| *partition).collect();
    if scope == InstantScope::Table {
        return changed.is_empty();
    }
    // One key alone was read at one instant whatever came between.
    changed.sort_unstable();
    changed.windows(2).all(|pair| pair[0] != pair[1])
}

/// How keys are read.
#[derive(Clone, Copy)]
pub(super) struct PointReads {
    /// Bytes of replies after which the rest is left for another time.
    pub(super) enough: usize,
    pub(super) no_string: NoString,
    pub(super) reads: ReadMode,
    pub(super) now: UnixMillis,
    pub(super) protocol: Protocol,
}

/// Reads of which some may be answered.
#[derive(Clone, Copy, Default)]
pub(super) struct Answered {
    /// How many of the first keys have their reply in the output; one at least, unless there was an error.
    pub(super) keys: usize,
    /// How many of these are there.
    pub(super) hits: u64,
}

/// What the caches have.
#[derive(Default)]
pub(super) struct Found {
    pub(super) answered: Answered,
    /// Replies to keys that come after one that waits.
    pub(super) held: Vec<u8>,
    /// For each key after those answered: its reply, among those held, and whether it is there; `None` if it waits for the disk.
    pub(super) later: Vec<Option<(Range<usize>, bool)>>,
}

impl PointReads {
    /// The versions by which it is told afterwards whether keys that were read in any order were read at one instant.
    pub(super) fn versions(self, table: &Table, keys: &[RecordKey<'_>]) -> Versions {
        // Whoever reads several keys of a memory table never waits, and whoever reads an MGET's looks at the versions itself.
        let may_mix = self.no_string != NoString::Null && table.schema().engine == EngineKind::Rocksdb;
        if may_mix { versions(table, keys) } else { Versions::new() }
    }

    /// Appends the reply to what is under a key. Returns whether it is there.
    fn answer(self, stored: Option<StoredValue<'_>>, reply: &mut Reply<'_>) -> bool {
        let stored = stored.filter(|stored| self.no_string != NoString::Null || stored.kind == ValueKind::Plain);
        match &stored {
            Some(stored) => reply.bulk(stored.payload),
            None => reply.null(),
        }
        stored.is_some()
    }

    /// Reads one key and appends the reply. Returns whether it is there. After an error, what was appended does not count.
    pub(super) fn read(self, table: &Table, key: &RecordKey<'_>, reply: &mut Reply<'_>) -> Result<bool, RequestError> {
        if self.no_string == NoString::Error {
            return self.read_string_or_hash(table, key, reply);
        }
        let mut is_hit = None;
        table.read(key, self.reads, self.now, &mut |stored| is_hit = Some(self.answer(Some(stored), reply)))?;
        Ok(is_hit.unwrap_or_else(|| self.answer(None, reply)))
    }

    fn read_string_or_hash(
        self,
        table: &Table,
        key: &RecordKey<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<bool, RequestError> {
        let mut kind = ValueKind::Plain;
        let found = table.read(key, self.reads, self.now, &mut |stored| {
            kind = stored.kind;
            if kind == ValueKind::Plain {
                reply.bulk(stored.payload);
            }
        })?;
        if found && kind == ValueKind::Plain {
            return Ok(true);
        }
        let mut transaction = Transaction::read_only(table, table.partition_of(key), self.reads, self.now)?;
        let mut unread = Vec::new();
        let call = Call { args: &[], transaction: &mut transaction, reply: Reply::new(&mut unread, self.protocol) };
        let value = call.value(key.hash_key);
        transaction.check_lease()?;
        match value {
            Ok(None) => reply.null(),
            // One that was set between the two looks.
            Ok(Some(Value::String(record))) => {
                reply.bulk(&record.value);
                return Ok(true);
            }
            Ok(Some(Value::Hash)) => reply.error(&CommandError::WRONG_TYPE.line()),
            Err(CommandError::Request(error)) => return Err(error),
            Err(error) => reply.error(&error.line()),
        }
        Ok(false)
    }

    /// Appends what the caches have to the output, and keeps what comes after a key that they do not have.
    pub(super) fn read_from_caches(
        self,
        table: &Table,
        keys: &[RecordKey<'_>],
        output: &mut Replies,
    ) -> Result<Found, RequestError> {
        let (mut found, began) = (Found::default(), output.len());
        // A hash under a key is found only by looking for fields.
        if keys.len() == 1 || self.no_string == NoString::Error {
            for key in keys {
                if output.len() + found.held.len() - began >= self.enough {
                    break;
                }
                let (buffer, before) = found.place(output);
                match from_caches(|| self.read(table, key, &mut Reply::new(buffer, self.protocol))) {
                    Ok(is_hit) => found.note(before, is_hit),
                    Err(RequestError::WouldWait) => {
                        buffer.truncate(before);
                        found.later.push(None);
                    }
                    Err(error) => return Err(error),
                }
            }
            return Ok(found);
        }
        let mut is_full = false;
        let read = from_caches(|| {
            table.read_many(keys, self.reads, self.now, &mut |at, stored| {
                is_full |= output.len() + found.held.len() - began >= self.enough;
                if is_full {
                    return; // read again once these are written out
                }
                found.wait_up_to(at);
                let (buffer, before) = found.place(output);
                let is_hit = self.answer(stored, &mut Reply::new(buffer, self.protocol));
                found.note(before, is_hit);
            })
        });
        match read {
            Err(RequestError::WouldWait) if !is_full => found.wait_up_to(keys.len()),
            Err(RequestError::WouldWait) => {}
            read => read?,
        }
        Ok(found)
    }
}

impl Found {
    /// Where the next reply is appended, and at which place.
    fn place<'a>(&'a mut self, output: &'a mut Replies) -> (&'a mut Vec<u8>, usize) {
        let buffer = if self.later.is_empty() { output.buffer() } else { &mut self.held };
        let before = buffer.len();
        (buffer, before)
    }

    /// Notes the reply that was appended there.
    fn note(&mut self, before: usize, is_hit: bool) {
        if self.later.is_empty() {
            self.answered.keys += 1;
            self.answered.hits += u64::from(is_hit);
        } else {
            self.later.push(Some((before..self.held.len(), is_hit)));
        }
    }

    /// Notes that those keys before this one that have no reply wait for the disk.
    fn wait_up_to(&mut self, at: usize) {
        let waiting = at - self.answered.keys - self.later.len();
        self.later.extend(std::iter::repeat_n(None, waiting));
    }
}

/// A key that waits for the disk.
pub(super) struct Waiting {
    hash: u64,
    key: Vec<u8>,
}

impl Waiting {
    pub(super) fn of(key: &RecordKey<'_>) -> Self {
        Self { hash: key.hash(), key: key.hash_key.to_vec() }
    }

    pub(super) fn key(&self) -> RecordKey<'_> {
        RecordKey::with_hash(self.hash, &self.key, b"")
    }
}

#[cfg(test)]
mod tests;
