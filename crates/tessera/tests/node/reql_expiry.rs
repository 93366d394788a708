//! Documents that end, through the ReQL port: nobody sees them any more, they leave their indexes, and feeds are told.

use crate::cluster::Cluster;
use crate::reql::{Client, PATIENCE, table};
use crate::server::wait_for;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn get(id: impl Into<Value>) -> Value {
    json!([16, [table("t"), id.into()]])
}

fn insert(documents: &[Value], ttl: &Value) -> Value {
    json!([56, [table("t"), [2, documents]], {"ttl": ttl}])
}

/// The seconds that a document has left, as `info` tells.
fn ttl(client: &mut Client, id: i64) -> Option<f64> {
    let info = client.ask(&json!([79, [get(id)]]));
    assert_eq!(info["table"]["name"], "t", "{info}");
    info["ttl"].as_f64()
}

fn start(options: &Value) -> (Cluster, Vec<Client>) {
    let cluster = Cluster::start_with_reql(3);
    let mut clients: Vec<Client> = cluster.reql_ports().into_iter().map(Client::to).collect();
    assert_eq!(clients[0].ask(&json!([60, ["t"], options]))["tables_created"], 1);
    clients[0].ask(&json!([177, [table("t")]]));
    (cluster, clients)
}

/// Makes an index of the field `n`, and a unique one of the field `key`.
fn create_indexes(client: &mut Client) {
    for (name, unique) in [("n", false), ("key", true)] {
        assert_eq!(client.ask(&json!([75, [table("t"), name], {"unique": unique}]))["created"], 1);
    }
    assert!(client.ask(&json!([140, [table("t")]])).is_array());
}

/// Waits until a document is not seen any more, and returns for how long it was.
fn await_end(client: &mut Client, id: i64) -> Duration {
    let began = Instant::now();
    wait_for("the document ends", PATIENCE, || client.ask(&get(id)).is_null().then_some(()));
    began.elapsed()
}

#[test]
fn a_document_that_has_ended_is_seen_by_nobody_and_leaves_its_indexes_and_feeds() {
    let (_cluster, mut clients) = start(&json!({"shards": 4, "replicas": 3, "durability": "soft"}));
    create_indexes(&mut clients[0]);
    let mut feed = Client::to(_cluster.reql_ports()[2]);
    feed.send(7, &json!([1, [152, [table("t")]], {}]).to_string());
    clients[1].ask(&json!([177, [table("t")]]));
    let documents: Vec<Value> = (0..20).map(|id| json!({"id": id, "n": 5, "key": format!("k{id}")})).collect();
    // Long enough that they are looked at before.
    let answer = clients[1].ask(&insert(&documents, &json!(8)));
    assert_eq!(answer["inserted"], 20, "{answer}");
    let left = ttl(&mut clients[2], 3).unwrap();
    assert!(left > 0.0 && left <= 8.0, "{left}");
    assert_eq!(clients[0].ask(&json!([43, [[78, [table("t"), 5], {"index": "n"}]]])), 20);
    await_end(&mut clients[0], 3);
    // The others were written at the same time or before, and end as their partitions' clocks say.
    wait_for("nobody sees any of them", PATIENCE, || {
        let all = json!([43, [table("t")]]);
        let indexed = json!([43, [[78, [table("t"), 5], {"index": "n"}]]]);
        clients.iter_mut().all(|client| client.ask(&all) == 0 && client.ask(&indexed) == 0).then_some(())
    });
    assert_eq!(ttl(&mut clients[0], 3), None);
    // The feed has each document twice: when it came, and when it went.
    let mut told = Vec::new();
    while told.len() < 40 {
        let (_, answer) = feed.receive();
        assert_eq!(answer["t"], 3, "{answer}");
        told.extend(answer["r"].as_array().unwrap().clone());
        feed.send(7, "[2]");
    }
    assert_eq!(told.iter().filter(|change| change["new_val"].is_null()).count(), 20);
    for change in told.iter().filter(|change| change["new_val"].is_null()) {
        assert!(documents.contains(&change["old_val"]), "{change}");
    }
}

