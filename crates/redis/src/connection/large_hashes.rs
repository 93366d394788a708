//! HGETALL, HKEYS and HVALS of hashes that may be large: they are read page by page, and others have their turn in between. The
//! reply is that of one instant, as of any command: if a write to the partition came between, it is read again.

use super::Connection;
use crate::commands::{Command, CommandError};
use crate::resp::{LONGEST_REPLY_BYTES, Reply};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use tessera_engine::{Order, from_caches};
use tessera_store::{READ_TRIES, Record, Table, Transaction};
use tessera_types::{ReadMode, RequestError, UnixMillis, ValueKind};

/// Fields of a page, at most.
pub(super) const LONGEST_PAGE: usize = 1 << 10;
/// Bytes that a page is meant to have.
const PAGE_BYTES: usize = 1 << 20;

/// What of a hash is asked for.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    Fields,
    Values,
    Both,
}

impl Asked {
    /// `None` for other commands.
    pub(super) fn of(command: &Command) -> Option<Self> {
        match command.name {
            "hgetall" => Some(Self::Both),
            "hkeys" => Some(Self::Fields),
            "hvals" => Some(Self::Values),
            _ => None,
        }
    }
}

/// A page of a hash.
struct Page {
    records: Vec<(Bytes, Record)>,
    /// After which field the next page begins; `None` after the last one.
    next: Option<Bytes>,
}

impl Page {
    fn read(
        table: &Table,
        partition: u32,
        key: &[u8],
        after: Option<&Bytes>,
        limit: usize,
        (reads, now): (ReadMode, UnixMillis),
    ) -> Result<Self, CommandError> {
        let transaction = Transaction::read_only(table, partition, reads, now)?;
        let begin = after.map_or(Bound::Unbounded, |field| Bound::Excluded(&field[..]));
        // Under the empty key there is a string or nothing, and any sort key would be a key of its own.
        let records: Vec<_> = match key {
            [] => transaction.get(key, b"")?.map(|record| (Bytes::new(), record)).into_iter().collect(),
            key => transaction.scan(key, (begin, Bound::Unbounded), Order::Ascending, limit)?,
        };
        transaction.check_lease()?;
        if records.first().is_some_and(|(field, record)| field.is_empty() && record.kind == ValueKind::Plain) {
            return Err(CommandError::WRONG_TYPE);
        }
        let next = records.last().filter(|_| records.len() == limit).map(|(field, _)| field.clone());
        Ok(Self { records, next })
    }

    fn write(&self, asked: Asked, reply: &mut Reply<'_>) {
        for (field, record) in &self.records {
            if !matches!(asked, Asked::Values) {
                reply.bulk(field);
            }
            if !matches!(asked, Asked::Fields) {
                reply.bulk(&record.value);
            }
        }
    }
}

impl Connection {
    /// Reads a hash page by page. Returns whether that was possible at one instant; if not, nothing is written.
    pub(super) async fn read_hash(
        &mut self,
        asked: Asked,
        table: &Arc<Table>,
        partition: u32,
        key: &[u8],
        now: UnixMillis,
    ) -> Result<bool, CommandError> {
        let protocol = self.session.protocol;
        for _ in 0..READ_TRIES {
            let before = table.version(partition);
            let mut page = self.read_page(table, partition, key, None, now).await?;
            let (mut fields, mut body) = (page.records.len(), Vec::new());
            while let Some(from) = page.next.take() {
                let began = body.len();
                page.write(asked, &mut Reply::new(&mut body, protocol));
                let bytes = body.len() - began;
                self.note_page(&page, bytes);
                if body.len() > LONGEST_REPLY_BYTES {
                    return Err(CommandError::REPLY_TOO_LONG);
                }
                self.turn.note_commands(page.records.len() / 8);
                self.turn.note_bytes(bytes);
                self.turn.end().await;
                page = self.read_page(table, partition, key, Some(&from), now).await?;
                fields += page.records.len();
            }
            if table.is_one_instant(partition, self.session.options.reads, before) {
                let replied = self.output.len();
                let mut reply = self.reply();
                match asked {
                    Asked::Both => reply.map(fields),
                    Asked::Fields | Asked::Values => reply.array(fields),
                }
                let bytes_before = body.len();
                self.output.buffer().append(&mut body);
                // The last page, which nearly always is the only one, is written where it belongs, and not copied.
                let began = self.output.len();
                page.write(asked, &mut self.output.writer(protocol));
                let bytes = self.output.len() - began;
                self.note_page(&page, bytes);
                if bytes_before + bytes > LONGEST_REPLY_BYTES {
                    self.output.truncate(replied);
                    return Err(CommandError::REPLY_TOO_LONG);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Learns from a page, whose reply has so many bytes, how many fields to read at a time.
    fn note_page(&mut self, page: &Page, bytes: usize) {
        self.page = (PAGE_BYTES / (bytes / page.records.len().max(1)).max(1)).clamp(1, LONGEST_PAGE);
    }

    async fn read_page(
        &self,
        table: &Arc<Table>,
        partition: u32,
        key: &[u8],
        after: Option<&Bytes>,
        now: UnixMillis,
    ) -> Result<Page, CommandError> {
        let (reads, limit) = (self.session.options.reads, self.page);
        match from_caches(|| Page::read(table, partition, key, after, limit, (reads, now))) {
            Err(CommandError::Request(RequestError::WouldWait)) => {
                let (table, key, after) = (table.clone(), key.to_vec(), after.cloned());
                let read = move || Page::read(&table, partition, &key, after.as_ref(), limit, (reads, now));
                self.server.store.disk_readers().read_from_disk(read).await?
            }
            page => page,
        }
    }
}
