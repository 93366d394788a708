//! Users that all nodes have in common, on every port.

use super::Cluster;
use crate::reql::{self, create, table};
use crate::reql_users::log_in;
use crate::resp_client::{Client, Value as Reply, words};
use crate::server::{http_get, wait_for};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const AS_ADMIN: &str = "--user admin --password root-secret";

fn call(client: &mut Client, command: &str) -> Reply {
    client.call(&words(command)).unwrap()
}

fn is_error(reply: &Reply, code: &str) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with(code))
}

fn count() -> Value {
    json!([43, [table("t")]])
}

fn no_permission(right: &str) -> String {
    format!("User `bob` does not have the required `{right}` permission.")
}

/// What somebody is refused who has not the right.
fn refusal(client: &mut reql::Client, term: &Value) -> String {
    let answer = client.ask(term);
    assert_eq!(answer["e"], 6_000_000, "{answer}");
    answer["r"][0].as_str().unwrap().into()
}

#[test]
fn a_user_of_one_node_is_one_of_all_until_it_is_dropped() {
    let mut cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let mut admin = reql::Client::to(ports[2]);
    assert_eq!(admin.ask(&create("t"))["tables_created"], 1);
    let mut anonymous: Vec<Client> = (0..3).map(|at| cluster.client(at)).collect();

    // A user that one node has made logs in on every other one at once.
    let said = cluster.node(0).try_cli("user create bob", "bob-secret\n").unwrap();
    assert!(said.contains("the user admin has no password"), "{said}");
    let mut bobs: Vec<reql::Client> =
        ports.iter().map(|port| log_in(*port, "bob", "bob-secret").ok().unwrap()).collect();
    let mut redis: Vec<Client> = (0..3).map(|at| cluster.client(at)).collect();
    for client in &mut redis {
        assert!(is_error(&call(client, "AUTH bob wrong"), "WRONGPASS"));
        assert_eq!(call(client, "AUTH bob bob-secret"), Reply::Simple("OK".into()));
        assert_eq!(call(client, "ACL WHOAMI"), Reply::Bulk(b"bob".into()));
        assert!(is_error(&call(client, "SET a b"), "NOPERM"));
        assert!(is_error(&call(client, "ACL LIST"), "NOPERM"));
    }
    for bob in &mut bobs {
        assert_eq!(refusal(bob, &count()), no_permission("read"));
    }

    // What is granted holds on connections that are open.
    cluster.node(1).try_cli("user grant bob read write --table test.t", "").unwrap();
    for bob in &mut bobs {
        wait_for("the right is known", PATIENCE, || (bob.ask(&count()) == 0).then_some(()));
    }
    // What is taken away is gone on every node when it is said to be.
    let deny = json!([188, [table("t"), "bob", {"read": false}]]);
    assert_eq!(admin.ask(&deny)["granted"], 1);
    for bob in &mut bobs {
        assert_eq!(refusal(bob, &count()), no_permission("read"));
        // One document goes another way than others.
        assert_eq!(refusal(bob, &json!([16, [table("t"), 1]])), no_permission("read"));
        assert_eq!(refusal(bob, &json!([56, [table("t"), {"id": 1}]])), no_permission("write"));
    }

    // The same rights are given by commands of Redis, for tables of keys and values.
    let granted = call(&mut anonymous[1], "ACL GETUSER bob");
    assert!(granted.to_string().contains("table:test.t -@read +@write"), "{granted}");
    let rule = [&words("ACL SETUSER bob")[..], &[b"(table:default +@read)".to_vec()]].concat();
    assert_eq!(anonymous[1].call(&rule).unwrap(), Reply::Simple("OK".into()));
    for client in &mut redis {
        wait_for("the right is known", PATIENCE, || {
            (call(client, "SELECT 0") == Reply::Simple("OK".into())).then_some(())
        });
        assert_eq!(call(client, "GET a"), Reply::Null);
        assert!(is_error(&call(client, "SET a b"), "NOPERM"));
        assert!(is_error(&call(client, "FLUSHALL"), "NOPERM"));
    }
    for wrong in ["ACL SETUSER bob off", "ACL SETUSER bob ~user:*", "ACL SETUSER eve +@read", "ACL DELUSER admin"] {
        assert!(is_error(&call(&mut anonymous[0], wrong), "ERR"), "{wrong}");
    }

    // The first password of `admin` closes all ports of all nodes.
    cluster.node(0).try_cli("user alter admin", "root-secret\n").unwrap();
    for (at, client) in anonymous.iter_mut().enumerate() {
        assert!(is_error(&call(client, "GET a"), "NOAUTH"), "node {at}");
        assert_eq!(log_in(ports[at], "admin", "").err().unwrap()["error_code"], 12);
        let node = cluster.node(at);
        assert!(http_get(node.admin_port, "/v1/tables").unwrap().starts_with("HTTP/1.1 401 "));
        assert!(http_get(node.admin_port, "/readyz").unwrap().starts_with("HTTP/1.1 200 "));
        assert!(node.try_cli("table list", "").is_err());
        assert!(node.try_cli("table list --user bob --password bob-secret", "").unwrap_err().contains("403"));
        assert!(node.try_cli(&format!("table list {AS_ADMIN}"), "").unwrap().contains("default"));
    }
    assert_eq!(call(&mut anonymous[0], "AUTH admin root-secret"), Reply::Simple("OK".into()));
    assert_eq!(call(&mut anonymous[0], "SET a b"), Reply::Simple("OK".into()));

    // Passwords and their hashes are nowhere to be seen.
    let shown = [
        cluster.node(0).try_cli(&format!("user list {AS_ADMIN}"), "").unwrap(),
        cluster.node(0).try_cli(&format!("user list --json {AS_ADMIN}"), "").unwrap(),
        cluster.node(1).try_cli(&format!("status {AS_ADMIN}"), "").unwrap(),
        cluster.node(1).try_cli(&format!("table show default --json {AS_ADMIN}"), "").unwrap(),
        call(&mut anonymous[0], "ACL LIST").to_string(),
        admin.ask(&json!([15, [[14, ["rethinkdb"]], "users"]])).to_string(),
        admin.ask(&json!([53, [[16, [[15, [[14, ["rethinkdb"]], "users"]], "bob"]], {"password": "bob-secret"}], {"return_changes": true}])).to_string(),
    ];
    for text in shown {
        assert!(!text.contains("SCRAM") && !text.contains("-secret"), "{text}");
    }

    // A node that starts again knows its users.
    cluster.kill(2);
    cluster.start_node(2);
    let redis_port = cluster.ports[2].0;
    let is_back = || Client::connect(redis_port).ok().filter(|_| TcpStream::connect(("127.0.0.1", ports[2])).is_ok());
    let mut again = wait_for("the node is back", PATIENCE, is_back);
    assert!(is_error(&call(&mut again, "GET a"), "NOAUTH"));
    assert_eq!(call(&mut again, "AUTH bob bob-secret"), Reply::Simple("OK".into()));
    bobs[2] = log_in(ports[2], "bob", "bob-secret").ok().unwrap();
    redis[2] = again;

    // Who is dropped may do nothing any more, anywhere.
    cluster.node(1).try_cli(&format!("user drop bob {AS_ADMIN}"), "").unwrap();
    for (at, (bob, client)) in bobs.iter_mut().zip(&mut redis).enumerate() {
        assert_eq!(refusal(bob, &count()), no_permission("read"), "node {at}");
        assert!(is_error(&call(client, "GET a"), "NOAUTH"), "node {at}");
        assert!(is_error(&call(client, "AUTH bob bob-secret"), "WRONGPASS"), "node {at}");
        assert_eq!(log_in(ports[at], "bob", "bob-secret").err().unwrap()["error_code"], 17);
    }
}
