//! Changes of a table in memory: each write is told to those who have subscribed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tessera_document::Document;

use super::lock;
use super::table::TableData;
use crate::change_log::{ChangeLog, DocumentChange, LogEvent, Reached, StampedPage};
use crate::env::Pacer;
use crate::error::{Error, Result};
use crate::key;
use crate::lazy::{self, Lazy};
use crate::scan::Scan;
use crate::value::Value;

/// What one subscriber has not taken yet.
struct Waiting {
    changes: VecDeque<DocumentChange>,
    is_ended: bool,
}

/// Those who have subscribed to a table, and how often it was changed.
#[derive(Default)]
pub struct Subscribers {
    at: u64,
    waiting: Vec<Subscriber>,
}

/// What waits for a subscriber, and who tells the query.
type Subscriber = (Arc<Mutex<Waiting>>, Arc<dyn Pacer>);

impl Subscribers {
    pub fn tell(&mut self, key: &[u8], old: &Value, new: &Value) {
        if old == new {
            return;
        }
        self.at += 1;
        // Those that are alone with what waits are gone.
        self.waiting.retain(|(waiting, _)| Arc::strong_count(waiting) > 1);
        let document = |value: &Value| (!matches!(value, Value::Null)).then(|| Document::encode(value));
        for (waiting, pacer) in &self.waiting {
            let (old, new) = (document(old), document(new));
            lock(waiting).changes.push_back(DocumentChange { part: 0, at: self.at, key: key.to_vec(), old, new });
            pacer.wake();
        }
    }

    /// The table is gone.
    pub fn end(&mut self) {
        for (waiting, pacer) in self.waiting.drain(..) {
            lock(&waiting).is_ended = true;
            pacer.wake();
        }
    }
}

pub struct MemoryChanges {
    table: Arc<Mutex<TableData>>,
    begun_at: u64,
    waiting: Arc<Mutex<Waiting>>,
}

impl MemoryChanges {
    pub fn begin(table: Arc<Mutex<TableData>>, pacer: Arc<dyn Pacer>) -> Self {
        let waiting = Arc::new(Mutex::new(Waiting { changes: VecDeque::new(), is_ended: false }));
        let begun_at = {
            let mut table = lock(&table);
            table.subscribers.waiting.push((waiting.clone(), pacer));
            table.subscribers.at
        };
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

    fn pages(&self, wanted: Vec<(u32, Scan)>) -> Result<Vec<StampedPage>> {
        let table = lock(&self.table);
        let page = |(_, scan): (u32, Scan)| {
            let page = table.page(&scan)?;
            let keyed = |row: Lazy| {
                let document = row.to_value()?;
                let key = document.get_field(&table.info.primary_key).ok_or_else(lazy::damaged)?;
                Ok((key::primary_key(&key)?, row))
            };
            let rows = page.rows.into_iter().map(keyed).collect::<Result<Vec<_>>>()?;
            Ok(StampedPage { stamp: table.subscribers.at, rows, next: page.next })
        };
        wanted.into_iter().map(page).collect()
    }
}
