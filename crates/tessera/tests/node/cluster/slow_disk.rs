//! Disks that take their time over reads: whoever needs none of them does not notice.

use super::{Cluster, WHOLE};
use crate::disk::SlowReads;
use crate::resp_client::{Client, Value, encode, words};
use crate::server::wait_for;
use crate::skipped::skip;
use std::time::{Duration, Instant};

/// Reads of each disk in a second.
const READS: u32 = 10;
const RECORDS: usize = 3_000;
/// The first ones are in the caches.
const CACHED: usize = 10;
/// How long leaders must have been the same to be taken for those that stay.
const STAY: Duration = Duration::from_secs(5);
/// Round trips that others make meanwhile.
const TRIPS: usize = 200;

fn value(number: usize) -> String {
    number.to_string().repeat(1_500 / number.to_string().len())
}

fn key(number: usize) -> String {
    format!("key-{number}")
}

/// What a count is on each node.
fn counts(cluster: &Cluster, name: &str) -> Vec<f64> {
    (0..3).map(|at| wait_for("the node tells", WHOLE, || cluster.metric(at, name))).collect()
}

fn elections(cluster: &Cluster) -> Vec<f64> {
    counts(cluster, "tessera_elections_won_total")
}

fn disk_reads(cluster: &Cluster) -> f64 {
    counts(cluster, "tessera_disk_reads_total").iter().sum()
}

/// Nodes that were started again get back what they led.
fn wait_until_leaders_stay(cluster: &Cluster) {
    let (mut last, mut since) = (elections(cluster), Instant::now());
    wait_for("leaders stay where they are", WHOLE, || {
        let now = elections(cluster);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (since.elapsed() > STAY).then_some(())
    });
}

/// Reads and commands that wait for the disk once held up their worker: everybody else on it, heartbeats, and leases.
#[test]
fn nobody_else_waits_for_a_slow_disk() {
    let settings = &[
        "rocksdb.direct_reads=true",
        "rocksdb.record_cache_bytes=0",
        "log.segment_bytes=67108864",
        "cluster.balance_interval_seconds=3600",
    ];
    let Some(mut cluster) = Cluster::start_with_power(3, settings) else {
        return skip("mounting file systems needs root and loop devices");
    };
    for (table, engine, durability) in [("cold", "rocksdb", "soft"), ("memory", "memory", "none")] {
        let create =
            format!("table create {table} --engine {engine} --durability {durability} --replicas 3 --partitions 4");
        cluster.cli(0, &create).unwrap();
    }
    cluster.wait_until_whole();
    let client = |cluster: &Cluster, table: &str| {
        let mut client = Client::connect(cluster.ports[0].0).unwrap();
        assert_eq!(client.run(&format!("TABLE {table}")), Value::Simple("OK".into()));
        client
    };
    let mut writer = client(&cluster, "cold");
    for numbers in (0..RECORDS).collect::<Vec<_>>().chunks(100) {
        let sets: Vec<_> =
            numbers.iter().map(|number| words(&format!("SET {} {}", key(*number), value(*number)))).collect();
        let replies = writer.pipeline(&sets).unwrap();
        assert!(replies.iter().all(|reply| *reply == Value::Simple("OK".into())), "{replies:?}");
    }
    (0..3).for_each(|at| _ = cluster.cli(at, "table compact cold").unwrap());
    // Nothing is in the caches then.
    for at in 0..3 {
        cluster.kill(at);
        cluster.start_node(at);
        cluster.wait_until_whole();
    }
    wait_until_leaders_stay(&cluster);
    let (mut warm, mut memory) = (client(&cluster, "cold"), client(&cluster, "memory"));
    for number in 0..CACHED {
        assert_eq!(warm.run(&format!("GET {}", key(number))), Value::Bulk(value(number).into_bytes()));
        // Where it leads, a command that reads has it in the caches as well.
        assert_eq!(warm.run(&format!("APPEND {} x", key(number))), Value::Integer(value(number).len() as i64 + 1));
    }

    let slow: Option<Vec<_>> = (0..3)
        .map(|at| SlowReads::begin(cluster.disks[at].path(), READS, cluster.nodes[at].as_ref().unwrap().process.id()))
        .collect();
    let Some(slow) = slow else {
        return skip("slowing down disks needs the blkio or io controller of control groups");
    };
    let (elected, read) = (elections(&cluster), disk_reads(&cluster));
    let mut cold = client(&cluster, "cold");
    let mut changing = client(&cluster, "cold");
    let gets: Vec<u8> = (500..900).flat_map(|number| encode(&words(&format!("GET {}", key(number))))).collect();
    cold.send(&gets).unwrap();
    let appends: Vec<u8> =
        (1_000..1_100).flat_map(|number| encode(&words(&format!("APPEND {} y", key(number))))).collect();
    changing.send(&appends).unwrap();
    let began = Instant::now();
    for trip in 0..TRIPS {
        assert_eq!(memory.run(&format!("SET trip {trip}")), Value::Simple("OK".into()));
        assert_eq!(memory.run("GET trip"), Value::Bulk(trip.to_string().into_bytes()));
        let number = trip % CACHED;
        let expected = format!("{}x", value(number));
        assert_eq!(warm.run(&format!("GET {}", key(number))), Value::Bulk(expected.into_bytes()));
    }
    let took = began.elapsed();
    for number in 500..900 {
        assert_eq!(cold.read().unwrap(), Value::Bulk(value(number).into_bytes()), "replies keep their order");
    }
    for number in 1_000..1_100 {
        assert_eq!(changing.read().unwrap(), Value::Integer(value(number).len() as i64 + 1));
    }
    let total = began.elapsed();
    println!("{TRIPS} rounds of others took {took:?}, the reads from the disk {total:?}");
    // Whoever waits for the disk with the others takes as long as they do.
    assert!(took < total / 3, "others waited: {took:?} of {total:?}");
    assert_eq!(elections(&cluster), elected, "another node was elected while one waited for its disk");
    let from_disk = disk_reads(&cluster) - read;
    assert!(from_disk >= 400.0, "{from_disk} reads waited for the disk");
    drop(slow);
}