#[test]
fn a_write_in_the_place_of_a_document_that_has_ended_finds_none() {
    let (_cluster, mut clients) = start(&json!({"shards": 4, "replicas": 3, "durability": "soft"}));
    create_indexes(&mut clients[0]);
    for round in 0..12 {
        let client = &mut clients[round % 3];
        let document = json!({"id": 1, "n": round, "key": "a"});
        let answer = client.ask(&insert(std::slice::from_ref(&document), &json!(0.15)));
        assert_eq!(answer["inserted"], 1, "round {round}: {answer}");
        await_end(client, 1);
        // At once, before it is removed: under its key, or with its unique key, alone or with others.
        let other = json!({"id": 2, "n": round, "key": "a"});
        let term = match round % 3 {
            0 => json!([56, [table("t"), {"id": 1, "n": 100, "key": "b"}]]),
            1 => json!([56, [table("t"), other]]),
            _ => json!([56, [table("t"), [2, [other, {"id": 1, "n": 100, "key": "b"}]]], {"atomic": true}]),
        };
        let answer = client.ask(&term);
        assert_eq!(answer["inserted"], 1 + usize::from(round % 3 == 2), "round {round}: {answer}");
        let found = client.ask(&json!([78, [table("t"), round], {"index": "n"}]));
        assert!(!found.as_array().unwrap().contains(&document), "{found}");
        assert_eq!(client.ask(&json!([54, [table("t")]]))["errors"], 0);
        assert_eq!(client.ask(&json!([43, [[41, [table("t")], {"index": "n"}]]])), 0);
    }
}

#[test]
fn writes_keep_set_and_take_away_a_time_to_live() {
    let (_cluster, mut clients) = start(&json!({"shards": 2, "replicas": 3, "durability": "soft", "ttl": 1_000}));
    let client = &mut clients[0];
    let left = |client: &mut Client| ttl(client, 1);
    let near = |left: Option<f64>, wanted: f64| left.is_some_and(|left| left > wanted - 60.0 && left <= wanted);
    // What the table says, and what the write says.
    client.ask(&json!([56, [table("t"), {"id": 1, "n": 1}]]));
    assert!(near(left(client), 1_000.0));
    let update = |fields: Value, options: Value| json!([53, [get(1), fields], options]);
    assert_eq!(client.ask(&update(json!({"n": 2}), json!({})))["replaced"], 1);
    assert!(near(left(client), 1_000.0), "an update keeps it");
    assert_eq!(client.ask(&update(json!({"n": 2}), json!({"ttl": 5_000})))["unchanged"], 1);
    assert!(near(left(client), 5_000.0), "also where nothing else changes");
    assert_eq!(client.ask(&json!([55, [get(1), {"id": 1}], {"ttl": null}]))["replaced"], 1);
    assert_eq!(left(client), None);
    assert_eq!(client.ask(&update(json!({"n": 3}), json!({"ttl": 7_000, "atomic": true})))["replaced"], 1);
    assert!(near(left(client), 7_000.0));
    // Deleted and made anew it is a new one.
    client.ask(&json!([54, [get(1)]]));
    assert_eq!(client.ask(&insert(&[json!({"id": 1})], &Value::Null))["inserted"], 1);
    assert_eq!(left(client), None);
    for wrong in [json!(0), json!(-5), json!("soon"), json!(1e300)] {
        let answer = client.ask(&insert(&[json!({"id": 2})], &wrong));
        assert!(answer["r"][0].as_str().unwrap().starts_with("A time to live is a number of seconds"), "{answer}");
    }
}

#[test]
fn documents_end_through_the_loss_of_a_node_and_a_split() {
    let (mut cluster, mut clients) = start(&json!({"shards": 4, "replicas": 3, "durability": "soft"}));
    assert_eq!(clients[0].ask(&json!([75, [table("t"), "n"], {"unique": true}]))["created"], 1);
    assert!(clients[0].ask(&json!([140, [table("t")]])).is_array());
    let documents: Vec<Value> = (0..300).map(|id| json!({"id": id, "n": id})).collect();
    assert_eq!(clients[0].ask(&insert(&documents, &json!(8)))["inserted"], 300);
    let endless: Vec<Value> = (1_000..1_100).map(|id| json!({"id": id, "n": id})).collect();
    assert_eq!(clients[0].ask(&insert(&endless, &Value::Null))["inserted"], 100);
    cluster.cli(0, "table alter test.t --partitions 8").unwrap();
    cluster.kill(1);
    let client = &mut clients[0];
    wait_for("all have ended but those that do not", PATIENCE, || {
        (client.ask(&json!([43, [table("t")]])) == 100).then_some(())
    });
    // Their keys are free.
    wait_for("all are written anew", PATIENCE, || {
        let answer = client.ask(&json!([56, [table("t"), [2, documents]], {"conflict": "replace"}]));
        (answer["errors"] == 0 && answer["first_error"].is_null()).then_some(())
    });
    assert_eq!(client.ask(&json!([43, [[41, [table("t")], {"index": "n"}]]])), 400);
}

