//! Optimistic locking: has a hash key been written since somebody looked?

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The watched hash keys of a partition. Costs writers one load while nothing is watched.
#[derive(Default)]
pub struct WatchList {
    watched: AtomicUsize,
    keys: Mutex<HashMap<Bytes, Watched>>,
}

struct Watched {
    watchers: usize,
    version: u64,
}

/// A hash key under watch, until dropped.
pub struct Watch {
    list: Arc<WatchList>,
    hash_key: Bytes,
    version: u64,
}

impl WatchList {
    pub fn watch(self: &Arc<Self>, hash_key: Bytes) -> Watch {
        let mut keys = self.keys.lock();
        // Raised before the caller reads what it watches: a writer that it does not see will see this.
        self.watched.fetch_add(1, Ordering::SeqCst);
        let watched = keys.entry(hash_key.clone()).or_insert(Watched { watchers: 0, version: 0 });
        watched.watchers += 1;
        Watch { list: self.clone(), hash_key, version: watched.version }
    }

    pub fn is_empty(&self) -> bool {
        self.watched.load(Ordering::SeqCst) == 0
    }

    /// Called both when a write is evaluated and when it is applied: a watcher may have read in between.
    pub fn touch(&self, hash_key: &[u8]) {
        if let Some(watched) = self.keys.lock().get_mut(hash_key) {
            watched.version += 1;
        }
    }

    pub fn touch_all(&self) {
        for watched in self.keys.lock().values_mut() {
            watched.version += 1;
        }
    }
}

impl Watch {
    /// Whether the hash key was written since the watch began. Exact inside a transaction of its partition.
    pub fn is_touched(&self) -> bool {
        self.list.keys.lock().get(&self.hash_key).is_none_or(|watched| watched.version != self.version)
    }

    /// Whether it is told of writes to the partition that has this list: not if that is a partition of the table that took the place of
    /// the one of which the key was watched.
    pub fn is_in(&self, list: &Arc<WatchList>) -> bool {
        Arc::ptr_eq(&self.list, list)
    }

    /// The hash key that is watched.
    pub fn hash_key(&self) -> &Bytes {
        &self.hash_key
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut keys = self.list.keys.lock();
        if let Some(watched) = keys.get_mut(&self.hash_key) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                keys.remove(&self.hash_key);
            }
        }
        self.list.watched.fetch_sub(1, Ordering::SeqCst);
    }
}
