//! Files of a node that hold something else than was written: the cluster becomes whole again by itself, and goes on meanwhile.

use super::stop_at_end::StopAtEnd;
use super::{Cluster, WHOLE};
use crate::resp_client::Value as RespValue;
use crate::server::{http_get, wait_for};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tempfile::TempDir;

const PARTITIONS: usize = 4;
const KEYS: usize = 2_000;
const WORDS: &str = "are damaged";

impl Cluster {
    fn has_issue(&self, at: usize, words: &str) -> bool {
        self.status(at).is_some_and(|status| status["issues"].to_string().contains(words))
    }

    /// Writes values that do not compress, so that a file has many blocks.
    fn fill(&self, table: &str) {
        let mut client = self.client(0);
        client.run(&format!("TABLE {table}"));
        let mut random = StdRng::seed_from_u64(3);
        for number in 0..KEYS {
            let value: Vec<u8> = (0..300).map(|_| random.random()).collect();
            client.call(&[b"SET".to_vec(), format!("key{number}").into(), value]).unwrap();
        }
    }

    /// Flips a bit in the middle of the largest file of a node.
    fn damage(&self, at: usize) -> PathBuf {
        let path = largest_file(&self.data_directory(at).join("rocksdb"));
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        path
    }
}

fn largest_file(directory: &Path) -> PathBuf {
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let tables = files.filter(|path| path.extension().is_some_and(|it| it == "sst"));
    tables.max_by_key(|path| path.metadata().unwrap().len()).expect("compaction wrote a file")
}