/// A page of an index whose documents had all ended once looked like the last one.
#[test]
fn documents_behind_those_that_have_ended_are_found_by_an_index() {
    let (_cluster, mut clients) = start(&json!({"shards": 1, "replicas": 1, "durability": "soft"}));
    assert_eq!(clients[0].ask(&json!([75, [table("t"), "n"]]))["created"], 1);
    assert!(clients[0].ask(&json!([140, [table("t")]])).is_array());
    let client = &mut clients[0];
    assert_eq!(client.ask(&json!([56, [table("t"), {"id": "last", "n": 1}]]))["inserted"], 1);
    let documents: Vec<Value> = (0..3_000).map(|id| json!({"id": id, "n": 0})).collect();
    assert_eq!(client.ask(&insert(&documents, &json!(0.4)))["inserted"], 3_000);
    let first = json!([71, [[41, [table("t")], {"index": "n"}], 1]]);
    wait_for("the first ones have all ended", PATIENCE, || {
        let found = client.ask(&first);
        let found = found.as_array().unwrap_or_else(|| panic!("{found}"));
        assert_eq!(found.len(), 1, "a document that does not end is there all the time");
        (found[0]["id"] == "last").then_some(())
    });
}

/// What an atomic query deletes and makes anew once kept the time to live of the document before.
#[test]
fn a_document_that_an_atomic_query_makes_anew_has_a_time_to_live_of_its_own() {
    let (_cluster, mut clients) = start(&json!({"shards": 2, "replicas": 1, "durability": "soft"}));
    let client = &mut clients[0];
    let made_anew = |first: Value| {
        let writes = [first, json!([54, [get(1)]]), json!([56, [table("t"), {"id": 1}]])];
        json!([2, writes, {"atomic": true}])
    };
    assert_eq!(client.ask(&insert(&[json!({"id": 1})], &json!(60)))["inserted"], 1);
    for first in [json!([53, [get(1), {"n": 1}]]), json!([53, [get(1), {"n": 2}], {"ttl": 60}])] {
        let answer = client.ask(&made_anew(first));
        assert_eq!(answer[2]["inserted"], 1, "{answer}");
        assert_eq!(ttl(client, 1), None);
    }
}

/// Such queries kept their turns for the ten seconds that are waited for the leader of the partition that has a unique key.
#[test]
fn removing_what_has_ended_under_a_partition_without_a_leader_leaves_others_alone() {
    const DOCUMENTS: i64 = 120;
    let mut cluster = Cluster::start_with_reql(3);
    let port = cluster.reql_ports()[0];
    let mut client = Client::to(port);
    for (name, options) in [("t", json!({"shards": 12, "replicas": 1})), ("whole", json!({"replicas": 3}))] {
        assert_eq!(client.ask(&json!([60, [name], options]))["tables_created"], 1);
        client.ask(&json!([177, [table(name)]]));
    }
    create_indexes(&mut client);
    let documents: Vec<Value> = (0..DOCUMENTS).map(|id| json!({"id": id, "key": format!("k{id}")})).collect();
    assert_eq!(client.ask(&insert(&documents, &json!(8)))["inserted"], DOCUMENTS);
    cluster.kill(2);
    let whole = json!([43, [table("whole")]]);
    wait_for("others lead", PATIENCE, || (client.ask(&whole) == 0).then_some(()));
    // Documents whose partitions are led.
    let asked: Vec<_> = (0..DOCUMENTS)
        .map(|id| std::thread::spawn(move || Client::to(port).ask(&get(id))["e"].is_null().then_some(id)))
        .collect();
    let led: Vec<i64> = asked.into_iter().filter_map(|asked| asked.join().unwrap()).collect();
    assert!(led.len() > 40 && led.len() < 120, "{} of {DOCUMENTS} are led", led.len());
    await_end(&mut client, led[0]);
    let began = Instant::now();
    let _writing: Vec<_> = led
        .iter()
        .map(|id| Client::to(port).run_in_background(&json!([56, [table("t"), {"id": id, "n": 1}]])))
        .collect();
    let jobs = json!([43, [[39, [[15, [[14, ["rethinkdb"]], "jobs"]], {"type": "query"}]]]]);
    for _ in 0..10 {
        assert_eq!(client.ask(&whole), 0);
    }
    let under_way = client.ask(&jobs).as_u64().unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    // More than have a turn, and each of them waits for the leader of what has the unique key.
    assert!(under_way > 9, "{under_way} queries are under way");
}
