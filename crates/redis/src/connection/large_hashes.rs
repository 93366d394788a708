//! HGETALL, HKEYS and HVALS of hashes that may be large: they are read page by page, and others have their turn in between. The
//! reply is that of one instant, as of any command: if a write to the partition came between, it is read again.

use super::{Connection, ONE_REPLY_BYTES};
use crate::commands::{Command, CommandError};
use crate::resp::Reply;
use bytes::Bytes;
use std::ops::Bound;
use tessera_engine::Order;
use tessera_store::{READ_TRIES, Table, Transaction};
use tessera_types::UnixMillis;

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
    /// After which field the next page begins; `None` after the last one.
    next: Option<Bytes>,
}

impl Connection {
    /// Reads a hash page by page. Returns whether that was possible at one instant; if not, nothing is written.
    pub(super) async fn read_hash(
        &mut self,
        asked: Asked,
        table: &Table,
        partition: u32,
        key: &[u8],
        now: UnixMillis,
    ) -> Result<bool, CommandError> {
        for _ in 0..READ_TRIES {
            let before = table.version(partition);
            let (mut body, mut fields, mut from) = (Vec::new(), 0, None);
            loop {
                let began = body.len();
                let page = self.read_page(asked, table, partition, key, from.as_ref(), now, &mut body)?;
                fields += page.fields;
                let bytes = body.len() - began;
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

    #[allow(clippy::too_many_arguments, reason = "what is read, from where, and to where")]
    fn read_page(
        &self,
        asked: Asked,
        table: &Table,
        partition: u32,
        key: &[u8],
        after: Option<&Bytes>,
        now: UnixMillis,
        out: &mut Vec<u8>,
    ) -> Result<Page, CommandError> {
        let transaction = Transaction::read_only(table, partition, self.session.choices.reads, now)?;
        let begin = after.map_or(Bound::Unbounded, |field| Bound::Excluded(&field[..]));
        // Under the empty key there is a string or nothing, and any sort key would be a key of its own.
        let records = match key {
            [] => transaction.get(key, b"")?.map(|record| (Bytes::new(), record)).into_iter().collect(),
            key => transaction.scan(key, (begin, Bound::Unbounded), Order::Ascending, self.page)?,
        };
        transaction.check_lease()?;
        if records.first().is_some_and(|(field, record)| field.is_empty() && !record.is_field) {
            return Err(CommandError::WRONG_TYPE);
        }
        let mut reply = Reply::new(out, self.session.protocol);
        for (field, record) in &records {
            if !matches!(asked, Asked::Values) {
                reply.bulk(field);
            }
            if !matches!(asked, Asked::Fields) {
                reply.bulk(&record.value);
            }
        }
        let next = records.last().filter(|_| records.len() == self.page).map(|(field, _)| field.clone());
        Ok(Page { fields: records.len(), next })
    }
}
