use super::damage::Reports;
use super::expiry_filter::TableExpiries;
use super::keys::PREFIX_LEN;
use super::record_cache::RecordCache;
use crate::{EngineError, RocksConfig, RocksStatistics};
use parking_lot::{Mutex, RwLock};
use rocksdb::statistics::Ticker;
use rocksdb::{Cache, ColumnFamilyDescriptor, DB, DEFAULT_COLUMN_FAMILY_NAME, Options, WriteBufferManager};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The node's RocksDB instance.
pub struct RocksStore {
    pub(super) db: DB,
    pub(super) config: RocksConfig,
    /// Kept for its statistics and for tables created later.
    pub(super) options: Options,
    pub(super) cache: Cache,
    pub(super) records: Option<RecordCache>,
    /// What the compactions of each column family go by.
    expiries: Mutex<HashMap<String, Arc<TableExpiries>>>,
    /// Writers of records hold it for reading. What makes RocksDB write its manifest holds it for writing, since RocksDB lets no
    /// writer through until the manifest is on disk: who may not wait finds that out here.
    pub(super) manifest: RwLock<()>,
    /// Files that were found to be damaged.
    pub(super) reports: Arc<Reports>,
    /// The names of the tables that there were.
    pub(super) opened_with: Vec<String>,
    _write_buffers: WriteBufferManager,
}

impl RocksStore {
    /// Opens the instance in `directory`, with all column families that it has, creating it if there is none.
    ///
    /// # Errors
    /// If the directory is in use by another process, or its files are damaged or of a later version.
    pub fn open(directory: &Path, config: RocksConfig) -> Result<Arc<Self>, EngineError> {
        let mut cache_options = rocksdb::LruCacheOptions::default();
        cache_options.set_capacity(config.block_cache_bytes);
        cache_options.set_num_shard_bits(config.block_cache_shard_bits);
        let cache = Cache::new_lru_cache_opts(&cache_options);
        let write_buffers =
            WriteBufferManager::new_write_buffer_manager(config.total_write_buffer_bytes, /* allow_stall */ false);
        let reports = Reports::new();
        let mut options = config.database_options(reports.options()?);
        options.set_write_buffer_manager(&write_buffers);
        let tables = if directory.join("CURRENT").exists() { DB::list_cf(&options, directory)? } else { Vec::new() };
        let opened_with = tables.clone();
        let mut expiries: HashMap<String, Arc<TableExpiries>> = HashMap::new();
        let tables = tables
            .into_iter()
            .map(|name| {
                let options = config.table_options(&cache, PREFIX_LEN, expiries.entry(name.clone()).or_default())?;
                Ok(ColumnFamilyDescriptor::new(name, options))
            })
            .collect::<Result<Vec<_>, EngineError>>()?;
        let db = DB::open_cf_descriptors(&options, directory, tables)?;
        let records = RecordCache::of_bytes(config.record_cache_bytes);
        let (expiries, manifest) = (Mutex::new(expiries), RwLock::default());
        Ok(Arc::new(Self {
            db,
            config,
            options,
            cache,
            records,
            expiries,
            manifest,
            reports,
            opened_with,
            _write_buffers: write_buffers,
        }))
    }

    /// Creates the column family of that name, if there is none, and returns what its compactions go by.
    pub(super) fn create_table(&self, name: &str) -> Result<Arc<TableExpiries>, EngineError> {
        let expiries = self.expiries.lock().entry(name.to_string()).or_default().clone();
        if self.db.cf_handle(name).is_none() {
            let options = self.config.table_options(&self.cache, PREFIX_LEN, &expiries)?;
            let _writers_wait = self.manifest.write();
            self.db.create_cf(name, &options)?;
        }
        Ok(expiries)
    }

    /// Deletes a table's files. No engine that was [opened](Self::open_table) by that name may be used any more.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        if self.db.cf_handle(name).is_some() {
            let _writers_wait = self.manifest.write();
            self.db.drop_cf(name)?;
        }
        self.expiries.lock().remove(name);
        Ok(())
    }

    /// Deletes the files of tables that this instance was opened with, but those named.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub fn drop_tables_but(&self, kept: impl Iterator<Item = String>) -> Result<(), EngineError> {
        let kept: Vec<String> = kept.collect();
        let is_unknown = |name: &&String| *name != DEFAULT_COLUMN_FAMILY_NAME && !kept.contains(name);
        self.opened_with.iter().filter(is_unknown).try_for_each(|name| self.drop_table(name))
    }

    /// What the instance tells about all tables together.
    pub fn statistics(&self) -> RocksStatistics {
        let (options, records) = (&self.options, self.records.as_ref());
        RocksStatistics {
            block_cache_hits: options.get_ticker_count(Ticker::BlockCacheHit),
            block_cache_misses: options.get_ticker_count(Ticker::BlockCacheMiss),
            block_cache_bytes: self.cache.get_usage() as u64,
            record_cache_hits: records.map_or(0, RecordCache::hits),
            record_cache_misses: records.map_or(0, RecordCache::misses),
            record_cache_bytes: records.map_or(0, RecordCache::bytes),
            stall_micros: options.get_ticker_count(Ticker::StallMicros),
        }
    }

    /// Stops background work, so that the process can end at once.
    pub fn shut_down(&self) {
        self.db.cancel_all_background_work(true);
    }
}
