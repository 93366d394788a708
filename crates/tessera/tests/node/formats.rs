//! Data directories of earlier formats, and of this one, which stand beside this file: each as `scripts/format-fixture` made it with
//! the version that wrote the format. A node was killed there while two tables were being split.

use crate::resp_client::{Client, Value};
use crate::server::{Node, free_port, wait_for};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// What this version writes.
const CURRENT: u32 = 6;
/// Those of which there is a fixture.
const FORMATS: [u32; 3] = [4, 5, 6];
const TABLES: [&str; 6] =
    ["memory_hard", "memory_soft", "rocksdb_hard", "rocksdb_soft", "split_memory", "split_rocksdb"];
/// 2100-01-01, when the keys of the fixture expire, in seconds.
const FAR: i64 = 4_102_444_800;

fn unpack(format: u32, parent: &Path) -> PathBuf {
    let root = parent.join("data");
    std::fs::create_dir(&root).unwrap();
    let packed = format!("{}/tests/node/formats/format-{format}.tar.gz", env!("CARGO_MANIFEST_DIR"));
    assert!(Command::new("tar").args(["-xzf", &packed, "-C"]).arg(&root).status().unwrap().success());
    root
}

fn bulk(text: impl ToString) -> Value {
    Value::Bulk(text.to_string().into_bytes())
}

/// Whether a table has exactly what was written to it.
fn check(client: &mut Client, table: &str) {
    assert_eq!(client.run(&format!("TABLE {table}")), Value::Simple("OK".into()));
    for number in 0..60 {
        let is_even = number % 2 == 0;
        let value = bulk(format!("value:{number}"));
        let kept = if is_even { Value::Null } else { value.clone() };
        assert_eq!(client.run(&format!("GET string:{number}")), kept, "{table} {number}");
        assert_eq!(client.run(&format!("GET expiring:{number}")), value, "{table} {number}");
        assert_eq!(client.run(&format!("EXPIRETIME expiring:{number}")), Value::Integer(FAR));
        assert_eq!(client.run(&format!("EXISTS short:{number}")), Value::Integer(0));
        let hash = format!("hash:{number}");
        let fields = client.call(&["HMGET", &hash, "one", "two", ""].map(|word| word.as_bytes().to_vec())).unwrap();
        let expected = [bulk(number), bulk(number), bulk(format!("empty:{number}"))];
        assert_eq!(fields, Value::Array(expected.to_vec()), "{table} {number}");
        let ends = if is_even { FAR } else { -1 };
        assert_eq!(client.run(&format!("EXPIRETIME {hash}")), Value::Integer(ends), "{table} {number}");
        if !is_even {
            let ends = client.run(&format!("HEXPIRETIME {hash} FIELDS 2 one two"));
            assert_eq!(ends, Value::Array(vec![Value::Integer(FAR + 1), Value::Integer(-1)]), "{table} {number}");
        }
    }
    for number in 0..20 {
        assert_eq!(client.run(&format!("GET later:{number}")), bulk(format!("value:{number}")), "{table}");
    }
    assert_eq!(client.run("HLEN large"), Value::Integer(1_500));
    assert_eq!(client.run("HGET large field:1499"), bulk(1_499));
    let keys = match client.run("KEYS *") {
        Value::Array(keys) => keys.len(),
        other => panic!("{other}"),
    };
    assert_eq!(keys, 30 + 60 + 60 + 20 + 1, "{table}");
}

fn partitions(node: &Node, table: &str) -> u64 {
    let shown = node.cli(&format!("table show {table} --json"));
    serde_json::from_str::<serde_json::Value>(&shown).unwrap()["partitions"].as_u64().unwrap()
}

/// Starts a node that cannot convert the directory to its end, because `obstacle` is in the way of a file that it writes.
fn interrupt(root: &Path, obstacle: &Path) {
    std::fs::create_dir(obstacle).unwrap();
    let mut node = Node::spawn(root, free_port(), free_port(), &[]);
    wait_for("the node ends", Duration::from_secs(60), || node.process.has_ended().then_some(()));
    std::fs::remove_dir(obstacle).unwrap();
}

fn version(root: &Path) -> String {
    std::fs::read_to_string(root.join("VERSION")).unwrap().trim().to_string()
}

/// What the blocks of each segment of the log begin with.
fn kinds_of_blocks(root: &Path) -> Vec<Vec<u8>> {
    segments(root).iter().map(|segment| std::fs::read(segment).unwrap()[..4].to_vec()).collect()
}

fn segments(root: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(root.join("log")).unwrap().map(|file| file.unwrap().path());
    let mut segments: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect();
    segments.sort();
    segments
}

fn start_and_check(root: &Path) -> Node {
    let node = Node::start(root, &[]);
    wait_for("the splits that were under way end", Duration::from_secs(60), || {
        ["split_memory", "split_rocksdb"].iter().all(|table| partitions(&node, table) == 32).then_some(())
    });
    let mut client = node.client();
    TABLES.iter().for_each(|table| check(&mut client, table));
    assert_eq!(version(root), CURRENT.to_string());
    node
}

/// The node ends before it says that it converts, at each segment of the log, before it says that the log is converted,
/// and before it says that the records are.
#[test]
fn a_conversion_of_format_4_that_is_interrupted_goes_on_with_the_next_start() {
    let parent = TempDir::new().unwrap();
    let root = unpack(4, parent.path());
    interrupt(&root, &root.join("VERSION.unfinished"));
    assert_eq!((version(&root).as_str(), kinds_of_blocks(&root)), ("4", vec![b"TSSL".to_vec(); 2]));
    for (position, segment) in segments(&root).iter().enumerate() {
        interrupt(&root, &segment.with_extension("unfinished"));
        let kinds = kinds_of_blocks(&root);
        let (done, left) = kinds.split_at(position);
        assert!(done.iter().all(|kind| kind == b"TSL2") && left.iter().all(|kind| kind == b"TSSL"), "{kinds:?}");
        assert_eq!(version(&root), "4, being converted");
        // What an end in the middle of writing leaves behind.
        std::fs::write(segment.with_extension("unfinished"), b"TSL2").unwrap();
    }
    // All of the log is converted, and the next step is to say so.
    interrupt(&root, &root.join("VERSION.unfinished"));
    let mut node = start_and_check(&root);
    assert!(kinds_of_blocks(&root).iter().all(|kind| kind == b"TSL2"));
    for former in ["4, being converted", "5", "4"] {
        node.process.kill();
        std::fs::write(root.join("VERSION"), former).unwrap();
        node = start_and_check(&root);
    }
}

#[test]
fn a_data_directory_of_every_format_is_opened_with_what_it_held() {
    for format in FORMATS {
        let parent = TempDir::new().unwrap();
        let root = unpack(format, parent.path());
        for _ in 0..2 {
            let mut node = start_and_check(&root);
            node.process.kill();
            // Had the first start been interrupted before it said that all is converted, the next one would begin again.
            std::fs::write(root.join("VERSION"), format!("{format}\n")).unwrap();
        }
    }
}
