//! Those who are told of the writes of a table in memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tessera_document::Document;

use super::lock;
use crate::change_log::DocumentChange;
use crate::env::Pacer;
use crate::value::Value;

/// What one subscriber has not taken yet.
pub struct Waiting {
    pub changes: VecDeque<DocumentChange>,
    pub is_ended: bool,
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
    /// Tells somebody of what comes from now on. Returns where it will stand, and how often the table was changed before.
    pub fn add(&mut self, pacer: Arc<dyn Pacer>) -> (Arc<Mutex<Waiting>>, u64) {
        let waiting = Arc::new(Mutex::new(Waiting { changes: VecDeque::new(), is_ended: false }));
        self.waiting.push((waiting.clone(), pacer));
        (waiting, self.at)
    }

    /// How often the table was changed.
    pub fn at(&self) -> u64 {
        self.at
    }

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
