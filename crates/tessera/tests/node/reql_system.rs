//! The tables `jobs`, `stats`, `logs` and `cluster_config` of the database `rethinkdb`, which tell of all nodes.

use crate::cluster::Cluster;
use crate::reql::{Client, PATIENCE, create, insert, table};
use crate::reql_users::log_in;
use crate::server::{Node, free_port, wait_for};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;

fn system(name: &str) -> Value {
    json!([15, [[14, ["rethinkdb"]], name]])
}

/// The queries that run.
fn queries() -> Value {
    json!([39, [system("jobs"), {"type": "query"}]])
}

/// The rows of the queries whose text has this word, but for that of whoever looks.
fn queries_with(client: &mut Client, word: &str) -> Vec<Value> {
    let rows = client.ask(&queries());
    let is_wanted = |row: &&Value| row["info"]["query"].as_str().is_some_and(|text| text.contains(word));
    rows.as_array().unwrap_or_else(|| panic!("{rows}")).iter().filter(is_wanted).cloned().collect()
}

const TERMINATED: &str = "Query terminated by the `rethinkdb.jobs` table.";

/// Begins a query under a token, which [`Client::ask`] does not use so far.
fn begin(client: &mut Client, token: i64, term: &Value, options: &Value) {
    client.send(token, &json!([1, term, options]).to_string());
}

/// The next answer, which has to be for this token.
fn answer(client: &mut Client, token: i64) -> Value {
    let (answered, answer) = client.receive();
    assert_eq!(answered, token, "{answer}");
    answer
}

const MORE: &str = "[2]";

/// A query that ends when it is told to.
fn endless() -> Value {
    json!([43, [[38, [[173, [1_000_000_000_000_u64]], [69, [[2, [1]], [24, [[10, [1]], 1]]]]]]]])
}

#[test]
fn queries_of_all_nodes_are_told_and_ended_from_any_node() {
    let cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let (mut here, mut there) = (Client::to(ports[0]), Client::to(ports[1]));
    assert_eq!(here.ask(&create("t"))["tables_created"], 1);
    begin(&mut there, 1001, &endless(), &json!({}));
    let row = wait_for("the query", PATIENCE, || queries_with(&mut here, "r.range(").pop());
    assert_eq!(row["servers"], json!(["node-2"]), "{row}");
    assert_eq!((&row["type"], &row["info"]["user"]), (&json!("query"), &json!("admin")), "{row}");
    assert_eq!(
        row["info"]["query"], "r.range(1000000000000).map(function(var1) { return var1.add(1); }).count()",
        "{row}"
    );
    assert_eq!(row["info"]["client_address"], "127.0.0.1", "{row}");
    assert!(row["info"]["client_port"].as_u64().unwrap() > 0 && row["duration_sec"].as_f64().unwrap() >= 0.0, "{row}");
    // Whoever looks is there, too.
    assert_eq!(queries_with(&mut here, "jobs")[0]["servers"], json!(["node-1"]));

    let update = here.ask(&json!([53, [[16, [system("jobs"), [2, row["id"]]]], {"a": 1}]]));
    assert_eq!(
        update["first_error"], "The `rethinkdb.jobs` system table only allows deletions, not inserts or updates.",
        "{update}"
    );
    let deleted = here.ask(&json!([54, [[16, [system("jobs"), [2, row["id"]]]]]]));
    assert_eq!(deleted["deleted"], 1, "{deleted}");
    let terminated = answer(&mut there, 1001);
    assert_eq!((&terminated["r"][0], &terminated["e"]), (&json!(TERMINATED), &json!(4_200_000)), "{terminated}");
    assert_eq!(queries_with(&mut here, "r.range("), Vec::<Value>::new());
    assert_eq!(there.ask(&json!([24, [1, 2]])), 3, "the connection goes on");

    // A feed that waits for changes is a query as well.
    begin(&mut there, 1002, &json!([152, [table("t")]]), &json!({}));
    assert_eq!(answer(&mut there, 1002)["t"], 3);
    there.send(1002, MORE);
    let row = wait_for("the feed", PATIENCE, || queries_with(&mut here, "changes()").pop());
    assert_eq!(here.ask(&json!([54, [[16, [system("jobs"), [2, row["id"]]]]]]))["deleted"], 1);
    assert_eq!(answer(&mut there, 1002)["r"][0], TERMINATED);

    // So is a stream of which nobody asks for more: the client hears of its end when it does.
    begin(&mut there, 1003, &json!([173, []]), &json!({"max_batch_rows": 4}));
    assert_eq!(answer(&mut there, 1003)["t"], 3);
    let row = queries_with(&mut here, "r.range(").pop().expect("the stream is open");
    assert_eq!(here.ask(&json!([54, [[16, [system("jobs"), [2, row["id"]]]]]]))["deleted"], 1);
    there.send(1003, MORE);
    assert_eq!(answer(&mut there, 1003)["r"][0], TERMINATED);
}

