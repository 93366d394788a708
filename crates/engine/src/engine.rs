use crate::{Digest, EngineError, EngineStatistics, Page, PageLimit, Position, Slice, SpacePage};
use std::cmp::Ordering;
use std::ops::Bound;
use std::path::Path;
use tessera_types::{RecordKey, Space, TableSettings, UnixMillis};

/// The records of one table's partitions on this node.
///
/// **State comes from the log.** [`write`](Self::write) is called by one writer per partition, in log order, with the
/// index that the state then reflects. After a restart [`durable_index`](Self::durable_index) says from where the log
/// has to be applied again; applying an entry twice is harmless, because entries carry results (puts and deletes), not
/// operations.
///
/// **Reads run beside the writer**, from any thread. A read of one record, and of one hash key's records, sees each
/// log entry entirely or not at all. Visitors run while the engine holds what keeps the visited bytes in place, so they
/// must be quick and must not call back into the engine. Made [from the caches](crate::from_caches), reads of records and of spaces
/// do not wait for the disk, but fail with [`EngineError::WouldWait`].
///
/// **Beside the records**, which are ordered by hash, a partition has [ordered spaces](Space). They are written by the same log
/// entries, and are cleared, written to checkpoints, restored, and digested with the records. What is said of expiry and
/// eviction concerns the records only: what is in a space stays until it is deleted.
pub trait Engine: Send + Sync {
    /// Calls `visit` with the stored value of `key`. Returns whether there is one.
    fn get(&self, partition: u32, key: &RecordKey<'_>, visit: &mut dyn FnMut(&[u8])) -> Result<bool, EngineError>;

    /// Calls `visit` for each of `reads` in order, with its position. The records are not read at one instant, but a
    /// batch overlaps their cache misses. Of those made [from the caches](crate::from_caches), all but the ones that would have to
    /// wait for the disk are visited before [`EngineError::WouldWait`] says that there are such.
    fn multi_get(
        &self,
        reads: &[(u32, RecordKey<'_>)],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), EngineError>;

    /// Visits the records of one non-empty hash key, given by `key`'s hash and hash key, whose sort keys lie in
    /// `range`, at one instant.
    fn scan_hash_key(
        &self,
        partition: u32,
        key: &RecordKey<'_>,
        range: SortKeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<(), EngineError>;

    /// Visits a page of the partition in the order of [`RecordKey::encode_ordered`], from a position on, which may be in the
    /// middle of a hash key. Returns where the next page begins, `None` at the end. A record that exists through the whole of a
    /// paged scan is visited at least once; others may have been written between two pages, also of one hash key.
    fn scan(
        &self,
        partition: u32,
        from: &Position,
        limit: PageLimit,
        visit: &mut dyn FnMut(RecordKey<'_>, &[u8]) -> Visit,
    ) -> Result<Option<Position>, EngineError>;

    /// Reads a page as [`Self::scan`] visits one.
    ///
    /// # Errors
    /// What the engine reports.
    fn read_page(&self, partition: u32, from: &Position, limit: PageLimit) -> Result<Page, EngineError> {
        let mut page = Page::default();
        page.next = self.scan(partition, from, limit, &mut |key, value| {
            page.add(&key, value);
            Visit::NextRecord
        })?;
        Ok(page)
    }

    /// Calls `visit` with the value of a key of a space. Returns whether there is one.
    ///
    /// # Errors
    /// What the engine reports.
    fn get_in(
        &self,
        partition: u32,
        space: Space,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, EngineError>;

    /// Calls `visit` for each of some keys of a space in order, with its position. The records are not read at one instant. A read
    /// that fails has visited those before the one that it failed at.
    ///
    /// # Errors
    /// What the engine reports.
    fn multi_get_in(
        &self,
        partition: u32,
        space: Space,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), EngineError> {
        for (at, key) in keys.iter().enumerate() {
            if !self.get_in(partition, space, key, &mut |value| visit(at, Some(value)))? {
                visit(at, None);
            }
        }
        Ok(())
    }

    /// Visits the records of a space whose keys lie in `range`, in order and at one instant, until `visit` returns false.
    ///
    /// # Errors
    /// What the engine reports.
    fn scan_space(
        &self,
        partition: u32,
        space: Space,
        range: KeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError>;

    /// Visits the records of a space whose keys lie in ranges, which are ascending and apart, until `visit` returns false. Faster than
    /// one scan for each range.
    ///
    /// # Errors
    /// What the engine reports.
    fn scan_ranges(
        &self,
        partition: u32,
        space: Space,
        ranges: &[KeyRange<'_>],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        let mut goes_on = true;
        for range in ranges {
            self.scan_space(partition, space, *range, Order::Ascending, &mut |key, value| {
                goes_on = visit(key, value);
                goes_on
            })?;
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// Reads the records that [`Self::scan_space`] visits, until the limit is reached. The engine holds nothing afterwards, so
    /// what is done with them may take long, and may read again.
    ///
    /// # Errors
    /// What the engine reports.
    fn read_space(
        &self,
        partition: u32,
        space: Space,
        range: KeyRange<'_>,
        order: Order,
        mut limit: PageLimit,
    ) -> Result<SpacePage, EngineError> {
        let mut page = SpacePage::default();
        let mut is_full = false;
        self.scan_space(partition, space, range, order, &mut |key, value| {
            page.is_cut = is_full;
            if !is_full {
                page.add(key, value);
                is_full = !limit.take_bytes(key.len() + value.len());
            }
            !page.is_cut
        })?;
        Ok(page)
    }

    /// Calls `visit` with the bytes of each record of a partition, or of one of its spaces, in order, until it returns `None`. After
    /// [`Visit::NextHashKey`] the other records of the hash key are left out. It is for counting: nothing is copied, and no cache is filled.
    ///
    /// Rather than pass over more than `_most_skipped` deleted and overwritten records at a time, which takes long although there is
    /// nothing to visit, it fails with [`EngineError::WouldWait`].
    ///
    /// # Errors
    /// What the engine reports.
    fn visit_sizes(
        &self,
        partition: u32,
        space: Option<Space>,
        _most_skipped: u64,
        visit: &mut dyn FnMut(usize) -> Option<Visit>,
    ) -> Result<(), EngineError> {
        if let Some(space) = space {
            let all = (Bound::Unbounded, Bound::Unbounded);
            return self.scan_space(partition, space, all, Order::Ascending, &mut |key, value| {
                visit(key.len() + value.len()).is_some()
            });
        }
        let (mut next, mut goes_on) = (Some(Position::START), true);
        while let Some(from) = next.filter(|_| goes_on) {
            next = self.scan(partition, &from, PageLimit::of_records(1_000), &mut |key, value| {
                let bytes = key.hash_key.len() + key.sort_key.len() + value.len();
                let step = if goes_on { visit(bytes) } else { None };
                goes_on = step.is_some();
                step.unwrap_or(Visit::NextHashKey)
            })?;
        }
        Ok(())
    }

    /// The first space from this one on that has records in the partition.
    ///
    /// # Errors
    /// What the engine reports.
    fn next_space(&self, partition: u32, from: Space) -> Result<Option<Space>, EngineError>;

    /// About which share of a space's records have keys up to and including this one, 0 to 1: how far something is that goes through
    /// them in order. It takes time, and may wait for the disk.
    ///
    /// # Errors
    /// What the engine reports.
    fn share_up_to(&self, partition: u32, space: Space, key: &[u8]) -> Result<f64, EngineError>;

    /// Applies log entries; each partition's part takes effect atomically. Waits while the engine must catch up with what
    /// was written before.
    fn write(&self, applied: &[Applied<'_>]) -> Result<(), EngineError>;

    /// As [`Self::write`], unless it would wait. Returns whether it was done.
    fn try_write(&self, applied: &[Applied<'_>]) -> Result<bool, EngineError> {
        self.write(applied).map(|()| true)
    }

    /// False only if no record with a sort key (or flagged as a field) was ever in the partition; then a hash key has at
    /// most the one record under the empty sort key, and nobody needs to look for others.
    fn may_hold_sort_keys(&self, partition: u32) -> bool;

    /// The log index that the partition's state reflects.
    fn applied_index(&self, partition: u32) -> u64;

    /// The term of the entry of that index, if the engine remembers it. An engine must whose state may be durable before the log
    /// is: after a power failure the log may lack the entry, and nothing else tells its term.
    ///
    /// # Errors
    /// If it cannot be read.
    fn applied_term(&self, _partition: u32) -> Result<Option<u64>, EngineError> {
        Ok(None)
    }

    /// The log index from which on the partition's records are those of one moment. Below it, which can only be after a
    /// checkpoint that was written beside the writer was loaded, they may hold effects of later entries: what a reader sees may
    /// be replaced by something older while the log is applied.
    fn settled_from(&self, _partition: u32) -> u64 {
        0
    }

    /// The log index that the partition's state would reflect after a crash now. The log is needed above it.
    fn durable_index(&self, partition: u32) -> Result<u64, EngineError>;

    /// Makes the state durable as it is now or was a moment ago, and with it raises
    /// [`durable_index`](Self::durable_index). `log_synced` is called once in between and returns when every entry
    /// applied so far is fsynced in the log, so that durable state is never ahead of a log that lost its tail.
    fn make_durable(&self, partition: u32, log_synced: &dyn Fn() -> Result<(), String>) -> Result<(), EngineError>;

    /// Writes the partition's records as they are at one instant, or between two instants for engines that then return
    /// the earlier one's log index, into the new file `path`, fsynced. Returns the index from which on the log completes it.
    fn checkpoint(&self, partition: u32, path: &Path) -> Result<u64, EngineError>;

    /// Replaces the partition's records by those of a checkpoint, as of log index `index`. An engine that cannot do that in
    /// one step reflects log index zero meanwhile, also if it fails half-way, and writes nothing of it to a file:
    /// [`make_durable`](Self::make_durable) and [`checkpoint`](Self::checkpoint) wait, or fail with
    /// [`EngineError::PartialRecords`].
    ///
    /// What is in the file may be the engine's own afterwards. It can be restored from again, and removed, but nobody writes to it.
    fn restore(&self, partition: u32, path: &Path, index: u64) -> Result<(), EngineError>;

    /// Digests a slice of the partition's records as they are now. For the partition's writer, so that no entry is applied
    /// meanwhile; what takes long is left to the caller to do elsewhere.
    fn digest(&self, partition: u32, slice: &Slice) -> Digest;

    /// Bytes that may still be written before the engine is full; `None` if only the disk limits it.
    fn spare_bytes(&self) -> Option<u64>;

    /// The partition's time, which its log has told: the same on all replicas that have applied the same entries. Nothing
    /// is removed that had not expired by then. Visitors may ask for it.
    fn time(&self, partition: u32) -> UnixMillis;

    /// When something may expire next after the partition's [`time`](Self::time), as far as the engine knows; `None` if
    /// nothing does. It may be too early, not too late by more than a minute.
    fn next_expiry(&self, partition: u32) -> Option<UnixMillis>;

    /// Removes some records that had expired by the partition's [`time`](Self::time), doing bounded work, and frees some of what
    /// was removed before. Returns how many have expired.
    fn remove_expired(&self, partition: u32) -> usize;

    /// Takes over the settings that concern engines.
    fn apply_settings(&self, settings: &TableSettings) -> Result<(), EngineError>;

    /// Merges what can be merged, and drops deleted and expired records with it. Tells now and then which share is done, 0 to 1.
    fn compact(&self, on_progress: &dyn Fn(f64)) -> Result<(), EngineError>;

    /// Looks after files that were found to be damaged since they hold something else than was written, and after those whose records
    /// have all been replaced since: they are dropped. Returns the partitions whose records are, or may be, damaged. To be called
    /// now and then; it may wait for the disk.
    ///
    /// # Errors
    /// What the engine reports; what was not done is done when this is called again.
    fn look_after_damage(&self) -> Result<Vec<Damaged>, EngineError> {
        Ok(Vec::new())
    }

    /// Whether the partition's records are, or may be, damaged.
    fn is_damaged(&self, _partition: u32) -> bool {
        false
    }

    /// Makes sure that nothing of a partition which has no records here is in files. Nobody restores or writes it meanwhile.
    ///
    /// # Errors
    /// What the engine reports.
    fn discard(&self, _partition: u32) -> Result<(), EngineError> {
        Ok(())
    }

    /// Gives back the disk or the memory that the records take, of a table that is gone. Somebody may hold the engine still, but nobody
    /// writes, and what is read does not count. Returns false if something is in use for some time yet; then this is to be called again.
    ///
    /// # Errors
    /// What the engine reports.
    fn give_back(&self) -> Result<bool, EngineError>;

    /// Counts and sizes of the table's records.
    fn statistics(&self) -> EngineStatistics;

    /// Of the [statistics](Self::statistics) only the bytes of memory and those of files, where these can be had for less.
    fn sizes(&self) -> (u64, u64) {
        let EngineStatistics { memory_bytes, disk_bytes, .. } = self.statistics();
        (memory_bytes, disk_bytes)
    }

    /// Bytes that a partition's records take, with those of its spaces: in memory, or about, and without what is not flushed yet, in files.
    fn partition_bytes(&self, partition: u32) -> u64;

    /// How many hash keys a partition has, if the engine counts them.
    fn hash_keys(&self, _partition: u32) -> Option<u64> {
        None
    }

    /// Whether the engine knows without a look that a partition has no record and no document: all were cleared, and none was put since.
    fn is_known_to_be_empty(&self, _partition: u32) -> bool {
        false
    }
}

/// A partition whose records are, or may be, damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The number of the partition.
    pub partition: u32,
    /// What was found, with the file.
    pub reason: String,
}

/// Log entries of one partition to apply.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'a> {
    /// The number of the partition.
    pub partition: u32,
    /// Index of the last of the entries: what [`Engine::applied_index`] returns afterwards.
    pub index: u64,
    /// The term of that entry; zero if it is not known, which counts as none that the engine remembers.
    pub term: u64,
    /// The entries' payloads in log order, each a sequence of [`crate::mutation::Mutation`]s.
    pub payloads: &'a [bytes::Bytes],
}

/// A range of keys of a space.
pub type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A range of sort keys.
pub type SortKeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the lowest key up.
    Ascending,
    /// From the highest key down.
    Descending,
}

impl Order {
    /// Less if `one` comes first.
    pub fn compare(self, one: &[u8], other: &[u8]) -> Ordering {
        match self {
            Self::Ascending => one.cmp(other),
            Self::Descending => other.cmp(one),
        }
    }
}

/// What a visitor wants to see next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// The next record.
    NextRecord,
    /// The first record of the next hash key. Ends a scan of one hash key.
    NextHashKey,
}
