//! How tables are spread, told and changed through the ReQL port, and who answers reads.

use crate::cluster::Cluster;
use crate::reql::{Client, PATIENCE, create, insert, table};
use crate::server::{Node, free_port, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

fn config(name: &str) -> Value {
    json!([174, [table(name)]])
}

fn status(name: &str) -> Value {
    json!([175, [table(name)]])
}

fn reconfigure(name: &str, options: &Value) -> Value {
    json!([176, [table(name)], options])
}

fn system(name: &str) -> Value {
    json!([15, [[14, ["rethinkdb"]], name]])
}

fn count(rows: &Value) -> Value {
    json!([43, [rows]])
}

fn error(answer: &Value) -> String {
    answer["r"][0].as_str().unwrap_or_else(|| panic!("no error: {answer}")).to_string()
}

#[test]
fn a_table_is_spread_renamed_and_told_truthfully() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut client = Client::to(port);
    assert_eq!(client.ask(&create("t"))["tables_created"], 1);
    let documents: Vec<Value> = (0..300).map(|id| json!({"id": id, "n": id % 10})).collect();
    assert_eq!(client.ask(&insert("t", &documents))["inserted"], 300);
    assert_eq!(client.ask(&json!([75, [table("t"), "n"]]))["created"], 1);
    client.ask(&json!([140, [table("t")]]));

    // Shards are made by splitting, and the index is whole afterwards.
    let planned = client.ask(&reconfigure("t", &json!({"shards": 4, "replicas": 1, "dry_run": true})));
    assert_eq!(planned["config_changes"][0]["new_val"]["shards"].as_array().map(Vec::len), Some(4), "{planned}");
    assert_eq!(client.ask(&config("t"))["shards"].as_array().map(Vec::len), Some(1));
    let done = client.ask(&reconfigure("t", &json!({"shards": 4, "replicas": 1})));
    assert_eq!(
        (&done["reconfigured"], done["config_changes"][0]["new_val"]["shards"].as_array().map(Vec::len)),
        (&json!(1), Some(4)),
        "{done}"
    );
    assert_eq!(client.ask(&json!([177, [table("t")]])), json!({"ready": 1}));
    assert_eq!(client.ask(&count(&table("t"))), 300);
    client.ask(&json!([140, [table("t")]]));
    assert_eq!(client.ask(&count(&json!([78, [table("t"), 3], {"index": "n"}]))), 30);
    let merged = error(&client.ask(&reconfigure("t", &json!({"shards": 2, "replicas": 1}))));
    assert!(merged.contains("does not merge"), "{merged}");
    let many = error(&client.ask(&reconfigure("t", &json!({"shards": 4, "replicas": 2}))));
    assert!(many.starts_with("Can't put 2 replicas"), "{many}");
    let shards = error(&client.ask(&json!([60, ["u"], {"shards": 65}])));
    assert_eq!(shards, "Maximum number of shards is 64.");

    // What is configured is what the rest of the node says.
    let of = |client: &mut Client, field: &str| client.ask(&json!([170, [config("t"), field]]));
    assert_eq!((of(&mut client, "write_acks"), of(&mut client, "durability")), (json!("majority"), json!("hard")));
    assert_eq!(client.ask(&json!([53, [config("t"), {"write_acks": "single"}]]))["replaced"], 1);
    assert_eq!(of(&mut client, "write_acks"), "single");
    assert!(node.cli("table show test.t --json").contains("single"));
    let refused = client.ask(&json!([53, [config("t"), {"durability": "soft"}]]));
    assert!(refused["first_error"].as_str().unwrap().contains("durability"), "{refused}");
    let refused = client.ask(&json!([53, [status("t"), {"name": "x"}]]));
    assert_eq!(refused["first_error"], "It's illegal to write to the `rethinkdb.table_status` table.");
    assert_eq!(client.ask(&json!([53, [config("t"), {"name": "renamed"}]]))["replaced"], 1);
    assert_eq!(client.ask(&json!([62, []])), json!(["renamed"]));
    assert_eq!(client.ask(&count(&table("renamed"))), 300);
    assert_eq!(client.ask(&json!([138, [table("renamed")]])), json!({"synced": 1}));

    // The database `rethinkdb`.
    assert_eq!(client.ask(&json!([59, []])), json!(["rethinkdb", "test"]));
    assert_eq!(client.ask(&json!([170, [system("table_config"), "name"]])), json!(["renamed"]));
    let server = &client.ask(&system("server_status"))[0];
    assert_eq!((&server["name"], &server["network"]["reql_port"]), (&json!("node-1"), &json!(port)), "{server}");
    assert!(server["process"]["version"].as_str().unwrap().starts_with("rethinkdb 2.4.4 (tessera "), "{server}");
    assert_eq!(client.ask(&system("current_issues")), json!([]));
    assert!(error(&client.ask(&json!([60, [[14, ["rethinkdb"]], "x"]]))).contains("is special"));
    assert_eq!(client.ask(&json!([54, [config("renamed")]]))["deleted"], 1);
    assert_eq!(client.ask(&json!([62, []])), json!([]));
}

