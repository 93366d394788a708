//! What clients of the ReQL port may cost a node: many connections, long queries, streams that nobody reads on.

use crate::cluster::Cluster;
use crate::connections::{raise_file_limit, resident_bytes};
use crate::reql::{Client, PATIENCE, create, insert, metric, table};
use crate::reql_users::log_in;
use crate::server::{Node, free_port, wait_for};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// The versions of the protocol that begin with a key: V0_3, whose queries are answered in their order, and V0_4.
const VERSIONS: [u32; 2] = [0x5f75_e83e, 0x400c_2d20];

fn connect(port: u16, version: u32) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[version, 0, 0x7e69_70c7].map(u32::to_le_bytes).concat()).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"SUCCESS\0");
    stream
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_one_more_is_told_so() {
    raise_file_limit();
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut client = Client::to(port);
    let memory = resident_bytes(&node);
    let mut idle: Vec<Client> = (0..9_999).map(|_| Client::to(port)).collect();
    let each = (resident_bytes(&node) - memory) / idle.len();
    assert!(each < 8 << 10, "{each} bytes a connection");
    let greeted = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let greeting = [0x400c_2d20_u32, 0, 0x7e69_70c7].map(u32::to_le_bytes).concat();
        let mut answer = [0; 8];
        stream.write_all(&greeting).and_then(|()| stream.read_exact(&mut answer)).ok()?;
        (&answer != b"ERROR: T").then_some(())
    };
    assert!(greeted().is_none(), "a connection above the limit is told so and closed");
    for at in [0, 5_000, 9_998] {
        assert_eq!(idle[at].ask(&json!([24, [at, 1]])), at + 1);
    }
    assert_eq!(client.ask(&json!([24, [1, 2]])), 3);
    drop(idle);
    wait_for("there is room again", PATIENCE, greeted);
}

#[test]
fn long_queries_and_streams_that_nobody_reads_on_are_bounded_and_harm_nobody() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut other = Client::to(port);
    assert_eq!(other.ask(&create("t"))["tables_created"], 1);
    for part in 0..10 {
        let documents: Vec<Value> =
            (0..300).map(|at| json!({"id": part * 300 + at, "text": "x".repeat(1000)})).collect();
        assert_eq!(other.ask(&insert("t", &documents))["inserted"], 300);
    }
    let memory = resident_bytes(&node);

    // A query of 100 MB: a string, numbers, and nested arrays.
    let numbers = format!("[1,[2,[{}1]]]", "1,".repeat(50 * MIB));
    let nested = format!("[1,{}]", "[2,[".repeat(25 * MIB));
    for text in [format!("[1,\"{}\"]", "x".repeat(100 * MIB)), numbers, nested] {
        let mut client = Client::to(port);
        // Its connection may be closed while it still sends.
        let answer = client.try_send(1, &text).and_then(|()| client.try_receive());
        if let Some((_, answer)) = answer {
            assert!([1, 16, 17, 18].map(Some).contains(&answer["t"].as_i64()), "{}", answer["t"]);
        }
        assert_eq!(other.ask(&json!([24, [1, 2]])), 3);
    }
    // Streams of which only the first batch is read, on connections that stay.
    let query = json!([1, table("t"), {"max_batch_rows": 1}]).to_string();
    let mut readers: Vec<Client> = (0..20).map(|_| Client::to(port)).collect();
    for reader in &mut readers {
        for token in 0..100 {
            reader.send(token, &query);
            assert_eq!(reader.receive().1["t"], 3, "the stream goes on");
        }
    }
    assert_eq!(other.ask(&json!([43, [table("t")]])), 3000);
    wait_for("the memory is free again", PATIENCE, || {
        (resident_bytes(&node) < memory + 128 * MIB).then_some(()).or_else(|| {
            other.ask(&json!([24, [1, 2]]));
            None
        })
    });
    // A stream that was left for a while goes on.
    readers[3].send(7, "[2]");
    assert_eq!(readers[3].receive().0, 7);
}

