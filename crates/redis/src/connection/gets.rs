//! GET, the commonest command: those that follow each other in a pipeline run as one batch, so that their cache misses overlap.

use super::Connection;
use super::frame::OwnedFrame;
use super::output::REPLY_BYTES;
use super::point_reads::{Answered, Found, Keys, NoString, PointReads, Versions, Waiting, is_one_instant};
use crate::commands::CommandError;
use crate::resp::{Frame, Reply};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_store::{InstantScope, Leader, Table};
use tessera_types::{RecordKey, RequestError, UnixMillis};

/// How far GETs are that were begun, if any were, and how long the output was before them.
#[derive(Default)]
pub(super) struct Begun(Option<(usize, Slice)>);

/// GETs that run together.
enum Slice {
    /// So many of them, one at least, have their replies.
    Answered(usize),
    /// Those that the caches have are answered or held.
    Waits(Box<Waits>),
}

/// Reads of which some wait for the disk.
struct Waits {
    table: Arc<Table>,
    how: PointReads,
    versions: Versions,
    found: Found,
}

fn keys<'a>(input: &'a [u8], batch: &[Range<usize>]) -> Keys<'a> {
    batch.iter().map(|range| RecordKey::new(&input[range.clone()], b"")).collect()
}

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
            if !self.forwards.is_empty() || table.reader_of(partition, self.session.options.reads) != Leader::Here {
                return None;
            }
        }
        Some(key.clone())
    }

    /// Runs the GETs that are pending if none of them has to wait for anything, as a GET that comes alone hardly ever has: no
    /// future is made for it. Returns what is left for [`Self::run_gets`] to do.
    pub(super) fn run_gets_at_once(&mut self, input: &[u8], now: UnixMillis) -> Option<Begun> {
        let gets = std::mem::take(&mut self.gets);
        let is_one_slice = gets.len() <= self.turn.slice() && !self.has_pending() && !self.turn.is_over();
        let begun = if is_one_slice && !self.is_full() {
            let before = self.output.len();
            let slice = self.run_from_caches(input, &gets, now);
            match slice {
                Slice::Answered(ran) if ran == gets.len() && self.forwards.is_empty() => {
                    self.note_turn(ran, before);
                    self.gets = gets;
                    self.gets.clear();
                    return None;
                }
                slice => Some((before, slice)),
            }
        } else {
            None
        };
        self.gets = gets;
        Some(Begun(begun))
    }

    /// Runs the GETs that are pending.
    pub(super) async fn run_gets(&mut self, input: &[u8], mut now: UnixMillis, begun: Begun) -> io::Result<()> {
        let Begun(mut begun) = begun;
        if begun.is_none() && self.has_pending() {
            self.flush_pending().await;
        }
        let gets = std::mem::take(&mut self.gets);
        let mut done = 0;
        while done < gets.len() {
            if begun.is_none() && self.is_full() {
                gets[done..].iter().for_each(|_| self.refuse(&RequestError::NotReady.into()));
                break;
            }
            let slice = &gets[done..gets.len().min(done + self.turn.slice())];
            let (before, outcome) =
                begun.take().unwrap_or_else(|| (self.output.len(), self.run_from_caches(input, slice, now)));
            let ran = match outcome {
                Slice::Answered(ran) => ran,
                Slice::Waits(waits) => self.finish_from_disk(input, slice, before, *waits).await,
            };
            done += ran;
            if self.has_pending() {
                self.flush_pending().await;
            }
            self.note_turn(ran, before);
            if self.is_to_pause() {
                now = self.pause().await?;
            }
        }
        self.gets = gets;
        self.gets.clear();
        Ok(())
    }

    /// Notes for the connection's turn how many GETs have run since the output had so many bytes.
    fn note_turn(&mut self, ran: usize, before: usize) {
        let bytes = self.output.len().saturating_sub(before);
        self.turn.note_slice(ran, bytes);
        self.turn.note_commands(ran);
        self.turn.note_bytes(bytes);
    }

    /// Runs GETs until their replies are large enough to be written out, or one has to wait for the disk.
    fn run_from_caches(&mut self, input: &[u8], batch: &[Range<usize>], now: UnixMillis) -> Slice {
        let began = self.output.len();
        let Some(table) = &self.session.table else {
            batch.iter().for_each(|_| self.refuse(&CommandError::NO_TABLE));
            self.note_gets(batch.len(), 0, began);
            return Slice::Answered(batch.len());
        };
        let reads = self.session.options.reads;
        let keys = keys(input, batch);
        let has_hashes = keys.iter().any(|key| table.may_hold_sort_keys(table.partition_of(key)));
        let no_string = if has_hashes { NoString::Error } else { NoString::Nothing };
        let how = PointReads { enough: REPLY_BYTES, no_string, reads, now, protocol: self.session.protocol };
        let versions = how.versions(table, &keys);
        let ran = match how.read_from_caches(table, &keys, &mut self.output) {
            Ok(found) if found.later.is_empty() => Ok(found.answered),
            Ok(found) => return Slice::Waits(Box::new(Waits { table: table.clone(), how, versions, found })),
            Err(error) => Err(error),
        };
        Slice::Answered(self.answer_gets(input, batch, began, ran))
    }

    /// Goes on with GETs of which some wait for the disk, and whose replies begin at `began`. Returns how many have run, which is one
    /// at least.
    async fn finish_from_disk(&mut self, input: &[u8], batch: &[Range<usize>], began: usize, waits: Waits) -> usize {
        let ran = self.read_rest(&keys(input, batch), waits).await;
        self.answer_gets(input, batch, began, ran)
    }

    /// Counts what GETs have found; or, after an error, answers them with it, or sends them to the node that leads now. Returns how
    /// many have their replies.
    fn answer_gets(
        &mut self,
        input: &[u8],
        batch: &[Range<usize>],
        began: usize,
        ran: Result<Answered, RequestError>,
    ) -> usize {
        match ran {
            Ok(Answered { keys, hits }) => {
                self.note_gets(keys, hits, began);
                return keys;
            }
            // A transaction holds a key, or there is no lease now: the partitions' loops make the reads in their turn.
            Err(RequestError::NotReady) if self.are_read_in_turn(input, batch) => {
                self.output.truncate(began);
                let get = crate::commands::find(b"get").expect("GET is a command");
                for range in batch {
                    let words = [&b"GET"[..], &input[range.clone()]];
                    self.add_write(get, OwnedFrame::from_arguments(words.into_iter()), None);
                }
            }
            Err(RequestError::NotReady) if self.may_forward() => {
                self.output.truncate(began);
                self.take_gets(batch.iter().map(|range| input[range.clone()].to_vec()));
            }
            Err(error) => {
                self.output.truncate(began);
                let error = CommandError::Request(error);
                batch.iter().for_each(|_| self.refuse(&error));
                self.note_gets(batch.len(), 0, began);
            }
        }
        batch.len()
    }

    /// Whether the partitions of all these keys [read in turn](Connection::reads_in_turn).
    fn are_read_in_turn(&self, input: &[u8], batch: &[Range<usize>]) -> bool {
        let Some(table) = &self.session.table else { return false };
        keys(input, batch).iter().all(|key| self.reads_in_turn(table, table.partition_of(key)))
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
        let versions = how.versions(table, keys);
        let found = how.read_from_caches(table, keys, &mut self.output)?;
        if found.later.is_empty() {
            return Ok(found.answered);
        }
        self.read_rest(keys, Waits { table: table.clone(), how, versions, found }).await
    }

    /// Appends the replies that wait for the disk, and those after them. After an error, what was appended does not count.
    async fn read_rest(&mut self, keys: &[RecordKey<'_>], waits: Waits) -> Result<Answered, RequestError> {
        let Waits { table, how, versions, found } = waits;
        let (began, first) = (self.output.len(), found.answered);
        let answered = self.read_rest_from_disk(&table, keys, how, found).await?;
        if is_one_instant(&table, how.reads, InstantScope::Partition, &versions) {
            return Ok(answered);
        }
        self.output.truncate(began);
        self.read_rest_in_order(&table, &keys[first.keys..answered.keys], how, first).await
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
