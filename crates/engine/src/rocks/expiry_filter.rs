//! Drops records that had expired by their partition's time as compactions pass over them.
//!
//! A factory rather than a plain filter: RocksDB shares ownership of a factory, while a plain filter must outlive every
//! column family that uses it, which the crate does not see to for column families created later. The factory of a column
//! family is made before its table is opened; until then nothing is dropped.

use super::keys::partition_of_record;
use crate::expiries::Expiries;
use rocksdb::CompactionDecision;
use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use std::ffi::CStr;
use std::sync::{Arc, OnceLock};
use tessera_types::StoredValue;

/// The expiries of an open table's partitions.
pub(super) type TableExpiries = OnceLock<Box<[Expiries]>>;

pub(super) struct ExpiryFilterFactory(pub(super) Arc<TableExpiries>);

pub(super) struct ExpiryFilter(Arc<TableExpiries>);

impl CompactionFilterFactory for ExpiryFilterFactory {
    type Filter = ExpiryFilter;

    fn create(&mut self, _context: CompactionFilterContext) -> ExpiryFilter {
        ExpiryFilter(self.0.clone())
    }

    fn name(&self) -> &CStr {
        c"tessera.expiry"
    }
}

impl CompactionFilter for ExpiryFilter {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        let expiries = || self.0.get()?.get(partition_of_record(key)?);
        let has_expired = StoredValue::decode(value).is_some_and(|stored| {
            stored.expiry.earliest().is_some() && expiries().is_some_and(|expiries| expiries.has_expired(&stored))
        });
        if has_expired { CompactionDecision::Remove } else { CompactionDecision::Keep }
    }

    fn name(&self) -> &CStr {
        c"tessera.expiry"
    }
}
