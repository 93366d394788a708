//! How queries are counted: once, when their first answer is there.

use crate::respond::Reply;
use crate::shared::{QUERY, Shared};
use std::sync::Arc;
use std::time::Instant;
use tessera_reql::Query;
use tessera_store::{RequestKind, Table};

/// A query that is counted when it is answered.
pub(crate) struct Tally {
    received: Instant,
    /// The table that the query begins with, if it does with one that is there.
    table: Option<Arc<Table>>,
}

impl Tally {
    pub(crate) fn of(shared: &Shared, query: &Query, received: Instant) -> Self {
        let named = query.first_table();
        let table = named.and_then(|(database, table)| shared.store.table_named(&format!("{database}.{table}")));
        Self { received, table }
    }

    /// Counts the query, which is answered with this.
    pub(crate) fn note(&self, shared: &Shared, reply: &Reply) {
        if reply.class.is_some() {
            shared.face_meter.note_errors(QUERY, 1);
        }
        note_query(shared, self.table.as_deref(), self.received);
    }
}

/// Counts a query that was received then.
pub(crate) fn note_query(shared: &Shared, table: Option<&Table>, received: Instant) {
    shared.face_meter.note_requests(table, RequestKind::Query, 1, received.elapsed());
}

/// Counts a document that was looked for by its key.
pub(crate) fn note_lookup(shared: &Shared, is_there: bool) {
    shared.face_meter.note_lookups(QUERY, u64::from(is_there), u64::from(!is_there));
}
