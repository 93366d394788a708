//! Replicas are compared, and one that differs is found, reported and replaced.

use super::stop_at_end::StopAtEnd;
use super::{Cluster, WHOLE};
use crate::resp_client::{Value as RespValue, encode, words};
use crate::server::tessera;
use bytes::BytesMut;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tessera_engine::mutation::encode_put;
use tessera_engine::{Applied, Engine, MemoryBudget, MemoryConfig, MemoryEngine, RocksConfig, RocksStore};
use tessera_types::{Expiry, Partitioner, RecordKey, StoredValue, ValueKind};

const PARTITIONS: u32 = 4;

impl Cluster {
    /// Compares the replicas of a table. Returns what the program ended with, and what it printed.
    pub(super) fn compare(&self, at: usize, table: &str) -> (i32, Value) {
        let output = tessera()
            .args(["table", "compare", table, "--json", "--bytes-per-second", "0", "--admin", &self.admin(at)])
            .output()
            .unwrap();
        let compared = serde_json::from_slice(&output.stdout);
        (output.status.code().unwrap(), compared.unwrap_or_else(|_| panic!("{output:?}")))
    }

    fn wait_until_equal(&self, at: usize, table: &str) {
        self.wait_for("all replicas are equal", WHOLE, || self.compare(at, table).0 == 0);
    }

    fn leader_of(&self, at: usize, table: &str, partition: u32) -> Option<u64> {
        let placement = self.cli(at, &format!("table placement {table} --json")).ok()?;
        let placement: Vec<Value> = serde_json::from_str(&placement).ok()?;
        placement[partition as usize]["leader"].as_u64()
    }
}

/// A key of that partition.
fn key_of(partition: u32) -> Vec<u8> {
    let keys = (0..).map(|number: u32| format!("phantom{number}").into_bytes());
    let is_there = |key: &Vec<u8>| Partitioner::Crc64.partition_of(&RecordKey::new(key, b""), PARTITIONS) == partition;
    keys.into_iter().find(is_there).unwrap()
}

/// Puts a record into an engine that nobody else has.
fn put_phantom(engine: &dyn Engine, partition: u32) {
    let (mut payload, key) = (BytesMut::new(), key_of(partition));
    let stored = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: b"nobody wrote this" };
    encode_put(&mut payload, &RecordKey::new(&key, b""), &stored);
    let index = engine.applied_index(partition);
    engine.write(&[Applied { partition, index, term: 1, payloads: &[payload.freeze()] }]).unwrap();
}

/// Does so behind the back of a node that is down, in table 1, which is in RocksDB.
fn put_phantom_into_rocksdb(data: &Path, partition: u32) {
    let store = RocksStore::open(&data.join("rocksdb"), RocksConfig::default()).unwrap();
    let engine = store.open_table("table-1", PARTITIONS).unwrap();
    put_phantom(&*engine, partition);
    engine.make_durable(partition, &|| Ok(())).unwrap();
    store.shut_down();
}

/// And in table 2, which is in memory, with checkpoints.
fn put_phantom_into_memory(data: &Path, partition: u32) {
    let directory = data.join("memory").join("table-2");
    let budget = Arc::new(MemoryBudget::new(&MemoryConfig { limit_bytes: 1 << 30 }));
    let engine = MemoryEngine::open(PARTITIONS, budget, Some(directory.clone())).unwrap();
    put_phantom(&engine, partition);
    engine.checkpoint(partition, &directory.join(format!("partition-{partition:05}.checkpoint"))).unwrap();
}

/// The partitions that a node is to lead, and those it is not.
fn led_by(cluster: &Cluster, table: &str, node: usize) -> (Vec<u32>, Vec<u32>) {
    let first = |wanted: &Value| wanted[0].as_str().unwrap().split('.').next().unwrap().parse() == Ok(node);
    let replicas = cluster.replicas_of(0, table);
    let (led, followed): (Vec<_>, Vec<_>) = (0..).zip(&replicas).partition(|(_, wanted)| first(wanted));
    let numbers = |of: Vec<(u32, &Value)>| of.into_iter().map(|(partition, _)| partition).collect();
    (numbers(led), numbers(followed))
}

