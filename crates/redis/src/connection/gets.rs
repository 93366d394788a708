//! GET, the commonest command: those that follow each other in a pipeline run as one batch, so that their cache misses overlap.

use super::{Connection, REPLY_BYTES, session};
use crate::commands::{Call, CommandError, Value};
use crate::resp::{Frame, Reply};
use smallvec::SmallVec;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use tessera_store::{Leader, Table, Transaction};
use tessera_types::{ReadMode, RecordKey, RequestError, UnixMillis};

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
            let ran = self.run_get_batch(input, slice, now);
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
    fn run_get_batch(&mut self, input: &[u8], batch: &[Range<usize>], now: UnixMillis) -> usize {
        let Some(table) = self.session.table() else {
            batch.iter().for_each(|_| self.reply().error(session::NO_TABLE));
            return batch.len();
        };
        let (mut hits, mut done, began, reads) = (0, 0, self.output.len(), self.session.choices.reads);
        let mut reply = self.output.writer(self.session.protocol);
        let keys: SmallVec<[_; 16]> = batch.iter().map(|range| RecordKey::new(&input[range.clone()], b"")).collect();
        let has_hashes = keys.iter().any(|key| table.may_hold_sort_keys(table.partition_of(key)));
        let outcome = if has_hashes {
            // A hash under the key is an error, and found only by looking for fields.
            keys.iter().try_for_each(|key| {
                if reply.len() - began >= REPLY_BYTES {
                    return Ok(());
                }
                done += 1;
                get(&table, key, reads, now, &mut reply, &mut hits)
            })
        } else if let [key] = &keys[..] {
            done = 1;
            let found = table.read(key, reads, now, &mut |stored| reply.bulk(stored.payload));
            found.map(|found| if found { hits += 1 } else { reply.null() })
        } else {
            table.read_many(&keys, reads, now, &mut |_, stored| {
                if reply.len() - began >= REPLY_BYTES {
                    return; // read again once these are written out
                }
                done += 1;
                match stored {
                    Some(stored) => {
                        hits += 1;
                        reply.bulk(stored.payload);
                    }
                    None => reply.null(),
                }
            })
        };
        if let Err(error) = outcome {
            self.output.truncate(began);
            if error == RequestError::NotReady && self.may_forward() {
                self.take_gets(batch.iter().map(|range| input[range.clone()].to_vec()));
                return batch.len();
            }
            let error = CommandError::Request(error);
            batch.iter().for_each(|_| self.refuse(&error));
            return batch.len();
        }
        self.server.read_hits.fetch_add(hits, Ordering::Relaxed);
        self.server.read_misses.fetch_add(done as u64 - hits, Ordering::Relaxed);
        done
    }
}

/// GET on a table that may hold hashes.
fn get(
    table: &Table,
    key: &RecordKey<'_>,
    reads: ReadMode,
    now: UnixMillis,
    reply: &mut Reply<'_>,
    hits: &mut u64,
) -> Result<(), RequestError> {
    let mut is_field = false;
    let found = table.read(key, reads, now, &mut |stored| {
        is_field = stored.is_field;
        if !is_field {
            reply.bulk(stored.payload);
        }
    })?;
    if found && !is_field {
        *hits += 1;
        return Ok(());
    }
    let mut transaction = Transaction::read_only(table, table.partition_of(key), reads, now)?;
    let mut unread = Vec::new();
    let call = Call { args: &[], transaction: &mut transaction, reply: Reply::new(&mut unread, reply.protocol()) };
    let value = call.value(key.hash_key);
    transaction.check_lease()?;
    match value {
        Ok(None) => reply.null(),
        // One that was set between the two looks.
        Ok(Some(Value::String(record))) => {
            *hits += 1;
            reply.bulk(&record.value);
        }
        Ok(Some(Value::Hash)) => reply.error(&CommandError::WRONG_TYPE.line()),
        Err(CommandError::Request(error)) => return Err(error),
        Err(error) => reply.error(&error.line()),
    }
    Ok(())
}
