//! The connections that a node has with clients, so that their queries can be told, and ended, by others.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tessera_reql::QueryJob;

/// A connection with a client.
pub(crate) trait Client: Send + Sync {
    /// Whether a query runs.
    fn is_active(&self) -> bool;

    /// Its queries, with the identifiers that `id` gives their numbers.
    fn jobs(&self, id: &dyn Fn(u64) -> String) -> Vec<QueryJob>;

    /// Closes streams that nobody has asked for more for so long. Feeds stay open: a client may take long for what it got last.
    fn close_idle(&self, timeout: Duration);

    /// Ends the query for whose number `is_wanted` stands, and has whoever asked it told. Returns whether there was one.
    fn end(&self, is_wanted: &dyn Fn(u64) -> bool) -> bool;
}

type Connections = Arc<Mutex<BTreeMap<u64, Arc<dyn Client>>>>;

/// The connections of a node.
#[derive(Default)]
pub(crate) struct Clients {
    connections: Connections,
    last_connection: AtomicU64,
    last_query: AtomicU64,
}

/// Takes a connection off the list when it goes.
pub(crate) struct Entered {
    connections: Connections,
    number: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.number);
    }
}

impl Clients {
    /// Lists the queries of a connection until what this returns goes.
    pub(crate) fn enter(&self, client: Arc<dyn Client>) -> Entered {
        let number = self.last_connection.fetch_add(1, Ordering::Relaxed) + 1;
        self.connections.lock().insert(number, client);
        Entered { connections: self.connections.clone(), number }
    }

    /// A number that no other query of this process has.
    pub(crate) fn next_query(&self) -> u64 {
        self.last_query.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn all(&self) -> Vec<Arc<dyn Client>> {
        self.connections.lock().values().cloned().collect()
    }

    /// Closes streams that nobody has asked for more for so long.
    pub(crate) fn close_idle(&self, timeout: Duration) {
        self.all().iter().for_each(|client| client.close_idle(timeout));
    }

    /// Connections of which a query runs.
    pub(crate) fn active(&self) -> usize {
        self.all().iter().filter(|client| client.is_active()).count()
    }

    /// All queries, with the identifiers that `id` gives their numbers.
    pub(crate) fn jobs(&self, id: impl Fn(u64) -> String) -> Vec<QueryJob> {
        self.all().iter().flat_map(|client| client.jobs(&id)).collect()
    }

    /// Ends the query whose number has this identifier. Whoever has asked it is told. Returns whether there was one.
    pub(crate) fn end(&self, wanted: &str, id: impl Fn(u64) -> String) -> bool {
        self.all().iter().any(|client| client.end(&|number| id(number) == wanted))
    }
}