#[test]
fn only_those_with_the_rights_see_and_end_queries() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut admin = Client::to(port);
    let user = |name: &str| json!([56, [system("users"), {"id": name, "password": "secret"}]]);
    assert_eq!(admin.ask(&user("watcher"))["inserted"], 1);
    assert_eq!(admin.ask(&user("stranger"))["inserted"], 1);
    let rights = json!([188, [[14, ["rethinkdb"]], "watcher", {"read": true}]]);
    assert_eq!(admin.ask(&rights)["granted"], 1);
    begin(&mut admin, 1001, &endless(), &json!({}));
    let mut watcher = log_in(port, "watcher", "secret").ok().unwrap();
    let mut stranger = log_in(port, "stranger", "secret").ok().unwrap();
    let row = wait_for("the query", PATIENCE, || queries_with(&mut watcher, "r.range(").pop());
    let end = json!([54, [[16, [system("jobs"), [2, row["id"]]]]]]);
    for (client, right) in [(&mut watcher, "write"), (&mut stranger, "read")] {
        let refused = client.ask(&end);
        assert_eq!(refused["e"], 6_000_000, "{refused}");
        assert!(refused["r"][0].as_str().unwrap().contains(&format!("the required `{right}` permission")), "{refused}");
    }
    assert_eq!(queries_with(&mut watcher, "r.range(").len(), 1, "it still runs");
    let mut other = Client::to(port);
    assert_eq!(other.ask(&end)["deleted"], 1);
    assert_eq!(answer(&mut admin, 1001)["r"][0], TERMINATED);
}

fn stats(client: &mut Client, id: &[&str]) -> Value {
    client.ask(&json!([16, [system("stats"), [2, id]]]))
}

#[test]
fn stats_count_what_was_done_on_each_node() {
    let mut cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let mut client = Client::to(ports[0]);
    assert_eq!(client.ask(&json!([60, ["t"], {"replicas": 3, "shards": 4}]))["tables_created"], 1);
    let documents: Vec<Value> = (0..300).map(|id| json!({"id": id})).collect();
    assert_eq!(client.ask(&insert("t", &documents))["inserted"], 300);
    let id = client.ask(&json!([170, [[79, [table("t")]], "id"]]));
    let id = id.as_str().unwrap();
    let rows = client.ask(&json!([39, [system("stats"), {"table": "t"}]]));
    let rows: Vec<&Value> = rows.as_array().unwrap().iter().filter(|row| row["id"][0] == "table_server").collect();
    let sum = |rows: &[&Value], field: &str| -> f64 {
        rows.iter().map(|row| row["query_engine"][field].as_f64().unwrap()).sum()
    };
    assert_eq!((rows.len(), sum(&rows, "written_docs_total")), (3, 300.0), "{rows:?}");
    for row in &rows {
        assert_eq!((&row["db"], &row["id"][1]), (&json!("test"), &json!(id)), "{row}");
        let storage = &row["storage_engine"];
        assert!(storage["cache"]["in_use_bytes"].as_f64().unwrap() > 0.0, "{row}");
        assert!(storage["disk"]["space_usage"]["data_bytes"].is_number(), "{row}");
        assert_eq!(storage["disk"]["read_bytes_total"], Value::Null, "{row}");
    }
    let before = sum(&rows, "read_docs_total");
    assert_eq!(client.ask(&json!([43, [[39, [table("t"), true]]]])), 300);
    assert_eq!(client.ask(&json!([16, [table("t"), 7]]))["id"], 7);
    let rows = client.ask(&json!([39, [system("stats"), {"table": "t"}]]));
    let rows: Vec<&Value> = rows.as_array().unwrap().iter().filter(|row| row["id"][0] == "table_server").collect();
    assert_eq!(sum(&rows, "read_docs_total") - before, 301.0, "{rows:?}");
    assert!(stats(&mut client, &["table", id])["query_engine"]["read_docs_per_sec"].as_f64().unwrap() >= 0.0);

    let all = stats(&mut client, &["cluster"]);
    assert!(all["query_engine"]["client_connections"].as_u64().unwrap() >= 1, "{all}");
    assert!(all["query_engine"]["clients_active"].as_u64().unwrap() >= 1, "{all}");
    let server = client.ask(&json!([39, [system("server_config"), {"name": "node-1"}]]))[0]["id"].clone();
    let total = |client: &mut Client| {
        stats(client, &["server", server.as_str().unwrap()])["query_engine"]["queries_total"].as_u64().unwrap()
    };
    let before = total(&mut client);
    for _ in 0..5 {
        client.ask(&json!([24, [1, 2]]));
    }
    assert_eq!(total(&mut client), before + 6);
    let refused = client.ask(&json!([54, [system("stats")]]));
    assert_eq!(refused["first_error"], "It's illegal to write to the `rethinkdb.stats` table.");

    // A node that cannot tell is not told of as if it had nothing.
    cluster.kill(2);
    let silent = wait_for("the loss of a node", PATIENCE, || {
        let rows = client.ask(&json!([39, [system("stats"), {"server": "node-3"}]]));
        let row = rows.as_array().unwrap().iter().find(|row| row["id"][0] == "server").cloned().unwrap();
        row["error"].is_string().then_some(row)
    });
    assert_eq!(silent["error"], "Timed out. Unable to retrieve stats.", "{silent}");
}

