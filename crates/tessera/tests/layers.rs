//! The storeys of the house, as ARCHITECTURE.md draws them: a crate uses crates below it only.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate with those it may use.
const LAYERS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("engine", &["types"]),
    ("document", &[]),
    ("geo", &[]),
    ("reql", &["types", "document", "geo"]),
    ("oracle", &["document", "reql"]),
    ("transport", &["types"]),
    ("consensus", &["types"]),
    ("cluster", &["types", "consensus"]),
    ("transaction", &["types"]),
    ("store", &["types", "engine", "transport", "consensus", "cluster", "transaction"]),
    ("node", &["types", "engine", "transport", "consensus", "cluster", "transaction", "store"]),
    ("access", &["types"]),
    ("face", &["transport"]),
    ("fetch", &[]),
    ("javascript", &["document", "reql"]),
    ("redis", &["types", "engine", "cluster", "store", "access", "face"]),
    ("pegasus", &["types", "engine", "cluster", "store", "face"]),
    (
        "reql-wire",
        &["types", "document", "reql", "engine", "cluster", "store", "access", "face", "fetch", "javascript"],
    ),
    ("admin", &["types", "engine", "consensus", "cluster", "store", "node", "access", "face"]),
    ("bench", &["types"]),
    (
        "tessera",
        &[
            "types",
            "engine",
            "transport",
            "cluster",
            "store",
            "node",
            "access",
            "face",
            "javascript",
            "redis",
            "pegasus",
            "reql-wire",
            "admin",
            "bench",
            "oracle",
        ],
    ),
];

/// What tests of a crate use besides.
const TESTED_WITH: &[(&str, &str)] =
    &[("redis", "node"), ("consensus", "transaction"), ("oracle", "javascript"), ("oracle", "types")];

/// Libraries that one crate alone may name.
const CONFINED: &[(&str, &str)] = &[
    ("rocksdb", "engine"),
    ("raft", "consensus"),
    ("axum", "admin"),
    ("geographiclib-rs", "geo"),
    ("s2", "geo"),
    ("thrift", "pegasus"),
    ("argon2", "access"),
    ("rustls", "bench face tessera"),
    ("tokio-rustls", "face"),
    ("ureq", "fetch tessera"),
    ("rquickjs", "javascript"),
    ("clap", "bench tessera"),
    ("stateright", "transaction"),
];

/// What the fuzz targets may use beside the layers.
const FUZZED: &[&str] = &["consensus", "document", "engine", "geo", "pegasus", "redis", "reql", "reql-wire"];

/// Words that are in no code of a crate: the column "must not know" of ARCHITECTURE.md, as far as a search can tell.
const UNKNOWN: &[(&str, &[&str])] = &[
    ("types", &["tokio", "async fn", "std::fs", "TcpStream"]),
    ("engine", &["NodeId", "ReplicaId", "RESP", "Pegasus", "TcpStream"]),
    ("document", &["Partition", "TcpStream", "tokio"]),
    ("geo", &["Value", "Document", "TcpStream", "tokio"]),
    ("reql", &["TcpStream", "tokio", "NodeId", "RecordKey", "Partition"]),
    ("oracle", &["TcpStream", "tokio"]),
    ("transport", &["TableId", "RecordKey", "Partition", "GroupId"]),
    ("consensus", &["TableId", "TableSchema", "RecordKey", "StoredValue"]),
    ("cluster", &["TcpStream", "RESP", "thrift"]),
    ("transaction", &["tokio", "async fn", "std::fs", "TcpStream", "SystemTime", "StoredValue"]),
    ("store", &["RESP", "Redis", "Pegasus", "Reql", "thrift", "axum", "TcpStream"]),
    ("node", &["RESP", "Redis", "Pegasus", "Reql", "thrift", "axum", "TcpStream"]),
    ("redis", &["store::hosting"]),
    ("pegasus", &["store::hosting"]),
    ("reql-wire", &["store::hosting"]),
    ("admin", &["store::hosting"]),
    ("access", &["RESP", "Redis", "Pegasus", "Reql", "thrift", "TcpStream"]),
    ("face", &["RESP", "Redis", "Pegasus", "Reql", "thrift"]),
    ("javascript", &["RESP", "Redis", "Pegasus", "thrift", "tokio", "TcpStream", "NodeId"]),
    ("fetch", &["RESP", "Redis", "Pegasus", "Reql", "thrift", "tokio"]),
];

