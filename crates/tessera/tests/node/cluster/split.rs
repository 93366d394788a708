//! Tables that are split while clients use them.

use super::stop_at_end::StopAtEnd;
use super::{Cluster, WHOLE};
use crate::resp_client::{Client, Value, words};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYS: usize = 3_000;
const HASHES: usize = 200;
const CLIENTS: usize = 8;
/// Counters of each client.
const COUNTERS: usize = 50;

fn command(client: &mut Client, text: &str) -> Value {
    client.call(&words(text)).unwrap()
}

fn integer(value: &Value) -> i64 {
    match value {
        Value::Integer(number) => *number,
        other => panic!("{other}"),
    }
}

fn chosen(cluster: &Cluster, at: usize, table: &str) -> Client {
    let mut client = cluster.client(at);
    assert_eq!(command(&mut client, &format!("TABLE {table}")), Value::Simple("OK".into()));
    client
}

fn partitions(cluster: &Cluster, at: usize, table: &str) -> Option<u64> {
    let shown = cluster.cli(at, &format!("table show {table} --json")).ok()?;
    serde_json::from_str::<serde_json::Value>(&shown).ok()?["partitions"].as_u64()
}

/// Splits a table and waits until every node knows.
fn split(cluster: &Cluster, table: &str, into: u64) {
    cluster.cli(0, &format!("table alter {table} --partitions {into}")).unwrap();
    let nodes = 0..cluster.nodes.len();
    // Copying takes turns with the clients, who are as fast as they can.
    cluster.wait_for("the table is split", 2 * WHOLE, || {
        nodes.clone().all(|at| partitions(cluster, at, table) == Some(into))
    });
}

fn fill(client: &mut Client) {
    for key in 0..KEYS {
        command(client, &format!("SET key{key} value{key} EX 10000"));
    }
    for hash in 0..HASHES {
        command(client, &format!("HSET hash{hash} one {hash} two {hash} three {hash}"));
    }
}

fn check_filled(client: &mut Client) {
    for key in 0..KEYS {
        let value = Value::Bulk(format!("value{key}").into_bytes());
        assert_eq!(command(client, &format!("GET key{key}")), value, "key{key}");
        assert!((1..=10_000).contains(&integer(&command(client, &format!("TTL key{key}")))));
    }
    for hash in 0..HASHES {
        assert_eq!(command(client, &format!("HLEN hash{hash}")), Value::Integer(3), "hash{hash}");
        let fields = command(client, &format!("HMGET hash{hash} one two three"));
        let value = Value::Bulk(hash.to_string().into_bytes());
        assert_eq!(fields, Value::Array(vec![value.clone(), value.clone(), value]));
    }
}

/// Counts, each counter by itself and a hundred at once, and notices whatever is lost, done twice, or refused.
fn count_until(stop: &AtomicBool, client: &mut Client, name: usize, done: &AtomicU64) {
    let mut counts = [0; COUNTERS];
    while !stop.load(Ordering::Relaxed) {
        let round: Vec<String> = (0..COUNTERS).map(|at| format!("INCR count{name}.{at}")).collect();
        let before = counts;
        let mut pipeline: Vec<u8> = Vec::new();
        round.iter().for_each(|line| pipeline.extend(crate::resp_client::encode(&words(line))));
        client.send(&pipeline).unwrap();
        for (count, before) in counts.iter_mut().zip(before) {
            *count = integer(&client.read().unwrap());
            assert_eq!(*count, before + 1);
        }
        let keys: Vec<String> = (0..COUNTERS).map(|at| format!("count{name}.{at}")).collect();
        let all = command(client, &format!("MGET {}", keys.join(" ")));
        let expected = counts.map(|count| Value::Bulk(count.to_string().into_bytes()));
        assert_eq!(all, Value::Array(expected.to_vec()));
        let pairs: Vec<String> = keys.iter().zip(counts).map(|(key, count)| format!("{key} {}", count + 1)).collect();
        assert_eq!(command(client, &format!("MSET {}", pairs.join(" "))), Value::Simple("OK".into()));
        counts = counts.map(|count| count + 1);
        assert_eq!(command(client, "MULTI"), Value::Simple("OK".into()));
        command(client, &format!("INCR count{name}.0"));
        command(client, &format!("GET count{name}.0"));
        counts[0] += 1;
        let replies = vec![Value::Integer(counts[0]), Value::Bulk(counts[0].to_string().into_bytes())];
        assert_eq!(command(client, "EXEC"), Value::Array(replies));
        done.fetch_add(2 * COUNTERS as u64 + 2, Ordering::Relaxed);
    }
}

