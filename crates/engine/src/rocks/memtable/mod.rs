//! The memtable of tables: skip lists in the leaves of a radix tree, found by a key's first bytes. In C++, as RocksDB's interface
//! for memtables is.

use rocksdb::{Error, Options};
use std::sync::Once;

/// As `radix_skip_list.cc` registers it.
const NAME: &str = "tessera.RadixSkipList";

unsafe extern "C" {
    safe fn tessera_register_radix_skip_list();
}

/// RocksDB's default options, but for the memtable.
pub(super) fn options() -> Result<Options, Error> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| tessera_register_radix_skip_list());
    Options::default().get_options_from_string(format!("memtable_factory={NAME}"))
}

#[cfg(test)]
mod tests;