#[test]
fn logs_of_all_nodes_are_shown_and_followed() {
    let cluster = Cluster::start_with_reql_and_logs(3);
    let mut client = Client::to(cluster.reql_ports()[0]);
    let rows = client.ask(&system("logs"));
    let rows = rows.as_array().unwrap();
    for node in ["node-1", "node-2", "node-3"] {
        let own: Vec<&Value> = rows.iter().filter(|row| row["server"] == node).collect();
        let started = own.iter().find(|row| row["message"].as_str().unwrap().starts_with("starting"));
        let started = started.unwrap_or_else(|| panic!("{own:?}"));
        assert_eq!((&started["level"], started["id"].as_array().map(Vec::len)), (&json!("info"), Some(2)), "{started}");
        assert!(started["uptime"].as_f64().unwrap() >= 0.0 && started["timestamp"]["epoch_time"].is_number());
        assert!(started["message"].as_str().unwrap().contains(" workers="), "{started}");
    }
    let refused = client.ask(&json!([54, [system("logs")]]));
    assert_eq!(refused["first_error"], "It's illegal to write to the `rethinkdb.logs` system table.");
    begin(&mut client, 1001, &json!([152, [[39, [system("logs"), {"level": "warn"}]]]]), &json!({}));
    assert_eq!(answer(&mut client, 1001)["t"], 3);
    client.send(1001, MORE);
    // A client that speaks TLS is complained about, here by the third node.
    let mut stranger = TcpStream::connect(("127.0.0.1", cluster.reql_ports()[2])).unwrap();
    stranger.write_all(&[0x16, 3, 1, 0, 1, 1]).unwrap();
    let told = answer(&mut client, 1001);
    let line = &told["r"][0]["new_val"];
    assert_eq!(line["server"], "node-3", "{told}");
    assert!(line["message"].as_str().unwrap().contains("a connection to the ReQL port was ended"), "{told}");

    let heartbeat = client.ask(&system("cluster_config"));
    assert_eq!(heartbeat, json!([{"id": "heartbeat", "heartbeat_timeout_secs": 2}]));
    let change = |value: Value| json!([53, [system("cluster_config"), {"heartbeat_timeout_secs": value}]]);
    assert_eq!(client.ask(&change(json!("x")))["first_error"], "Expected a number; got \"x\"");
    assert!(client.ask(&change(json!(5)))["first_error"].as_str().unwrap().contains("cannot be changed"));
    assert_eq!(client.ask(&change(json!(2)))["unchanged"], 1);
}