/// A page of SCAN: its keys, and the cursor of the next one.
fn scan(client: &mut Client, cursor: &str, found: &mut BTreeSet<Vec<u8>>) -> String {
    let Value::Array(page) = command(client, &format!("SCAN {cursor} COUNT 100")) else { panic!("no page") };
    let [Value::Bulk(cursor), Value::Array(keys)] = &page[..] else { panic!("{page:?}") };
    found.extend(keys.iter().map(|key| if let Value::Bulk(key) = key { key.clone() } else { panic!("{key}") }));
    String::from_utf8(cursor.clone()).unwrap()
}

fn splits_under_load(nodes: usize, options: &str) {
    let cluster = Cluster::start(nodes);
    cluster.cli(0, &format!("table create t --partitions 4 {options}")).unwrap();
    let mut client = chosen(&cluster, 0, "t");
    fill(&mut client);
    let number = command(&mut client, "CLIENT INFO");
    let mut found = BTreeSet::new();
    let mut cursor = scan(&mut client, "0", &mut found);
    while found.len() < (KEYS + HASHES) / 3 {
        cursor = scan(&mut client, &cursor, &mut found);
    }
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for name in 0..CLIENTS {
            let (stop, done, mut client) = (&stop, &done, chosen(&cluster, name % nodes, "t"));
            scope.spawn(move || count_until(stop, &mut client, name, done));
        }
        let stop = StopAtEnd(&stop);
        split(&cluster, "t", 8);
        while cursor != "0" {
            cursor = scan(&mut client, &cursor, &mut found);
        }
        split(&cluster, "t", 16);
        split(&cluster, "t", 32);
        drop(stop);
    });
    assert_eq!(found.iter().filter(|key| key.starts_with(b"key")).count(), KEYS);
    assert_eq!(found.iter().filter(|key| key.starts_with(b"hash")).count(), HASHES);
    for at in 0..nodes {
        check_filled(&mut chosen(&cluster, at, "t"));
    }
    let counters = CLIENTS * COUNTERS;
    assert_eq!(command(&mut client, "KEYS count*").array_len(), counters);
    assert_eq!(command(&mut client, "CLIENT INFO").field("db"), number.field("db"), "the number stays");
    let number = number.field("db").unwrap();
    let mut other = cluster.client(nodes - 1);
    assert_eq!(command(&mut other, &format!("SELECT {number}")), Value::Simple("OK".into()));
    assert_eq!(command(&mut other, "GET key7"), Value::Bulk(b"value7".to_vec()));
    eprintln!("{nodes} nodes, {options}: split three times during {} counts", done.load(Ordering::Relaxed));
}

impl Value {
    fn array_len(&self) -> usize {
        if let Self::Array(items) = self { items.len() } else { panic!("{self}") }
    }

    /// A word of CLIENT INFO.
    fn field(&self, name: &str) -> Option<String> {
        let Self::Bulk(text) = self else { panic!("{self}") };
        let text = String::from_utf8_lossy(text);
        text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=').map(str::to_string))
    }
}

#[test]
fn a_table_on_disk_is_split_while_clients_use_it() {
    splits_under_load(3, "--engine rocksdb --replicas 3");
}

#[test]
fn a_table_in_memory_of_slots_with_a_witness_is_split_while_clients_use_it() {
    splits_under_load(3, "--engine memory --durability hard --replicas 2 --partitioner redis-slots");
}