#[test]
fn outdated_reads_go_on_without_a_majority_and_tables_say_what_they_lack() {
    let mut cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let mut client = Client::to(ports[0]);
    assert_eq!(client.ask(&json!([60, ["t"], {"replicas": 3, "shards": 2}]))["tables_created"], 1);
    wait_for("the documents", PATIENCE, || {
        let documents = [json!({"id": 1, "n": 1}), json!({"id": 2, "n": 2})];
        let answer = client.ask(&json!([56, [table("t"), [2, documents]], {"conflict": "replace"}]));
        (answer["errors"] == 0).then_some(())
    });
    assert_eq!(client.ask(&json!([177, [table("t")], {"timeout": 30}])), json!({"ready": 1}));
    for port in &ports {
        let mut client = Client::to(*port);
        for mode in ["single", "majority", "outdated"] {
            let read = json!([15, ["t"], {"read_mode": mode}]);
            wait_for("a read", PATIENCE, || (client.ask(&json!([16, [&read, 1]]))["n"] == 1).then_some(()));
            wait_for("a scan", PATIENCE, || (client.ask(&count(&read)) == 2).then_some(()));
        }
        assert_eq!(client.ask(&count(&system("server_config"))), 3);
    }
    let wrong = error(&client.ask(&json!([15, ["t"], {"read_mode": "best"}])));
    assert!(wrong.starts_with("Read mode `best` unrecognized"), "{wrong}");
    cluster.kill(1);
    cluster.kill(2);
    let read = json!([15, ["t"], {"read_mode": "outdated"}]);
    assert_eq!(client.ask(&json!([16, [&read, 2]])), json!({"id": 2, "n": 2}));
    assert_eq!(client.ask(&count(&read)), 2);
    // It is noticed of one node after the other.
    let lost = wait_for("the loss of both", PATIENCE, || {
        let status = client.ask(&status("t"));
        let replicas = status["shards"][0]["replicas"].as_array().unwrap();
        assert_eq!(replicas.len(), 3, "{status}");
        let gone = replicas.iter().filter(|replica| replica["state"] == "disconnected").count();
        (gone == 2 && status["status"]["ready_for_writes"] == false).then_some(status)
    });
    assert_eq!(lost["status"]["ready_for_outdated_reads"], true, "{lost}");
    assert_eq!(client.ask(&system("current_issues"))[0]["critical"], true);
    let waited = error(&client.ask(&json!([177, [table("t")], {"timeout": 1}])));
    assert_eq!(waited, "Timed out while waiting for tables.");
    let refused = client.ask(&json!([16, [table("t"), 1]]));
    assert_eq!(refused["e"], 4_100_000, "{refused}");
}

/// A partition that begins to serve while a batch is carried out has the later documents of the batch and not yet the earlier ones.
#[test]
fn a_batch_that_comes_right_after_its_table_is_inserted_whole() {
    let cluster = Cluster::start_with_reql(3);
    let mut client = Client::to(cluster.reql_ports()[0]);
    let documents: Vec<Value> = (0..1_000).map(|id| json!({"id": id})).collect();
    for number in 0..12 {
        let name = format!("t{number}");
        assert_eq!(client.ask(&json!([60, [name], {"replicas": 3, "shards": 4}]))["tables_created"], 1);
        let inserted = client.ask(&insert(&name, &documents));
        assert_eq!(inserted["inserted"], 1_000, "{inserted}");
        assert_eq!(client.ask(&count(&table(&name))), 1_000);
    }
}

