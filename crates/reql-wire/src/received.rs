//! Queries as clients send them.

use crate::memory::Kept;
use std::time::Instant;
use tessera_reql::Query;

/// A query that a client has sent.
pub(crate) struct Received {
    /// Under which it is answered.
    pub(crate) token: i64,
    pub(crate) query: Query,
    /// When it was here whole.
    pub(crate) at: Instant,
    /// Whether its text takes so little time that it need not leave the connection's thread.
    pub(crate) is_short: bool,
    /// Whether the client wants no answer.
    pub(crate) is_noreply: bool,
    /// What it takes of the connection's memory.
    pub(crate) kept: Kept,
}

impl Received {
    pub(crate) fn new(token: i64, query: Query, at: Instant, is_short: bool, kept: Kept) -> Self {
        let is_noreply = query.flag("noreply");
        Self { token, query, at, is_short, is_noreply, kept }
    }
}
