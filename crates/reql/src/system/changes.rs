//! Changes of system tables: their rows are looked at again from time to time, and compared with what they were.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tessera_document::Document;

use super::{SystemTable, WithSystemTables};
use crate::change_log::{ChangeLog, DocumentChange, LogEvent, Reached, StampedPage, Unread};
use crate::error::Result;
use crate::lazy::Lazy;
use crate::scan::{Order, Scan};
use crate::source::Source;
use crate::value::Value;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two looks at a table for which all nodes are asked.
const LONG_PAUSE: Duration = Duration::from_secs(1);

type Rows = BTreeMap<Value, Document>;

pub(super) struct SystemChanges {
    source: Arc<dyn Source>,
    table: SystemTable,
    rows: Rows,
    /// Counts looks that have found a change.
    at: u64,
    looked: Instant,
}

fn rows_of(source: &Arc<dyn Source>, table: SystemTable) -> Result<Rows> {
    let rows = WithSystemTables(source.clone()).rows(table)?;
    Ok(rows.into_iter().map(|(key, row)| (key, Document::encode(&row))).collect())
}

fn key_of(key: &Value) -> Vec<u8> {
    Document::encode(key).into_bytes().to_vec()
}

impl SystemChanges {
    fn pause(&self) -> Duration {
        match self.table {
            SystemTable::Jobs | SystemTable::Logs | SystemTable::Stats => LONG_PAUSE,
            _ => PAUSE,
        }
    }

    pub(super) fn begin(source: Arc<dyn Source>, table: SystemTable) -> Result<Self> {
        let rows = rows_of(&source, table)?;
        Ok(Self { source, table, rows, at: 0, looked: Instant::now() })
    }
}

impl ChangeLog for SystemChanges {
    fn begin(&self) -> Vec<Reached> {
        vec![(0, self.at)]
    }

    fn scheme(&self) -> u32 {
        1
    }

    fn next(&mut self, _limit: usize) -> Result<Vec<LogEvent>> {
        if self.looked.elapsed() < self.pause() {
            return Ok(Vec::new());
        }
        let rows = rows_of(&self.source, self.table)?;
        self.looked = Instant::now();
        self.at += 1;
        let before = std::mem::replace(&mut self.rows, rows);
        let mut changes = Vec::new();
        let keys: std::collections::BTreeSet<&Value> = before.keys().chain(self.rows.keys()).collect();
        for key in keys {
            let (old, new) = (before.get(key), self.rows.get(key));
            if old.map(Document::bytes) != new.map(Document::bytes) {
                let (old, new) = (old.cloned(), new.cloned());
                changes.push(LogEvent::Change(DocumentChange { part: 0, at: self.at, key: key_of(key), old, new }));
            }
        }
        Ok(changes)
    }

    fn look_again(&self) -> Option<Duration> {
        Some(self.pause().saturating_sub(self.looked.elapsed()))
    }

    fn pages(&self, wanted: Vec<(u32, Scan)>) -> Result<Vec<StampedPage>, Unread> {
        let page = |(_, scan): (u32, Scan)| {
            let rows = self.rows.iter().filter(|(key, _)| scan.range.contains(key));
            let mut rows: Vec<_> = rows.map(|(key, row)| (key_of(key), Lazy::Document(row.clone()))).collect();
            if scan.order == Order::Descending {
                rows.reverse();
            }
            StampedPage { stamp: self.at, rows, next: None }
        };
        Ok(wanted.into_iter().map(page).collect())
    }
}
