//! GET, the commonest command: those that follow each other in a pipeline run as one batch, so that their cache misses overlap.

use super::point_reads::{Answered, Keys, NoString, PointReads};
use super::{Connection, REPLY_BYTES};
use crate::commands::CommandError;
use crate::resp::Frame;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use tessera_store::Leader;
use tessera_types::{RecordKey, RequestError, UnixMillis};

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
        let how = PointReads { no_string, reads, now, protocol: self.session.protocol };
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
}
