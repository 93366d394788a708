//! How long requests took, by kind: those for a table with the table, for each face.

use crate::histogram::{Histogram, HistogramCounts};
use std::sync::OnceLock;
use std::time::Duration;

/// The most faces that a node has.
pub(crate) const MOST_FACES: usize = 4;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// It reads records.
    Read,
    /// It may change records.
    Write,
    /// It is about something else.
    Other,
    /// It may do all of that, in a language of queries.
    Query,
}

impl RequestKind {
    const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Other, Self::Query];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
            Self::Query => "query",
        }
    }
}

/// How long requests took, by kind.
#[derive(Debug, Default)]
pub(crate) struct RequestTimes([Histogram; RequestKind::ALL.len()]);

impl RequestTimes {
    #[inline]
    pub(crate) fn note(&self, kind: RequestKind, requests: u64, took: Duration) {
        self.0[kind as usize].note(requests, took);
    }

    /// Those kinds of which there were requests.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (RequestKind, HistogramCounts)> {
        let counts = RequestKind::ALL.into_iter().zip(&self.0).map(|(kind, times)| (kind, times.counts()));
        counts.filter(|(_, counts)| counts.count() > 0)
    }
}

/// How long the requests for a table took, by face.
#[derive(Debug, Default)]
pub(crate) struct TableTimes([OnceLock<Box<RequestTimes>>; MOST_FACES]);

impl TableTimes {
    /// Those of the face at this place among the faces.
    #[inline]
    pub(crate) fn of_face(&self, place: usize) -> &RequestTimes {
        self.0[place].get_or_init(Box::default)
    }

    /// Those of a face that was asked for the table.
    pub(crate) fn known_of_face(&self, place: usize) -> Option<&RequestTimes> {
        self.0[place].get().map(|times| &**times)
    }
}
