//! GET, the commonest command: those that follow each other in a pipeline run as one batch, so that their cache misses overlap.

use super::point_reads::{Answered, Found, Keys, NoString, PointReads, Versions, Waiting, is_one_instant, versions};
use super::{Connection, REPLY_BYTES};
use crate::commands::CommandError;
use crate::resp::{Frame, Reply};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_store::{Leader, Table};
use tessera_types::{EngineKind, RecordKey, RequestError, UnixMillis};

impl Connection {
    /// The key, if the frame is a GET that may run in a batch.
    #[inline]
    pub(super) fn plain_get(&self, input: &[u8], frame: &Frame) -> Option<Range<usize>> {
        let [name, key] = &frame.arguments[..] else { return None };
        let is_get = input[name.clone()].eq_ignore_ascii_case(b"get");
        let is_throttled = || self.session.table.as_ref().is_some_and(|table| table.admissions().is_some());
        if !is_get || !self.session.reads_freely || is_throttled() {
            return None;
        }
        if self.may_forward() {
            let table = self.session.table.as_ref()?;
            let partition = table.partition_of(&RecordKey::new(&input[key.clone()], b""));
            if !self.elsewhere.is_empty() || table.reader_of(partition, self.session.choices.reads) != Leader::Here {
                return None;
            }
        }
        Some(key.clone())
    }

    /// Runs the GETs that have gathered.
    pub(super) async fn run_gets(&mut self, input: &[u8], mut now: UnixMillis) -> io::Result<()> {
        if self.has_gathered() {
            self.settle().await;
        }
        let gets = std::mem::take(&mut self.gets);
        let mut done = 0;
        while done < gets.len() {
            if self.is_full() {
                gets[done..].iter().for_each(|_| self.refuse(&RequestError::NotReady.into()));
                break;
            }
            let slice = &gets[done..gets.len().min(done + self.turn.slice())];
            let before = self.output.len();
            let ran = self.run_get_batch(input, slice, now).await;
            done += ran;
            if !self.elsewhere.is_empty() {
                self.reach_elsewhere().await;
            }
            let bytes = self.output.len().saturating_sub(before);
            self.turn.note_slice(ran, bytes);
            self.turn.note_commands(ran);
            self.turn.note_bytes(bytes);
            let is_much = self.output.len() >= REPLY_BYTES;
            if is_much {
                self.write_out().await?;
            }
            let is_over = self.turn.is_over();
            if is_over {
                self.turn.end().await;
            }
            if is_over || is_much {
                now = self.server.store.now();
            }
        }
        self.gets = gets;
        self.gets.clear();
        Ok(())
    }

    /// Runs GETs until their replies are large enough to be written out. Returns how many, which is one at least.
    async fn run_get_batch(&mut self, input: &[u8], batch: &[Range<usize>], now: UnixMillis) -> usize {
        let Some(table) = self.session.table() else {
            batch.iter().for_each(|_| self.refuse(&CommandError::NO_TABLE));
            return batch.len();
        };
        let (began, reads) = (self.output.len(), self.session.choices.reads);
        let keys: Keys<'_> = batch.iter().map(|range| RecordKey::new(&input[range.clone()], b"")).collect();
        let has_hashes = keys.iter().any(|key| table.may_hold_sort_keys(table.partition_of(key)));
        let no_string = if has_hashes { NoString::Error } else { NoString::Nothing };
        let how = PointReads { enough: REPLY_BYTES, no_string, reads, now, protocol: self.session.protocol };
        match self.read_keys(&table, &keys, how).await {
            Ok(Answered { keys, hits }) => {
                self.server.read_hits.fetch_add(hits, Ordering::Relaxed);
                self.server.read_misses.fetch_add(keys as u64 - hits, Ordering::Relaxed);
                return keys;
            }
            Err(RequestError::NotReady) if self.may_forward() => {
                self.output.truncate(began);
                self.take_gets(batch.iter().map(|range| input[range.clone()].to_vec()));
            }
            Err(error) => {
                self.output.truncate(began);
                let error = CommandError::Request(error);
                batch.iter().for_each(|_| self.refuse(&error));
            }
        }
        batch.len()
    }

