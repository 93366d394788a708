//! Secondary indexes through the ReQL port: an index always holds what its function gives over the documents.

use crate::cluster::Cluster;
use crate::reql::{Client, PATIENCE, insert, table};
use crate::server::{Node, free_port, wait_for};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn row(field: &str) -> Value {
    json!([170, [[10, [1]], field]])
}

fn function(body: &Value) -> Value {
    json!([69, [[2, [1]], body]])
}

/// The indexes of the tests: name, further arguments of `index_create`, and options.
fn indexes() -> Vec<(&'static str, Vec<Value>, Value)> {
    vec![
        ("n", vec![], json!({})),
        ("pair", vec![function(&json!([2, [row("n"), row("s")]]))], json!({})),
        ("tags", vec![], json!({"multi": true})),
        ("double", vec![function(&json!([24, [row("n"), row("n")]]))], json!({})),
    ]
}

fn create_index(name: &str, args: &[Value], options: &Value) -> Value {
    let args: Vec<Value> = [table("t"), json!(name)].into_iter().chain(args.iter().cloned()).collect();
    json!([75, args, options])
}

fn wait(client: &mut Client, names: &[&str]) -> Value {
    let args: Vec<Value> = std::iter::once(table("t")).chain(names.iter().map(|name| json!(name))).collect();
    client.ask(&json!([140, args]))
}

fn by_index(name: &str) -> Value {
    json!([41, [table("t")], {"index": name}])
}

fn get_all(name: &str, key: &Value) -> Value {
    let key = if key.is_array() { json!([2, key]) } else { key.clone() };
    json!([78, [table("t"), key], {"index": name}])
}

/// What an index must have of a document: `null` where it has nothing.
fn keys_of(index: &str, document: &Value) -> Vec<Value> {
    let n = document.get("n").and_then(Value::as_i64);
    let s = document.get("s").and_then(Value::as_str);
    match index {
        "n" => n.map(|n| json!(n)).into_iter().collect(),
        "pair" => n.zip(s).map(|(n, s)| json!([n, s])).into_iter().collect(),
        "double" => n.map(|n| json!(2 * n)).into_iter().collect(),
        "tags" => document.get("tags").and_then(Value::as_array).cloned().unwrap_or_default(),
        other => panic!("no index {other}"),
    }
}

fn document(id: i64, random: &mut SmallRng) -> Value {
    let mut document = json!({"id": id, "s": format!("s{}", random.random_range(0..5))});
    if random.random_bool(0.9) {
        document["n"] = json!(random.random_range(0..50));
    }
    if random.random_bool(0.7) {
        let tags: Vec<String> =
            (0..random.random_range(0..4)).map(|_| format!("t{}", random.random_range(0..6))).collect();
        document["tags"] = json!(tags);
    }
    document
}

