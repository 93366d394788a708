//! HGETALL, HKEYS and HVALS of hashes that may be large: they are read page by page, and others have their turn in between. The
//! reply is that of one instant, as of any command: if a write to the partition came between, it is read again.

use super::{Connection, ONE_REPLY_BYTES};
use crate::commands::{Command, CommandError};
use crate::resp::{Protocol, Reply};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use tessera_store::{Order, READ_TRIES, Table, Transaction, from_caches};
use tessera_types::{ReadMode, RequestError, UnixMillis};

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

/// A page of a hash, written as replies.
struct Page {
    fields: usize,
    body: Vec<u8>,
    /// After which field the next page begins; `None` after the last one.
    next: Option<Bytes>,
}

/// Which page of a hash is read.
struct Wanted {
    asked: Asked,
    partition: u32,
    /// The field that the page begins after; `None` for the first one.
    after: Option<Bytes>,
    /// Fields at most.
    limit: usize,
    reads: ReadMode,
    now: UnixMillis,
    protocol: Protocol,
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
        for _ in 0..READ_TRIES {
            let before = table.version(partition);
            let (mut body, mut fields, mut from) = (Vec::new(), 0, None);
            loop {
                let after = from.take();
                let (reads, protocol, limit) = (self.session.choices.reads, self.session.protocol, self.page);
                let wanted = Wanted { asked, partition, after, limit, reads, now, protocol };
                let page = match from_caches(|| wanted.read(table, key)) {
                    Err(CommandError::Request(RequestError::WouldWait)) => {
                        let (table, key) = (table.clone(), key.to_vec());
                        self.server.store.read_from_disk(move || wanted.read(&table, &key)).await?
                    }
                    page => page,
                };
                let mut page = page?;
                fields += page.fields;
                let bytes = page.body.len();
                if body.is_empty() {
                    body = page.body
                } else {
                    body.append(&mut page.body)
                }
                self.page = (PAGE_BYTES / (bytes / page.fields.max(1)).max(1)).clamp(1, LONGEST_PAGE);
                if body.len() > ONE_REPLY_BYTES {
                    return Err(CommandError::REPLY_TOO_LONG);
                }
                from = page.next;
                if from.is_none() {
                    break;
                }
                self.turn.note_commands(page.fields / 8);
                self.turn.note_bytes(bytes);
                self.turn.end().await;
            }
            if table.is_one_instant(partition, self.session.choices.reads, before) {
                let mut reply = self.reply();
                match asked {
                    Asked::Both => reply.map(fields),
                    Asked::Fields | Asked::Values => reply.array(fields),
                }
                self.output.buffer().append(&mut body);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Wanted {
    fn read(&self, table: &Table, key: &[u8]) -> Result<Page, CommandError> {
        let transaction = Transaction::read_only(table, self.partition, self.reads, self.now)?;
        let begin = self.after.as_ref().map_or(Bound::Unbounded, |field| Bound::Excluded(&field[..]));
        // Under the empty key there is a string or nothing, and any sort key would be a key of its own.
        let records = match key {
            [] => transaction.get(key, b"")?.map(|record| (Bytes::new(), record)).into_iter().collect(),
            key => transaction.scan(key, (begin, Bound::Unbounded), Order::Ascending, self.limit)?,
        };
        transaction.check_lease()?;
        if records.first().is_some_and(|(field, record)| field.is_empty() && !record.is_field) {
            return Err(CommandError::WRONG_TYPE);
        }
        let mut body = Vec::new();
        let mut reply = Reply::new(&mut body, self.protocol);
        for (field, record) in &records {
            if !matches!(self.asked, Asked::Values) {
                reply.bulk(field);
            }
            if !matches!(self.asked, Asked::Fields) {
                reply.bulk(&record.value);
            }
        }
        let next = records.last().filter(|_| records.len() == self.limit).map(|(field, _)| field.clone());
        Ok(Page { fields: records.len(), body, next })
    }
}
