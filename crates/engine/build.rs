//! Compiles the memtable, with the flags that the RocksDB archive was compiled with (`scripts/rocksdb-archive`).

use std::path::Path;

const SOURCE: &str = "src/rocks/memtable/radix_skip_list.cc";

fn main() {
    let flags = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/rocksdb-flags");
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed={}", flags.display());
    let flags = std::fs::read_to_string(&flags)
        .unwrap_or_else(|error| panic!("{}: {error}; `make deps` writes it", flags.display()));
    let mut build = cc::Build::new();
    build.cpp(true).file(SOURCE).flags(flags.lines());
    build.compile("tessera_memtable");
}
