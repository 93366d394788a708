//! Queries whose parts are evaluated by the nodes that have the documents, and put together by the node that was asked.

use crate::cluster::Cluster;
use crate::reql::{Client, PATIENCE, table};
use crate::server::{Node, free_port, wait_for};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

const DOCUMENTS: usize = 2000;

fn documents() -> Vec<Value> {
    let document = |id: usize| {
        let mut document = json!({"id": id, "g": id % 7, "n": (id * 37) % 1009, "text": "x y ".repeat(id % 5)});
        if id.is_multiple_of(3) {
            document["opt"] = json!(id % 11);
        }
        document
    };
    (0..DOCUMENTS).map(document).collect()
}

fn row(body: &Value) -> Value {
    json!([69, [[2, [1]], body]])
}

fn field(name: &str) -> Value {
    json!([170, [[10, [1]], name]])
}

/// Queries on a sequence. What they give does not depend on the order of the rows, unless it is sorted.
fn queries(of: &Value) -> Vec<Value> {
    let equals = |name: &str, value: i64| json!([39, [of, row(&json!([17, [field(name), value]]))]]);
    let sorted = |sequence: Value| json!([41, [sequence, "id"]]);
    let grouped = json!([144, [of, "g"]]);
    vec![
        json!([43, [of]]),
        json!([43, [equals("g", 3)]]),
        json!([43, [equals("opt", 3)]]),
        json!([43, [[39, [of, {"g": 3, "opt": 4}]]]]),
        json!([43, [[39, [of, row(&json!([21, [field("opt"), 5]]))], {"default": true}]]]),
        sorted(equals("n", 100)),
        sorted(json!([33, [equals("g", 2), "id", "opt"]])),
        sorted(json!([34, [equals("g", 2), "text"]])),
        sorted(json!([96, [of, "id", "opt"]])),
        json!([145, [of, "n"]]),
        json!([145, [of, "opt"]]),
        json!([146, [of, "n"]]),
        json!([170, [[147, [of, row(&json!([24, [field("n"), field("id")]]))]], "id"]]),
        json!([170, [[148, [of, "id"]], "n"]]),
        json!([43, [grouped]]),
        json!([145, [grouped, "n"]]),
        json!([43, [[144, [of, "opt"]]]]),
        json!([43, [[144, [of, "g", row(&json!([28, [field("id"), 2]]))]]]]),
        json!([37, [[38, [of, row(&field("n"))]], [69, [[2, [1, 2]], [24, [[10, [1]], [10, [2]]]]]]]]),
        json!([37, [[170, [grouped, "n"]], [69, [[2, [1, 2]], [24, [[10, [1]], [10, [2]]]]]]]]),
        json!([42, [[170, [of, "opt"]]]]),
        json!([145, [[38, [of, row(&json!([43, [[149, [field("text"), "x"]]]]))]]]]),
        json!([43, [[40, [of, row(&json!([149, [field("text"), " "]]))]]]]),
        json!([71, [[41, [of, "n", "id"]], 10]]),
        json!([71, [[41, [of, [74, ["g"]], [73, ["id"]]]], 25]]),
        json!([170, [[41, [of, [74, ["id"]]]], 3]]),
        json!([93, [[170, [of, "n"]], 500]]),
        json!([93, [[170, [of, "n"]], 5000]]),
        json!([86, [equals("g", 8)]]),
    ]
}

/// Queries that fail, all for the same reason whatever row comes first.
fn failures(of: &Value) -> Vec<Value> {
    vec![
        json!([43, [[38, [of, row(&json!([24, [field("id"), "x"]]))]]]]),
        json!([43, [[39, [of, row(&json!([170, [field("g"), "x"]]))]]]]),
        json!([145, [of, "text"]]),
        json!([144, [of, row(&json!([12, ["no group"]]))]]),
        json!([37, [[170, [of, "n"]], row(&json!(1))]]),
        json!([39, [of, row(&json!([21, [field("nothing"), 5]]))], {"default": [12, []]}]),
    ]
}

fn load(client: &mut Client, shards: usize, options: &Value) {
    let mut options = options.clone();
    options["shards"] = json!(shards);
    assert_eq!(client.ask(&json!([60, ["t"], options]))["tables_created"], 1);
    client.ask(&json!([177, [table("t")]]));
    for part in documents().chunks(500) {
        wait_for("documents are written", PATIENCE, || {
            let put = json!([56, [table("t"), [2, part]], {"conflict": "replace"}]);
            let written = client.ask(&put);
            let of = |what: &str| written[what].as_u64().unwrap_or(0);
            (of("inserted") + of("replaced") + of("unchanged") == part.len() as u64).then_some(())
        });
    }
    assert_eq!(client.ask(&json!([75, [table("t"), "n"]]))["created"], 1);
    client.ask(&json!([140, [table("t")]]));
}