fn ids(rows: &Value) -> Vec<i64> {
    let rows = rows.as_array().unwrap_or_else(|| panic!("no rows: {rows}"));
    rows.iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

fn sorted(mut ids: Vec<i64>) -> Vec<i64> {
    ids.sort_unstable();
    ids
}

/// Compares everything that each index tells with the documents themselves.
fn check_indexes(client: &mut Client, names: &[&str]) {
    let documents = client.ask(&table("t"));
    let documents = documents.as_array().unwrap_or_else(|| panic!("no rows: {documents}"));
    for name in names {
        let mut wanted: Vec<(Value, i64)> = Vec::new();
        for document in documents {
            wanted.extend(keys_of(name, document).into_iter().map(|key| (key, document["id"].as_i64().unwrap())));
        }
        let rows = client.ask(&by_index(name));
        let found = ids(&rows);
        assert_eq!(sorted(found), sorted(wanted.iter().map(|(_, id)| *id).collect()), "index {name}");
        let keys: Vec<&Value> = wanted.iter().map(|(key, _)| key).collect();
        for key in keys.iter().take(5) {
            let found = sorted(ids(&client.ask(&get_all(name, key))));
            let of_key = wanted.iter().filter(|(other, _)| other == *key).map(|(_, id)| *id).collect();
            assert_eq!(found, sorted(of_key), "index {name}, key {key}");
        }
        if *name == "n" {
            // In order, both ways, and a range of it.
            let order = |rows: &Value| {
                rows.as_array().unwrap().iter().map(|row| row["n"].as_i64().unwrap()).collect::<Vec<_>>()
            };
            let ascending = order(&rows);
            assert!(ascending.is_sorted(), "{ascending:?}");
            let mut descending = order(&client.ask(&json!([41, [table("t")], {"index": [74, ["n"]]}])));
            descending.reverse();
            assert_eq!(descending, ascending);
            let between = client.ask(&json!([182, [table("t"), 10, 20], {"index": "n"}]));
            assert_eq!(ids(&between).len(), ascending.iter().filter(|n| (10..20).contains(*n)).count());
        }
    }
}

/// Writes at random until told to stop, and survives that its node goes.
fn write(port: u16, seed: u64, stop: &AtomicBool) -> usize {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut client, mut writes) = (None, 0);
    while !stop.load(Ordering::Relaxed) {
        let Some(connection) = client.as_mut() else {
            client = Client::try_to(port);
            continue;
        };
        let id = random.random_range(0..400);
        let one = json!([16, [table("t"), id]]);
        let term = match random.random_range(0..4) {
            0 => json!([56, [table("t"), document(id, &mut random)], {"conflict": "replace"}]),
            1 => json!([53, [one, function(&json!({"n": [24, [row("n"), 1]]}))]]),
            2 => json!([53, [one, {"tags": [2, ["t1", "t1", format!("t{}", random.random_range(0..9))]]}]]),
            _ => json!([54, [one]]),
        };
        match Client::try_ask(connection, &term) {
            Some(_) => writes += 1,
            None => client = None,
        }
    }
    writes
}

#[test]
fn an_index_is_made_used_renamed_and_dropped() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let setting = format!("reql.port={port}");
    let mut node = Node::start(data.path(), &[&setting]);
    let mut client = Client::to(port);
    assert_eq!(client.ask(&json!([60, ["t"], {"shards": 16}]))["tables_created"], 1);
    let mut random = SmallRng::seed_from_u64(7);
    let documents: Vec<Value> = (0..1500).map(|id| document(id, &mut random)).collect();
    for part in documents.chunks(500) {
        let literal: Vec<Value> = part.iter().map(|document| json!([98, [document.to_string()]])).collect();
        assert_eq!(client.ask(&insert("t", &literal))["inserted"], 500);
    }
    for (name, args, options) in indexes() {
        assert_eq!(client.ask(&create_index(name, &args, &options))["created"], 1, "{name}");
    }
    let again = client.ask(&create_index("n", &[], &json!({})));
    assert_eq!(again["r"][0], "Index `n` already exists on table `test.t`.");
    let ready = wait(&mut client, &[]);
    assert_eq!(ready.as_array().map(Vec::len), Some(4), "{ready}");
    assert!(ready.as_array().unwrap().iter().all(|index| index["ready"] == true), "{ready}");
    let names = ["n", "pair", "tags", "double"];
    check_indexes(&mut client, &names);
    let missing = client.ask(&get_all("none", &json!(1)));
    assert_eq!(missing["r"][0], "Index `none` was not found on table `test.t`.");
    // What index_status tells makes the same index again.
    let status = client.ask(&json!([139, [table("t"), "pair"]]));
    let again = client.ask(&create_index("again", &[status[0]["function"].clone()], &json!({})));
    assert_eq!(again["created"], 1, "{again}");
    wait(&mut client, &["again"]);
    let key = json!([3, "s1"]);
    assert_eq!(ids(&client.ask(&get_all("again", &key))), ids(&client.ask(&get_all("pair", &key))));
    // Names.
    assert_eq!(client.ask(&json!([156, [table("t"), "double", "twice"]]))["renamed"], 1);
    assert!(client.ask(&json!([156, [table("t"), "again", "twice"]]))["r"][0].to_string().contains("already exists"));
    assert_eq!(client.ask(&json!([156, [table("t"), "again", "twice"], {"overwrite": true}]))["renamed"], 1);
    assert_eq!(client.ask(&json!([77, [table("t")]])), json!(["n", "pair", "tags", "twice"]));
    assert_eq!(client.ask(&json!([76, [table("t"), "tags"]]))["dropped"], 1);
    assert!(client.ask(&get_all("tags", &json!("t1")))["r"][0].to_string().contains("was not found"));
    // Long keys are cut in the index, but not in what is found.
    let long = "x".repeat(300);
    for (id, s) in [(9001, format!("{long}a")), (9002, format!("{long}b"))] {
        let one = json!([98, [json!({"id": id, "n": 1, "s": s}).to_string()]]);
        assert_eq!(client.ask(&insert("t", &[one]))["inserted"], 1);
    }
    assert_eq!(ids(&client.ask(&get_all("pair", &json!([1, format!("{long}b")])))), [9002]);
    // Some documents have many more bytes in the index than are written in one step.
    let many: Vec<String> = (0..4000).map(|at| format!("{}{at}", "m".repeat(200))).collect();
    for id in 9100..9103 {
        let one = json!([98, [json!({"id": id, "many": many}).to_string()]]);
        assert_eq!(client.ask(&insert("t", &[one]))["inserted"], 1);
    }
    assert_eq!(client.ask(&create_index("many", &[], &json!({"multi": true})))["created"], 1);
    wait(&mut client, &["many"]);
    assert_eq!(sorted(ids(&client.ask(&get_all("many", &json!(many[77]))))), [9100, 9101, 9102]);
    // All of it is there after a restart.
    node.process.terminate();
    drop(node);
    node = Node::start(data.path(), &[&setting]);
    let mut client = Client::to(port);
    check_indexes(&mut client, &["n", "pair"]);
    // A split takes the indexes along.
    node.cli("table alter test.t --partitions 32");
    wait_for("the split", PATIENCE, || {
        let answer = client.ask(&json!([43, [by_index("n")]]));
        let state = client.ask(&json!([174, [table("t")]]));
        (answer.is_number() && state["shards"].as_array()?.len() == 32).then_some(())
    });
    check_indexes(&mut client, &["n", "pair"]);
}

