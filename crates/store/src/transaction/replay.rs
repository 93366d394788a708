//! What was evaluated at another time or place, written now.

use super::Transaction;
use crate::change_set::ChangeSet;
use crate::deleted_hash_keys::DeletedHashKeys;
use crate::errors::{damaged, request_error};
use crate::space_writes::SpaceWrites;
use bytes::Bytes;
use tessera_engine::mutation::{self, Mutation};
use tessera_types::{RequestError, StoredValue};

impl Transaction<'_> {
    /// Takes out what was written so far, as mutations to be [written later](Self::replay). What was read stays: the log is told the
    /// time if it has to be.
    pub(crate) fn take_writes(&mut self) -> Bytes {
        let writer = self.writer.as_mut().expect("a read-only transaction does not write");
        let writes = Bytes::copy_from_slice(&writer.payload[writer.began..]);
        writer.payload.truncate(writer.began);
        (self.changes, self.deleted, self.spaces) =
            (ChangeSet::default(), DeletedHashKeys::default(), SpaceWrites::default());
        (self.cleared, self.wrote_sort_key, self.written_bytes, self.written_records) = (false, false, 0, 0);
        writes
    }

    /// Writes mutations, whatever limits and locks say.
    ///
    /// # Errors
    /// If they cannot be read. The transaction is then to be given up.
    pub fn replay(&mut self, mutations: &[u8]) -> Result<(), RequestError> {
        for mutation in mutation::decode(mutations) {
            match mutation.map_err(request_error)? {
                Mutation::Put { key, value } => {
                    let stored = StoredValue::decode(value).ok_or_else(|| damaged(&key))?;
                    self.put_unchecked(&key, &stored);
                }
                Mutation::Delete { key } => self.delete_unchecked(key.hash_key, key.sort_key),
                Mutation::DeleteHashKey { key } => self.delete_hash_key_unchecked(key.hash_key),
                Mutation::Clear => self.clear(),
                Mutation::Time(time) => self.take_time(time),
                Mutation::Mark { .. } => {}
                Mutation::PutIn { space, key, value } => self.put_in_unchecked(space, key, value),
                Mutation::DeleteIn { space, key } => self.delete_in_unchecked(space, key),
                Mutation::DropSpace { space } => self.drop_space(space),
            }
        }
        Ok(())
    }
}