/// A function that takes long for each number, of so many.
fn count(numbers: u64) -> Value {
    let increment = json!([69, [[2, [1]], [24, [[10, [1]], 1]]]]);
    json!([43, [[38, [[173, [numbers]], increment]]]])
}

/// A count that nobody sees the end of.
fn endless() -> Value {
    count(1_000_000_000_000)
}

fn under_way(node: &Node, count: f64) {
    let what = format!("{count} queries are under way");
    wait_for(&what, PATIENCE, || (metric(node, "tessera_reql_running_queries{}") == count).then_some(()));
}

/// Whoever spoke V0_3 was not listened to while a query ran, so it was not noticed that they had left: the query went on.
#[test]
fn a_query_ends_when_its_client_leaves() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = Node::start(data.path(), &[&format!("reql.port={port}"), "reql.query_threads=1"]);
    for version in VERSIONS {
        let mut leaves = Client::on(connect(port, version));
        leaves.send(1, &json!([1, endless(), {}]).to_string());
        under_way(&node, 1.0);
        drop(leaves);
        under_way(&node, 0.0);
    }
    // Also one with more queries than may run, the last of which is not begun.
    let mut leaves = Client::to(port);
    for token in 0..1_025 {
        leaves.send(token, &json!([1, endless(), {"noreply": true}]).to_string());
    }
    under_way(&node, 4.0);
    drop(leaves);
    under_way(&node, 0.0);
}

/// Each of them kept one of the threads for queries, and when these were taken nobody was answered.
#[test]
fn queries_that_wait_or_never_end_keep_nobody_from_being_answered() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = Node::start(data.path(), &[&format!("reql.port={port}"), "reql.query_threads=2"]);
    let mut client = Client::to(port);
    assert_eq!(client.ask(&create("t"))["tables_created"], 1);
    assert_eq!(client.ask(&insert("t", &[json!({"id": 1}), json!({"id": 2})]))["inserted"], 2);
    // An index whose function never ends is never built.
    assert_eq!(client.ask(&create("slow"))["tables_created"], 1);
    assert_eq!(client.ask(&insert("slow", &[json!({"id": 1})]))["inserted"], 1);
    let never = json!([69, [[2, [2]], endless()]]);
    assert_eq!(client.ask(&json!([75, [table("slow"), "never", never]]))["created"], 1);
    let wait_for_index = json!([140, [table("slow"), "never"]]);
    for endless in [wait_for_index, endless()] {
        let others: Vec<Client> = (0..8).map(|_| Client::to(port)).collect();
        let mut under_way_now: Vec<_> = others.into_iter().map(|other| other.run_in_background(&endless)).collect();
        under_way(&node, 8.0);
        for id in 3..6 {
            assert!(client.ask(&json!([103, []]))["epoch_time"].is_number());
            let two = [json!({"id": 2 * id}), json!({"id": 2 * id + 1})];
            assert_eq!(client.ask(&json!([54, [[78, [table("t"), 2 * id, 2 * id + 1]]]]))["errors"], 0);
            assert_eq!(client.ask(&insert("t", &two))["inserted"], 2);
        }
        assert_eq!(client.ask(&json!([43, [table("t")]])), 8);
        let jobs = json!([39, [[15, [[14, ["rethinkdb"]], "jobs"]], {"type": "query"}]]);
        assert!(client.ask(&jobs).as_array().unwrap().len() >= 8);
        for query in &mut under_way_now {
            query.stop();
        }
        under_way(&node, 0.0);
    }
}

