//! What a node counts of what its clients ask.

use crate::pegasus::wire::{Connection, Fields, key, message, message_of_blob, v0};
use crate::reql::{Client as ReqlClient, create, insert, table};
use crate::resp_client::{Value, words};
use crate::server::{Node, free_port, http_get};
use serde_json::json;
use tempfile::TempDir;

struct Scraped(String);

impl Scraped {
    fn of(node: &Node) -> Self {
        Self(http_get(node.admin_port, "/metrics").unwrap())
    }

    /// The value of a series; zero if it is not there.
    fn value(&self, series: &str) -> f64 {
        let value = self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().unwrap())
    }

    fn requests(&self, face: &str, table: &str, kind: &str) -> f64 {
        let labels = format!("face=\"{face}\",table=\"{table}\",kind=\"{kind}\"");
        let of = |what: &str| format!("tessera_request_duration_seconds_{what}");
        let count = self.value(&format!("{}{{{labels}}}", of("count")));
        let last = self.value(&format!("{}{{le=\"+Inf\",{labels}}}", of("bucket")));
        assert_eq!(count, last, "the last bucket has all of {labels}");
        let sum = self.value(&format!("{}{{{labels}}}", of("sum")));
        assert!((count == 0.0) == (sum == 0.0) && sum < 60.0, "{count} of {labels} took {sum} s");
        count
    }

    fn errors(&self, face: &str, command: &str) -> f64 {
        self.value(&format!("tessera_command_errors_total{{face=\"{face}\",command=\"{command}\"}}"))
    }

    /// How many keys were there, and how many were not.
    fn lookups(&self, face: &str, command: &str) -> [f64; 2] {
        ["hit", "miss"].map(|result| {
            let labels = format!("face=\"{face}\",command=\"{command}\",result=\"{result}\"");
            self.value(&format!("tessera_key_lookups_total{{{labels}}}"))
        })
    }
}

#[test]
fn what_clients_of_each_face_ask_is_counted_by_table_and_command() {
    let (data, pegasus, reql) = (TempDir::new().unwrap(), free_port(), free_port());
    let ports = [format!("pegasus.port={pegasus}"), format!("reql.port={reql}")];
    let node = Node::start(data.path(), &[&ports[0], &ports[1]]);
    node.cli("table create t --engine memory --partitions 1 --durability soft");

    let mut client = node.client();
    client.run("SELECT 1");
    for command in ["SET k v", "HSET h f v", "GET k", "GET none", "GET k", "MGET k none k"] {
        assert!(!matches!(client.run(command), Value::Error(_)), "{command}");
    }
    let pipeline: Vec<_> = (0..7).map(|at| words(if at < 2 { "GET none" } else { "GET k" })).collect();
    client.pipeline(&pipeline).unwrap();
    for command in ["GET h", "HGET k f", "SET k", "NOSUCH", "NOSUCHEITHER"] {
        assert!(matches!(client.run(command), Value::Error(_)), "{command}");
    }
    for command in ["MULTI", "SET k w", "GET k", "EXEC"] {
        client.run(command);
    }
    let scraped = Scraped::of(&node);
    // With GET h and HGET k f, and what was queued.
    assert_eq!(scraped.requests("redis", "t", "read"), 10.0 + 1.0 + 2.0 + 1.0, "{}", scraped.0);
    // With SET k, EXEC and what was queued.
    assert_eq!(scraped.requests("redis", "t", "write"), 2.0 + 1.0 + 1.0 + 1.0);
    assert_eq!(scraped.lookups("redis", "get"), [7.0, 3.0]);
    assert_eq!(scraped.lookups("redis", "mget"), [2.0, 1.0]);
    for (command, errors) in [("get", 1.0), ("hget", 1.0), ("set", 1.0), ("unknown", 2.0), ("mget", 0.0)] {
        assert_eq!(scraped.errors("redis", command), errors, "{command}");
    }
    let Value::Bulk(info) = client.run("INFO stats") else { panic!("a text") };
    let info = String::from_utf8(info).unwrap();
    assert!(info.contains("keyspace_hits:9\r\n") && info.contains("keyspace_misses:4\r\n"), "{info}");

    let mut connection = Connection::to(pegasus);
    let put = message("RPC_RRDB_RRDB_PUT", 1, &Fields::default().blob(1, &key("h", "s")).blob(2, b"v").i32(3, 0));
    let get = |hash_key: &str| message_of_blob("RPC_RRDB_RRDB_GET", 2, &key(hash_key, "s"));
    assert_eq!(connection.call(&v0(1, 0, &put)).code(), 0);
    assert_eq!(connection.call(&v0(1, 0, &get("h"))).code(), 0);
    assert_eq!(connection.call(&v0(1, 0, &get("none"))).code(), 1);
    assert_eq!(connection.call(&v0(1, 9, &get("h"))).error, "ERR_OBJECT_NOT_FOUND");
    let scraped = Scraped::of(&node);
    assert_eq!(scraped.requests("pegasus", "t", "read"), 2.0, "{}", scraped.0);
    assert_eq!(scraped.requests("pegasus", "t", "write"), 1.0);
    assert_eq!(scraped.requests("pegasus", "", "other"), 1.0);
    assert_eq!(scraped.lookups("pegasus", "get"), [1.0, 1.0]);
    assert_eq!((scraped.errors("pegasus", "get"), scraped.errors("pegasus", "put")), (1.0, 0.0));

    let mut client = ReqlClient::to(reql);
    client.ask(&create("r"));
    client.ask(&insert("r", &[json!({"id": 1})]));
    assert_eq!(client.ask(&json!([16, [table("r"), 1]]))["id"], 1);
    assert!(client.ask(&json!([16, [table("r"), 2]])).is_null());
    assert_eq!(client.ask(&json!([43, [table("r")]])), 1);
    assert_eq!(client.ask(&json!([24, [1, "a"]]))["e"], 3_000_000);
    let scraped = Scraped::of(&node);
    assert_eq!(scraped.requests("reql", "test.r", "query"), 4.0, "{}", scraped.0);
    assert_eq!(scraped.requests("reql", "", "query"), 2.0);
    assert_eq!(scraped.lookups("reql", "query"), [1.0, 1.0]);
    assert_eq!(scraped.errors("reql", "query"), 1.0);

    node.cli("table rename t u");
    assert_eq!(Scraped::of(&node).requests("redis", "u", "read"), 14.0);
    node.cli("table drop u");
    let scraped = Scraped::of(&node);
    assert!(!scraped.0.contains("table=\"t\"") && !scraped.0.contains("table=\"u\""), "{}", scraped.0);
}

/// What is slow is not among what is quick.
#[test]
fn a_request_that_waits_is_in_a_bucket_of_long_ones() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    node.cli("table create slow --engine memory --partitions 1 --durability soft --write-rate 0*delay*300");
    let mut client = node.client();
    client.run("SELECT 1");
    client.run("SET k v");
    client.run("GET k");
    let scraped = Scraped::of(&node);
    let within = |kind: &str, seconds: &str| {
        let labels = format!("le=\"{seconds}\",face=\"redis\",table=\"slow\",kind=\"{kind}\"");
        scraped.value(&format!("tessera_request_duration_seconds_bucket{{{labels}}}"))
    };
    assert_eq!((within("write", "0.25"), within("write", "10.0")), (0.0, 1.0), "{}", scraped.0);
    assert_eq!(within("read", "10.0"), 1.0);
}
