use super::conversion::move_former_seal;
use super::damage::Damage;
use super::expiry_filter::TableExpiries;
use super::keys::{
    applied_index_key, expiries_key, hash_position, partition_end, read_record_key, slice_position, sort_keys_flag_key,
    spaces_begin, spaces_end,
};
use super::record_cache::{Found, RecordCache, Records};
use super::second_name::SecondName;
use super::store::RocksStore;
use super::{keys, level_table};
use crate::expiries::Expiries;
use crate::read_tier::is_caches_only;
use crate::{
    Applied, Damaged, Digest, Engine, EngineError, EngineStatistics, KeyRange, Order, PageLimit, Position, Slice,
    SortKeyRange, Visit,
};
use parking_lot::Mutex;
use rocksdb::{
    BoundColumnFamily, FlushOptions, IngestExternalFileOptions, ReadOptions, ReadTier, SstFileWriter, WriteBatch,
    WriteOptions, properties,
};
use std::cell::RefCell;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tessera_types::{RecordKey, Space, TableSettings, UnixMillis, successor};

/// Bytes, about, that a compaction takes on at one time.
const COMPACTED_AT_ONCE: u64 = 1 << 30;

/// A table in RocksDB.
pub struct RocksEngine {
    /// Before `store`, so that it is dropped first.
    pub(super) column_family: Arc<BoundColumnFamily<'static>>,
    pub(super) store: Arc<RocksStore>,
    pub(super) partitions: Vec<PartitionState>,
    expiries: Arc<TableExpiries>,
    pub(super) name: String,
    pub(super) damage: Mutex<Damage>,
    /// What the record cache knows this table by.
    pub(super) number: u32,
    pub(super) read: ReadOptions,
    /// Fails instead of waiting for the disk.
    read_caches: ReadOptions,
    pub(super) write: WriteOptions,
    /// Fails instead of waiting.
    pub(super) try_write: WriteOptions,
}

pub(super) struct PartitionState {
    pub(super) applied: AtomicU64,
    pub(super) may_hold_sort_keys: AtomicBool,
    /// Counts up before and after all records are replaced, for the record cache.
    pub(super) epoch: AtomicU32,
    /// Whether it was cleared, and nothing was put since. To find out that there is nothing takes RocksDB as long as to read what there was.
    pub(super) is_empty: AtomicBool,
}

thread_local! {
    /// Room for the stored form of the key being looked up.
    pub(super) static KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl RocksStore {
    /// Opens the table of that name, creating it if there is none.
    ///
    /// # Errors
    /// If the files cannot be read or written.
    pub fn open_table(self: &Arc<Self>, name: &str, partitions: u32) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(RocksEngine::open(self, name, partitions)?))
    }
}

