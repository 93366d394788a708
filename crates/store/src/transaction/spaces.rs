//! Reads and writes of the partition's ordered spaces.
//!
//! The keys of documents, and claims to unique keys, are locked by transactions over partitions as hash keys are, so whoever gets, puts or
//! deletes one of them waits for its lock.
//! Documents that have [ended](StoredDocument) are not seen. Scans do not look for locks: who makes one waits [before it](crate::Store::await_intents).

use super::scan::overlaid;
use super::{Missing, Transaction, check_size};
use crate::overlay::Lookup;
use bytes::Bytes;
use std::ops::Bound;
use tessera_engine::{KeyRange, Order, PageLimit, mutation};
use tessera_transaction::Access;
use tessera_types::{RequestError, Space, StoredDocument};

/// Records of a space as a transaction sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceScan {
    /// Keys and values, in the order that was asked for.
    pub records: Vec<(Bytes, Bytes)>,
    /// Whether the range has more records behind these.
    pub is_cut: bool,
}

/// Copies of keys and values, which share a few allocations: most pages are looked through and forgotten.
#[derive(Default)]
struct Gathered {
    records: Vec<(Bytes, Bytes)>,
    chunk: Vec<u8>,
    /// Where the values of the chunk begin, and where they end.
    places: Vec<(usize, usize)>,
}

impl Gathered {
    /// Bytes that share an allocation. One record that is kept keeps as many.
    const CHUNK_BYTES: usize = 64 << 10;

    fn push(&mut self, key: &[u8], value: &[u8]) {
        let size = key.len() + value.len();
        if self.chunk.len() + size > self.chunk.capacity() {
            self.close_chunk();
            self.chunk.reserve(if self.records.is_empty() { size } else { size.max(Self::CHUNK_BYTES) });
        }
        self.chunk.extend_from_slice(key);
        let middle = self.chunk.len();
        self.chunk.extend_from_slice(value);
        self.places.push((middle, self.chunk.len()));
    }

    fn close_chunk(&mut self) {
        let chunk = Bytes::from(std::mem::take(&mut self.chunk));
        let mut start = 0;
        for (middle, end) in self.places.drain(..) {
            self.records.push((chunk.slice(start..middle), chunk.slice(middle..end)));
            start = end;
        }
    }

    fn finish(mut self) -> Vec<(Bytes, Bytes)> {
        self.close_chunk();
        self.records
    }
}