/// A record that only one node has is found on both engines, whether that node leads or follows.
#[test]
fn a_replica_that_stands_alone_is_found_reported_and_replaced() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, &format!("table create r --engine rocksdb --partitions {PARTITIONS} --replicas 3")).unwrap();
    let options = format!("--engine memory --durability soft --partitions {PARTITIONS} --replicas 3");
    cluster.cli(0, &format!("table create m {options}")).unwrap();
    for table in ["r", "m"] {
        let mut client = cluster.client(0);
        client.run(&format!("TABLE {table}"));
        (0..2_000).for_each(|number| _ = client.run(&format!("SET n{number} {number}")));
        client.run("HSET h a 1 b 2 c 3");
    }
    cluster.wait_until_whole();
    for table in ["r", "m"] {
        let (code, compared) = cluster.compare(1, table);
        assert_eq!((code, &compared["outcome"]), (0, &"equal".into()), "{compared}");
        let records = compared["partitions"].as_array().unwrap().iter().map(|it| it["records"].as_u64().unwrap());
        assert_eq!(records.sum::<u64>(), 2_003);
    }

    let (led, _) = led_by(&cluster, "r", 3);
    let (_, followed) = led_by(&cluster, "m", 3);
    let (led, followed) = (led[0], followed[0]);
    cluster.kill(2);
    put_phantom_into_rocksdb(&cluster.data_directory(2), led);
    put_phantom_into_memory(&cluster.data_directory(2), followed);
    cluster.start_node(2);
    cluster.wait_until_whole();
    cluster.wait_for("the node leads", WHOLE, || cluster.leader_of(2, "r", led) == Some(3));

    for (table, partition) in [("r", led), ("m", followed)] {
        let before = cluster.replicas_of(0, table)[partition as usize].clone();
        // The replica that leads is replaced once it has handed over, which may not come about at once on a busy machine.
        cluster.wait_for("the replica is being replaced", WHOLE, || {
            let (code, compared) = cluster.compare(0, table);
            assert_eq!((code, &compared["outcome"]), (6, &"differ".into()), "{compared}");
            let of_partition = |at: u32| &compared["partitions"][at as usize];
            (0..PARTITIONS)
                .filter(|at| *at != partition)
                .for_each(|at| assert_eq!(of_partition(at)["outcome"], "equal"));
            let mended = of_partition(partition)["mended"].as_str().unwrap();
            assert!(mended.contains("replica 3.") && mended.contains("stands alone"), "{mended}");
            mended.contains("is being replaced")
        });
        let words = format!("table {table}: the replicas of partition {partition} differ");
        let is_told = || cluster.status(1).is_some_and(|status| status["issues"].to_string().contains(&words));
        cluster.wait_for("all nodes hear of it", WHOLE, is_told);

        // It is compared again by itself, and then nothing is wrong any more.
        cluster.wait_until_whole();
        assert_ne!(cluster.replicas_of(0, table)[partition as usize], before);
        cluster.wait_until_equal(0, table);
    }
    let found: f64 = (0..3).map(|at| cluster.metric(at, "tessera_replica_differences_total").unwrap()).sum();
    assert!(found >= 2.0, "{found}");
}

/// A replica whose file has a flipped bit cannot be digested there: whoever finds it first, it is replaced, and clients are answered by
/// the others.
#[test]
fn a_replica_with_damaged_records_is_found_and_replaced() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create d --engine rocksdb --partitions 1 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE d");
    // Values that do not compress, so that the file has many blocks.
    let mut random = StdRng::seed_from_u64(3);
    for number in 0..2_000 {
        let value: Vec<u8> = (0..300).map(|_| random.random()).collect();
        client.call(&[b"SET".to_vec(), format!("key{number}").into(), value]).unwrap();
    }
    let before = cluster.replicas_of(1, "d")[0].clone();
    cluster.cli(0, "table compact d").unwrap();
    cluster.kill(0);
    let files = std::fs::read_dir(cluster.data_directory(0).join("rocksdb")).unwrap();
    let tables = files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|it| it == "sst"));
    let path = tables.max_by_key(|path| path.metadata().unwrap().len()).expect("compaction wrote a file");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2; // far from the first block, which is read at the start, and from the index
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    cluster.start_node(0);
    cluster.wait_until_whole();
    cluster.wait_for("the replica is replaced", WHOLE, || {
        cluster.compare(1, "d"); // which reads all of it
        cluster.replicas_of(1, "d")[0] != before
    });
    cluster.wait_until_whole();
    cluster.wait_until_equal(1, "d");
    let mut client = cluster.client(2);
    client.run("TABLE d");
    (0..2_000).for_each(|number| assert_eq!(client.run(&format!("STRLEN key{number}")), RespValue::Integer(300)));
}

