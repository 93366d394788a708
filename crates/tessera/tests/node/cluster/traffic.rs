//! What an operator sees of load, and what the cluster does about it.

use super::{Cluster, WHOLE};
use crate::resp_client::{Client, Value, encode, words};
use crate::server::wait_for;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Clients that ask for the same keys again and again, until they are dropped.
struct Load {
    is_over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn of(cluster: &Cluster, table: &str, commands: &[String]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ask = |at| {
            let (mut client, is_over) = (cluster.client(at), is_over.clone());
            client.run(&format!("TABLE {table}"));
            let pipeline: Vec<u8> = commands.iter().flat_map(|command| encode(&words(command))).collect();
            let count = commands.len();
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    client.send(&pipeline).unwrap();
                    (0..count).for_each(|_| _ = client.read().unwrap());
                }
            })
        };
        let threads = (0..2).map(ask).collect();
        Self { is_over, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn json(cluster: &Cluster, at: usize, command: &str) -> serde_json::Value {
    serde_json::from_str(&cluster.cli(at, &format!("{command} --json")).unwrap()).unwrap()
}

#[test]
fn a_hot_partition_and_its_hot_keys_are_seen_from_any_node() {
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --partitions 8 --replicas 1").unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE t");
    client.run(&format!("SET hot {}", "v".repeat(10_000)));
    let mut commands = vec!["GET hot".to_string(); 10];
    commands.push("SET written 1".to_string());
    let load = Load::of(&cluster, "t", &commands);
    let hot = |at: usize| {
        let partitions = json(&cluster, at, "table traffic t");
        let is_hot = |partition: &&serde_json::Value| partition["is_hot_for_reads"] == true;
        partitions.as_array().unwrap().iter().find(is_hot).cloned()
    };
    let seen: Vec<_> = (0..3).map(|at| wait_for("the partition is hot", WHOLE, || hot(at))).collect();
    let partition = seen[0]["partition"].as_u64().unwrap();
    for seen in &seen {
        assert_eq!(seen["partition"], partition);
        let (reads, units) = (&seen["per_second"]["reads"], &seen["per_second"]["read_units"]);
        // 10,000 bytes are three units, but for what came while the two were read, and each is rounded.
        let ratio = units.as_f64().unwrap() / reads.as_f64().unwrap();
        assert!((2.5..3.5).contains(&ratio), "{seen}");
    }
    for at in 0..3 {
        let found = json(&cluster, at, &format!("table hot-keys t --partition {partition} --seconds 1"));
        assert_eq!(found["reads"][0]["hash_key"], "hot", "node {at}: {found}");
        assert!(found["reads"][0]["share"].as_f64() > Some(0.9), "{found}");
    }
    let status = cluster.cli(1, "status").unwrap();
    assert!(status.contains(&format!("hot-keys t --partition {partition}")), "{status}");
    drop(load);
    for (arguments, why) in [("--partition 8", "partitions 0 to 7"), ("--partition 0 --seconds 1000", "1 to 150")] {
        let refusal = cluster.cli(0, &format!("table hot-keys t {arguments}")).unwrap_err();
        assert!(refusal.contains(why), "{refusal}");
    }
}

/// Who leads each of these keys' slots, by port.
fn leaders(client: &mut Client, keys: &[String]) -> BTreeSet<i64> {
    let Value::Array(ranges) = client.run("CLUSTER SLOTS") else { panic!("slots") };
    let mut slot = |key: &String| match client.run(&format!("CLUSTER KEYSLOT {key}")) {
        Value::Integer(slot) => slot,
        other => panic!("{other}"),
    };
    let slots: Vec<i64> = keys.iter().map(&mut slot).collect();
    let leader = |range: &Value| {
        let Value::Array(range) = range else { panic!("{range}") };
        let (Value::Integer(from), Value::Integer(to), Value::Array(leader)) = (&range[0], &range[1], &range[2]) else {
            panic!("{}", range[0])
        };
        let Value::Integer(port) = leader[1] else { panic!("{}", leader[1]) };
        slots.iter().any(|slot| (from..=to).contains(&slot)).then_some(port)
    };
    ranges.iter().filter_map(leader).collect()
}

/// Partitions that one node leads are asked, and no others: soon several nodes lead some of them.
#[test]
fn busy_partitions_trade_leaders_until_nodes_are_asked_alike() {
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --partitioner redis-slots --partitions 12 --replicas 2").unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE t");
    let first = i64::from(cluster.ports[0].0);
    let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    let mut is_led_by_first =
        |key: &&String| leaders(&mut client, std::slice::from_ref(*key)) == BTreeSet::from([first]);
    let keys: Vec<String> = keys.iter().filter(&mut is_led_by_first).cloned().collect();
    let commands: Vec<String> = keys.iter().map(|key| format!("GET {key}")).collect();
    assert!(commands.len() > 10);
    let _load = Load::of(&cluster, "t", &commands);
    wait_for("others lead some", WHOLE, || (leaders(&mut client, &keys).len() == 3).then_some(()));
}