    /// Appends the replies to reads of some keys, until there is much to be written out. After an error, what was appended does not
    /// count.
    ///
    /// # Errors
    /// As [`Table::read`].
    pub(super) async fn read_keys(
        &mut self,
        table: &Arc<Table>,
        keys: &[RecordKey<'_>],
        how: PointReads,
    ) -> Result<Answered, RequestError> {
        // Whoever reads several keys of a memory table never waits, and whoever reads an MGET's looks at the versions itself.
        let may_mix = how.no_string != NoString::Null && table.schema().engine == EngineKind::Rocksdb;
        let versions = if may_mix { versions(table, keys) } else { Versions::new() };
        let found = how.read_from_caches(table, keys, &mut self.output)?;
        if found.later.is_empty() {
            return Ok(found.answered);
        }
        let (began, first) = (self.output.len(), found.answered);
        let answered = self.read_rest_from_disk(table, keys, how, found).await?;
        if is_one_instant(table, how.reads, &versions) {
            return Ok(answered);
        }
        self.output.truncate(began);
        self.read_rest_in_order(table, &keys[first.keys..answered.keys], how, first).await
    }

    /// Reads the keys that are left one after the other, where one may wait for the disk.
    async fn read_rest_in_order(
        &mut self,
        table: &Arc<Table>,
        rest: &[RecordKey<'_>],
        how: PointReads,
        first: Answered,
    ) -> Result<Answered, RequestError> {
        let (table, rest): (_, Vec<_>) = (table.clone(), rest.iter().map(Waiting::of).collect());
        let read = move || {
            let (mut replies, mut answered) = (Vec::new(), first);
            for key in &rest {
                answered.hits +=
                    u64::from(how.read(&table, &key.key(), &mut Reply::new(&mut replies, how.protocol))?);
                answered.keys += 1;
                if replies.len() >= how.enough {
                    break;
                }
            }
            Ok((replies, answered))
        };
        let (replies, answered) = self.server.store.disk_readers().read_from_disk(read).await.flatten()?;
        self.output.buffer().extend_from_slice(&replies);
        Ok(answered)
    }

    async fn read_rest_from_disk(
        &mut self,
        table: &Arc<Table>,
        keys: &[RecordKey<'_>],
        how: PointReads,
        found: Found,
    ) -> Result<Answered, RequestError> {
        let Found { mut answered, held, later } = found;
        let waiting = keys[answered.keys..].iter().zip(&later).filter(|(_, later)| later.is_none());
        let waiting = waiting.map(|(key, _)| Waiting::of(key));
        let waiting: Vec<_> = waiting.collect();
        let (table, bytes) = (table.clone(), AtomicUsize::new(held.len()));
        let read = move |at: usize| {
            // What would be too much at a time is read again once this is written out.
            if at > 0 && bytes.load(Ordering::Relaxed) >= how.enough {
                return None;
            }
            let mut reply = Vec::new();
            let is_hit = how.read(&table, &waiting[at].key(), &mut Reply::new(&mut reply, how.protocol));
            bytes.fetch_add(reply.len(), Ordering::Relaxed);
            Some(is_hit.map(|is_hit| (reply, is_hit)))
        };
        let parts = later.iter().filter(|later| later.is_none()).count();
        let mut from_disk = self.server.store.disk_readers().read_parts(parts, read).await?.into_iter();
        for later in later {
            let is_hit = match later {
                Some((place, is_hit)) => {
                    self.output.buffer().extend_from_slice(&held[place]);
                    is_hit
                }
                None => {
                    let Some(read) = from_disk.next().flatten() else { break };
                    let (reply, is_hit) = read?;
                    self.output.buffer().extend_from_slice(&reply);
                    is_hit
                }
            };
            answered.keys += 1;
            answered.hits += u64::from(is_hit);
        }
        Ok(answered)
    }
}