impl RocksEngine {
    pub(super) fn open(store: &Arc<RocksStore>, name: &str, partitions: u32) -> Result<Self, EngineError> {
        let (store, expiries) = (store.clone(), store.create_table(name)?);
        let handle =
            store.db.cf_handle(name).ok_or_else(|| EngineError::Rocksdb(format!("no column family {name}")))?;
        // SAFETY: the handle borrows from the instance in `store`. Both are in the new engine, which drops the handle
        // first and gives it to nobody, so the instance outlives it.
        let column_family =
            unsafe { std::mem::transmute::<Arc<BoundColumnFamily<'_>>, Arc<BoundColumnFamily<'static>>>(handle) };
        let (mut write, mut try_write) = (WriteOptions::default(), WriteOptions::default());
        write.disable_wal(true);
        try_write.disable_wal(true);
        try_write.set_no_slowdown(true);
        // A write to a column family that was dropped comes to nothing. By default it would fail, and RocksDB would take no write
        // of any table any more, since it counts that as a failed memtable. RocksDB carries out the writes of several threads
        // together, by the options of one of them, so all writers have this.
        write.set_ignore_missing_column_families(true);
        try_write.set_ignore_missing_column_families(true);
        let (read, mut read_caches) = (ReadOptions::default(), ReadOptions::default());
        read_caches.set_read_tier(ReadTier::BlockCache);
        let number = store.records.as_ref().map_or(0, RecordCache::next_table);
        let mut engine = Self {
            column_family,
            store,
            partitions: Vec::new(),
            expiries,
            name: name.into(),
            damage: Mutex::default(),
            number,
            read,
            read_caches,
            write,
            try_write,
        };
        let mut expiries = Vec::new();
        for partition in 0..partitions {
            let applied = engine.unless_damaged(partition, engine.read_index(partition, &engine.read), 0)?;
            let flag = engine.unless_damaged(partition, engine.read_sort_keys_flag(partition), true)?;
            let of_partition = Expiries::default();
            let stored = engine.read_expiries(partition, &engine.read);
            of_partition.set(engine.unless_damaged(partition, stored, None)?.unwrap_or_default());
            expiries.push(of_partition);
            engine.partitions.push(PartitionState {
                applied: AtomicU64::new(applied),
                may_hold_sort_keys: AtomicBool::new(flag),
                epoch: AtomicU32::new(0),
                is_empty: AtomicBool::new(false),
            });
        }
        // A table is opened once for each time that its column family is created.
        let _ = engine.expiries.set(expiries.into());
        Ok(engine)
    }

    fn read_sort_keys_flag(&self, partition: u32) -> Result<bool, EngineError> {
        Ok(self.store.db.get_pinned_cf(&self.column_family, sort_keys_flag_key(partition))?.is_some())
    }

    /// The partition's time, and one after which no record of it expires.
    fn read_expiries(&self, partition: u32, options: &ReadOptions) -> Result<Option<[u64; 2]>, EngineError> {
        let Some(stored) = self.store.db.get_pinned_cf_opt(&self.column_family, expiries_key(partition), options)?
        else {
            return Ok(None);
        };
        let words = read_two_words(&stored);
        words.map(Some).ok_or_else(|| EngineError::Corruption("a partition's time is not sixteen bytes".into()))
    }

    pub(super) fn expiries(&self, partition: u32) -> &Expiries {
        &self.expiries.get().expect("set when the table was opened")[partition as usize]
    }

    /// The applied index and the term of its entry, which is zero if it is not known: data of an earlier version lacks it.
    fn read_applied(&self, partition: u32, options: &ReadOptions) -> Result<[u64; 2], EngineError> {
        let stored = self.store.db.get_pinned_cf_opt(&self.column_family, applied_index_key(partition), options)?;
        let Some(stored) = stored else { return Ok([0, 0]) };
        let without_term = || <[u8; 8]>::try_from(&*stored).ok().map(|index| [u64::from_le_bytes(index), 0]);
        let damaged = || EngineError::Corruption("an applied index is neither eight nor sixteen bytes".into());
        read_two_words(&stored).or_else(without_term).ok_or_else(damaged)
    }

    fn read_index(&self, partition: u32, options: &ReadOptions) -> Result<u64, EngineError> {
        self.read_applied(partition, options).map(|[index, _]| index)
    }

    pub(super) fn state(&self, partition: u32) -> &PartitionState {
        &self.partitions[partition as usize]
    }

    /// How a record is read that somebody asks for.
    #[inline]
    pub(super) fn read_options(&self) -> &ReadOptions {
        if is_caches_only() { &self.read_caches } else { &self.read }
    }

    /// As [`Self::read_options`], for several records in order.
    pub(super) fn iterator_options() -> ReadOptions {
        let mut options = ReadOptions::default();
        if is_caches_only() {
            options.set_read_tier(ReadTier::BlockCache);
        }
        options
    }

    fn int_property(&self, name: &properties::PropName) -> u64 {
        self.store.db.property_int_value_cf(&self.column_family, name).ok().flatten().unwrap_or(0)
    }

    pub(super) fn damaged_key() -> EngineError {
        EngineError::Corruption("a key in RocksDB is not a record key".into())
    }