/// One user had all turns of a node. Of so many queries some are not interrupted for others of the same user.
#[test]
fn a_user_with_many_queries_leaves_others_their_turns_and_has_no_more_than_the_limit() {
    const QUERIES: u16 = 12;
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let limit = format!("reql.user_queries={QUERIES}");
    let node = Node::start(data.path(), &[&format!("reql.port={port}"), "reql.query_threads=1", &limit]);
    let mut admin = Client::to(port);
    assert_eq!(admin.ask(&create("t"))["tables_created"], 1);
    let user = json!([56, [[15, [[14, ["rethinkdb"]], "users"]], {"id": "ann", "password": "secret"}]]);
    assert_eq!(admin.ask(&user)["inserted"], 1);
    let rights = json!({"read": true, "write": true});
    assert_eq!(admin.ask(&json!([188, [table("t"), "ann", rights]]))["granted"], 1);
    let ann = || log_in(port, "ann", "secret").ok().unwrap();
    let many: Vec<_> = (0..QUERIES).map(|_| ann().run_in_background(&endless())).collect();
    under_way(&node, f64::from(QUERIES));
    let mut more = ann();
    for term in [json!([24, [1, 2]]), json!([56, [table("t"), {"id": "refused"}]])] {
        let refused = more.ask(&term);
        assert_eq!((&refused["t"], &refused["e"]), (&json!(18), &json!(2_000_000)), "{refused}");
        assert!(refused["r"][0].as_str().unwrap().starts_with("The user `ann` has 12 queries under way"), "{refused}");
    }
    assert_eq!(metric(&node, "tessera_reql_queries_refused_total{}"), 2.0);
    // Nobody would learn that this one was not carried out.
    more.send(100, &json!([1, insert("t", &[json!({"id": "waits"})]), {"noreply": true}]).to_string());
    more.send(101, "[4]");
    let began = Instant::now();
    for at in 0..30 {
        assert_eq!(admin.ask(&json!([24, [at, 1]])), at + 1);
    }
    assert_eq!(admin.ask(&json!([43, [table("t")]])), 0);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    drop(many);
    assert_eq!(more.receive(), (101, json!({"t": 4, "r": []})));
    assert_eq!(admin.ask(&json!([43, [table("t")]])), 1);
    assert_eq!(more.ask(&json!([24, [1, 2]])), 3);
}

/// Each of them kept one of the threads for queries for the ten seconds that are waited for a partition's leader.
#[test]
fn queries_about_a_partition_without_a_leader_leave_others_alone() {
    const LOST: &str = "node-3";
    let mut cluster = Cluster::start_with_reql(3);
    let mut client = Client::to(cluster.reql_ports()[0]);
    assert_eq!(client.ask(&json!([60, ["whole"], {"replicas": 3}]))["tables_created"], 1);
    assert_eq!(client.ask(&insert("whole", &[json!({"id": 1}), json!({"id": 2})]))["inserted"], 2);
    let names = (0..9).map(|number| format!("alone{number}"));
    let lost = names.into_iter().find(|name| {
        assert_eq!(client.ask(&json!([60, [name], {"replicas": 1}]))["tables_created"], 1);
        client.ask(&json!([175, [table(name)]]))["shards"][0]["primary_replicas"] == json!([LOST])
    });
    let lost = lost.expect("one of the tables is on each node");
    cluster.kill(2);
    let whole = json!([43, [table("whole")]]);
    wait_for("others lead", PATIENCE, || (client.ask(&whole) == 2).then_some(()));
    let asking: Vec<_> =
        (0..24).map(|_| Client::to(cluster.reql_ports()[0]).run_in_background(&json!([43, [table(&lost)]]))).collect();
    under_way(cluster.node(0), 24.0);
    let began = Instant::now();
    for id in 3..6 {
        assert_eq!(client.ask(&insert("whole", &[json!({"id": 2 * id}), json!({"id": 2 * id + 1})]))["inserted"], 2);
        assert_eq!(client.ask(&whole), 2 * id - 2);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    drop(asking);
}

/// The 1,025th query under way was refused, so that its write was lost, and its client, which waits for no answer, got one.
#[test]
fn no_write_is_lost_however_many_are_under_way_and_nobody_waits_for() {
    const WRITES: u64 = 1_100;
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}"), "reql.query_threads=1"]);
    let mut other = Client::to(port);
    assert_eq!(other.ask(&create("t"))["tables_created"], 1);
    let mut client = Client::to(port);
    // As many as may be under way of one connection, so that what follows waits.
    for token in 0..4 {
        client.send(token, &json!([1, endless(), {"noreply": true}]).to_string());
    }
    // A token that is taken is refused, and nobody is told.
    client.send(3, &json!([1, insert("t", &[json!({"id": "refused"})]), {"noreply": true}]).to_string());
    let options = json!({"noreply": true, "durability": "soft"});
    for id in 0..WRITES {
        let token = i64::try_from(10 + id).unwrap();
        client.send(token, &json!([1, insert("t", &[json!({"id": id})]), options]).to_string());
    }
    client.send(5_000, "[4]");
    let jobs = json!([39, [[15, [[14, ["rethinkdb"]], "jobs"]], {"type": "query"}]]);
    // Those that run, and the query that asks.
    wait_for("as many run as may", PATIENCE, || (other.ask(&jobs).as_array().unwrap().len() == 1_025).then_some(()));
    let is_count = json!([97, [[170, [[170, [[10, [7]], "info"]], "query"]], "^r\\.range"]]);
    let ended = other.ask(&json!([54, [[39, [jobs, [69, [[2, [7]], is_count]]]]]]));
    assert_eq!(ended["deleted"], 4, "{ended}");
    assert_eq!(client.receive(), (5_000, json!({"t": 4, "r": []})));
    assert_eq!(other.ask(&json!([43, [table("t")]])), WRITES);
}