/// Of all kinds: tests and build scripts keep to the layers too.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let of_kind = |kind: &&str| table.get(*kind).and_then(toml::Value::as_table);
    kinds.iter().filter_map(of_kind).flat_map(|kind| kind.keys().cloned()).collect()
}

/// Whether a crate uses another one outside of its tests.
fn is_built_with(crates: &Path, name: &str, used: &str) -> bool {
    let table: toml::Table = fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap().parse().unwrap();
    let built = table.get("dependencies").and_then(toml::Value::as_table).unwrap();
    built.contains_key(&format!("tessera-{used}"))
}

/// Libraries whose name in the code is not that of their package.
const RENAMED: &[(&str, &str)] = &[("rustls-webpki", "webpki")];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
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
            let is_for_tests = TESTED_WITH.contains(&(*name, used)) && !is_built_with(crates, name, used);
            assert!(allowed.contains(&used) || is_for_tests, "{name} may not use {used}");
        }
        for (library, owners) in CONFINED {
            let is_owner = owners.split(' ').any(|owner| owner == *name);
            assert!(is_owner || !found[*name].contains(*library), "only {owners} may name {library}, {name} does");
        }
    }
}

#[test]
fn the_fuzz_targets_use_what_they_fuzz() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/Cargo.toml");
    let used = dependencies(&manifest);
    let used: Vec<_> = used.iter().filter_map(|dependency| dependency.strip_prefix("tessera-")).collect();
    assert_eq!(used, FUZZED);
}

#[test]
fn crates_do_not_know_what_is_above_them() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (name, words) in UNKNOWN {
        let mut files = Vec::new();
        sources(&crates.join(name).join("src"), &mut files);
        assert!(!files.is_empty(), "{name} has sources");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//")) {
                let known = words.iter().find(|word| line.contains(**word));
                assert_eq!(known, None, "{}:{number}: {name} must not know this: {line}", file.display());
            }
        }
    }
}

/// A dependency that is named nowhere is built for nothing, and has to be looked after all the same.
#[test]
fn dependencies_are_used() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let code = |name: &str, folders: &[&str]| {
        let mut files = Vec::new();
        let folders = folders.iter().map(|folder| crates.join(name).join(folder));
        folders.filter(|folder| folder.is_dir()).for_each(|folder| sources(&folder, &mut files));
        let lines = |file| fs::read_to_string(file).unwrap().lines().map(String::from).collect::<Vec<_>>();
        let lines = files.into_iter().flat_map(lines).filter(|line| !line.trim_start().starts_with("//"));
        let is_sign = |sign: char| !sign.is_alphanumeric() && sign != '_';
        lines.flat_map(|line| line.split(is_sign).map(String::from).collect::<Vec<_>>()).collect::<BTreeSet<_>>()
    };
    let (mut of_workspace, mut unused) = (BTreeSet::new(), Vec::new());
    for (name, _) in LAYERS {
        let manifest = fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let build = fs::read_to_string(crates.join(name).join("build.rs")).unwrap_or_default();
        for (kind, folders) in [
            ("dependencies", &["src"][..]),
            ("dev-dependencies", &["src", "tests", "benches"]),
            ("build-dependencies", &[]),
        ] {
            let (words, own) = (code(name, folders), manifest.get(kind).and_then(toml::Value::as_table));
            for dependency in own.into_iter().flat_map(toml::Table::keys) {
                of_workspace.insert(dependency.clone());
                let renamed = RENAMED.iter().find(|(package, _)| package == dependency);
                let word = renamed.map_or_else(|| dependency.replace('-', "_"), |(_, library)| (*library).to_string());
                if !(words.contains(&word) || kind == "build-dependencies" && build.contains(&word)) {
                    unused.push(format!("{name}: {dependency}"));
                }
            }
        }
    }
    assert!(unused.is_empty(), "dependencies that are named in no code: {unused:?}");
    let root = fs::read_to_string(crates.join("../Cargo.toml")).unwrap();
    let root: toml::Table = root.parse().unwrap();
    of_workspace.extend(dependencies(&crates.join("../fuzz/Cargo.toml")));
    let listed = root["workspace"]["dependencies"].as_table().unwrap().keys();
    let nobodys: Vec<_> = listed.filter(|dependency| !of_workspace.contains(*dependency)).collect();
    assert!(nobodys.is_empty(), "the workspace lists dependencies that no crate has: {nobodys:?}");
}