impl Transaction<'_> {
    /// The value of a key of a space.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn get_in(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, RequestError> {
        let stored = self.get_stored_in(space, key)?;
        Ok(stored.and_then(|stored| Some(stored.slice_ref(self.seen_in(space, &stored)?))))
    }

    /// What is stored under a key of a space, also of a document that has ended.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn get_stored_in(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, RequestError> {
        self.check_lock_in(space, key, Access::Shared)?;
        self.get_in_unchecked(space, key)
    }

    /// What is seen of what is stored in a space: of a document that has ended, nothing. As with other records that have, a transaction that writes tells
    /// the log the time by which that is so.
    pub fn seen_in<'v>(&self, space: Space, stored: &'v [u8]) -> Option<&'v [u8]> {
        if space != Space::DOCUMENTS {
            return Some(stored);
        }
        let stored = StoredDocument::decode(stored);
        if stored.ends.is_some() && !self.is_there(stored) {
            return None;
        }
        Some(stored.document)
    }

    #[cold]
    fn is_there(&self, stored: StoredDocument<'_>) -> bool {
        if stored.is_live(self.times.seen_at) {
            self.found.first_expiry.update(|first| first.into_iter().chain(stored.ends).min());
            return true;
        }
        self.note_expired(|time| stored.is_live(time));
        false
    }

    /// What is stored under a key of a space, whatever locks say.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn get_in_unchecked(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, RequestError> {
        let ahead = match &self.writer {
            None => Lookup::Engine,
            Some(writer) => match self.spaces.get(space, key) {
                Some(write) => write.value(writer.payload).map_or(Lookup::Absent, Lookup::Stored),
                None if self.cleared || self.spaces.drops(space) => Lookup::Absent,
                None => writer.overlay.get_in(space, key, writer.payload),
            },
        };
        match ahead {
            Lookup::Stored(value) => Ok(Some(self.found_in(value))),
            Lookup::Absent => Ok(None),
            Lookup::Engine => {
                let mut found = None;
                let visit = &mut |value: &[u8]| found = Some(self.found_in(value));
                let read = self.table.engine.get_in(self.partition, space, key, visit);
                read.map_err(|error| self.failed(error, || Missing::InSpace { space, key: key.to_vec() }))?;
                Ok(found)
            }
        }
    }

    /// The values of some keys of a space, in their order; faster than one by one. The values of all are in memory at one time, twice.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn multi_get_in(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, RequestError> {
        if self.writer.is_some() {
            return keys.iter().map(|key| self.get_in(space, key)).collect();
        }
        let mut found = Vec::with_capacity(keys.len());
        let visit = &mut |_, value: Option<&[u8]>| {
            let seen = value.and_then(|value| self.seen_in(space, value));
            found.push(seen.map(|value| self.found_in(value)));
        };
        let read = self.table.engine.multi_get_in(self.partition, space, keys, visit);
        read.map_err(|error| self.failed(error, || Missing::InSpace { space, key: keys[found.len()].to_vec() }))?;
        Ok(found)
    }

    fn check_lock_in(&self, space: Space, key: &[u8], access: Access) -> Result<(), RequestError> {
        if !self.has_locks {
            return Ok(());
        }
        space.lock_key(key).map_or(Ok(()), |name| self.check_lock(&name, access))
    }

    fn found_in(&self, value: &[u8]) -> Bytes {
        self.found.bytes.update(|found| found + value.len());
        Bytes::copy_from_slice(value)
    }

    /// The records of a range of a space, as many as the limit allows and at least one, if there is one. Where it is cut, the next
    /// page lies behind the last key.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn scan_in(
        &self,
        space: Space,
        range: KeyRange<'_>,
        order: Order,
        mut limit: PageLimit,
    ) -> Result<SpaceScan, RequestError> {
        let (mut gathered, mut is_cut) = (Gathered::default(), false);
        let mut is_full = false;
        // Returns whether more is wanted.
        let mut show = |key: &[u8], value: Option<&[u8]>| {
            let Some(value) = value.and_then(|value| self.seen_in(space, value)) else { return true };
            if is_full {
                is_cut = true;
                return false;
            }
            self.found.bytes.update(|found| found + value.len());
            gathered.push(key, value);
            is_full = !limit.take_bytes(key.len() + value.len());
            true
        };
        let (mut ahead, mut hides_engine) = (None, false);
        if let Some(writer) = &self.writer {
            let payload: &[u8] = writer.payload;
            let is_hidden = self.cleared || self.spaces.drops(space);
            let before = (!is_hidden).then(|| writer.overlay.of_space(space, range, order, payload));
            let own = self.spaces.range(space, range, order).map(move |(key, write)| (key, write.value(payload)));
            ahead = Some(overlaid(own, before.into_iter().flatten(), order));
            hides_engine = is_hidden || writer.overlay.hides_space(space);
        }
        let mut ahead = ahead.into_iter().flatten().peekable();
        let mut goes_on = true;
        if !hides_engine {
            let mut found = 0;
            let visit = &mut |key: &[u8], value: &[u8]| {
                found += 1;
                while let Some((newer, change)) = ahead.next_if(|(newer, _)| order.compare(newer, key).is_le()) {
                    goes_on = show(newer, change);
                    if !goes_on || newer == key {
                        return goes_on;
                    }
                }
                goes_on = show(key, Some(value));
                goes_on
            };
            let read = self.table.engine.scan_space(self.partition, space, range, order, visit);
            read.map_err(|error| self.failed(error, || Missing::of_space(space, range, order, found)))?;
        }
        while goes_on && let Some((key, change)) = ahead.next() {
            goes_on = show(key, change);
        }
        Ok(SpaceScan { records: gathered.finish(), is_cut })
    }

    /// Those records of some ranges of a space, which are ascending and apart, whose keys `takes` says to take: as many as the limit
    /// allows. It may be cut where there are no more.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn scan_ranges_in(
        &self,
        space: Space,
        ranges: &[KeyRange<'_>],
        mut limit: PageLimit,
        takes: impl Fn(&[u8]) -> bool,
    ) -> Result<SpaceScan, RequestError> {
        if self.writer.is_some() {
            return self.scan_written_ranges(space, ranges, limit, takes);
        }
        let (mut gathered, mut is_cut, mut seen) = (Gathered::default(), false, 0);
        let visit = &mut |key: &[u8], value: &[u8]| {
            seen += 1;
            if takes(key)
                && let Some(value) = self.seen_in(space, value)
            {
                self.found.bytes.update(|found| found + value.len());
                gathered.push(key, value);
                is_cut = !limit.take_bytes(key.len() + value.len());
            }
            !is_cut
        };
        let read = self.table.engine.scan_ranges(self.partition, space, ranges, visit);
        let all = match (ranges.first(), ranges.last()) {
            (Some((start, _)), Some((_, end))) => (*start, *end),
            _ => return Ok(SpaceScan::default()),
        };
        read.map_err(|error| self.failed(error, || Missing::of_space(space, all, Order::Ascending, seen)))?;
        Ok(SpaceScan { records: gathered.finish(), is_cut })
    }

    /// The same where writes may lie over what the engine has.
    fn scan_written_ranges(
        &self,
        space: Space,
        ranges: &[KeyRange<'_>],
        limit: PageLimit,
        takes: impl Fn(&[u8]) -> bool,
    ) -> Result<SpaceScan, RequestError> {
        let mut records = Vec::new();
        for (start, end) in ranges {
            let mut after: Option<Bytes> = None;
            loop {
                let start = after.as_deref().map_or(*start, Bound::Excluded);
                let page = self.scan_in(space, (start, *end), Order::Ascending, limit)?;
                after = page.records.last().map(|(key, _)| key.clone());
                records.extend(page.records.into_iter().filter(|(key, _)| takes(key)));
                if records.len() >= limit.records {
                    records.truncate(limit.records);
                    return Ok(SpaceScan { records, is_cut: true });
                }
                if !page.is_cut {
                    break;
                }
            }
        }
        Ok(SpaceScan { records, is_cut: false })
    }

    /// Puts a record into a space.
    ///
    /// # Errors
    /// A limit that would be exceeded, or a full memory table. The transaction is then to be given up.
    pub fn put_in(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), RequestError> {
        self.check_lock_in(space, key, Access::Exclusive)?;
        let limits = &*self.table.limits;
        check_size("key", "key_bytes", key.len(), Space::KEY_BYTES_CEILING)?;
        check_size("value", "value_bytes", value.len(), limits.value_bytes)?;
        self.written_bytes += key.len() + value.len();
        check_size("write", "write_bytes", self.written_bytes, limits.write_bytes)?;
        self.check_spare(self.written_bytes)?;
        self.put_in_unchecked(space, key, value);
        Ok(())
    }

    /// Puts a record, whatever limits and locks say.
    pub fn put_in_unchecked(&mut self, space: Space, key: &[u8], value: &[u8]) {
        let writer = self.writer.as_mut().expect("a read-only transaction does not write");
        let location = mutation::encode_put_in(writer.payload, space, key, value);
        self.spaces.write(space, key, location);
    }

    /// Deletes a record of a space, whether it exists or not.
    pub fn delete_in(&mut self, space: Space, key: &[u8]) {
        // If it is locked, that is noted, and what is done here will be taken back.
        let _ = self.check_lock_in(space, key, Access::Exclusive);
        self.delete_in_unchecked(space, key);
    }

    /// Deletes a record, whatever locks say.
    pub fn delete_in_unchecked(&mut self, space: Space, key: &[u8]) {
        self.written_bytes += key.len();
        let writer = self.writer.as_mut().expect("a read-only transaction does not write");
        let location = mutation::encode_delete_in(writer.payload, space, key);
        self.spaces.write(space, key, location);
    }

    /// Deletes every record of a space, at a cost that does not depend on how many they are.
    pub fn drop_space(&mut self, space: Space) {
        let writer = self.writer.as_mut().expect("a read-only transaction does not write");
        mutation::encode_drop_space(writer.payload, space);
        self.spaces.drop_space(space, 0);
    }
}