#[test]
fn rows_that_are_inserted_make_databases_and_tables() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut client = Client::to(port);
    let insert = |name: &str, row: Value| json!([56, [system(name), row], {"return_changes": true}]);
    let made = client.ask(&insert("db_config", json!({"name": "made"})));
    assert_eq!((&made["inserted"], &made["errors"]), (&json!(1), &json!(0)), "{made}");
    // What is told of the key is true.
    let row = |client: &mut Client, table: &str, made: &Value| {
        client.ask(&json!([16, [system(table), made["generated_keys"][0]]]))
    };
    assert_eq!(row(&mut client, "db_config", &made), made["changes"][0]["new_val"]);
    assert_eq!(client.ask(&json!([59, []])), json!(["made", "rethinkdb", "test"]));
    let options =
        json!({"name": "t", "db": "made", "primary_key": "key", "durability": "soft", "write_acks": "single"});
    let made = client.ask(&insert("table_config", options));
    assert_eq!(made["inserted"], 1, "{made}");
    let config = row(&mut client, "table_config", &made);
    assert_eq!(config, made["changes"][0]["new_val"]);
    let is = |field: &str, value: &str| assert_eq!(config[field], value, "{config}");
    [("db", "made"), ("name", "t"), ("primary_key", "key"), ("durability", "soft"), ("write_acks", "single")]
        .into_iter()
        .for_each(|(field, value)| is(field, value));
    let t = json!([15, [[14, ["made"]], "t"]]);
    assert_eq!(client.ask(&json!([56, [&t, {"key": 1}]]))["inserted"], 1);

    let wrong = |what: &str, table: &str| {
        format!("The change you're trying to make to `rethinkdb.{table}` has the wrong format. {what}")
    };
    let given = |what: &str| {
        format!(
            "There is no existing {what} with the given ID. To create a new {what} by inserting into `rethinkdb.{}_config`, you \
             must let the database generate the primary key automatically.",
            if what == "table" { "table" } else { "db" }
        )
    };
    for (table, row, text) in [
        ("db_config", json!({"name": "made"}), "Database `made` already exists.".to_string()),
        ("db_config", json!({}), wrong("Expected a field named `name`.", "db_config")),
        ("db_config", json!({"id": "zz"}), wrong("Expected a field named `name`.", "db_config")),
        ("db_config", json!({"id": "zz", "name": "x"}), given("database")),
        ("db_config", json!({"name": "x", "bogus": 1}), wrong("Unexpected key(s): bogus", "db_config")),
        ("table_config", json!({"id": "zz"}), given("table")),
        ("table_config", json!({"name": "x"}), wrong("Expected a field named `db`.", "table_config")),
        ("table_config", json!({"name": "x", "db": "nope"}), wrong("Database `nope` does not exist.", "table_config")),
        ("table_config", json!({"name": "t", "db": "made"}), "Table `made.t` already exists.".to_string()),
    ] {
        let refused = client.ask(&insert(table, row.clone()));
        assert_eq!((&refused["first_error"], &refused["inserted"]), (&json!(text), &json!(0)), "{table} {row}");
    }
    // What is written under a key that somebody gives is refused as well if it is no insert.
    for (table, row, what) in [
        ("db_config", json!({"id": "zz", "name": "u"}), "database"),
        ("table_config", json!({"id": "zz", "name": "u", "db": "made"}), "table"),
    ] {
        let refused = client.ask(&json!([55, [[16, [system(table), "zz"]], row]]));
        assert_eq!((&refused["first_error"], &refused["inserted"]), (&json!(given(what)), &json!(0)), "{row}");
    }
    // Rows are copied from those of other tables.
    let copied = |indexes: Value| json!({"name": "u", "db": "made", "indexes": indexes, "write_hook": null});
    let refused = client.ask(&insert("table_config", copied(json!([2, ["i"]]))));
    let text = "The `indexes` field is read-only and can't be used to create indexes.";
    assert_eq!(refused["first_error"], text, "{refused}");
    assert_eq!(client.ask(&insert("table_config", copied(json!([2, []]))))["inserted"], 1);
    assert_eq!(client.ask(&json!([54, [[39, [system("db_config"), {"name": "made"}]]]]))["deleted"], 1);
    assert_eq!(client.ask(&json!([59, []])), json!(["rethinkdb", "test"]));
}