#[test]
fn a_volatile_table_on_one_node_is_split_while_clients_use_it() {
    splits_under_load(1, "--engine memory --replicas 1");
}

#[test]
fn a_split_can_be_cancelled_and_what_it_cannot_be_is_refused() {
    let cluster = Cluster::start(1);
    cluster.cli(0, "table create t --engine memory --partitions 4 --replicas 1").unwrap();
    let refused = cluster.cli(0, "table alter t --partitions 6").unwrap_err();
    assert!(refused.contains("twice its partitions: 8"), "{refused}");
    let refused = cluster.cli(0, "table cancel-split t").unwrap_err();
    assert!(refused.contains("is not being split"), "{refused}");
    cluster.cli(0, "table alter t --partitions 8").unwrap();
    match cluster.cli(0, "table cancel-split t") {
        Ok(_) => assert_eq!(partitions(&cluster, 0, "t"), Some(4)),
        // It was fast.
        Err(refused) => assert!(refused.contains("take effect") || refused.contains("is not being split"), "{refused}"),
    }
}

/// The keys of a transaction were once compared by the numbers of their partitions before and after.
/// What copies records for a split takes turns. Each partition of a table that was dropped meanwhile once kept its turn for thirty seconds, in
/// which it looked for leaders of partitions that were no more, and a split of another table waited behind all of them.
#[test]
fn splits_of_dropped_tables_keep_others_from_nothing() {
    let cluster = Cluster::start(3);
    let create = |table: &str| {
        let options = "--engine memory --partitions 8 --replicas 3";
        cluster.cli(0, &format!("table create {table} {options}")).unwrap();
    };
    create("live");
    let gone: Vec<String> = (0..6).map(|number| format!("gone{number}")).collect();
    gone.iter().for_each(|table| create(table));
    cluster.wait_until_no_more_moves();
    for table in &gone {
        cluster.cli(0, &format!("table alter {table} --partitions 16")).unwrap();
        cluster.cli(0, &format!("table drop {table}")).unwrap();
    }
    let began = Instant::now();
    split(&cluster, "live", 16);
    // Looking for leaders takes thirty seconds, and the partitions that a node leads do so one after the other.
    assert!(began.elapsed() < Duration::from_secs(55), "it took {:?}", began.elapsed());
}

#[test]
fn a_transaction_goes_on_when_its_table_is_split() {
    let cluster = Cluster::start(1);
    cluster.cli(0, "table create t --engine memory --partitions 2 --replicas 1").unwrap();
    let mut clients: Vec<Client> = (0..8).map(|_| chosen(&cluster, 0, "t")).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        command(client, "MULTI");
        assert_eq!(command(client, &format!("INCR k{at}")), Value::Simple("QUEUED".into()));
    }
    split(&cluster, "t", 4);
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(command(client, &format!("GET k{at}")), Value::Simple("QUEUED".into()));
        let replies = vec![Value::Integer(1), Value::Bulk(b"1".to_vec())];
        assert_eq!(command(client, "EXEC"), Value::Array(replies));
    }
}

/// What a client watches may be written in the new table, where nobody would notice.
#[test]
fn a_watched_key_counts_as_written_when_its_table_is_split() {
    let cluster = Cluster::start(1);
    cluster.cli(0, "table create t --engine memory --partitions 2 --replicas 1").unwrap();
    let mut client = chosen(&cluster, 0, "t");
    command(&mut client, "SET watched 1");
    command(&mut client, "WATCH watched");
    split(&cluster, "t", 4);
    assert_eq!(command(&mut chosen(&cluster, 0, "t"), "SET watched 2"), Value::Simple("OK".into()));
    command(&mut client, "MULTI");
    command(&mut client, "SET watched 3");
    assert_eq!(command(&mut client, "EXEC"), Value::Null);
    assert_eq!(command(&mut client, "GET watched"), Value::Bulk(b"2".to_vec()));
}
