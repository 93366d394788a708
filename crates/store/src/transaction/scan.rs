use super::{Record, Transaction, Writer};
use crate::table::request_error;
use bytes::Bytes;
use std::cmp::Ordering;
use std::ops::Bound;
use tessera_engine::{Order, SortKeyRange, Visit};
use tessera_types::{RecordKey, RequestError};

/// Records found so far.
struct Page<'a> {
    transaction: &'a Transaction<'a>,
    key: RecordKey<'a>,
    limit: usize,
    records: Vec<(Bytes, Record)>,
}

impl Page<'_> {
    fn is_full(&self) -> bool {
        self.records.len() >= self.limit
    }

    /// Adds the next record, `None` for a deleted one, unless the page is full.
    fn add(&mut self, sort_key: &[u8], stored: Option<&[u8]>) -> Result<(), RequestError> {
        if let Some(stored) = stored.filter(|_| !self.is_full())
            && let Some(record) = self.transaction.live(&self.key, stored)?
        {
            self.records.push((Bytes::copy_from_slice(sort_key), record));
        }
        Ok(())
    }
}

impl Transaction<'_> {
    /// Live records of a hash key in a range of sort keys, at most `limit`.
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
        self.note_read(hash_key);
        let key = RecordKey::new(hash_key, b"");
        let mut page = Page { transaction: self, key, limit, records: Vec::new() };
        let mut ahead = self.ahead_of_engine(&key, range, order).peekable();
        let hides_engine = self.cleared || self.writer.as_ref().is_some_and(|writer| writer.overlay.hides_engine());
        if !hides_engine {
            let mut outcome = Ok(());
            let mut add = |sort_key: &[u8], stored: &[u8]| {
                while let Some((newer, change)) = ahead.next_if(|(newer, _)| order.compare(newer, sort_key).is_le()) {
                    page.add(newer, change)?;
                    if newer == sort_key {
                        return Ok(page.is_full());
                    }
                }
                page.add(sort_key, Some(stored))?;
                Ok(page.is_full())
            };
            let visit = &mut |sort_key: &[u8], stored: &[u8]| match add(sort_key, stored) {
                Ok(false) => Visit::NextRecord,
                Ok(true) => Visit::NextHashKey,
                Err(error) => {
                    outcome = Err(error);
                    Visit::NextHashKey
                }
            };
            self.table.engine.scan_hash_key(self.partition, &key, range, order, visit).map_err(request_error)?;
            outcome?;
        }
        while !page.is_full()
            && let Some((sort_key, change)) = ahead.next()
        {
            page.add(sort_key, change)?;
        }
        Ok(page.records)
    }

    /// All live records of a hash key, in order.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn scan_all(&self, hash_key: &[u8]) -> Result<Vec<(Bytes, Record)>, RequestError> {
        self.scan(hash_key, (Bound::Unbounded, Bound::Unbounded), Order::Ascending, usize::MAX)
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
            let before = (!self.cleared).then(|| overlay.of_hash_key(key, range, order, payload));
            let own = self.changes.of_hash_key(key, range, order, payload);
            overlaid(own, before.into_iter().flatten(), order)
        };
        self.writer.as_ref().map(of_writer).into_iter().flatten()
    }
}

/// Of two sources in order of sort keys, in that order; where both have one, what `over` has.
fn overlaid<'a, T>(
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
