//! Hash keys of which all records are deleted at once, however many these are.

use std::collections::HashMap;

/// Hash keys that are to be deleted, and the batch that deletes them. What was under them before is not seen any more.
///
/// Hardly any transaction has some: without a map there is nothing to take down when it ends.
#[derive(Default)]
pub(crate) struct DeletedHashKeys(Option<HashMap<Box<[u8]>, u64, ahash::RandomState>>);

impl DeletedHashKeys {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(HashMap::is_empty)
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    pub(crate) fn insert(&mut self, hash_key: &[u8], batch: u64) {
        self.0.get_or_insert_default().insert(hash_key.into(), batch);
    }

    pub(crate) fn contains(&self, hash_key: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|deleted| deleted.contains_key(hash_key))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().flat_map(HashMap::keys).map(|hash_key| &**hash_key)
    }

    /// Forgets what this batch or an earlier one has deleted.
    pub(crate) fn forget(&mut self, batch: u64) {
        if let Some(deleted) = &mut self.0 {
            deleted.retain(|_, by| *by > batch);
        }
    }
}