/// An index is made while others write, and the node is killed meanwhile.
#[test]
fn an_index_built_under_writes_and_kills_holds_what_the_documents_do() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let setting = format!("reql.port={port}");
    let mut node = Node::start(data.path(), &[&setting]);
    let mut client = Client::to(port);
    let hard = json!([60, ["t"], {"durability": "hard", "shards": 4}]);
    assert_eq!(client.ask(&hard)["tables_created"], 1);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|seed| {
            let stop = stop.clone();
            std::thread::spawn(move || write(port, seed, &stop))
        })
        .collect();
    let count = json!([43, [table("t")]]);
    wait_for("documents", PATIENCE, || (client.ask(&count).as_i64()? > 50).then_some(()));
    for (at, (name, args, options)) in indexes().into_iter().enumerate() {
        assert_eq!(client.ask(&create_index(name, &args, &options))["created"], 1, "{name}");
        if at % 2 == 0 {
            node.process.kill();
            drop(node);
            node = Node::start(data.path(), &[&setting]);
            client = Client::to(port);
        }
    }
    let ready = wait(&mut client, &[]);
    assert_eq!(ready.as_array().map(Vec::len), Some(4), "{ready}");
    stop.store(true, Ordering::Relaxed);
    let writes: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    assert!(writes > 100, "{writes}");
    check_indexes(&mut client, &["n", "pair", "tags", "double"]);
}

