//! Changes of one document that are told as one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::change_log::DocumentChange;

/// Most bytes of documents that wait.
const MOST_BYTES: usize = 16 << 20;

/// Changes that wait for later ones of their documents, as long as not too many do.
#[derive(Debug)]
pub struct Squashed {
    within: Duration,
    /// The most that wait.
    most: usize,
    bytes: usize,
    since: Option<Instant>,
    /// In the order in which their documents changed first, each with the number of its table.
    waiting: Vec<(usize, DocumentChange)>,
    places: HashMap<(usize, Vec<u8>), usize>,
}

impl Squashed {
    pub fn new(within: Duration, most: usize) -> Self {
        Self { within, most, bytes: 0, since: None, waiting: Vec::new(), places: HashMap::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn add(&mut self, table: usize, change: DocumentChange, now: Instant) {
        self.since.get_or_insert(now);
        match self.places.get(&(table, change.key.clone())) {
            Some(at) => {
                let (_, waiting) = &mut self.waiting[*at];
                self.bytes -= size(waiting);
                *waiting = DocumentChange { old: waiting.old.take(), ..change };
                self.bytes += size(waiting);
            }
            None => {
                self.bytes += size(&change);
                self.places.insert((table, change.key.clone()), self.waiting.len());
                self.waiting.push((table, change));
            }
        }
    }

    /// The changes, once they have waited long enough or are too many.
    pub fn take(&mut self, now: Instant) -> Vec<(usize, DocumentChange)> {
        match self.look_again(now) {
            Some(Duration::ZERO) => self.take_all(),
            _ => Vec::new(),
        }
    }

    /// The changes, however long they have waited.
    pub fn take_all(&mut self) -> Vec<(usize, DocumentChange)> {
        (self.since, self.places, self.bytes) = (None, HashMap::new(), 0);
        let bytes = |document: &Option<tessera_document::Document>| document.as_ref().map(|it| it.bytes().to_vec());
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        waiting.filter(|(_, change)| bytes(&change.old) != bytes(&change.new)).collect()
    }

    /// How long they wait yet, if there are any.
    pub fn look_again(&self, now: Instant) -> Option<Duration> {
        let is_full = self.waiting.len() > self.most || self.bytes > MOST_BYTES;
        let within = if is_full { Duration::ZERO } else { self.within };
        self.since.map(|since| within.saturating_sub(now.saturating_duration_since(since)))
    }
}

fn size(change: &DocumentChange) -> usize {
    let bytes = |document: &Option<tessera_document::Document>| document.as_ref().map_or(0, |it| it.bytes().len());
    change.key.len() + bytes(&change.old) + bytes(&change.new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use tessera_document::Document;

    fn change(at: u64, key: &[u8], old: Option<i32>, new: Option<i32>) -> DocumentChange {
        let document = |number: Option<i32>| number.map(|number| Document::encode(&Value::from(number)));
        DocumentChange { part: 0, at, key: key.to_vec(), old: document(old), new: document(new) }
    }

    #[test]
    fn changes_of_a_document_become_one_after_a_while() {
        let (mut squashed, began) = (Squashed::new(Duration::from_secs(1), 100), Instant::now());
        squashed.add(0, change(1, b"one", None, Some(1)), began);
        squashed.add(0, change(2, b"two", None, Some(5)), began);
        squashed.add(0, change(3, b"one", Some(1), Some(2)), began);
        squashed.add(0, change(4, b"two", Some(5), None), began);
        assert!(squashed.take(began).is_empty());
        let later = began + Duration::from_secs(1);
        let taken = squashed.take(later);
        let [(0, one)] = &taken[..] else { panic!("{taken:?}") };
        assert!(one.old.is_none() && one.at == 3);
        assert_eq!(one.new.as_ref().unwrap().value().to_value().unwrap(), Value::from(2));
        assert!(squashed.take(later).is_empty() && squashed.look_again(later).is_none());
    }

    #[test]
    fn changes_that_are_too_many_do_not_wait() {
        let (mut squashed, now) = (Squashed::new(Duration::MAX, 1_000), Instant::now());
        let mut taken = 0;
        for at in 0..1_000_000_u32 {
            squashed.add(0, change(at.into(), &at.to_be_bytes(), None, Some(1)), now);
            taken += squashed.take(now).len();
            assert!(squashed.waiting.len() <= 1_000);
        }
        assert_eq!(taken + squashed.take_all().len(), 1_000_000);
    }

    #[test]
    fn changes_that_are_too_large_do_not_wait() {
        let (mut squashed, now) = (Squashed::new(Duration::MAX, 1_000), Instant::now());
        let large = Document::encode(&Value::from("x".repeat(MOST_BYTES / 4).as_str()));
        let mut add = |key: &[u8]| {
            let (old, new) = (Some(large.clone()), Some(large.clone()));
            squashed.add(0, DocumentChange { old, new, ..change(1, key, None, None) }, now);
            squashed.look_again(now)
        };
        // What one document was and is waits, however often it changes.
        (0..10).for_each(|_| assert_eq!(add(b"one"), Some(Duration::MAX)));
        assert_eq!(add(b"two"), Some(Duration::ZERO));
    }
}