#[test]
fn every_node_answers_as_if_it_had_all_documents() {
    let cluster = Cluster::start_with_reql(3);
    let mut clients: Vec<Client> = cluster.reql_ports().iter().map(|port| Client::to(*port)).collect();
    load(&mut clients[0], 8, &json!({"replicas": 3}));
    let array = json!([2, documents()]);
    for (at, client) in clients.iter_mut().enumerate() {
        wait_for("the table is known", PATIENCE, || {
            (client.ask(&json!([43, [table("t")]])) == DOCUMENTS).then_some(())
        });
        for (query, same) in queries(&table("t")).iter().zip(queries(&array)) {
            assert_eq!(client.ask(query), client.ask(&same), "node {at}: {query}");
        }
        for mode in ["majority", "outdated"] {
            let of = json!([15, ["t"], {"read_mode": mode}]);
            for query in queries(&of).into_iter().take(8) {
                let same = query.to_string().replace(&of.to_string(), &array.to_string());
                let (query, same) = (query, serde_json::from_str(&same).unwrap());
                assert_eq!(client.ask(&query), client.ask(&same), "node {at}: {query}");
            }
        }
        for (query, same) in failures(&table("t")).iter().zip(failures(&array)) {
            let (mut answer, mut wanted) = (client.ask(query), client.ask(&same));
            assert_eq!(answer["t"], 18, "{query}: {answer}");
            // The text may show the row that came first.
            for answer in [&mut answer, &mut wanted] {
                let first = answer["r"][0].as_str().unwrap().split(['`', '\n']).next().unwrap().to_string();
                answer["r"] = json!(first);
            }
            assert_eq!(answer, wanted, "node {at}: {query}");
        }
    }
}

/// Rows in the order of an index, most of which are left out, of several partitions.
#[test]
fn rows_come_in_the_order_of_an_index() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut client = Client::to(port);
    load(&mut client, 5, &json!({}));
    let all = documents();
    for direction in [73, 74] {
        let by_index = json!([41, [table("t")], {"index": [direction, ["n"]]}]);
        let few = json!([39, [by_index, row(&json!([17, [field("g"), 3]]))]]);
        let mut wanted: Vec<i64> =
            all.iter().filter(|row| row["g"] == 3).map(|row| row["n"].as_i64().unwrap()).collect();
        wanted.sort_unstable();
        if direction == 74 {
            wanted.reverse();
        }
        let numbers = json!([170, [few, "n"]]);
        let found = client.ask(&numbers);
        assert_eq!(found, json!(wanted));
        assert_eq!(client.ask(&json!([71, [numbers, 7]])), json!(wanted[..7]));
        assert_eq!(client.ask(&json!([30, [numbers, 20, 30]])), json!(wanted[20..30]));
        // Every row twice, and an error that strikes behind those that are wanted.
        let twice = json!([40, [few, row(&json!([2, [field("n"), field("n")]]))]]);
        let doubled: Vec<i64> = wanted.iter().flat_map(|n| [*n, *n]).collect();
        assert_eq!(client.ask(&twice), json!(doubled));
        let last = wanted[10];
        let fails = json!([65, [[17, [field("n"), last]], [12, ["too far"]], field("n")]]);
        let failing = json!([38, [few, row(&fails)]]);
        assert_eq!(client.ask(&json!([71, [failing, 10]])), json!(wanted[..10]));
        assert_eq!(client.ask(&json!([71, [failing, 11]]))["r"][0], "too far");
        // What ends the rows sees them in their order.
        let joined = json!([37, [numbers, [69, [[2, [1, 2]], [10, [2]]]]]]);
        assert_eq!(client.ask(&joined), json!(wanted[wanted.len() - 1]));
    }
}

/// A function that takes very long for one document is left to the node that was asked, where it can be stopped.
#[test]
fn a_function_without_an_end_can_be_stopped_and_holds_nobody_up() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut client = Client::to(port);
    load(&mut client, 3, &json!({}));
    let endless = json!([43, [[173, [1_000_000_000_000_u64]]]]);
    let body = json!([65, [[17, [field("id"), 77]], endless, 1]]);
    let sum = json!([145, [[38, [table("t"), row(&body)]]]]);
    let runs: Vec<_> = (0..4).map(|_| Client::to(port).run_in_background(&sum)).collect();
    let mut other = Client::to(port);
    for _ in 0..20 {
        assert_eq!(other.ask(&json!([145, [table("t"), "g"]])), (0..DOCUMENTS).map(|id| id % 7).sum::<usize>());
    }
    for mut run in runs {
        run.stop();
    }
    // What takes long, but ends, is answered.
    let body = json!([65, [[17, [[28, [field("id"), 500]], 77]], [43, [[173, [6_000_000]]]], 1]]);
    let slow = json!([145, [[38, [table("t"), row(&body)]]]]);
    let wanted = (0..DOCUMENTS).filter(|id| id % 500 == 77).count();
    assert_eq!(client.ask(&slow), wanted * 6_000_000 + DOCUMENTS - wanted);
}