/// The nodes that lead go one after the other while an index is built and documents change.
#[test]
fn an_index_is_whole_whoever_leads() {
    let mut cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let mut client = Client::to(ports[0]);
    assert_eq!(client.ask(&json!([60, ["t"], {"replicas": 3, "shards": 8}]))["tables_created"], 1);
    let mut random = SmallRng::seed_from_u64(11);
    for _ in 0..4 {
        let base = random.random_range(0..1000) * 1000;
        let part: Vec<Value> = (0..400).map(|id| json!([98, [document(base + id, &mut random).to_string()]])).collect();
        // Leaders of a new table move to where they are to be, so the outcome of a write may not be known.
        let term = json!([56, [table("t"), [2, part]], {"conflict": "replace"}]);
        wait_for("documents", PATIENCE, || {
            let answer = client.ask(&term);
            let done = ["inserted", "replaced", "unchanged"].map(|what| answer[what].as_i64().unwrap_or(0));
            (done.iter().sum::<i64>() == 400).then_some(())
        });
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|at| {
            let (stop, port) = (stop.clone(), ports[at]);
            std::thread::spawn(move || write(port, at as u64, &stop))
        })
        .collect();
    for (name, args, options) in indexes() {
        assert_eq!(client.ask(&create_index(name, &args, &options))["created"], 1, "{name}");
    }
    cluster.kill(2);
    let ready = wait_for("the indexes", PATIENCE, || {
        let ready = wait(&mut client, &[]);
        ready.is_array().then_some(ready)
    });
    assert!(ready.as_array().unwrap().iter().all(|index| index["ready"] == true), "{ready}");
    stop.store(true, Ordering::Relaxed);
    assert!(writers.into_iter().map(|writer| writer.join().unwrap()).sum::<usize>() > 50);
    let mut other = Client::to(ports[1]);
    check_indexes(&mut other, &["n", "pair", "tags", "double"]);
}

/// One node makes an index, another one is asked to wait for it without its name, and a third one reads by it.
#[test]
fn a_node_waits_for_indexes_that_another_node_has_just_made() {
    let cluster = Cluster::start_with_reql(3);
    let [mut makes, mut waits, mut reads] = [0, 1, 2].map(|at| Client::to(cluster.reql_ports()[at]));
    assert_eq!(makes.ask(&json!([60, ["t"], {"shards": 4, "replicas": 3}]))["tables_created"], 1);
    let documents: Vec<Value> = (0..300).map(|id| json!({"id": id, "n": id % 10})).collect();
    assert_eq!(makes.ask(&insert("t", &documents))["inserted"], 300);
    for number in 0..12 {
        let name = format!("n{number}");
        assert_eq!(makes.ask(&json!([75, [table("t"), name, function(&row("n"))]]))["created"], 1);
        let ready = waits.ask(&json!([140, [table("t")]]));
        assert_eq!(ready.as_array().map(Vec::len), Some(number + 1), "{ready}");
        assert_eq!(reads.ask(&json!([43, [[78, [table("t"), 3], {"index": name}]]])), 30, "by {name}");
    }
}

/// A stream that has begun by an index does not go on in another one that got its name.
#[test]
fn a_stream_by_an_index_ends_when_another_one_takes_its_name() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut client = Client::to(port);
    assert_eq!(client.ask(&json!([60, ["t"], {"shards": 2}]))["tables_created"], 1);
    let documents: Vec<Value> = (0..2000).map(|id| json!({"id": id, "n": id, "s": format!("s{id}")})).collect();
    for part in documents.chunks(500) {
        assert_eq!(client.ask(&insert("t", part))["inserted"], 500);
    }
    let some = json!([182, [table("t"), -1, 5000], {"index": "by"}]);
    for (token, stream) in
        (9001..).zip([by_index("by"), json!([33, [by_index("by"), "id"]]), some.clone(), json!([33, [some, "id"]])])
    {
        for (name, field) in [("by", "n"), ("other", "s")] {
            assert_eq!(client.ask(&json!([75, [table("t"), name, function(&row(field))]]))["created"], 1);
        }
        wait(&mut client, &[]);
        client.send(token, &json!([1, stream, {"max_batch_rows": 10}]).to_string());
        assert_eq!(client.receive().1["t"], 3, "{stream}");
        assert_eq!(client.ask(&json!([156, [table("t"), "other", "by"], {"overwrite": true}]))["renamed"], 1);
        let end = wait_for("the end of the stream", PATIENCE, || {
            client.send(token, "[2]");
            Some(client.receive().1).filter(|answer| answer["t"] != 3)
        });
        let text = end["r"][0].as_str().unwrap_or_default();
        assert!(text.contains("Index `by` on table `test.t` was replaced by another one"), "{stream}: {end}");
        assert_eq!(client.ask(&json!([76, [table("t"), "by"]]))["dropped"], 1);
    }
}

