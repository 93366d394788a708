//! Unique secondary indexes through the ReQL port: no two documents have the same key, whoever writes them where and when.

use crate::cluster::Cluster;
use crate::reql::{Client, PATIENCE, create, insert, table};
use crate::server::{wait_for, wait_for_more};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn get(id: i64) -> Value {
    json!([16, [table("t"), id]])
}

fn update(id: i64, fields: Value) -> Value {
    json!([53, [get(id), fields]])
}

fn delete(id: i64) -> Value {
    json!([54, [get(id)]])
}

fn row(field: &str) -> Value {
    json!([170, [[10, [1]], field]])
}

fn function(body: Value) -> Value {
    json!([69, [[2, [1]], body]])
}

/// What an answer to a write counts: inserted, replaced, deleted and errors.
fn counts(answer: &Value) -> [u64; 4] {
    ["inserted", "replaced", "deleted", "errors"]
        .map(|name| answer[name].as_u64().unwrap_or_else(|| panic!("{answer}")))
}

fn first_error(answer: &Value) -> &str {
    answer["first_error"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

fn create_unique(client: &mut Client, name: &str, function: Option<Value>, multi: bool) {
    let args: Vec<Value> = [table("t"), json!(name)].into_iter().chain(function).collect();
    let answer = client.ask(&json!([75, args, {"unique": true, "multi": multi}]));
    assert_eq!(answer["created"], 1, "{answer}");
}

fn wait(client: &mut Client) {
    let answer = client.ask(&json!([140, [table("t")]]));
    assert!(answer.is_array(), "{answer}");
}

fn start(shards: u32) -> (Cluster, Vec<Client>) {
    let cluster = Cluster::start_with_reql(3);
    let mut clients: Vec<Client> = cluster.reql_ports().into_iter().map(Client::to).collect();
    let made = clients[0].ask(&json!([60, ["t"], {"shards": shards, "replicas": 3, "durability": "soft"}]));
    assert_eq!(made["tables_created"], 1, "{made}");
    clients[0].ask(&json!([177, [table("t")]]));
    (cluster, clients)
}

#[test]
fn a_second_document_with_the_same_key_is_refused_by_every_way_of_writing() {
    let (_cluster, mut clients) = start(4);
    create_unique(&mut clients[0], "email", None, false);
    wait(&mut clients[0]);
    let status = clients[1].ask(&json!([139, [table("t")]]));
    assert_eq!((&status[0]["unique"], &status[0]["ready"]), (&json!(true), &json!(true)), "{status}");
    let person = |id: i64, email: &str| json!({"id": id, "email": email});
    let ada = clients[0].ask(&insert("t", &[person(1, "ada")]));
    assert_eq!(counts(&ada), [1, 0, 0, 0], "{ada}");
    for (at, client) in clients.iter_mut().enumerate() {
        let refused = client.ask(&insert("t", &[person(2, "ada")]));
        assert_eq!(counts(&refused), [0, 0, 0, 1], "through node {at}: {refused}");
        let wanted = "Duplicate key of unique index `email`: `\"ada\"` belongs to the document with primary key `1`.";
        assert_eq!(first_error(&refused), wanted);
        // The one that has the key may be written again, and the primary key is complained about first.
        assert_eq!(counts(&client.ask(&update(1, json!({"email": "ada", "n": at + 1})))), [0, 1, 0, 0]);
        let there = client.ask(&insert("t", &[person(1, "ada")]));
        assert!(first_error(&there).starts_with("Duplicate primary key"), "{there}");
    }
    let client = &mut clients[1];
    // A batch: the documents are written that can be, also if two of them have the same key.
    let batch: Vec<Value> = (10..500).map(|id| person(id, &format!("e{}", id % 400))).collect();
    let answer = client.ask(&insert("t", &batch));
    assert_eq!(counts(&answer), [400, 0, 0, 90], "{answer}");
    assert_eq!(client.ask(&json!([43, [table("t")]])), 401);
    // Updates, replaces and what `for_each` writes.
    let taken = client.ask(&update(10, json!({"email": "ada"})));
    assert_eq!(counts(&taken), [0, 0, 0, 1], "{taken}");
    let taken = client.ask(&json!([55, [get(10), person(10, "e11")]]));
    assert_eq!(counts(&taken), [0, 0, 0, 1], "{taken}");
    let conflict = json!([56, [table("t"), person(11, "ada")], {"conflict": "replace"}]);
    assert_eq!(counts(&client.ask(&conflict)), [0, 0, 0, 1]);
    let each = json!([68, [[2, [600, 601]], function(json!([56, [table("t"), {"id": [10, [1]], "email": "new"}]]))]]);
    let each = client.ask(&each);
    assert_eq!(counts(&each), [1, 0, 0, 1], "{each}");
    // What is deleted, updated or replaced frees its key.
    assert_eq!(counts(&client.ask(&delete(1))), [0, 0, 1, 0]);
    assert_eq!(counts(&client.ask(&update(10, json!({"email": "ada"})))), [0, 1, 0, 0]);
    assert_eq!(counts(&client.ask(&insert("t", &[person(1, "e10")]))), [1, 0, 0, 0]);
    assert_eq!(counts(&client.ask(&json!([55, [get(1), {"id": 1}]]))), [0, 1, 0, 0]);
    assert_eq!(counts(&client.ask(&insert("t", &[person(2, "e10")]))), [1, 0, 0, 0]);
    // Null and absent keys are not indexed.
    let without = [json!({"id": 700}), json!({"id": 701, "email": null}), json!({"id": 702, "email": {}})];
    assert_eq!(counts(&client.ask(&insert("t", &without))), [3, 0, 0, 0]);
    // All of a long key counts.
    let long = |last: &str| format!("{}{last}", "x".repeat(1_000));
    let long_ones = [person(800, &long("a")), person(801, &long("b")), person(802, &long("a"))];
    let answer = client.ask(&insert("t", &long_ones));
    assert_eq!(counts(&answer), [2, 0, 0, 1], "{answer}");
    assert!(first_error(&answer).contains("the key belongs to the document with primary key `800`"), "{answer}");
    // A renamed index goes on; a dropped one refuses nothing.
    assert_eq!(client.ask(&json!([156, [table("t"), "email", "mail"]]))["renamed"], 1);
    wait_for("the node knows the new name", PATIENCE, || {
        let refused = clients[2].ask(&insert("t", &[person(3, "e10")]));
        let error = first_error(&refused).to_string();
        assert!(error.starts_with("Duplicate key of unique index"), "{error}");
        error.starts_with("Duplicate key of unique index `mail`").then_some(())
    });
    let function = status[0]["function"].clone();
    assert_eq!(clients[2].ask(&json!([76, [table("t"), "mail"]]))["dropped"], 1);
    wait_for("partitions know that the index is gone", PATIENCE, || {
        (counts(&clients[0].ask(&insert("t", &[person(3, "e10")]))) == [1, 0, 0, 0]).then_some(())
    });
    // The function that `index_status` told makes a unique index again, which cannot be built, since there are two `e10` now.
    assert_eq!(clients[0].ask(&json!([75, [table("t"), "again", function]]))["created"], 1);
    let failed = clients[1].ask(&json!([140, [table("t"), "again"]]));
    let reason = "the documents with primary keys `2` and `3` both have the key `\"e10\"`.";
    assert_eq!(failed["r"][0], format!("Index `again` on table `test.t` cannot be built: {reason}"), "{failed}");
    let status = clients[2].ask(&json!([139, [table("t")]]));
    assert_eq!((&status[0]["ready"], &status[0]["error"]), (&json!(false), &json!(reason)), "{status}");
    // These two can be written, also so that there is one of them only; then the index is built.
    assert_eq!(counts(&clients[0].ask(&update(3, json!({"n": 1})))), [0, 1, 0, 0]);
    assert_eq!(counts(&clients[0].ask(&delete(3))), [0, 0, 1, 0]);
    wait_for("the index is built", PATIENCE, || {
        let status = clients[2].ask(&json!([139, [table("t")]]));
        (status[0]["ready"] == true && status[0].get("error").is_none()).then_some(())
    });
    assert_eq!(counts(&clients[1].ask(&insert("t", &[person(3, "e10")]))), [0, 0, 0, 1]);
}

#[test]
fn an_atomic_query_moves_keys_between_documents_or_does_nothing() {
    let (_cluster, mut clients) = start(4);
    create_unique(&mut clients[0], "n", None, false);
    wait(&mut clients[0]);
    let client = &mut clients[0];
    let documents: Vec<Value> = (0..50).map(|id| json!({"id": id, "n": id})).collect();
    assert_eq!(counts(&client.ask(&insert("t", &documents))), [50, 0, 0, 0]);
    // All of them at once; one by one that could not be done.
    let shift = json!([53, [table("t"), function(json!({"n": [24, [row("n"), 1]]}))], {"atomic": true}]);
    let shifted = client.ask(&shift);
    assert_eq!(counts(&shifted), [0, 50, 0, 0], "{shifted}");
    let swap = json!([2, [update(7, json!({"n": 9})), update(8, json!({"n": 8}))], {"atomic": true}]);
    assert!(client.ask(&swap).is_array());
    // Two documents of the query, and one that is not in it.
    for other in [json!({"id": 101, "n": 100}), json!({"id": 101, "n": 20})] {
        let both = [json!({"id": 100, "n": 100}), other];
        let refused = client.ask(&json!([56, [table("t"), [2, both]], {"atomic": true}]));
        let text = refused["r"][0].as_str().unwrap_or_else(|| panic!("{refused}"));
        assert!(text.starts_with("Nothing was written, since the query is atomic: Duplicate key of"), "{text}");
        assert_eq!(client.ask(&get(100)), Value::Null);
    }
    // Through other nodes the keys are where they are now.
    assert_eq!(counts(&clients[2].ask(&insert("t", &[json!({"id": 60, "n": 0})]))), [1, 0, 0, 0]);
    assert_eq!(counts(&clients[2].ask(&insert("t", &[json!({"id": 61, "n": 50})]))), [0, 0, 0, 1]);
}

/// The indexes of the model: what each one has of a document.
fn keys_of(document: &Value) -> Vec<(&'static str, String)> {
    let mut keys = Vec::new();
    if let Some(email) = document["email"].as_str() {
        keys.push(("email", email.to_string()));
    }
    if let (Some(a), Some(b)) = (document["a"].as_i64(), document["b"].as_i64()) {
        keys.push(("pair", format!("{a},{b}")));
    }
    for tag in document["tags"].as_array().into_iter().flatten() {
        keys.push(("tags", tag.to_string()));
    }
    keys
}

/// Whether a document may take its place among others.
fn may_be(model: &BTreeMap<i64, Value>, id: i64, document: &Value) -> bool {
    let wanted: BTreeSet<_> = keys_of(document).into_iter().collect();
    model.iter().all(|(other, there)| *other == id || keys_of(there).iter().all(|key| !wanted.contains(key)))
}

fn random_fields(random: &mut SmallRng) -> Value {
    let mut fields = json!({});
    if random.random_bool(0.5) {
        let length = [1, 300][random.random_range(0..2)];
        fields["email"] = json!(format!("{}{}", "x".repeat(length), random.random_range(0..15)));
    }
    if random.random_bool(0.3) {
        fields["email"] = Value::Null;
    }
    if random.random_bool(0.6) {
        fields["a"] = json!(random.random_range(0..5));
        fields["b"] = json!(random.random_range(0..5));
    }
    if random.random_bool(0.5) {
        let tags: Vec<i64> = (0..random.random_range(0..4)).map(|_| random.random_range(0..40)).collect();
        fields["tags"] = json!(tags);
    }
    fields
}

fn merged(document: &Value, fields: &Value) -> Value {
    let mut document = document.clone();
    for (name, value) in fields.as_object().unwrap() {
        document[name] = value.clone();
    }
    document
}

/// A document as a term: arrays are made.
fn term_of(document: &Value) -> Value {
    let mut term = document.clone();
    if let Some(tags) = document.get("tags") {
        term["tags"] = json!([2, tags]);
    }
    term
}

#[test]
fn random_writes_are_refused_as_a_plain_model_refuses_them() {
    let (_cluster, mut clients) = start(4);
    create_unique(&mut clients[0], "email", None, false);
    create_unique(&mut clients[0], "pair", Some(function(json!([2, [row("a"), row("b")]]))), false);
    create_unique(&mut clients[0], "tags", None, true);
    wait(&mut clients[0]);
    let mut random = SmallRng::seed_from_u64(7);
    let mut model = BTreeMap::<i64, Value>::new();
    let mut refused = 0;
    for step in 0..1_500 {
        let client = &mut clients[step % 3];
        let id = random.random_range(0..40);
        let fields = random_fields(&mut random);
        let whole = merged(&json!({"id": id}), &fields);
        let before = model.get(&id).cloned();
        let (term, after) = match random.random_range(0..10) {
            0..3 => {
                let conflict = ["error", "replace", "update"][random.random_range(0..3)];
                let after = match (&before, conflict) {
                    (Some(_), "error") => None,
                    (Some(before), "update") => Some(merged(before, &fields)),
                    _ => Some(whole.clone()),
                };
                (json!([56, [table("t"), term_of(&whole)], {"conflict": conflict}]), after)
            }
            3..6 => (update(id, term_of(&fields)), before.as_ref().map(|before| merged(before, &fields))),
            6..8 => (json!([55, [get(id), term_of(&whole)]]), Some(whole)),
            _ => (delete(id), None),
        };
        let is_delete = term[0] == 54;
        let answer = client.ask(&term);
        let errors = counts(&answer)[3];
        match after {
            Some(after) if may_be(&model, id, &after) => {
                assert_eq!(errors, 0, "step {step}: {term} -> {answer}");
                model.insert(id, after);
            }
            Some(_) => {
                assert_eq!(errors, 1, "step {step}: {term} -> {answer}");
                assert!(first_error(&answer).starts_with("Duplicate key of unique index"), "{answer}");
                refused += 1;
            }
            None if is_delete => _ = model.remove(&id),
            // It is there already, or it is not there.
            None => {}
        }
    }
    assert!(refused > 100, "{refused}");
    let found = clients[0].ask(&json!([41, [table("t"), "id"]]));
    assert_eq!(found, json!(model.into_values().collect::<Vec<_>>()));
}

/// Keys that all writers want.
const KEYS: u64 = 12;

/// Has some documents of its own and gives them keys that the others want too, until told to stop. Returns what it knows of its documents, `None`
/// where it does not know.
fn race(ports: &[u16], writer: u64, ending: &AtomicBool, acknowledged: &AtomicU64) -> BTreeMap<u64, Option<Value>> {
    let mut random = SmallRng::seed_from_u64(writer);
    let (mut client, mut at) = (None, writer as usize);
    let mut known: BTreeMap<u64, Option<Value>> = BTreeMap::new();
    let (mut ids, mut made) = ([0, 1, 2, 3, 4].map(|place| writer * 1_000 + place), 5);
    while !ending.load(Ordering::Relaxed) {
        if client.is_none() {
            at += 1;
            client = Client::try_to(ports[at % ports.len()]);
        }
        let Some(connected) = &mut client else { continue };
        let place = random.random_range(0..ids.len());
        let id = ids[place];
        let document = json!({"id": id, "key": random.random_range(0..KEYS), "n": random.random_range(0..1_000_000)});
        let is_delete = random.random_bool(0.3);
        let term = match is_delete {
            true => delete(id as i64),
            false => json!([56, [table("t"), document.clone()], {"conflict": "replace"}]),
        };
        match connected.try_ask(&term) {
            Some(answer) if answer.get("errors").is_some() => {
                if answer["errors"] == 0 {
                    known.insert(id, Some(if is_delete { Value::Null } else { document }));
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                } else {
                    assert!(first_error(&answer).starts_with("Duplicate key of unique index `key`"), "{answer}");
                }
            }
            // It may have been done, or may still be done: nothing more is said of this document.
            answer => {
                known.insert(id, None);
                ids[place] = writer * 1_000 + made;
                made += 1;
                if answer.is_none() {
                    client = None;
                }
            }
        }
    }
    known
}

#[test]
fn writers_that_race_for_the_same_keys_never_both_get_one_through_the_loss_of_a_node_and_a_split() {
    let (mut cluster, mut clients) = start(4);
    create_unique(&mut clients[0], "key", None, false);
    wait(&mut clients[0]);
    let ports = cluster.reql_ports();
    let (ending, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicU64>::default());
    let writers: Vec<_> = (1..=8)
        .map(|writer| {
            let (ports, ending, acknowledged) = (ports.clone(), ending.clone(), acknowledged.clone());
            std::thread::spawn(move || race(&ports, writer, &ending, &acknowledged))
        })
        .collect();
    wait_for_more(&acknowledged, 200, PATIENCE);
    cluster.kill(1);
    wait_for_more(&acknowledged, 100, PATIENCE);
    cluster.start_node(1);
    wait_for_more(&acknowledged, 100, PATIENCE);
    cluster.cli(0, "table alter test.t --partitions 8").unwrap();
    wait_for_more(&acknowledged, 100, PATIENCE);
    cluster.kill(2);
    wait_for_more(&acknowledged, 100, PATIENCE);
    cluster.start_node(2);
    wait_for_more(&acknowledged, 100, PATIENCE);
    ending.store(true, Ordering::Relaxed);
    let known: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    wait_for("the table is split", PATIENCE, || {
        let status = clients[0].ask(&json!([39, [[15, [[14, ["rethinkdb"]], "table_status"]], {"name": "t"}]]));
        (status[0]["shards"].as_array()?.len() == 8).then_some(())
    });
    let client = &mut clients[0];
    let rows = wait_for("the table is read", PATIENCE, || {
        let rows = client.ask(&table("t"));
        rows.as_array().cloned()
    });
    let mut holders = BTreeMap::new();
    for row in &rows {
        let earlier = holders.insert(row["key"].as_u64().unwrap(), row);
        assert!(earlier.is_none(), "two documents with one key: {row} and {earlier:?}");
    }
    let found: BTreeMap<u64, &Value> = rows.iter().map(|row| (row["id"].as_u64().unwrap(), row)).collect();
    for (id, document) in known.iter().flatten() {
        let there = found.get(id).map_or(Value::Null, |row| (*row).clone());
        assert!(document.as_ref().is_none_or(|document| *document == there), "{id}: {document:?}, not {there}");
    }
    // Claims are those of the documents: a key that nobody has can be had, and no other one.
    for key in 0..KEYS {
        let answer = client.ask(&insert("t", &[json!({"id": 100_000 + key, "key": key})]));
        assert_eq!(counts(&answer)[3], u64::from(holders.contains_key(&key)), "{key}: {answer}");
    }
    assert_eq!(client.ask(&json!([43, [table("t")]])), KEYS);
}

#[test]
fn an_index_that_is_made_while_documents_are_written_is_unique() {
    let (cluster, mut clients) = start(4);
    assert_eq!(clients[0].ask(&create("other"))["tables_created"], 1);
    let documents: Vec<Value> = (0..2_000).map(|id| json!({"id": id, "key": id % 1_990})).collect();
    assert_eq!(counts(&clients[0].ask(&insert("t", &documents))), [2_000, 0, 0, 0]);
    let ending = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = cluster
        .reql_ports()
        .into_iter()
        .zip(1..)
        .map(|(port, seed)| {
            let ending = ending.clone();
            std::thread::spawn(move || {
                let (mut client, mut random) = (Client::to(port), SmallRng::seed_from_u64(seed));
                while !ending.load(Ordering::Relaxed) {
                    let (id, key) = (random.random_range(0..2_100), random.random_range(0..4_000));
                    let term = match random.random_range(0..3) {
                        0 => delete(id),
                        1 => update(id, json!({"key": key})),
                        _ => insert("t", &[json!({"id": id, "key": key})]),
                    };
                    let answer = client.ask(&term);
                    assert!(answer.get("errors").is_some(), "{answer}");
                }
            })
        })
        .collect();
    create_unique(&mut clients[0], "key", None, false);
    // Those that have the same key are deleted as the index tells of them.
    wait_for("the index is built", PATIENCE, || {
        let status = clients[0].ask(&json!([139, [table("t")]]));
        if let Some(error) = status[0]["error"].as_str() {
            let id = error.split('`').nth(3).unwrap().parse().unwrap();
            clients[0].ask(&delete(id));
        }
        (status[0]["ready"] == true).then_some(())
    });
    ending.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let rows = clients[1].ask(&table("t"));
    let keys: Vec<i64> = rows.as_array().unwrap().iter().map(|row| row["key"].as_i64().unwrap()).collect();
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    // All of them are claimed, and nothing else.
    for key in 0..4_000 {
        let is_there = keys.contains(&key);
        if is_there || key % 40 == 0 {
            let answer = clients[2].ask(&insert("t", &[json!({"id": 10_000 + key, "key": key})]));
            assert_eq!(counts(&answer)[3], u64::from(is_there), "{key}: {answer}");
        }
    }
}

/// Documents whose keys follow each other were once refused where an earlier one had to give up its key first.
#[test]
fn keys_can_be_moved_down_by_one_query() {
    let (cluster, mut clients) = start(1);
    create_unique(&mut clients[0], "n", None, false);
    wait(&mut clients[0]);
    let documents: Vec<Value> = (1..=40).map(|n| json!({"id": n, "n": n})).collect();
    assert_eq!(counts(&clients[0].ask(&insert("t", &documents)))[0], 40);
    let in_order = json!([41, [table("t")], {"index": "id"}]);
    let moved = clients[1].ask(&json!([53, [in_order, function(json!({"n": [25, [row("n"), 1]]}))]]));
    assert_eq!(counts(&moved), [0, 40, 0, 0], "{moved}");
    // The empty table knows no claims to keys, and the index holds for it.
    cluster.cli(0, "table truncate test.t --yes").unwrap();
    wait(&mut clients[0]);
    let twice = [json!({"id": 1, "n": 2}), json!({"id": 2, "n": 2})];
    assert_eq!(counts(&clients[0].ask(&insert("t", &twice))), [1, 0, 0, 1]);
}
