//! What has come of a table's changes and was not taken yet.

use std::collections::VecDeque;
use std::sync::Arc;
use tessera_document::Document;
use tessera_reql::{Error, LogEvent};
use tessera_store::Table;

/// See the [module](self). `T` is the table whose parts events mean.
pub(super) struct Queue<T = Arc<Table>> {
    entries: VecDeque<Entry<T>>,
    /// Bytes of the documents in it.
    bytes: usize,
    /// The table whose parts the events mean that were taken.
    table: T,
    /// Why nothing comes any more.
    pub(super) error: Option<Error>,
}

enum Entry<T> {
    Event(LogEvent),
    /// All parts were split, and are parts of this table from here on.
    Split(T, Vec<LogEvent>),
}

impl<T: Clone> Queue<T> {
    pub(super) fn new(table: T) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, table, error: None }
    }

    pub(super) fn table(&self) -> T {
        self.table.clone()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn push(&mut self, event: LogEvent) {
        self.bytes += size(&event);
        self.entries.push_back(Entry::Event(event));
    }

    /// The table was split: `events` say so of each part.
    pub(super) fn split(&mut self, into: T, events: Vec<LogEvent>) {
        self.entries.push_back(Entry::Split(into, events));
    }

    /// The next events, about `limit`. What tells of a split comes alone and whole: whoever has taken it means the new parts from
    /// then on, and the old ones until then.
    pub(super) fn take(&mut self, limit: usize) -> Vec<LogEvent> {
        let mut events = Vec::new();
        while events.len() < limit {
            match self.entries.pop_front() {
                Some(Entry::Event(event)) => {
                    self.bytes -= size(&event);
                    events.push(event);
                }
                Some(Entry::Split(table, split)) if events.is_empty() => {
                    self.table = table;
                    return split;
                }
                Some(split) => {
                    self.entries.push_front(split);
                    break;
                }
                None => break,
            }
        }
        events
    }
}

fn size(event: &LogEvent) -> usize {
    match event {
        LogEvent::Split { .. } | LogEvent::Reached { .. } => 0,
        LogEvent::Change(change) => {
            let bytes = |document: &Option<Document>| document.as_ref().map_or(0, |document| document.bytes().len());
            change.key.len() + bytes(&change.old) + bytes(&change.new)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_reql::DocumentChange;

    fn change(part: u32, at: u64) -> LogEvent {
        LogEvent::Change(DocumentChange { part, at, key: b"key".to_vec(), old: None, new: None })
    }

    fn splits(count: u32) -> Vec<LogEvent> {
        (0..count).map(|of| LogEvent::Split { of, into: vec![of, of + count] }).collect()
    }

    fn parts(events: &[LogEvent]) -> Vec<u32> {
        let part = |event: &LogEvent| match event {
            LogEvent::Change(change) => change.part,
            LogEvent::Reached { part, .. } => *part,
            LogEvent::Split { of, .. } => *of,
        };
        events.iter().map(part).collect()
    }

    #[test]
    fn what_stands_before_a_split_is_taken_as_of_the_old_table() {
        let mut queue = Queue::new(2);
        (1..=3).for_each(|at| queue.push(change(1, at)));
        queue.split(4, splits(2));
        queue.split(8, splits(4));
        queue.push(change(7, 4));
        assert_eq!((parts(&queue.take(2)), queue.table()), (vec![1, 1], 2));
        assert_eq!((parts(&queue.take(10)), queue.table()), (vec![1], 2));
        assert_eq!((parts(&queue.take(1)), queue.table()), (vec![0, 1], 4));
        assert_eq!((parts(&queue.take(10)), queue.table()), (vec![0, 1, 2, 3], 8));
        assert_eq!((parts(&queue.take(10)), queue.table(), queue.bytes()), (vec![7], 8, 0));
        assert!(queue.take(10).is_empty() && queue.len() == 0);
    }
}
