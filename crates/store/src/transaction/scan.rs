use super::{Missing, Record, Transaction, Writer};
use bytes::Bytes;
use std::cmp::Ordering;
use std::ops::Bound;
use tessera_engine::{Order, SortKeyRange, Visit};
use tessera_transaction::Access;
use tessera_types::{RecordKey, RequestError, StoredValue};

const ALL: SortKeyRange<'static> = (Bound::Unbounded, Bound::Unbounded);

/// Shows live records until the visitor has enough.
struct Viewing<'a, 'v> {
    transaction: &'a Transaction<'a>,
    key: RecordKey<'a>,
    see: &'v mut dyn FnMut(&[u8], &StoredValue<'_>) -> Visit,
    is_over: bool,
}

impl Viewing<'_, '_> {
    /// Shows the next record, `None` for a deleted one.
    fn show(&mut self, sort_key: &[u8], stored: Option<&[u8]>) -> Result<(), RequestError> {
        if let Some(stored) = stored.filter(|_| !self.is_over)
            && let Some(record) = self.transaction.live(&self.key, stored)?
        {
            self.is_over = (self.see)(sort_key, &record) == Visit::NextHashKey;
        }
        Ok(())
    }
}

impl Transaction<'_> {
    /// Live records of a hash key in a range of sort keys, at most `limit`, which is not 0.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn scan(
        &self,
        hash_key: &[u8],
        range: SortKeyRange<'_>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Bytes, Record)>, RequestError> {
        let mut records = Vec::new();
        self.view(hash_key, range, order, &mut |sort_key, stored| {
            records.push((Bytes::copy_from_slice(sort_key), Record::of(stored)));
            if records.len() < limit { Visit::NextRecord } else { Visit::NextHashKey }
        })?;
        Ok(records)
    }

    /// How many live records a hash key has.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn count(&self, hash_key: &[u8]) -> Result<usize, RequestError> {
        let mut count = 0;
        self.view(hash_key, ALL, Order::Ascending, &mut |_, _| {
            count += 1;
            Visit::NextRecord
        })?;
        Ok(count)
    }

    /// All live records of a hash key, in order.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn scan_all(&self, hash_key: &[u8]) -> Result<Vec<(Bytes, Record)>, RequestError> {
        self.scan(hash_key, ALL, Order::Ascending, usize::MAX)
    }

    /// Shows the live records of a hash key in a range of sort keys.
    fn view(
        &self,
        hash_key: &[u8],
        range: SortKeyRange<'_>,
        order: Order,
        see: &mut dyn FnMut(&[u8], &StoredValue<'_>) -> Visit,
    ) -> Result<(), RequestError> {
        self.note_read(hash_key);
        self.check_lock(hash_key, Access::Shared)?;
        let key = RecordKey::new(hash_key, b"");
        let mut viewing = Viewing { transaction: self, key, see, is_over: false };
        let mut ahead = self.ahead_of_engine(&key, range, order).peekable();
        let is_hidden = |writer: &Writer<'_>| writer.overlay.hides_engine(hash_key);
        if !self.hides_overlay(hash_key) && !self.writer.as_ref().is_some_and(is_hidden) {
            let (mut outcome, mut found) = (Ok(()), 0);
            let mut show = |sort_key: &[u8], stored: &[u8]| {
                while let Some((newer, change)) = ahead.next_if(|(newer, _)| order.compare(newer, sort_key).is_le()) {
                    viewing.show(newer, change)?;
                    if newer == sort_key {
                        return Ok(viewing.is_over);
                    }
                }
                viewing.show(sort_key, Some(stored))?;
                Ok(viewing.is_over)
            };
            let visit = &mut |sort_key: &[u8], stored: &[u8]| {
                found += 1;
                match show(sort_key, stored) {
                    Ok(false) => Visit::NextRecord,
                    Ok(true) => Visit::NextHashKey,
                    Err(error) => {
                        outcome = Err(error);
                        Visit::NextHashKey
                    }
                }
            };
            let read = self.table.engine.scan_hash_key(self.partition, &key, range, order, visit);
            read.map_err(|error| self.failed(error, || Missing::records(hash_key, range, order, found)))?;
            outcome?;
        }
        while !viewing.is_over
            && let Some((sort_key, change)) = ahead.next()
        {
            viewing.show(sort_key, change)?;
        }
        Ok(())
    }

    /// Whether nothing is under a hash key but what this transaction has written.
    pub(super) fn hides_overlay(&self, hash_key: &[u8]) -> bool {
        self.cleared || self.is_on_copies || self.deleted.contains(hash_key)
    }

    /// What the overlay and this transaction know better than the engine about a hash key: sort keys and stored values, `None`
    /// for deletions. There may be thousands of which the scan wants one.
    fn ahead_of_engine<'s>(
        &'s self,
        key: &RecordKey<'_>,
        range: SortKeyRange<'s>,
        order: Order,
    ) -> impl Iterator<Item = (&'s [u8], Option<&'s [u8]>)> + use<'s> {
        let of_writer = |Writer { overlay, payload, .. }: &'s Writer<'_>| {
            let hides_overlay = self.hides_overlay(key.hash_key);
            let before = (!hides_overlay).then(|| overlay.of_hash_key(key, range, order, payload));
            let own = self.changes.of_hash_key(key, range, order, payload);
            overlaid(own, before.into_iter().flatten(), order)
        };
        self.writer.as_ref().map(of_writer).into_iter().flatten()
    }
}

/// Of two sources in order of sort keys, in that order; where both have one, what `over` has.
pub(super) fn overlaid<'a, T>(
    over: impl Iterator<Item = (&'a [u8], T)>,
    under: impl Iterator<Item = (&'a [u8], T)>,
    order: Order,
) -> impl Iterator<Item = (&'a [u8], T)> {
    let (mut over, mut under) = (over.peekable(), under.peekable());
    std::iter::from_fn(move || {
        let Some((first, _)) = over.peek() else { return under.next() };
        match under.peek().map(|(other, _)| order.compare(first, other)) {
            Some(Ordering::Greater) => return under.next(),
            Some(Ordering::Equal) => _ = under.next(),
            Some(Ordering::Less) | None => {}
        }
        over.next()
    })
}