/// The nodes of a cluster learn one after the other that a table was split. Meanwhile one asks another for partitions of the old
/// table, which has them no longer, but partitions of the new table under the same numbers.
#[test]
fn documents_are_found_and_kept_while_nodes_learn_of_a_split_at_different_times() {
    let cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let mut client = Client::to(ports[0]);
    let options = json!({"shards": 2, "replicas": 3});
    assert_eq!(client.ask(&json!([60, ["t"], options]))["tables_created"], 1);
    let documents: Vec<Value> = (0..200).map(|id| json!({"id": id, "n": 0})).collect();
    assert_eq!(client.ask(&insert("t", &documents))["inserted"], 200);

    let is_over = AtomicBool::new(false);
    let inserted: BTreeSet<i64> = std::thread::scope(|scope| {
        let users: Vec<_> = (0..6)
            .map(|at| {
                let (port, is_over) = (ports[at % 3], &is_over);
                scope.spawn(move || {
                    let (mut client, mut inserted) = (Client::to(port), Vec::new());
                    let is_refused = |answer: &Value| [4_100_000, 4_200_000].map(Some).contains(&answer["e"].as_i64());
                    for round in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let there = (round * 7 + at as i64) % 200;
                        let found = client.ask(&json!([16, [table("t"), there]]));
                        assert!(is_refused(&found) || found["id"] == there, "document {there} is {found}");
                        let changed = client.ask(&json!([53, [[16, [table("t"), there]], {"n": round}]]));
                        let is_done = changed["replaced"] == 1 || changed["unchanged"] == 1;
                        assert!(is_refused(&changed) || is_done, "document {there} was changed: {changed}");
                        let new = 1_000 + round * 6 + at as i64;
                        let answer = client.ask(&insert("t", &[json!({"id": new})]));
                        if answer["inserted"] == 1 {
                            inserted.push(new);
                        }
                        if round % 16 == 0 {
                            let all = client.ask(&count(&table("t")));
                            assert!(is_refused(&all) || all.as_i64() >= Some(200), "{all} documents");
                        }
                    }
                    inserted
                })
            })
            .collect();
        for shards in [4, 8, 16, 32] {
            let done = client.ask(&reconfigure("t", &json!({"shards": shards, "replicas": 3})));
            assert_eq!(done["reconfigured"], 1, "{done}");
            assert_eq!(client.ask(&json!([177, [table("t")]])), json!({"ready": 1}));
        }
        is_over.store(true, Ordering::Relaxed);
        users.into_iter().flat_map(|user| user.join().unwrap()).collect()
    });
    let found = client.ask(&json!([170, [table("t"), "id"]]));
    let found: BTreeSet<i64> = found.as_array().unwrap().iter().filter_map(Value::as_i64).collect();
    let lost: Vec<_> = inserted.difference(&found).collect();
    assert!(lost.is_empty(), "{} of {} inserted documents are gone: {lost:?}", lost.len(), inserted.len());
    let by_key: Vec<_> =
        inserted.iter().filter(|id| client.ask(&json!([16, [table("t"), **id]]))["id"] != **id).collect();
    assert!(by_key.is_empty(), "{} of {} inserted documents are not found: {by_key:?}", by_key.len(), inserted.len());
}

#[test]
fn every_node_knows_at_once_which_databases_and_tables_another_one_has_made_and_dropped() {
    let cluster = Cluster::start_with_reql(3);
    let mut clients: Vec<Client> = cluster.reql_ports().into_iter().map(Client::to).collect();
    let (database, databases) = (json!([14, ["d"]]), json!([59, []]));
    let (without, with) = (json!(["rethinkdb", "test"]), json!(["d", "rethinkdb", "test"]));
    for round in 0..30 {
        let (one, two, three) = (round % 3, (round + 1) % 3, (round + 2) % 3);
        assert_eq!(clients[one].ask(&json!([57, ["d"]]))["dbs_created"], 1);
        assert_eq!(clients[two].ask(&databases), with);
        assert_eq!(clients[three].ask(&json!([60, [database, "t"]]))["tables_created"], 1);
        assert_eq!(clients[two].ask(&json!([62, [database]])), json!(["t"]));
        let documents = json!([56, [[15, [database, "t"]], {"id": 1}]]);
        assert_eq!(clients[one].ask(&documents)["inserted"], 1);
        assert_eq!(clients[two].ask(&json!([58, ["d"]]))["dbs_dropped"], 1);
        assert_eq!(clients[three].ask(&databases), without);
        assert_eq!(clients[one].ask(&databases), without);
    }
}