/// What partitions had made of documents, and had no room in an answer, counted nowhere: some 15 MiB for each stream that was left open.
#[test]
fn rows_that_wait_for_their_client_count_and_streams_that_nobody_asks_for_more_are_closed() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    // Streams are to be open for longer than it takes to fill the memory with them.
    let settings =
        [&format!("reql.port={port}"), "clients.memory_limit_bytes=128MiB", "reql.cursor_timeout_seconds=10"];
    let node = Node::start(data.path(), &settings);
    let mut other = Client::to(port);
    assert_eq!(other.ask(&json!([60, ["t"], {"shards": 16, "durability": "soft"}]))["tables_created"], 1);
    let text = "x".repeat(5_000);
    for part in 0..16 {
        let documents: Vec<Value> = (0..220).map(|at| json!({"id": part * 220 + at, "text": text})).collect();
        assert_eq!(other.ask(&insert("t", &documents))["inserted"], 220);
    }
    let memory = resident_bytes(&node);
    let stream = json!([1, [39, [table("t"), [69, [[2, [1]], [21, [[170, [[10, [1]], "id"]], -1]]]]]], {}]).to_string();
    let opened = |client: &mut Client, tokens: std::ops::Range<i64>| {
        let is_open = |token| {
            client.try_send(token, &stream)?;
            client.try_receive().map(|(_, answer)| assert_eq!(answer["t"], 3, "the stream goes on"))
        };
        tokens.map_while(is_open).count()
    };
    let mut greedy = Client::to(port);
    let count = opened(&mut greedy, 0..100);
    assert!((4..40).contains(&count), "{count} streams were opened");
    assert_eq!(metric(&node, "tessera_clients_evicted_total{}"), 1.0);
    let more = resident_bytes(&node).saturating_sub(memory);
    assert!(more < 512 * MIB, "{more} bytes");

    let mut silent = Client::to(port);
    assert_eq!(opened(&mut silent, 0..3), 3);
    let jobs = json!([39, [[15, [[14, ["rethinkdb"]], "jobs"]], {"type": "query"}]]);
    let count = |other: &mut Client| other.ask(&jobs).as_array().unwrap().len();
    wait_for("the streams are closed", PATIENCE, || (count(&mut other) == 1).then_some(()));
    wait_for("nothing is kept", PATIENCE, || (metric(&node, "tessera_clients_memory_bytes{}") == 0.0).then_some(()));
    silent.send(2, "[2]");
    assert_eq!(silent.receive().1["t"], 16, "the stream is not there any more");
}
