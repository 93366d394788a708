//! A table's records are the same for every kind of client.

use super::wire::{Connection, Fields, key, message, message_of_blob, v0};
use crate::resp_client::{Value, words};
use crate::server::{Node, free_port};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

const TABLE: i32 = 1;
/// What an answer says of a key that is there, and of one that is not.
const OK: i32 = 0;
const NOT_FOUND: i32 = 1;

#[test]
fn a_redis_client_and_a_pegasus_client_see_each_others_records() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    node.cli("table create shared --engine rocksdb --partitions 1");
    let (mut pegasus, mut redis) = (Connection::to(port), node.client());
    let mut ask = |command: &str| redis.call(&words(command)).unwrap();
    let text = |text: &str| Value::Bulk(text.into());
    ask("SELECT 1");
    let mut put = |hash_key: &str, sort_key: &str, value: &str, expire_ts: i32| {
        let request = Fields::default().blob(1, &key(hash_key, sort_key)).blob(2, value.as_bytes()).i32(3, expire_ts);
        assert_eq!(pegasus.call(&v0(TABLE, 0, &message("RPC_RRDB_RRDB_PUT", 1, &request))).code(), 0);
    };
    put("string", "", "from pegasus", 0);
    put("hash", "one", "1", 0);
    put("hash", "two", "2", 0);
    // Seconds since 2016: the year 2068, and 2016.
    put("ends", "", "late", 1_640_000_000);
    put("gone", "", "past", 1);
    assert_eq!(ask("GET string"), text("from pegasus"));
    assert_eq!(ask("HGET hash two"), text("2"));
    assert_eq!(ask("HLEN hash"), Value::Integer(2));
    assert_eq!(ask("EXPIRETIME ends"), Value::Integer(1_640_000_000 + 1_451_606_400));
    assert_eq!(ask("EXISTS gone"), Value::Integer(0));
    ask("SET string redis");
    ask("HSET hash three 3");
    ask("INCRBY counter 40");
    let mut get = |hash_key: &str, sort_key: &str| {
        let reply = pegasus.call(&v0(TABLE, 0, &message_of_blob("RPC_RRDB_RRDB_GET", 1, &key(hash_key, sort_key))));
        (reply.code(), reply)
    };
    for (hash_key, sort_key, value) in [("string", "", "redis"), ("hash", "three", "3"), ("counter", "", "40")] {
        let (code, reply) = get(hash_key, sort_key);
        assert!(code == 0 && reply.has(&Fields::default().blob(2, value.as_bytes())), "{hash_key}: {reply:?}");
    }
    let incr = Fields::default().blob(1, &key("counter", "")).i64(2, 2).i32(3, 0);
    let reply = pegasus.call(&v0(TABLE, 0, &message("RPC_RRDB_RRDB_INCR", 1, &incr)));
    assert!(reply.code() == 0 && reply.has(&Fields::default().i64(2, 42)), "{reply:?}");
    assert_eq!(ask("GET counter"), text("42"));
    assert_eq!(ask("DEL hash"), Value::Integer(1));
    let count = pegasus.call(&v0(TABLE, 0, &message_of_blob("RPC_RRDB_RRDB_SORTKEY_COUNT", 1, b"hash")));
    assert!(count.has(&Fields::default().i64(2, 0)), "{count:?}");
}

/// Transactions over partitions hold keys for moments, in which readers wait.
#[test]
fn a_pegasus_client_reads_what_redis_clients_write_in_transactions() {
    const CLIENTS: i64 = 4;
    let data = TempDir::new().unwrap();
    let port = free_port();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}"), "workers=2"]);
    node.cli("table create shared --engine memory --partitions 8");
    let stop = AtomicBool::new(false);
    let write = |client: i64| {
        let mut redis = node.client();
        redis.call(&words("SELECT 1")).unwrap();
        let mut number = client;
        while !stop.load(Ordering::Relaxed) {
            number += CLIENTS;
            let command = format!("MSET a {number} b {number} c {number} d {number}");
            assert_eq!(redis.call(&words(&command)).unwrap(), Value::Simple("OK".into()));
        }
    };
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || write(client));
        }
        let mut pegasus = Connection::to(port);
        let mut read = |code: &str, name: &str, partition| {
            let request = message_of_blob(code, 1, &key(name, ""));
            pegasus.call(&v0(TABLE, partition, &request))
        };
        let places: Vec<(&str, i32)> = ["a", "b", "c", "d"]
            .into_iter()
            .map(|name| {
                (name, (0..8).find(|partition| read("RPC_RRDB_RRDB_GET", name, *partition).error == "ERR_OK").unwrap())
            })
            .collect();
        for _ in 0..2_000 {
            for (name, partition) in &places {
                for code in ["RPC_RRDB_RRDB_GET", "RPC_RRDB_RRDB_TTL"] {
                    let reply = read(code, name, *partition);
                    assert!([OK, NOT_FOUND].contains(&reply.code()), "{code} {name}: {reply:?}");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