    fn replace_by(&self, partition: u32, path: &Path, index: u64) -> Result<(), EngineError> {
        let second_name = SecondName::of(path)
            .inspect_err(|error| {
                let path = path.display();
                tracing::warn!(%path, %error, "writes wait while a snapshot is copied: its file cannot be linked");
            })
            .ok();
        // An ingested file may not overlap unflushed data. RocksDB would flush that itself while all writers wait; after this
        // there is little left of it.
        self.flush()?;
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(second_name.is_some());
        let file = second_name.as_ref().map_or(path, SecondName::path);
        let writers_wait = self.store.manifest.write();
        self.store.db.ingest_external_file_cf_opts(&self.column_family, &options, vec![file])?;
        drop(writers_wait);
        let _manifest = self.store.manifest.read();
        // The file came with the index that it stands for, and the term of that entry as whoever wrote it knew it.
        let [of_file, term] = self.read_applied(partition, &self.read)?;
        let term = if of_file == index { term } else { 0 };
        let mut batch = WriteBatch::default();
        batch.put_cf(&self.column_family, applied_index_key(partition), two_words([index, term]));
        // A node of the version before may have written it.
        move_former_seal(&self.store.db, &self.column_family, partition, &mut batch)?;
        self.store.db.write_opt(batch, &self.write)?;
        let flag = self.read_sort_keys_flag(partition)?;
        let state = self.state(partition);
        state.may_hold_sort_keys.store(flag, Ordering::Relaxed);
        self.expiries(partition).set(self.read_expiries(partition, &self.read)?.unwrap_or_default());
        state.applied.store(index, Ordering::Release);
        Ok(())
    }

    fn write_checkpoint(&self, partition: u32, path: &Path) -> Result<u64, EngineError> {
        let snapshot = self.store.db.snapshot();
        let mut options = ReadOptions::default();
        options.set_snapshot(&snapshot);
        let [index, term] = self.read_applied(partition, &options)?;
        let table_options = self.store.config.table_options(&self.store.cache, keys::PREFIX_LEN, &Arc::default())?;
        let mut file = SstFileWriter::create(&table_options);
        file.open(path)?;
        // Keys must be written in order: the partition's meta key comes before its data keys.
        file.put(applied_index_key(partition), two_words([index, term]))?;
        if self.may_hold_sort_keys(partition) {
            file.put(sort_keys_flag_key(partition), b"")?;
        } else {
            file.delete(sort_keys_flag_key(partition))?;
        }
        match self.read_expiries(partition, &options)? {
            Some(expiries) => file.put(expiries_key(partition), two_words(expiries))?,
            None => file.delete(expiries_key(partition))?,
        }
        // What was there before goes with the same step: a crash finds all of the old or all of the new.
        let records = [hash_position(partition, 0).to_vec(), partition_end(partition)];
        let spaces = [spaces_begin(partition), spaces_end(partition)];
        for [begin, end] in [&records, &spaces] {
            file.delete_range(begin.clone(), end.clone())?;
        }
        for [begin, end] in [records, spaces] {
            let mut options = ReadOptions::default();
            options.set_snapshot(&snapshot);
            options.set_total_order_seek(true);
            options.fill_cache(false);
            options.set_iterate_upper_bound(end);
            let mut iterator = self.store.db.raw_iterator_cf_opt(&self.column_family, options);
            iterator.seek(begin);
            while let Some((key, value)) = iterator.item() {
                file.put(key, value)?;
                iterator.next();
            }
            iterator.status()?;
        }
        file.finish()?;
        std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(EngineError::io(path))?;
        Ok(index)
    }

    pub(super) fn flush(&self) -> Result<(), EngineError> {
        let mut options = FlushOptions::default();
        options.set_wait(true);
        Ok(self.store.db.flush_cf_opt(&self.column_family, &options)?)
    }
}

/// Two words as they are stored, in the low half and the high one.
pub(super) fn two_words([low, high]: [u64; 2]) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