/// With two replicas nobody can tell who is right: that they differ is said, and nothing is done.
#[test]
fn two_replicas_that_differ_are_left_to_the_operator() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, &format!("table create r --engine rocksdb --partitions {PARTITIONS} --replicas 2")).unwrap();
    cluster.wait_until_whole();
    let is_keeper = |wanted: &Value| {
        wanted
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it.as_str().unwrap().starts_with("2.") && !it.as_str().unwrap().ends_with('w'))
    };
    let replicas = cluster.replicas_of(0, "r");
    let partition = (0..).zip(&replicas).find(|(_, wanted)| is_keeper(wanted)).unwrap().0;
    cluster.kill(1);
    put_phantom_into_rocksdb(&cluster.data_directory(1), partition);
    cluster.start_node(1);
    cluster.wait_until_whole();
    let (code, compared) = cluster.compare(0, "r");
    assert_eq!(code, 6, "{compared}");
    assert_eq!(compared["partitions"][partition as usize]["mended"], Value::Null);
    assert_eq!(cluster.replicas_of(0, "r"), replicas);
    let is_told = || cluster.status(2).is_some_and(|status| status["issues"].to_string().contains("not known which"));
    cluster.wait_for("another node hears of it", WHOLE, is_told);

    // The operator knows.
    let wrong =
        replicas[partition as usize].as_array().unwrap().iter().find_map(|it| it.as_str()?.strip_prefix("2.")).unwrap();
    cluster.cli(0, &format!("table replace-replica r --partition {partition} --replica 2.{wrong}")).unwrap();
    cluster.wait_for("there is another replica", WHOLE, || cluster.replicas_of(0, "r") != replicas);
    cluster.wait_until_equal(0, "r");
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE r");
    let phantom = String::from_utf8(key_of(partition)).unwrap();
    assert_eq!(client.run(&format!("GET {phantom}")), RespValue::Null);
}

/// Writes, expiries, a split and a new leader make no difference.
#[test]
fn replicas_are_equal_beside_load_a_split_and_a_leader_that_goes() {
    let mut cluster = Cluster::start(3);
    for (table, options) in [("r", "--engine rocksdb"), ("m", "--engine memory --durability none")] {
        cluster.cli(0, &format!("table create {table} {options} --partitions 2 --replicas 3")).unwrap();
    }
    cluster.wait_until_whole();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for (writer, table) in ["r", "m", "r", "m"].into_iter().enumerate() {
            let (mut client, stop) = (cluster.client(writer % 2), &stop);
            client.run(&format!("TABLE {table}"));
            scope.spawn(move || {
                for number in (0u32..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let number = number % 3_000;
                    client.run(&format!("SET w{writer}n{number} {number}{}", "x".repeat(number as usize % 300)));
                    client.run(&format!("HSET w{writer}h{} f{number} {number}", number % 7));
                    client.run(&format!("DEL w{writer}n{}", number / 2));
                    if number % 5 == 0 {
                        client.run(&format!("SET w{writer}n{number} short PX 300"));
                    }
                }
            });
        }
        // Beside load a replica may be too busy to be compared, and another time it is not. Replicas never differ.
        let are_equal = |at: usize, table: &str| {
            let (code, compared) = cluster.compare(at, table);
            assert!([0, 7].contains(&code), "{table}: {compared}");
            code == 0
        };
        for _ in 0..5 {
            for table in ["r", "m"] {
                cluster.wait_for("all replicas are compared", WHOLE, || are_equal(2, table));
            }
        }
        cluster.cli(0, "table alter r --partitions 4").unwrap();
        // While partitions of the old table are sealed they cannot be compared.
        let is_split = || {
            cluster.status(0).is_some_and(|status| {
                status["cluster"]["tables"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|table| table["name"] == "r" && table["partitions"] == 4)
            })
        };
        cluster.wait_for("the table is split", WHOLE, || {
            are_equal(0, "r");
            is_split()
        });
        cluster.wait_for("all replicas are compared after the split", WHOLE, || are_equal(0, "r"));
    });
    // Leaders go while a slow comparison is under way; whoever leads then is asked again.
    let mut client = cluster.client(0);
    client.run("TABLE r");
    for numbers in (0..8_000).collect::<Vec<_>>().chunks(500) {
        let set = |number: &i32| words(&format!("SET large{number} {}", "x".repeat(500)));
        client.send(&numbers.iter().flat_map(|number| encode(&set(number))).collect::<Vec<_>>()).unwrap();
        numbers.iter().for_each(|_| _ = client.read().unwrap());
    }
    let admin = cluster.admin(0);
    let comparing = std::thread::spawn(move || {
        let rate = ["--bytes-per-second", "300000", "--admin", &admin];
        tessera().args(["table", "compare", "r", "--json"]).args(rate).output().unwrap()
    });
    std::thread::park_timeout(Duration::from_millis(500));
    cluster.kill(2);
    let output = comparing.join().unwrap();
    let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(7), "{compared}");
    assert!(compared["partitions"].as_array().unwrap().iter().all(|it| it["outcome"] != "differ"), "{compared}");
    cluster.start_node(2);
    cluster.wait_until_whole();
    ["r", "m"].iter().for_each(|table| cluster.wait_until_equal(1, table));
}
