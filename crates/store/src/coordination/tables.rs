//! Asking partitions of several tables at one time.

use crate::router::{Part, Route};
use crate::store::Store;
use crate::table::Table;
use std::sync::Arc;
use std::time::Instant;
use tessera_cluster::TableEntry;
use tessera_types::TableId;

/// Parts of one table, and whether it was split before all of them had an outcome.
pub(super) struct OfTable<W> {
    pub(super) table: Arc<Table>,
    pub(super) parts: Vec<Part<W>>,
    pub(super) is_split: bool,
}

impl<W> OfTable<W> {
    /// Sorts parts by their tables.
    pub(super) fn sort(parts: impl IntoIterator<Item = (Arc<Table>, Part<W>)>) -> Vec<Self> {
        let mut sorted: Vec<Self> = Vec::new();
        for (table, part) in parts {
            match sorted.iter_mut().find(|of| of.table.id == table.id) {
                Some(of) => of.parts.push(part),
                None => sorted.push(Self { table, parts: vec![part], is_split: false }),
            }
        }
        sorted
    }
}

impl Store {
    /// [Routes](Store::route) parts of several tables, all at one time. `route` makes the way to a table.
    pub(super) async fn route_to_tables<R>(
        &self,
        asked: Vec<OfTable<R::Work>>,
        route: impl Fn(TableId) -> R,
        until: Instant,
    ) -> Vec<OfTable<R::Work>>
    where
        R: Route + Send + Sync + 'static,
        R::Work: Send + Sync + 'static,
    {
        let ask = |mut of: OfTable<R::Work>| {
            let (store, route) = (self.clone(), route(of.table.id));
            async move {
                of.is_split = store.route(&of.table, &route, &mut of.parts, until).await.is_some();
                of
            }
        };
        let mut asked: Vec<_> = asked.into_iter().map(ask).collect();
        let last = asked.pop();
        let others: Vec<_> = asked.into_iter().map(tokio::spawn).collect();
        let mut answered = Vec::with_capacity(others.len() + 1);
        if let Some(last) = last {
            answered.push(last.await);
        }
        for other in others {
            answered.extend(other.await);
        }
        answered
    }

    /// Whether nothing of a transaction that has begun in a table will commit any more, nor has to be resolved there, as far as this node
    /// knows: the table [is gone](Self::is_gone), or an empty one has taken its place, for which all its partitions were sealed when
    /// nothing was left to be resolved. It may have been recalled since.
    pub(super) fn has_ended(&self, table: TableId) -> bool {
        self.catalog().get(table).is_some_and(TableEntry::is_sealed) || self.is_gone(table)
    }

    /// Whether no node has a table any more, and none will have it again.
    pub(super) fn is_gone(&self, table: TableId) -> bool {
        let catalog = self.catalog();
        catalog.get(table).is_none() && catalog.is_over(table) && self.registry().any(table).is_none()
    }

    /// Whether what a partition of a table was answered may rest on a seal of a truncation, after which the table may have been recalled. A table
    /// that was split is not there again.
    pub(super) fn may_rest_on_truncation(&self, asked: &Table) -> bool {
        let is_split = |entry: &TableEntry| {
            let split = entry.split.as_ref().filter(|_| asked.is_current(entry));
            split.is_some_and(|split| split.truncation.is_none())
        };
        asked.is_splitting() && !self.catalog().get(asked.id).is_none_or(is_split)
    }
}
