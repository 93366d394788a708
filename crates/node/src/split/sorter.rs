//! Sorts what a partition has by the one of the two that takes its place.

use bytes::{Bytes, BytesMut};
use tessera_engine::EngineError;
use tessera_engine::mutation::{self, Mutation};
use tessera_store::Table;
use tessera_types::{RecordKey, Space, StoredValue};

/// Bytes that a new partition takes in one step.
const STEP_BYTES: usize = 256 << 10;

/// Sorts mutations of a partition by the one of the two that takes its place.
pub(super) struct Sorter<'a> {
    into: &'a Table,
    children: [u32; 2],
    full: [Vec<Bytes>; 2],
    last: [BytesMut; 2],
}

impl<'a> Sorter<'a> {
    pub(super) fn new(into: &'a Table, children: [u32; 2]) -> Self {
        Self { into, children, full: Default::default(), last: Default::default() }
    }

    pub(super) fn add(&mut self, mutation: Mutation<'_>) -> Result<(), EngineError> {
        match mutation {
            Mutation::Put { key, value } => {
                let damaged = || EngineError::Corruption(format!("'{}'", key.hash_key.escape_ascii()));
                let stored = StoredValue::decode(value).ok_or_else(damaged)?;
                mutation::encode_put(self.of(&key), &key, &stored);
            }
            Mutation::Delete { key } => _ = mutation::encode_delete(self.of(&key), &key),
            Mutation::DeleteHashKey { key } => mutation::encode_delete_hash_key(self.of(&key), &key),
            Mutation::Time(time) => self.last.iter_mut().for_each(|last| mutation::encode_time(last, time)),
            Mutation::Clear => self.last.iter_mut().for_each(mutation::encode_clear),
            // It was about the old partition's replicas.
            Mutation::Mark { .. } => {}
            // This space is about the old partition: what ends it does not end the new ones.
            Mutation::PutIn { space: Space::SYSTEM, .. }
            | Mutation::DeleteIn { space: Space::SYSTEM, .. }
            | Mutation::DropSpace { space: Space::SYSTEM } => {}
            // The new partitions have the entries of the old one's indexes, and go on building where it stopped; and they have the
            // changes of their documents under the old numbers, so that feeds go on.
            Mutation::PutIn { space: space @ Space::INDEXES, key, value } => {
                self.last.iter_mut().for_each(|last| _ = mutation::encode_put_in(last, space, key, value));
            }
            Mutation::DeleteIn { space: space @ Space::INDEXES, key } => {
                self.last.iter_mut().for_each(|last| _ = mutation::encode_delete_in(last, space, key));
            }
            Mutation::PutIn { space, key, value } => {
                mutation::encode_put_in(self.of_space(space, key)?, space, key, value);
            }
            Mutation::DeleteIn { space, key } => {
                mutation::encode_delete_in(self.of_space(space, key)?, space, key);
            }
            Mutation::DropSpace { space } => {
                self.last.iter_mut().for_each(|last| mutation::encode_drop_space(last, space));
            }
        }
        for (last, full) in self.last.iter_mut().zip(&mut self.full) {
            if last.len() >= STEP_BYTES {
                full.push(last.split().freeze());
            }
        }
        Ok(())
    }

    fn of(&mut self, key: &RecordKey<'_>) -> &mut BytesMut {
        &mut self.last[usize::from(self.into.partition_of(key) != self.children[0])]
    }

    fn of_space(&mut self, space: Space, key: &[u8]) -> Result<&mut BytesMut, EngineError> {
        let schema = &self.into.schema();
        let homeless = || {
            EngineError::Corruption(format!("'{}' in space {} has no place in the table", key.escape_ascii(), space.0))
        };
        let partition = space.partition_of(key, schema.partitioner, schema.partitions).ok_or_else(homeless)?;
        Ok(&mut self.last[usize::from(partition != self.children[0])])
    }

    pub(super) fn finish(self) -> [Vec<Bytes>; 2] {
        let mut full = self.full;
        for (last, full) in self.last.into_iter().zip(&mut full) {
            if !last.is_empty() {
                full.push(last.freeze());
            }
        }
        full
    }
}