#[test]
fn names_of_indexes_are_told_without_leaders() {
    let mut cluster = Cluster::start_with_reql(3);
    let mut client = Client::to(cluster.reql_ports()[0]);
    assert_eq!(client.ask(&json!([60, ["t"], {"shards": 8, "replicas": 1}]))["tables_created"], 1);
    assert_eq!(client.ask(&create_index("n", &[], &json!({})))["created"], 1);
    cluster.kill(2);
    let began = std::time::Instant::now();
    assert_eq!(client.ask(&json!([77, [table("t")]])), json!(["n"]));
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}

/// What an outdated read by an index gives are documents that had that key, whatever is applied meanwhile.
#[test]
fn an_outdated_read_by_an_index_gives_documents_that_belong_there() {
    let cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let mut client = Client::to(ports[0]);
    let options = json!({"shards": 1, "replicas": 3, "durability": "soft"});
    assert_eq!(client.ask(&json!([60, ["t"], options]))["tables_created"], 1);
    assert_eq!(client.ask(&create_index("s", &[], &json!({})))["created"], 1);
    let documents: Vec<Value> = (0..200).map(|id| json!({"id": id, "s": "open"})).collect();
    assert_eq!(client.ask(&insert("t", &documents))["inserted"], 200);
    wait(&mut client, &[]);
    let outdated = json!([15, ["t"], {"read_mode": "outdated"}]);
    let by_state = |state: &str| json!([78, [outdated, state], {"index": "s"}]);
    let mut readers: Vec<Client> = ports.iter().map(|port| Client::to(*port)).collect();
    // The index is ready where the partition is led, and on the other replicas a little later.
    for reader in &mut readers {
        wait_for("the replica has the index", PATIENCE, || reader.ask(&by_state("open")).is_array().then_some(()));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let toggling = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let other = json!([65, [[17, [row("s"), "open"]], "closed", "open"]]);
            while !stop.load(Ordering::Relaxed) {
                client.ask(&json!([53, [table("t"), function(&json!({"s": other}))]]));
            }
        }
    });
    for round in 0..1500 {
        let wanted = ["open", "closed"][round % 2];
        let found = readers[round % 3].ask(&by_state(wanted));
        for document in found.as_array().unwrap_or_else(|| panic!("{found}")) {
            assert_eq!(document["s"], wanted, "{document}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    toggling.join().unwrap();
}

/// Its function took ten seconds in each partition, one after the other, before other tables had their turn.
#[test]
fn an_index_that_is_never_built_does_not_keep_others_from_being_built() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut client = Client::to(port);
    let increment = json!([69, [[2, [3]], [24, [[10, [3]], 1]]]]);
    let never = function(&json!([43, [[38, [[173, [1_000_000_000_000_u64]], increment]]]]));
    for name in ["slow", "other"] {
        assert_eq!(client.ask(&json!([60, [name], {"shards": 16}]))["tables_created"], 1);
        let documents: Vec<Value> = (0..200).map(|id| json!({"id": id, "n": id})).collect();
        assert_eq!(client.ask(&insert(name, &documents))["inserted"], 200);
    }
    assert_eq!(client.ask(&json!([75, [table("slow"), "never", never]]))["created"], 1);
    // The builder is at it before the others are there.
    wait_for("the index is known", PATIENCE, || {
        (client.ask(&json!([139, [table("slow")]]))[0]["ready"] == false).then_some(())
    });
    assert_eq!(client.ask(&json!([75, [table("other"), "n"]]))["created"], 1);
    let is_built = |client: &mut Client, name| client.ask(&json!([139, [table(name), "n"]]))[0]["ready"] == true;
    wait_for("the index of the other table is built", PATIENCE, || is_built(&mut client, "other").then_some(()));
    assert_eq!(client.ask(&json!([139, [table("slow"), "never"]]))[0]["ready"], false);
}
