//! Searches for hot keys that were begun on this node.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tessera_store::HotKeysFound;
use tessera_types::{RequestError, TableId};
use tokio::task::AbortHandle;

type Place = (TableId, u32);

/// The latest search in each partition.
#[derive(Default)]
pub(crate) struct Searches(Mutex<HashMap<Place, Arc<Search>>>);

/// A search, under way until something was found. It ends when nobody needs it any more.
pub(crate) struct Search {
    /// What the client calls what is counted.
    pub(crate) kind: i32,
    task: AbortHandle,
    pub(crate) found: Arc<OnceLock<Result<HotKeysFound, RequestError>>>,
}

impl Drop for Search {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Searches {
    /// Begins a search in a partition, unless one is under way there. Returns whether it did.
    pub(crate) fn begin(
        &self,
        place: Place,
        kind: i32,
        search: impl Future<Output = Result<HotKeysFound, RequestError>> + Send + 'static,
    ) -> bool {
        let mut searches = self.0.lock();
        if searches.get(&place).is_some_and(|search| search.found.get().is_none()) {
            return false;
        }
        let found = Arc::<OnceLock<_>>::default();
        let told = found.clone();
        let task = tokio::spawn(async move { _ = told.set(search.await) }).abort_handle();
        searches.insert(place, Arc::new(Search { kind, task, found }));
        true
    }

    /// Ends the search in a partition, if there is one.
    pub(crate) fn end(&self, place: Place) {
        self.0.lock().remove(&place);
    }

    /// The latest search in a partition.
    pub(crate) fn latest(&self, place: Place) -> Option<Arc<Search>> {
        self.0.lock().get(&place).cloned()
    }

    /// Forgets the searches in tables that are not wanted any more.
    pub(crate) fn retain(&self, is_wanted: impl Fn(TableId) -> bool) {
        self.0.lock().retain(|(table, _), _| is_wanted(*table));
    }
}
