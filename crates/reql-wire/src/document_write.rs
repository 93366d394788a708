//! Writing a document in its partition.

use crate::feeds;
use crate::indexes::stamp_of;
use crate::partition::list_of;
use crate::work::{Reply, WriteWork};
use bytes::Bytes;
use tessera_reql::Lifetime;
use tessera_store::Transaction;
use tessera_types::{RequestError, Space, StoredDocument, UnixMillis};

/// What a partition says to a write.
pub(crate) enum Compared {
    /// It can be carried out; when the document that is there ends.
    Same(Option<UnixMillis>),
    /// It cannot.
    Hindered(Reply),
}

impl WriteWork {
    /// Also says whether feeds are to be told.
    pub(crate) fn carry_out(&self, transaction: &mut Transaction<'_>) -> Result<(Reply, bool), RequestError> {
        let list = list_of(transaction)?;
        Ok(match self.compare(transaction, &list)? {
            Compared::Hindered(hindrance) => (hindrance, false),
            Compared::Same(_) if self.only_compares() => (Reply::Written, false),
            Compared::Same(ended) => (Reply::Written, self.write(transaction, list, ended)?),
        })
    }

    /// Whether the write can be carried out. One that only compares does not depend on indexes.
    pub(crate) fn compare(&self, transaction: &Transaction<'_>, list: &Bytes) -> Result<Compared, RequestError> {
        if stamp_of(list) != self.entries.stamp && !self.only_compares() {
            return Ok(Compared::Hindered(Reply::List(list.clone())));
        }
        let stored = transaction.get_stored_in(Space::DOCUMENTS, &self.key)?;
        let seen = stored.as_deref().and_then(|stored| transaction.seen_in(Space::DOCUMENTS, stored));
        let differs = || Compared::Hindered(Reply::Differs(seen.map(Bytes::copy_from_slice)));
        let stored = stored.as_deref().map(StoredDocument::decode);
        let ends = stored.and_then(|stored| stored.ends);
        let Some(stored) = stored.filter(|_| seen.is_none()) else {
            let is_same = seen == self.old.as_deref() && !self.removes_ended;
            return Ok(if is_same { Compared::Same(ends) } else { differs() });
        };
        // The document has ended. What it has in indexes goes before there is another one.
        Ok(match (self.removes_ended, &self.old) {
            (true, Some(old)) if old == stored.document => Compared::Same(ends),
            (false, None) if self.only_compares() => Compared::Same(None),
            (false, None) => Compared::Hindered(Reply::Ended(self.key.clone())),
            _ => differs(),
        })
    }

    /// When the document ends that is there, in a transaction that has [compared](Self::compare) it before.
    pub(crate) fn ended(&self, transaction: &Transaction<'_>) -> Result<Option<UnixMillis>, RequestError> {
        let stored = transaction.get_in_unchecked(Space::DOCUMENTS, &self.key)?;
        Ok(stored.and_then(|stored| StoredDocument::decode(&stored).ends))
    }

    /// Writes the document, the entries of indexes, and the change, if the partition keeps changes. Returns whether feeds are to be told.
    /// `ended` is when the document ends that is there.
    pub(crate) fn write(
        &self,
        transaction: &mut Transaction<'_>,
        list: Bytes,
        ended: Option<UnixMillis>,
    ) -> Result<bool, RequestError> {
        let ends = self.ends(transaction, ended);
        match self.stored(ends) {
            Some(new) => transaction.put_in(Space::DOCUMENTS, &self.key, &new)?,
            None => transaction.delete_in(Space::DOCUMENTS, &self.key),
        }
        if ended != ends {
            self.ends_at(ended).inspect(|key| transaction.delete_in(Space::ENDS, key));
            self.ends_at(ends).map_or(Ok(()), |key| transaction.put_in(Space::ENDS, &key, b""))?;
        }
        for (space, changes) in &self.entries.changes {
            changes.removed.iter().for_each(|entry| transaction.delete_in(*space, entry));
            changes.added.iter().try_for_each(|entry| transaction.put_in(*space, entry, b""))?;
        }
        Ok(feeds::is_logging(&list)
            && self.old != self.new
            && feeds::append(transaction, list, &self.key, self.old.as_ref(), self.new.as_ref())?)
    }

    /// Writes what was promised, as [`Self::write`] does, but locks and limits do not hold. A log of changes that has no room for it ends.
    pub(crate) fn write_promised(&self, transaction: &mut Transaction<'_>, list: Bytes) -> Result<(), RequestError> {
        let ended = self.ended(transaction)?;
        let ends = self.ends(transaction, ended);
        match self.stored(ends) {
            Some(new) => transaction.put_in_unchecked(Space::DOCUMENTS, &self.key, &new),
            None => transaction.delete_in_unchecked(Space::DOCUMENTS, &self.key),
        }
        if ended != ends {
            self.ends_at(ended).inspect(|key| transaction.delete_in_unchecked(Space::ENDS, key));
            self.ends_at(ends).inspect(|key| transaction.put_in_unchecked(Space::ENDS, key, b""));
        }
        for (space, changes) in &self.entries.changes {
            changes.removed.iter().for_each(|entry| transaction.delete_in_unchecked(*space, entry));
            changes.added.iter().for_each(|entry| transaction.put_in_unchecked(*space, entry, b""));
        }
        if !feeds::is_logging(&list) || self.old == self.new {
            return Ok(());
        }
        match feeds::append(transaction, list.clone(), &self.key, self.old.as_ref(), self.new.as_ref()) {
            Err(RequestError::MemoryFull { .. }) => feeds::end(transaction, list),
            appended => appended.map(drop),
        }
    }

    /// Bytes that the write adds to a log of changes, about.
    pub(crate) fn change_bytes(&self) -> usize {
        let bytes = |document: &Option<Bytes>| document.as_ref().map_or(0, Bytes::len);
        self.key.len() + bytes(&self.old) + bytes(&self.new)
    }

    /// When the new document ends.
    fn ends(&self, transaction: &Transaction<'_>, ended: Option<UnixMillis>) -> Option<UnixMillis> {
        self.new.as_ref()?;
        match self.lifetime {
            Lifetime::Kept if self.old.is_some() => ended,
            Lifetime::Kept | Lifetime::Fresh => transaction.default_expiry().earliest(),
            Lifetime::Endless => None,
            Lifetime::Millis(millis) => transaction.now().checked_add_millis(millis),
        }
    }

    /// What is stored of the new document.
    fn stored(&self, ends: Option<UnixMillis>) -> Option<Bytes> {
        let document = self.new.as_ref()?;
        Some(match ends {
            Some(_) => StoredDocument { ends, document }.encode().into(),
            None => document.clone(),
        })
    }

    /// The record that says when the document ends.
    fn ends_at(&self, ends: Option<UnixMillis>) -> Option<Vec<u8>> {
        Some([&ends?.get().to_be_bytes()[..], &self.key].concat())
    }
}
