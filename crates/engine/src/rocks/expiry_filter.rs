//! Drops expired records as compactions pass over them.
//!
//! A factory rather than a plain filter: RocksDB shares ownership of a factory, while a plain filter must outlive every
//! column family that uses it, which the crate does not see to for column families created later.

use rocksdb::CompactionDecision;
use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use std::ffi::CStr;
use tessera_types::{StoredValue, UnixMillis};

pub(super) struct ExpiryFilterFactory;

/// One compaction's filter: records that had ended when it began go.
pub(super) struct ExpiryFilter {
    began: UnixMillis,
}

impl CompactionFilterFactory for ExpiryFilterFactory {
    type Filter = ExpiryFilter;

    fn create(&mut self, _context: CompactionFilterContext) -> ExpiryFilter {
        ExpiryFilter { began: UnixMillis::now() }
    }

    fn name(&self) -> &CStr {
        c"tessera.expiry"
    }
}

impl CompactionFilter for ExpiryFilter {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        let is_record = key.first() == Some(&super::keys::DATA);
        let ended = is_record && StoredValue::decode(value).is_some_and(|stored| !stored.is_live(self.began));
        if ended { CompactionDecision::Remove } else { CompactionDecision::Keep }
    }

    fn name(&self) -> &CStr {
        c"tessera.expiry"
    }
}
