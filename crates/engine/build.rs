//! Compiles what is in C++, with the flags that the RocksDB archive was compiled with (`scripts/rocksdb-archive`).

use std::path::Path;

const SOURCES: [&str; 3] =
    ["src/rocks/memtable/radix_skip_list.cc", "src/rocks/damage/damage.cc", "src/rocks/dropping/dropping.cc"];

fn main() {
    if std::env::var_os("CARGO_FEATURE_ROCKSDB").is_some() {
        compile();
    }
}

fn compile() {
    let flags = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/rocksdb-flags");
    SOURCES.iter().for_each(|source| println!("cargo::rerun-if-changed={source}"));
    println!("cargo::rerun-if-changed={}", flags.display());
    let flags = std::fs::read_to_string(&flags)
        .unwrap_or_else(|error| panic!("{}: {error}; `make deps` writes it", flags.display()));
    let mut build = cc::Build::new();
    build.cpp(true).files(SOURCES).flags(flags.lines());
    build.compile("tessera_rocksdb");
}