#[test]
fn queries_that_run_when_a_leader_ends_are_right_or_fail() {
    let mut cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let mut client = Client::to(ports[0]);
    load(&mut client, 8, &json!({"replicas": 3}));
    let array = json!([2, documents()]);
    let wanted: Vec<Value> = queries(&array).iter().map(|query| client.ask(query)).collect();
    let (wanted, is_over, begun) = (Arc::new(wanted), Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(5)));
    let askers: Vec<_> = (0..4)
        .map(|at| {
            let (port, wanted, is_over, begun) = (ports[at % 2], wanted.clone(), is_over.clone(), begun.clone());
            std::thread::spawn(move || {
                let (mut client, mut right, mut failed) = (Client::to(port), 0, 0);
                let queries = queries(&table("t"));
                let (first, mut round) = (at * 5, at * 5);
                while !is_over.load(Ordering::Relaxed) {
                    let at = round % queries.len();
                    let answer = client.ask(&queries[at]);
                    if answer["e"].as_i64() == Some(4_100_000) {
                        failed += 1;
                    } else {
                        assert_eq!(answer, wanted[at], "{}", queries[at]);
                        right += 1;
                    }
                    if round == first + 3 {
                        begun.wait();
                    }
                    round += 1;
                }
                (right, failed)
            })
        })
        .collect();
    begun.wait();
    cluster.kill(2);
    // Two nodes answer all of it again.
    let queries = queries(&table("t"));
    wait_for("all is answered", PATIENCE, || {
        let is_right = |(query, wanted): (&Value, &Value)| client.ask(query) == *wanted;
        queries.iter().zip(wanted.iter()).all(is_right).then_some(())
    });
    is_over.store(true, Ordering::Relaxed);
    for asker in askers {
        let (right, failed) = asker.join().unwrap();
        assert!(right > 0, "{right} right, {failed} failed");
    }
}

#[test]
fn a_table_that_is_split_is_read_whole_or_not_at_all() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut client = Client::to(port);
    load(&mut client, 2, &json!({}));
    let is_over = Arc::new(AtomicBool::new(false));
    let asker = {
        let is_over = is_over.clone();
        std::thread::spawn(move || {
            let (mut client, mut right) = (Client::to(port), 0);
            while !is_over.load(Ordering::Relaxed) {
                let answer = client.ask(&json!([43, [[39, [table("t"), {"g": 3}]]]]));
                if answer["e"].as_i64() != Some(4_100_000) {
                    assert_eq!(answer, documents().iter().filter(|row| row["g"] == 3).count());
                    right += 1;
                }
            }
            right
        })
    };
    let done = client.ask(&json!([176, [table("t")], {"shards": 4, "replicas": 1}]));
    assert_eq!(done["reconfigured"], 1, "{done}");
    client.ask(&json!([177, [table("t")]]));
    is_over.store(true, Ordering::Relaxed);
    assert!(asker.join().unwrap() > 0);
    assert_eq!(
        client.ask(&json!([43, [[39, [table("t"), {"g": 3}]]]])),
        documents().iter().filter(|row| row["g"] == 3).count()
    );
}

/// It was an empty list.
#[test]
fn a_profile_tells_what_the_nodes_of_a_table_were_asked_for() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut client = Client::to(port);
    assert_eq!(client.ask(&json!([60, ["t"], {"shards": 2}]))["tables_created"], 1);
    assert_eq!(client.ask(&json!([56, [table("t"), [2, documents()]]]))["inserted"], DOCUMENTS);
    let count = json!([43, [[39, [table("t"), row(&json!([17, [field("g"), 3]]))]]]]);
    client.send(100, &json!([1, count, {"profile": true}]).to_string());
    let (_, answer) = client.receive();
    let profile = answer["p"].as_array().unwrap();
    let parts = profile[0]["sub_tasks"].as_array().unwrap();
    assert_eq!((profile.len(), &profile[0]["description"]), (1, &json!("Evaluating count.")), "{answer}");
    let described = |part: &&Value| part["description"] == "Evaluating documents of table `test.t`.";
    let there = parts.iter().find(described).unwrap_or_else(|| panic!("{answer}"));
    let took = there["duration(ms)"].as_f64().or(there["mean_duration(ms)"].as_f64()).unwrap();
    assert!(took > 0.0 && took <= profile[0]["duration(ms)"].as_f64().unwrap(), "{answer}");
    // Each answer of a stream tells what was done for it.
    client.send(101, &json!([1, table("t"), {"profile": true, "max_batch_rows": 500}]).to_string());
    for _ in 0..2 {
        let (_, answer) = client.receive();
        assert!(answer["t"] == 3 && !answer["p"].as_array().unwrap().is_empty(), "{answer}");
        client.send(101, "[2]");
    }
    client.send(102, &json!([1, count, {}]).to_string());
    let answers = [client.receive().1, client.receive().1];
    assert!(answers.iter().any(|answer| answer["t"] == 1 && answer["p"].is_null()), "without the option");
}
