//! Data directories of earlier formats, and of this one, which stand beside this file: each as `scripts/format-fixture` made it with
//! the version that wrote the format. A node was killed there while two tables were being split.

use crate::resp_client::{Client, Value};
use crate::server::{Node, wait_for};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// What this version writes.
const CURRENT: u32 = 6;
/// Those of which there is a fixture.
const FORMATS: [u32; 2] = [5, 6];
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

#[test]
fn a_data_directory_of_every_format_is_opened_with_what_it_held() {
    for format in FORMATS {
        let parent = TempDir::new().unwrap();
        let root = unpack(format, parent.path());
        for _ in 0..2 {
            let mut node = Node::start(&root, &[]);
            wait_for("the splits that were under way end", Duration::from_secs(60), || {
                ["split_memory", "split_rocksdb"].iter().all(|table| partitions(&node, table) == 32).then_some(())
            });
            let mut client = node.client();
            TABLES.iter().for_each(|table| check(&mut client, table));
            node.process.kill();
            assert_eq!(std::fs::read_to_string(root.join("VERSION")).unwrap(), format!("{CURRENT}\n"));
            // Had the first start been interrupted before it said that all is converted, the next one would begin again.
            std::fs::write(root.join("VERSION"), format!("{format}\n")).unwrap();
        }
    }
}
