//! What pages have shown of documents whose changes may still come.

use std::collections::HashMap;

use crate::change_log::DocumentChange;
use crate::error::{Error, Result};

/// Most bytes of documents that are remembered, about; and what one takes besides its key.
const MOST_BYTES: usize = 256 << 20;
const BYTES_BESIDES: usize = 64;

/// How a change counts for whoever has seen the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// A page has shown it.
    Not,
    /// The document was not shown before: only what it is now counts.
    AsNew,
    Fully,
}

/// Pages in the order of primary keys: where each ended, and the last change that it shows. A page without an end is the last one of its
/// part.
#[derive(Debug, Default)]
pub struct SeenKeys(HashMap<u32, Vec<SeenPage>>);

/// Where a page ended, and the last change that it shows.
type SeenPage = (Option<Vec<u8>>, u64);

impl SeenKeys {
    pub fn add(&mut self, part: u32, end: Option<Vec<u8>>, stamp: u64) {
        self.0.entry(part).or_default().push((end, stamp));
    }

    pub fn counts(&mut self, change: &DocumentChange) -> Counts {
        let Some(pages) = self.0.get(&change.part) else { return Counts::Fully };
        let is_in = |end: &Option<Vec<u8>>| end.as_ref().is_none_or(|end| change.key <= *end);
        let shown = pages.iter().find(|(end, _)| is_in(end)).map_or(0, |(_, stamp)| *stamp);
        if pages.iter().all(|(_, stamp)| change.at > *stamp) {
            self.0.remove(&change.part);
        }
        if change.at > shown { Counts::Fully } else { Counts::Not }
    }

    /// The log has passed a change of a part: none up to it will come.
    pub fn pass(&mut self, part: u32, at: u64) {
        if self.0.get(&part).is_some_and(|pages| pages.iter().all(|(_, stamp)| at >= *stamp)) {
            self.0.remove(&part);
        }
    }

    pub fn split(&mut self, of: u32, into: &[u32]) {
        split(&mut self.0, of, into);
    }

    pub fn is_settled(&self, change: &DocumentChange) -> bool {
        self.0.get(&change.part).is_none_or(|pages| pages.iter().all(|(_, stamp)| change.at > *stamp))
    }
}

/// Pages in which documents come in no order: the documents themselves, each with the last change that is shown of it.
#[derive(Debug)]
pub struct SeenDocuments {
    parts: HashMap<u32, Part>,
    most_bytes: usize,
}

impl Default for SeenDocuments {
    fn default() -> Self {
        Self { parts: HashMap::new(), most_bytes: MOST_BYTES }
    }
}

#[derive(Debug, Default, Clone)]
struct Part {
    /// The last change that any page shows.
    stamp: u64,
    documents: HashMap<Vec<u8>, u64>,
    bytes: usize,
}

impl SeenDocuments {
    /// Takes note of a page.
    ///
    /// # Errors
    /// If more is remembered than a feed may.
    pub fn page(&mut self, part: u32, stamp: u64) -> Result<()> {
        let of_part = self.parts.entry(part).or_default();
        of_part.stamp = of_part.stamp.max(stamp);
        if self.parts.values().map(|part| part.bytes).sum::<usize>() <= self.most_bytes {
            return Ok(());
        }
        Err(Error::limit(
            "The changefeed would have to remember more than 256 MiB of keys of the documents that it has read. Choose fewer documents,              or leave out `include_initial`.",
        ))
    }

    /// Takes note of a document in a page; false if another page has shown it.
    pub fn add(&mut self, part: u32, key: &[u8], stamp: u64) -> bool {
        let of_part = self.parts.entry(part).or_default();
        let is_new = !of_part.documents.contains_key(key);
        if is_new {
            of_part.documents.insert(key.to_vec(), stamp);
            of_part.bytes += key.len() + BYTES_BESIDES;
        }
        is_new
    }

    /// The log has passed a change of a part: none up to it will come.
    pub fn pass(&mut self, part: u32, at: u64) {
        if self.parts.get(&part).is_some_and(|part| at >= part.stamp) {
            self.parts.remove(&part);
        }
    }

