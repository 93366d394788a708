//! The storeys of the house, as ARCHITECTURE.md draws them: a crate uses crates below it only.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Each crate with those it may use.
const LAYERS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("engine", &["types"]),
    ("document", &[]),
    ("reql", &["document"]),
    ("transport", &["types"]),
    ("consensus", &["types"]),
    ("cluster", &["types", "consensus"]),
    ("store", &["types", "engine", "transport", "consensus", "cluster"]),
    ("face", &[]),
    ("redis", &["types", "store", "face"]),
    ("pegasus", &["types", "store", "face"]),
    ("admin", &["types", "store"]),
    ("bench", &["types"]),
    ("tessera", &["types", "engine", "store", "face", "redis", "pegasus", "admin", "bench"]),
];

/// Libraries that one crate alone may name.
const CONFINED: &[(&str, &str)] = &[
    ("rocksdb", "engine"),
    ("raft", "consensus"),
    ("axum", "admin"),
    ("thrift", "pegasus"),
    ("clap", "bench tessera"),
];

fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let table: toml::Table = text.parse().unwrap();
    table["dependencies"].as_table().unwrap().keys().cloned().collect()
}

#[test]
fn crates_use_those_below_them() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        found.insert(path.file_name().unwrap().to_str().unwrap().to_string(), dependencies(&path.join("Cargo.toml")));
    }
    let named: BTreeSet<_> = LAYERS.iter().map(|(name, _)| (*name).to_string()).collect();
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), named, "crates, and layers in this test");
    for (name, allowed) in LAYERS {
        let own = found[*name].iter().filter_map(|dependency| dependency.strip_prefix("tessera-"));
        for used in own {
            assert!(allowed.contains(&used), "{name} may not use {used}");
        }
        for (library, owners) in CONFINED {
            let is_owner = owners.split(' ').any(|owner| owner == *name);
            assert!(is_owner || !found[*name].contains(*library), "only {owners} may name {library}, {name} does");
        }
    }
}