/// `None` if these are not [two words](two_words).
fn read_two_words(stored: &[u8]) -> Option<[u64; 2]> {
    let words = u128::from_le_bytes(stored.try_into().ok()?);
    Some([words as u64, (words >> 64) as u64])
}

impl Engine for RocksEngine {
    fn get(&self, partition: u32, key: &RecordKey<'_>, visit: &mut dyn FnMut(&[u8])) -> Result<bool, EngineError> {
        let found = match self.look(partition, key) {
            Found::Records(records) => Ok(records.value_of(key).flatten().map(visit).is_some()),
            Found::Nothing(reservation) => {
                let mut reservation = Some(reservation);
                self.read_record(partition, key, &mut |value| {
                    reservation.take().into_iter().for_each(|reservation| reservation.fill_with_one(key, value));
                    visit(value);
                })
            }
            Found::Taken => self.read_record(partition, key, visit),
        };
        self.noting(partition, found)
    }

    fn multi_get(
        &self,
        reads: &[(u32, RecordKey<'_>)],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), EngineError> {
        if let [(partition, key)] = reads {
            let found = self.get(*partition, key, &mut |value| visit(0, Some(value)))?;
            if !found {
                visit(0, None);
            }
            return Ok(());
        }
        if is_caches_only() {
            return self.multi_get_from_caches(reads, visit);
        }
        let found: Vec<_> = reads.iter().map(|(partition, key)| self.look(*partition, key)).collect();
        let mut read = self.read_unknown(reads, &found).into_iter();
        for (at, ((partition, key), found)) in reads.iter().zip(found).enumerate() {
            let reservation = match found {
                Found::Records(records) => {
                    visit(at, records.value_of(key).flatten());
                    continue;
                }
                Found::Nothing(reservation) => Some(reservation),
                Found::Taken => None,
            };
            let value = self.noting(*partition, read.next().transpose().map_err(EngineError::from))?.flatten();
            if let (Some(value), Some(reservation)) = (&value, reservation) {
                reservation.fill_with_one(key, value);
            }
            visit(at, value.as_deref());
        }
        Ok(())
    }

    fn scan_hash_key(
        &self,
        partition: u32,
        key: &RecordKey<'_>,
        range: SortKeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<(), EngineError> {
        let place = self.place(partition, key.hash());
        let is_whole = range == (Bound::Unbounded, Bound::Unbounded) && order == Order::Ascending;
        let found = match &self.store.records {
            Some(cache) if is_whole => cache.get_all_or_reserve(place, key.hash_key),
            Some(cache) => cache.get(place, key.hash_key).map_or(Found::Taken, Found::Records),
            None => Found::Taken,
        };
        match found {
            Found::Records(records) if records.visit(range, order, visit) => Ok(()),
            Found::Records(_) => self.read_records(partition, key, range, order, visit),
            Found::Nothing(reservation) => {
                let mut kept = Some(Records::of(key.hash_key, true));
                self.read_records(partition, key, range, order, &mut |sort_key, value| {
                    let visited = visit(sort_key, value);
                    if visited == Visit::NextHashKey || !kept.as_mut().is_some_and(|kept| kept.add(sort_key, value)) {
                        kept = None;
                    }
                    visited
                })?;
                if let Some(records) = kept.filter(|records| records.iter().next().is_some()) {
                    reservation.fill(records);
                }
                Ok(())
            }
            Found::Taken => self.read_records(partition, key, range, order, visit),
        }
    }

    fn scan(
        &self,
        partition: u32,
        from: &Position,
        mut limit: PageLimit,
        visit: &mut dyn FnMut(RecordKey<'_>, &[u8]) -> Visit,
    ) -> Result<Option<Position>, EngineError> {
        let mut options = Self::iterator_options();
        options.set_total_order_seek(true);
        options.set_iterate_upper_bound(partition_end(partition));
        let mut iterator = self.store.db.raw_iterator_cf_opt(&self.column_family, options);
        iterator.seek(slice_position(partition, &from.key().to_ordered_bytes()));
        // The hash of the last record of the page, once it is full.
        let mut full = None;
        while let Some((stored, value)) = iterator.item() {
            let record = self.noting(partition, read_record_key(partition, stored).ok_or_else(Self::damaged_key))?;
            if let Some(last) = full {
                return Ok(Some(Position::after(last, &record)));
            }
            if !limit.take(&record, value) {
                full = Some(record.hash());
            }
            match visit(record, value) {
                Visit::NextHashKey if !record.hash_key.is_empty() => {
                    let end = successor(&stored[..stored.len() - record.sort_key.len()]);
                    iterator.seek(end);
                }
                _ => iterator.next(),
            }
        }
        self.noting(partition, iterator.status().map_err(EngineError::from))?;
        Ok(None)
    }

    fn get_in(
        &self,
        partition: u32,
        space: Space,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, EngineError> {
        self.noting(partition, self.read_in(partition, space, key, visit))
    }

    fn multi_get_in(
        &self,
        partition: u32,
        space: Space,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), EngineError> {
        self.noting(partition, self.read_many_in(partition, space, keys, visit))
    }

    fn scan_space(
        &self,
        partition: u32,
        space: Space,
        range: KeyRange<'_>,
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        self.noting(partition, self.visit_space(partition, space, range, order, visit))
    }

    fn scan_ranges(
        &self,
        partition: u32,
        space: Space,
        ranges: &[KeyRange<'_>],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        self.noting(partition, self.visit_ranges(partition, space, ranges, visit))
    }

    fn visit_sizes(
        &self,
        partition: u32,
        space: Option<Space>,
        most_skipped: u64,
        visit: &mut dyn FnMut(usize) -> Option<Visit>,
    ) -> Result<(), EngineError> {
        self.noting(partition, self.visit_sizes_in(partition, space, most_skipped, visit))
    }

    fn next_space(&self, partition: u32, from: Space) -> Result<Option<Space>, EngineError> {
        self.noting(partition, self.first_space(partition, from))
    }

    fn write(&self, applied: &[Applied<'_>]) -> Result<(), EngineError> {
        let _manifest = self.store.manifest.read();
        self.write_with(applied, &self.write)
    }

    fn try_write(&self, applied: &[Applied<'_>]) -> Result<bool, EngineError> {
        let Some(_manifest) = self.store.manifest.try_read() else { return Ok(false) };
        match self.write_with(applied, &self.try_write) {
            Err(EngineError::WouldWait) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    fn may_hold_sort_keys(&self, partition: u32) -> bool {
        self.state(partition).may_hold_sort_keys.load(Ordering::Relaxed)
    }

    fn applied_index(&self, partition: u32) -> u64 {
        self.state(partition).applied.load(Ordering::Acquire)
    }

    fn applied_term(&self, partition: u32) -> Result<Option<u64>, EngineError> {
        let [_, term] = self.unless_damaged(partition, self.read_applied(partition, &self.read), [0, 0])?;
        Ok(Some(term).filter(|term| *term > 0))
    }

    fn durable_index(&self, partition: u32) -> Result<u64, EngineError> {
        let mut options = ReadOptions::default();
        options.set_read_tier(ReadTier::Persisted);
        self.noting(partition, self.read_index(partition, &options))
    }

    fn make_durable(&self, _partition: u32, log_synced: &dyn Fn() -> Result<(), String>) -> Result<(), EngineError> {
        // One memtable holds all partitions of the table, so this makes all of them durable.
        log_synced().map_err(EngineError::LogNotSynced)?;
        self.flush()
    }

    fn checkpoint(&self, partition: u32, path: &Path) -> Result<u64, EngineError> {
        self.noting(partition, self.write_checkpoint(partition, path))
    }

    fn restore(&self, partition: u32, path: &Path, index: u64) -> Result<(), EngineError> {
        self.replace_records(partition);
        let outcome = self.replace_by(partition, path, index);
        self.replace_records(partition);
        if outcome.is_ok() {
            self.damage.lock().replaced(partition);
        }
        outcome
    }

    fn digest(&self, partition: u32, slice: &Slice) -> Digest {
        self.begin_digest(partition, slice.clone())
    }

    fn spare_bytes(&self) -> Option<u64> {
        None
    }

    fn time(&self, partition: u32) -> UnixMillis {
        self.expiries(partition).time()
    }

    fn next_expiry(&self, partition: u32) -> Option<UnixMillis> {
        self.expiries(partition).next()
    }

    fn remove_expired(&self, _partition: u32) -> usize {
        // Compactions do it.
        0
    }

    fn apply_settings(&self, settings: &TableSettings) -> Result<(), EngineError> {
        self.set_scenario(settings.usage_scenario)
    }

    fn compact(&self, on_progress: &dyn Fn(f64)) -> Result<(), EngineError> {
        self.flush()?;
        // RocksDB does not tell how far it is, so it gets the partitions a few at a time: as many as are large enough that
        // files which lie across the border, and are merged twice, do not matter.
        let partitions = 0..u32::try_from(self.partitions.len()).expect("a table has few partitions");
        let total = partitions.end;
        let (mut first, mut bytes) = (0, 0);
        for partition in partitions {
            bytes += self.partition_bytes(partition);
            if bytes >= COMPACTED_AT_ONCE || partition + 1 == total {
                let begin = (first > 0).then(|| hash_position(first, 0).to_vec());
                let end = (partition + 1 < total).then(|| partition_end(partition));
                self.store.db.compact_range_cf(&self.column_family, begin, end);
                on_progress(f64::from(partition + 1) / f64::from(total));
                (first, bytes) = (partition + 1, 0);
            }
        }
        // RocksDB does not tell what it met.
        self.known_damage().map_or(Ok(()), |reason| Err(EngineError::Corruption(reason)))
    }

    fn look_after_damage(&self) -> Result<Vec<Damaged>, EngineError> {
        self.look_after_damaged_files()
    }

    fn is_damaged(&self, partition: u32) -> bool {
        self.is_damaged_in(partition)
    }

    fn discard(&self, partition: u32) -> Result<(), EngineError> {
        self.discard_records(partition)
    }

    fn is_known_to_be_empty(&self, partition: u32) -> bool {
        self.state(partition).is_empty.load(Ordering::Relaxed)
    }

    fn share_up_to(&self, partition: u32, space: Space, key: &[u8]) -> Result<f64, EngineError> {
        self.share_of_space(partition, space, key)
    }

    fn give_back(&self) -> Result<bool, EngineError> {
        self.drop_files()
    }

    fn partition_bytes(&self, partition: u32) -> u64 {
        let records = [hash_position(partition, 0).to_vec(), partition_end(partition)];
        let spaces = [spaces_begin(partition), spaces_end(partition)];
        let ranges = [&records, &spaces].map(|[begin, end]| rocksdb::Range::new(begin, end));
        self.store.db.get_approximate_sizes_cf(&self.column_family, &ranges).iter().sum()
    }

    fn statistics(&self) -> EngineStatistics {
        let table = self.store.db.property_value_cf(&self.column_family, properties::CFSTATS_NO_FILE_HISTOGRAM);
        let (memory_bytes, disk_bytes) = self.sizes();
        EngineStatistics {
            records: self.int_property(properties::ESTIMATE_NUM_KEYS),
            records_are_estimated: true,
            hash_keys: None,
            memory_bytes,
            disk_bytes,
            expired_removed: 0,
            evicted: 0,
            pending_compaction_bytes: self.int_property(properties::ESTIMATE_PENDING_COMPACTION_BYTES),
            levels: table.ok().flatten().map(|text| level_table::parse(&text)).unwrap_or_default(),
        }
    }

    fn sizes(&self) -> (u64, u64) {
        let memory = self.int_property(properties::CUR_SIZE_ALL_MEM_TABLES);
        (memory, self.int_property(properties::TOTAL_SST_FILES_SIZE))
    }
}
