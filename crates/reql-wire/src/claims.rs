//! Claims: which document has which key of a unique index.
//!
//! The partition of a document knows its neighbours only, so who has a key is a record of its own, in the partition to which the hash of the key
//! leads ([`Space::claims`]). A write that changes unique keys is a transaction of the document's partition and of those of the keys.
//! Claims do not depend on whether the partition's list has the index: partitions come to know of an index at different times.

use crate::indexes::claims_key;
use crate::work::{ClaimWork, Reply, Taken};
use bytes::Bytes;
use tessera_store::Transaction;
use tessera_types::{RequestError, Space};

/// The document that has a key.
pub(crate) fn holder(transaction: &Transaction<'_>, space: Space, key: &[u8]) -> Result<Option<Bytes>, RequestError> {
    transaction.get_in(space.claims(), key)
}

impl ClaimWork {
    /// What keeps the key from being taken.
    pub(crate) fn hindrance(&self, transaction: &Transaction<'_>) -> Result<Option<Reply>, RequestError> {
        let Some(taking) = &self.taking else { return Ok(None) };
        let holder = holder(transaction, self.space, &self.key)?;
        let is_other = |holder: &Bytes| holder != taking && !self.leaving.contains(holder);
        Ok(holder
            .filter(is_other)
            .map(|holder| Reply::Taken(Taken { space: self.space, key: self.key.clone(), holder })))
    }

    /// Gives the key to who takes it.
    pub(crate) fn write(&self, transaction: &mut Transaction<'_>) -> Result<(), RequestError> {
        match &self.taking {
            Some(taking) => {
                self.note(transaction)?;
                transaction.put_in(self.space.claims(), &self.key, taking)?;
            }
            None if holder(transaction, self.space, &self.key)?
                .is_some_and(|holder| self.leaving.contains(&holder)) =>
            {
                transaction.delete_in(self.space.claims(), &self.key);
            }
            None => {}
        }
        Ok(())
    }

    /// As [`Self::write`], for an intent that has committed: locks and limits do not hold.
    pub(crate) fn write_promised(&self, transaction: &mut Transaction<'_>) -> Result<(), RequestError> {
        let claims = self.space.claims();
        match &self.taking {
            Some(taking) => {
                self.note(transaction)?;
                transaction.put_in_unchecked(claims, &self.key, taking);
            }
            None => {
                // While the index is built another document may have the key.
                let holder = transaction.get_in_unchecked(claims, &self.key)?;
                if holder.is_some_and(|holder| self.leaving.contains(&holder)) {
                    transaction.delete_in_unchecked(claims, &self.key);
                }
            }
        }
        Ok(())
    }

    /// Notes that there are claims to keys of the index in the partition, for when it is dropped.
    fn note(&self, transaction: &mut Transaction<'_>) -> Result<(), RequestError> {
        let key = claims_key(self.space);
        if transaction.get_in(Space::INDEXES, &key)?.is_none() {
            transaction.put_in_unchecked(Space::INDEXES, &key, b"");
        }
        Ok(())
    }
}
