//! Changes of one document that are told as one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::change_log::DocumentChange;

/// Changes that wait for later ones of their documents.
#[derive(Debug)]
pub struct Squashed {
    within: Duration,
    since: Option<Instant>,
    /// In the order in which their documents changed first, each with the number of its table.
    waiting: Vec<(usize, DocumentChange)>,
    places: HashMap<(usize, Vec<u8>), usize>,
}

impl Squashed {
    pub fn new(within: Duration) -> Self {
        Self { within, since: None, waiting: Vec::new(), places: HashMap::new() }
    }

    pub fn add(&mut self, table: usize, change: DocumentChange, now: Instant) {
        self.since.get_or_insert(now);
        match self.places.get(&(table, change.key.clone())) {
            Some(at) => {
                let (_, waiting) = &mut self.waiting[*at];
                *waiting = DocumentChange { old: waiting.old.take(), ..change };
            }
            None => {
                self.places.insert((table, change.key.clone()), self.waiting.len());
                self.waiting.push((table, change));
            }
        }
    }

    /// The changes, once they have waited long enough.
    pub fn take(&mut self, now: Instant) -> Vec<(usize, DocumentChange)> {
        if self.look_again(now).is_none_or(|wait| wait > Duration::ZERO) {
            return Vec::new();
        }
        (self.since, self.places) = (None, HashMap::new());
        let bytes = |document: &Option<tessera_document::Document>| document.as_ref().map(|it| it.bytes().to_vec());
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        waiting.filter(|(_, change)| bytes(&change.old) != bytes(&change.new)).collect()
    }

    /// How long they wait yet, if there are any.
    pub fn look_again(&self, now: Instant) -> Option<Duration> {
        self.since.map(|since| self.within.saturating_sub(now.saturating_duration_since(since)))
    }
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
        let (mut squashed, began) = (Squashed::new(Duration::from_secs(1)), Instant::now());
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
}
