//! What a source tells of the changes of a table, for [feeds](crate::feed).
//!
//! A table's changes come in parts (the table's partitions, or one part). Within a part each change has a number, which grows, and
//! changes come in the order in which they took effect; what concerns one document is always in one part. A read tells up to which
//! number it shows the changes of its part, so that what was read and what comes after it fit together.

use std::ops::Bound;
use std::time::Duration;

use tessera_document::Document;

use crate::error::{Error, Result};
use crate::key;
use crate::lazy::Lazy;
use crate::scan::{KeyRange, Position, Scan};
use crate::value::Value;

/// Up to where a feed knows the changes of a part: the part, and the number of the last change.
pub type Reached = (u32, u64);

/// Where a feed that goes on begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// Which parts the numbers mean: that of a [`ChangeLog`].
    pub scheme: u32,
    /// Up to where each part is known.
    pub reached: Vec<Reached>,
}

/// A document that has changed.
#[derive(Debug, Clone)]
pub struct DocumentChange {
    /// The part that the document is in.
    pub part: u32,
    /// The number of the change in its part.
    pub at: u64,
    /// The primary key, in bytes that sort as the keys do.
    pub key: Vec<u8>,
    /// The document before, if there was one.
    pub old: Option<Document>,
    /// The document after, if there is one.
    pub new: Option<Document>,
}

/// What happened in a table.
#[derive(Debug, Clone)]
pub enum LogEvent {
    /// A document has changed.
    Change(DocumentChange),
    /// There is nothing of interest in the part up to this change.
    Reached {
        /// The part.
        part: u32,
        /// The number of the change.
        at: u64,
    },
    /// A part was split: its documents are in these parts from here on, whose numbers go on after those of the old one.
    Split {
        /// The part that is no more.
        of: u32,
        /// The parts that have its documents.
        into: Vec<u32>,
    },
}

/// An entry of an index, or a document among others by its primary key. Sources have them in the order of their fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The [key](ChangeLog::index_key) of an index; nothing by the primary key.
    pub secondary: Vec<u8>,
    /// The primary key, as changes have it.
    pub primary: Vec<u8>,
    /// Where the key stands in the array of which a multi index has each element.
    pub place: u32,
}

/// Why pages were not read.
#[derive(Debug)]
pub enum Unread {
    /// They can be read later: the table is being split, or nobody leads a part just now.
    Later(Error),
    /// They cannot be read.
    Failed(Error),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Unread> for Error {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Later(error) | Unread::Failed(error) => error,
        }
    }
}

/// Documents of a part, all read at one instant.
#[derive(Debug)]
pub struct StampedPage {
    /// The last change of the part that the page shows.
    pub stamp: u64,
    /// Primary keys, as changes have them, with documents.
    pub rows: Vec<(Vec<u8>, Lazy)>,
    /// Where the next page of the part begins, and the entry with which this one ends, unless it was the last one.
    pub next: Option<(Position, Entry)>,
}

/// The changes of a table from some moment on.
pub trait ChangeLog: Send {
    /// The parts of the log, and where each begins.
    fn begin(&self) -> Vec<Reached>;

    /// Which parts the numbers of parts mean now; another number once they were split.
    fn scheme(&self) -> u32;

    /// Events that have come, at most about `limit`; none means that there is nothing new yet. The query's
    /// [pacer](crate::Pacer::wake) is told when there is.
    ///
    /// # Errors
    /// If changes are lost, or the table is gone.
    fn next(&mut self, limit: usize) -> Result<Vec<LogEvent>>;

    /// When the log is to be asked again although nobody said that something has come.
    fn look_again(&self) -> Option<Duration> {
        None
    }

    /// Pages of parts, each of documents that the scan finds in its part and in the scan's order.
    ///
    /// # Errors
    /// If documents cannot be read, or not now.
    fn pages(&self, wanted: Vec<(u32, Scan)>) -> Result<Vec<StampedPage>, Unread>;

    /// The full name that the table has now, if it may have got another one since it was subscribed to.
    fn table_name(&self) -> Option<String> {
        None
    }

    /// The bytes by which the source sorts a key of an index; `None` if the value can be no key.
    fn index_key(&self, value: &Value) -> Option<Vec<u8>> {
        key::secondary_key(value).ok()
    }
}

/// Documents of which changes are wanted, as far as their primary keys tell.
#[derive(Debug, Clone)]
pub enum Interest {
    /// Every document of the table.
    All,
    /// Documents whose primary keys are in one of the ranges.
    Keys(Vec<KeyRange>),
}

impl Interest {
    /// Both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Keys(mut ranges), Self::Keys(more)) => {
                ranges.extend(more);
                Self::Keys(ranges)
            }
            _ => Self::All,
        }
    }
}

impl KeyRange {
    /// The only key of the range, if it has one only.
    pub fn only_key(&self) -> Option<&Value> {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper))
                if lower == upper && !matches!(lower, Value::MinVal | Value::MaxVal) =>
            {
                Some(lower)
            }
            _ => None,
        }
    }

    /// Whether a key is in the range.
    pub fn contains(&self, key: &Value) -> bool {
        use std::ops::RangeBounds as _;
        (self.lower.as_ref(), self.upper.as_ref()).contains(&key)
    }
}
