//! Atomic queries on clusters: their writes take effect together in all tables and partitions, in indexes and for feeds, whatever happens to
//! the nodes.

use crate::cluster::Cluster;
use crate::reql::{Client, PATIENCE, table};
use crate::server::{wait_for, wait_for_more};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const DOCUMENTS: u64 = 8;

fn set(name: &str, id: u64, n: u64) -> Value {
    insert_or_replace(name, json!({"id": id, "n": n}))
}

fn insert_or_replace(name: &str, document: Value) -> Value {
    json!([56, [table(name), document], {"conflict": "replace"}])
}

fn atomically(terms: &[Value]) -> Value {
    json!([2, terms, {"atomic": true}])
}

fn create(client: &mut Client, name: &str, shards: u32) {
    let create = json!([60, [name], {"shards": shards, "replicas": 3, "durability": "soft"}]);
    assert_eq!(client.ask(&create)["tables_created"], 1);
    client.ask(&json!([177, [table(name)]]));
    assert_eq!(client.ask(&json!([75, [table(name), "n"]]))["created"], 1);
    assert_eq!(client.ask(&json!([140, [table(name)]]))[0]["ready"], true);
}

#[test]
fn an_atomic_query_writes_all_of_its_documents_in_several_tables_or_none() {
    let cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let mut clients: Vec<Client> = ports.iter().map(|port| Client::to(*port)).collect();
    create(&mut clients[0], "t", 4);
    create(&mut clients[0], "u", 2);
    let documents: Vec<Value> = (0..100).map(|id| json!({"id": id, "n": id % 10})).collect();
    let options = json!({"atomic": true, "durability": "hard"});
    let inserted = clients[1].ask(&json!([56, [table("t"), [2, documents]], options]));
    assert_eq!((&inserted["inserted"], &inserted["errors"]), (&json!(100), &json!(0)), "{inserted}");
    // One of the documents is there already.
    let more: Vec<Value> = (90..191).map(|id| json!({"id": 190 - (id - 90), "n": 77})).collect();
    let refused = clients[2].ask(&json!([56, [table("t"), [2, more]], options]));
    assert_eq!(refused["inserted"], 0, "{refused}");
    assert_eq!((&refused["errors"], &refused["undone"]), (&json!(10), &json!(91)), "{refused}");
    assert!(refused["first_error"].as_str().unwrap().starts_with("Duplicate primary key"), "{refused}");
    // Everybody sees what was acknowledged at once, by the key, by an index and by a scan.
    for round in 0..30 {
        let of = round % 3;
        let writes: Vec<Value> =
            (0..8).map(|id| set(if id % 2 == 0 { "t" } else { "u" }, id, 1_000 + round as u64)).collect();
        let answer = clients[of].ask(&atomically(&writes));
        assert_eq!(answer.as_array().map(Vec::len), Some(8), "{answer}");
        for client in &mut clients {
            for id in 0..8_u64 {
                let name = if id % 2 == 0 { "t" } else { "u" };
                let found = client.ask(&json!([16, [table(name), id]]));
                assert_eq!(found["n"], 1_000 + round, "{name} {found}");
            }
            let by_index = client.ask(&json!([43, [[78, [table("u"), 1_000 + round], {"index": "n"}]]]));
            assert_eq!(by_index, 4, "round {round}");
            let scanned = client.ask(&json!([43, [[39, [table("t"), {"n": 1_000 + round}]]]]));
            assert_eq!(scanned, 4, "round {round}");
        }
    }
    // What a function computes from documents that the query got is still true when it takes effect.
    let increment = {
        let n = |name: &str, id: u64| json!([170, [[16, [table(name), id]], "n"]]);
        let sum = |left: Value, right: u64| json!([24, [left, right]]);
        atomically(&[
            insert_or_replace("t", json!({"id": 0, "n": sum(n("t", 0), 1)})),
            insert_or_replace("u", json!({"id": 1, "n": sum(n("t", 0), 0)})),
        ])
    };
    let before = clients[0].ask(&json!([16, [table("t"), 0]]))["n"].as_u64().unwrap();
    let threads: Vec<_> = ports
        .iter()
        .map(|port| {
            let (mut client, increment) = (Client::to(*port), increment.clone());
            std::thread::spawn(move || {
                for _ in 0..30 {
                    let answer = client.ask(&increment);
                    assert!(answer.is_array(), "{answer}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for name_and_id in [("t", 0), ("u", 1)] {
        let found = clients[1].ask(&json!([16, [table(name_and_id.0), name_and_id.1]]));
        assert_eq!(found["n"], before + 90, "{found}");
    }
}

/// Writes the same number to all documents of both tables, one number after the other.
fn write(ports: &[u16], ending: &AtomicBool, acknowledged: &AtomicU64) {
    let (mut client, mut n, mut at) = (None, 0_u64, 0);
    while !ending.load(Ordering::Relaxed) {
        if client.is_none() {
            at += 1;
            client = Client::try_to(ports[at % ports.len()]);
        }
        let Some(connected) = &mut client else { continue };
        n += 1;
        let writes: Vec<Value> = (0..DOCUMENTS).flat_map(|id| [set("t", id, n), set("u", id, n)]).collect();
        match connected.try_ask(&atomically(&writes)) {
            None => client = None,
            Some(answer) if answer.is_array() => acknowledged.store(n, Ordering::Relaxed),
            // It may have been done or not.
            Some(_) => {}
        }
    }
}

/// A client whose feed of a table has begun.
fn open_feed(port: u16, name: &str) -> Client {
    let mut client = Client::to(port);
    client.send(7, &json!([1, [152, [table(name)], {"include_states": true}], {}]).to_string());
    let (_, answer) = client.receive();
    assert_eq!((&answer["t"], &answer["r"]), (&json!(3), &json!([{"state": "ready"}])), "{answer}");
    client.send(7, "[2]");
    client
}

/// What a feed tells of each document.
fn follow(mut client: Client, until: &AtomicU64) -> BTreeMap<u64, Vec<u64>> {
    let mut told = BTreeMap::<u64, Vec<u64>>::new();
    loop {
        let (_, answer) = client.receive();
        assert_eq!(answer["t"], 3, "{answer}");
        for message in answer["r"].as_array().unwrap() {
            let states = told.entry(message["new_val"]["id"].as_u64().unwrap()).or_default();
            assert_eq!(message["old_val"]["n"].as_u64(), states.last().copied(), "{message}");
            states.push(message["new_val"]["n"].as_u64().unwrap());
        }
        let last = until.load(Ordering::Relaxed);
        let has_all = |states: &Vec<u64>| last > 0 && states.last().is_some_and(|state| *state >= last);
        if told.len() as u64 == DOCUMENTS && told.values().all(has_all) {
            return told;
        }
        client.send(7, "[2]");
    }
}

#[test]
fn feeds_and_indexes_have_each_atomic_write_once_through_the_loss_of_a_node_and_a_split() {
    let mut cluster = Cluster::start_with_reql(4);
    let ports = cluster.reql_ports();
    let mut client = Client::to(ports[0]);
    create(&mut client, "t", 4);
    create(&mut client, "u", 2);
    let (ending, acknowledged, last) =
        (Arc::new(AtomicBool::new(false)), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let feeds: Vec<_> = ["t", "u"]
        .map(|name| {
            let (feed, last) = (open_feed(ports[0], name), last.clone());
            std::thread::spawn(move || follow(feed, &last))
        })
        .into();

    let writer = {
        let (ports, ending, acknowledged) = (vec![ports[0], ports[2]], ending.clone(), acknowledged.clone());
        std::thread::spawn(move || write(&ports, &ending, &acknowledged))
    };
    wait_for_more(&acknowledged, 50, PATIENCE);
    // It coordinates none of these transactions, and leads some of the partitions.
    cluster.kill(1);
    wait_for_more(&acknowledged, 50, PATIENCE);
    cluster.start_node(1);
    wait_for_more(&acknowledged, 20, PATIENCE);
    cluster.cli(0, "table alter test.u --partitions 4").unwrap();
    wait_for_more(&acknowledged, 50, PATIENCE);
    // One that coordinates some of them.
    cluster.kill(2);
    wait_for_more(&acknowledged, 20, PATIENCE);
    ending.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    cluster.start_node(2);
    let expected = acknowledged.load(Ordering::Relaxed);
    last.store(expected, Ordering::Relaxed);
    // The feeds wait for something to come.
    let mut n = 1_000_000;
    while !feeds.iter().all(std::thread::JoinHandle::is_finished) {
        n += 1;
        let writes: Vec<Value> = (0..DOCUMENTS).flat_map(|id| [set("t", id, n), set("u", id, n)]).collect();
        client.try_ask(&atomically(&writes));
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let told: Vec<_> = feeds.into_iter().map(|feed| feed.join().unwrap()).collect();
    // What was told of one document was told of all of them: writes took effect together.
    let of_one = told[0][&0].iter().filter(|state| **state < 1_000_000).collect::<Vec<_>>();
    assert!(of_one.len() > 100, "{of_one:?}");
    for states in told.iter().flat_map(BTreeMap::values) {
        assert!(states.is_sorted_by(|one, other| one < other), "{states:?}");
        let states: Vec<_> = states.iter().filter(|state| **state < 1_000_000).collect();
        assert_eq!(states, of_one);
    }
    for name in ["t", "u"] {
        let found = wait_for("the index is read", PATIENCE, || {
            let rows = client.ask(&json!([41, [table(name)], {"index": "n"}]));
            rows.is_array().then_some(rows)
        });
        let scanned = client.ask(&json!([41, [table(name), "id"]]));
        let mut found: Vec<_> = found.as_array().unwrap().clone();
        found.sort_by_key(|row| row["id"].as_u64());
        assert_eq!(Value::Array(found), scanned, "{name}");
    }
}

/// Transactions that were about to be decided in a table when it was truncated once kept their documents in other tables from everybody.
#[test]
fn no_document_is_held_for_a_table_that_was_truncated() {
    const TRUNCATIONS: usize = 8;
    let cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let mut client = Client::to(ports[0]);
    create(&mut client, "t", 4);
    create(&mut client, "u", 4);
    let (ending, acknowledged) = (AtomicBool::new(false), [(); 6].map(|()| AtomicU64::new(0)));
    std::thread::scope(|scope| {
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let (ports, ending) = (&ports, &ending);
            scope.spawn(move || {
                let mut client = Client::to(ports[writer % ports.len()]);
                let mut n = 0;
                while !ending.load(Ordering::Relaxed) {
                    n += 1;
                    // Each writer has documents of its own, so that no writer waits for another one.
                    let (id, other) = (n % 16 * 8 + writer as u64, n % 15 * 8 + writer as u64);
                    if client.ask(&atomically(&[set("t", id, n), set("u", other, n)])).is_array() {
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for _ in 0..TRUNCATIONS {
            acknowledged.iter().for_each(|acknowledged| wait_for_more(acknowledged, 5, PATIENCE));
            cluster.cli(1, "table truncate test.t --yes").unwrap();
        }
        ending.store(true, Ordering::Relaxed);
    });
    for at in 0..128 {
        let began = std::time::Instant::now();
        let answer = client.ask(&set("u", at, 1));
        assert_eq!(answer["errors"], 0, "document {at}: {answer}");
        assert!(began.elapsed() < Duration::from_secs(3), "document {at} was held for {:?}", began.elapsed());
    }
}
