//! The changes of a table in memory, for one who has subscribed.

use std::sync::{Arc, Mutex};

use super::lock;
use super::subscribers::Waiting;
use super::table::{TableData, entry_at};
use crate::change_log::{ChangeLog, Entry, LogEvent, Reached, StampedPage, Unread};
use crate::env::Pacer;
use crate::error::{Error, Result};
use crate::key;
use crate::lazy::{self, Lazy};
use crate::scan::{Position, Scan};

pub struct MemoryChanges {
    table: Arc<Mutex<TableData>>,
    begun_at: u64,
    waiting: Arc<Mutex<Waiting>>,
}

impl MemoryChanges {
    pub fn begin(table: Arc<Mutex<TableData>>, pacer: Arc<dyn Pacer>) -> Self {
        let (waiting, begun_at) = lock(&table).subscribers.add(pacer);
        Self { table, begun_at, waiting }
    }
}

impl ChangeLog for MemoryChanges {
    fn begin(&self) -> Vec<Reached> {
        vec![(0, self.begun_at)]
    }

    fn scheme(&self) -> u32 {
        1
    }

    fn next(&mut self, limit: usize) -> Result<Vec<LogEvent>> {
        let mut waiting = lock(&self.waiting);
        if waiting.changes.is_empty() && waiting.is_ended {
            return Err(Error::aborted_feed());
        }
        let count = waiting.changes.len().min(limit);
        Ok(waiting.changes.drain(..count).map(LogEvent::Change).collect())
    }

    fn table_name(&self) -> Option<String> {
        Some(lock(&self.table).info.full_name())
    }

    fn pages(&self, wanted: Vec<(u32, Scan)>) -> Result<Vec<StampedPage>, Unread> {
        let table = lock(&self.table);
        let page = |(_, scan): (u32, Scan)| {
            let page = table.page(&scan)?;
            let keyed = |row: Lazy| {
                let document = row.to_value()?;
                let key = document.get_field(&table.info.primary_key).ok_or_else(lazy::damaged)?;
                Ok((key::primary_key(&key)?, row))
            };
            let rows = page.rows.into_iter().map(keyed).collect::<Result<Vec<_>>>()?;
            let ending = |position: Position| {
                let (secondary, primary, place) = entry_at(&position);
                (position, Entry { secondary, primary, place })
            };
            Ok(StampedPage { stamp: table.subscribers.at(), rows, next: page.next.map(ending) })
        };
        wanted.into_iter().map(page).collect::<Result<_>>().map_err(Unread::Failed)
    }
}