#[test]
fn a_node_gets_rid_of_a_damaged_file_that_a_compaction_has_met() {
    let cluster = Cluster::start(3);
    cluster.cli(0, &format!("table create d --engine rocksdb --partitions {PARTITIONS} --replicas 3")).unwrap();
    cluster.cli(0, "table create other --engine rocksdb --partitions 4 --replicas 3").unwrap();
    cluster.wait_until_whole();
    cluster.fill("d");
    cluster.cli(0, "table compact d").unwrap();
    let before = cluster.replicas_of(1, "d");
    let file = cluster.damage(0);

    let (is_over, written) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    std::thread::scope(|scope| {
        for (table, written) in ["d", "other"].into_iter().zip(&written) {
            let (cluster, is_over) = (&cluster, &is_over);
            scope.spawn(move || {
                let mut client = cluster.client(0);
                client.run(&format!("TABLE {table}"));
                while !is_over.load(Ordering::Relaxed) {
                    let number = written.load(Ordering::Relaxed);
                    assert_eq!(
                        client.run(&format!("SET written{number} {number}")),
                        RespValue::Simple("OK".into()),
                        "{table}"
                    );
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let stop = StopAtEnd(&is_over);
        // It ends with an error, as what it was to merge cannot be read.
        let _ = cluster.cli(0, "table compact d");
        cluster.wait_for("all nodes hear of it", WHOLE, || cluster.has_issue(2, WORDS));
        let before_that = written[1].load(Ordering::Relaxed);
        cluster.wait_for("the replicas are replaced", WHOLE, || {
            let replicas = cluster.replicas_of(1, "d");
            (0..PARTITIONS).all(|partition| replicas[partition] != before[partition])
        });
        cluster.wait_until_whole();
        cluster.wait_for("nothing is damaged", WHOLE, || !(0..3).any(|at| cluster.has_issue(at, WORDS)));
        cluster.wait_for("the file is gone", WHOLE, || !file.exists());
        assert!(written[1].load(Ordering::Relaxed) > before_that, "others go on");
        drop(stop);
    });
    cluster.wait_for("all replicas are equal", WHOLE, || cluster.compare(1, "d").0 == 0);
    assert_eq!(cluster.cli(0, "table compact d").map(|_| ()), Ok(()), "compactions succeed again");
    for (table, written) in ["d", "other"].into_iter().zip(&written) {
        let mut client = cluster.client(2);
        client.run(&format!("TABLE {table}"));
        for number in 0..written.load(Ordering::Relaxed) {
            let value = number.to_string().into_bytes();
            assert_eq!(client.run(&format!("GET written{number}")), RespValue::Bulk(value), "{table}");
        }
    }
    let mut client = cluster.client(2);
    client.run("TABLE d");
    (0..KEYS).for_each(|number| assert_eq!(client.run(&format!("STRLEN key{number}")), RespValue::Integer(300)));
}

/// Nobody has what the only replica has, so all of it is kept, and what is not damaged is served.
#[test]
fn the_only_replica_keeps_what_it_has_and_serves_what_is_not_damaged() {
    let cluster = Cluster::start(1);
    cluster.cli(0, "table create d --engine rocksdb --partitions 4 --replicas 1").unwrap();
    cluster.wait_for("the table serves", WHOLE, || cluster.client(0).run("TABLE d") == RespValue::Simple("OK".into()));
    cluster.fill("d");
    cluster.cli(0, "table compact d").unwrap();
    let file = cluster.damage(0);
    let _ = cluster.cli(0, "table compact d");
    cluster.wait_for("it is told", WHOLE, || cluster.has_issue(0, "there is no other replica of them"));
    let metrics = http_get(cluster.ports[0].1, "/metrics").unwrap();
    let lines: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("tessera_table_damaged_partitions{table=\"d\"")).collect();
    assert!(matches!(lines[..], [line] if line.ends_with(" 4.0")), "{lines:?}");
    let mut client = cluster.client(0);
    client.run("TABLE d");
    let mut damaged = 0;
    for number in 0..KEYS {
        match client.run(&format!("STRLEN key{number}")) {
            RespValue::Integer(300) => {}
            RespValue::Error(_) => damaged += 1,
            other => panic!("key{number}: {other:?}"),
        }
    }
    assert!((1..100).contains(&damaged), "{damaged} records are in the damaged block");
    assert_eq!(client.run("SET written 1"), RespValue::Simple("OK".into()));
    assert!(file.exists());
    // Who gives the records up gets rid of the file, when no connection has chosen the table that held them.
    drop(client);
    cluster.cli(0, "table truncate d --purge --yes").unwrap();
    cluster.wait_for("nothing is damaged", WHOLE, || !cluster.has_issue(0, WORDS));
    cluster.wait_for("the file is gone", WHOLE, || !file.exists());
}

/// A checkpoint is damaged while its node is down. The node sets that replica aside; another one takes its place, and has all that the
/// others have.
#[test]
fn a_replica_with_a_damaged_checkpoint_is_replaced() {
    let settings = &["tables.flush_age_seconds=1"];
    let mut cluster = Cluster { settings, ..Cluster::planned(TempDir::new().unwrap(), 3) }.started();
    cluster.cli(0, "table create d --engine memory --durability hard --partitions 2 --replicas 3").unwrap();
    cluster.wait_until_whole();
    cluster.fill("d");
    let tables = cluster.data_directory(2).join("memory");
    let checkpoint = || {
        let tables = std::fs::read_dir(&tables).ok()?.map(|table| table.unwrap().path());
        tables.map(|table| table.join("partition-00001.checkpoint")).find(|path| path.exists())
    };
    let path = wait_for("there is a checkpoint", WHOLE, checkpoint);
    let before = cluster.replicas_of(0, "d");
    cluster.kill(2);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    cluster.start_node(2);
    cluster.wait_for("another replica takes its place", WHOLE, || cluster.replicas_of(0, "d")[1] != before[1]);
    cluster.wait_until_whole();
    assert_eq!(cluster.replicas_of(0, "d")[0], before[0], "the other partition's replicas are sound");
    cluster.wait_for("all replicas are equal", WHOLE, || cluster.compare(0, "d").0 == 0);
    cluster.kill(0);
    let mut client = cluster.client(2);
    client.run("TABLE d");
    for number in 0..KEYS {
        assert_eq!(client.run(&format!("EXISTS key{number}")), RespValue::Integer(1), "key{number}");
    }
}