    pub fn counts(&mut self, change: &DocumentChange) -> Counts {
        let Some(part) = self.parts.get_mut(&change.part) else { return Counts::Fully };
        if change.at > part.stamp {
            // A document that no page has shown and that has not changed since was not to be shown.
            self.parts.remove(&change.part);
            return Counts::Fully;
        }
        // From here on what is known of the document is what the log says.
        match part.documents.get_mut(&change.key) {
            Some(stamp) if change.at <= *stamp => Counts::Not,
            Some(_) => Counts::Fully,
            None => {
                part.documents.insert(change.key.clone(), 0);
                Counts::AsNew
            }
        }
    }

    pub fn split(&mut self, of: u32, into: &[u32]) {
        split(&mut self.parts, of, into);
    }

    pub fn is_settled(&self, change: &DocumentChange) -> bool {
        self.parts.get(&change.part).is_none_or(|part| change.at > part.stamp)
    }
}

fn split<T: Clone>(parts: &mut HashMap<u32, T>, of: u32, into: &[u32]) {
    if let Some(seen) = parts.remove(&of) {
        parts.extend(into.iter().map(|part| (*part, seen.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(part: u32, at: u64, key: &[u8]) -> DocumentChange {
        DocumentChange { part, at, key: key.to_vec(), old: None, new: None }
    }

    #[test]
    fn a_change_counts_if_it_came_after_the_page_with_its_key() {
        let mut seen = SeenKeys::default();
        seen.add(1, Some(b"c".to_vec()), 5);
        seen.add(1, None, 9);
        assert_eq!(seen.counts(&change(1, 5, b"b")), Counts::Not);
        assert_eq!(seen.counts(&change(1, 6, b"c")), Counts::Fully);
        assert_eq!(seen.counts(&change(1, 7, b"d")), Counts::Not);
        assert_eq!(seen.counts(&change(2, 1, b"d")), Counts::Fully);
        assert!(!seen.is_settled(&change(1, 9, b"a")) && seen.is_settled(&change(1, 10, b"a")));
        seen.split(1, &[1, 3]);
        assert_eq!(seen.counts(&change(3, 9, b"x")), Counts::Not);
        assert_eq!(seen.counts(&change(3, 10, b"x")), Counts::Fully);
    }

    #[test]
    fn a_document_that_no_page_has_shown_counts_as_new_until_the_log_has_passed_the_pages() {
        let mut seen = SeenDocuments::default();
        seen.page(0, 5).unwrap();
        assert!(seen.add(0, b"shown", 5));
        seen.page(0, 9).unwrap();
        assert!(!seen.add(0, b"shown", 9), "it has moved from one page to a later one");
        assert_eq!(seen.counts(&change(0, 4, b"shown")), Counts::Not);
        assert_eq!(seen.counts(&change(0, 6, b"shown")), Counts::Fully);
        assert_eq!(seen.counts(&change(0, 6, b"other")), Counts::AsNew);
        assert_eq!(seen.counts(&change(0, 7, b"other")), Counts::Fully);
        assert_eq!(seen.counts(&change(0, 10, b"third")), Counts::Fully);
    }

    #[test]
    fn nothing_is_remembered_once_the_log_has_passed_the_pages() {
        let mut seen = SeenDocuments::default();
        for part in [0, 1] {
            seen.page(part, 5).unwrap();
            assert!(seen.add(part, b"key", 5));
            seen.pass(part, 4);
        }
        seen.pass(1, 5);
        assert_eq!(seen.parts.keys().collect::<Vec<_>>(), [&0]);
        let mut seen = SeenKeys::default();
        seen.add(0, Some(b"c".to_vec()), 5);
        seen.add(0, None, 9);
        seen.pass(0, 8);
        assert_eq!(seen.counts(&change(0, 9, b"d")), Counts::Not);
        seen.pass(0, 9);
        assert!(seen.0.is_empty());
    }

    #[test]
    fn no_more_is_remembered_than_a_feed_may() {
        let mut seen = SeenDocuments { most_bytes: 1_000, ..SeenDocuments::default() };
        let mut page = |number: u32| {
            let is_kept = seen.page(number % 3, 5).is_ok();
            seen.add(number % 3, &number.to_be_bytes(), 5);
            is_kept
        };
        assert_eq!((0..100).find(|number| !page(*number)), Some(1_000 / (4 + BYTES_BESIDES as u32) + 1));
        seen.pass(0, 5);
        seen.pass(1, 5);
        assert!(seen.page(0, 5).is_ok(), "what the log has passed does not count");
    }
}
