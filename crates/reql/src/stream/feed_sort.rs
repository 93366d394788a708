//! What is told of a stream that is a feed.

/// What drivers call the sort of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedKind {
    Sequence,
    Point,
    OrderedLimit,
    Union,
}

/// What the answers of a feed say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedSort {
    pub kind: FeedKind,
    pub includes_states: bool,
}

impl FeedSort {
    /// That of several feeds together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let kind = if self.kind == other.kind { self.kind } else { FeedKind::Union };
        Self { kind, includes_states: self.includes_states || other.includes_states }
    }

    /// The numbers that the protocol has for it.
    pub fn notes(self) -> Vec<u8> {
        let kind = match self.kind {
            FeedKind::Sequence => 1,
            FeedKind::Point => 2,
            FeedKind::OrderedLimit => 3,
            FeedKind::Union => 4,
        };
        std::iter::once(kind).chain(self.includes_states.then_some(5)).collect()
    }
}
