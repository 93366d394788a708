//! Documents through the ReQL port, with a client that writes JSON frames by itself.

use crate::cluster::Cluster;
use crate::server::{Node, free_port, http_get, wait_for};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A connection that speaks V0_4, without a key.
pub(crate) struct Client {
    stream: TcpStream,
    token: i64,
}

impl Client {
    pub(crate) fn to(port: u16) -> Self {
        Self::try_to(port).unwrap()
    }

    pub(crate) fn try_to(port: u16) -> Option<Self> {
        Self::try_to_host("127.0.0.1", port)
    }

    pub(crate) fn try_to_host(host: &str, port: u16) -> Option<Self> {
        let mut stream = TcpStream::connect((host, port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let greeting = [0x400c_2d20_u32, 0, 0x7e69_70c7].map(u32::to_le_bytes).concat();
        stream.write_all(&greeting).ok()?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).ok()?;
        assert_eq!(&answer, b"SUCCESS\0");
        Some(Self { stream, token: 0 })
    }

    /// Whose handshake is over.
    pub fn on(stream: TcpStream) -> Self {
        Self { stream, token: 0 }
    }

    pub(crate) fn send(&mut self, token: i64, text: &str) {
        self.try_send(token, text).unwrap();
    }

    pub(crate) fn receive(&mut self) -> (i64, Value) {
        self.try_receive().unwrap()
    }

    pub(crate) fn try_send(&mut self, token: i64, text: &str) -> Option<()> {
        let length = u32::try_from(text.len()).unwrap();
        let frame = [&token.to_le_bytes()[..], &length.to_le_bytes(), text.as_bytes()].concat();
        self.stream.write_all(&frame).ok()
    }

    pub(crate) fn try_receive(&mut self) -> Option<(i64, Value)> {
        let (mut token, mut length) = ([0; 8], [0; 4]);
        self.stream.read_exact(&mut token).ok()?;
        self.stream.read_exact(&mut length).ok()?;
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        self.stream.read_exact(&mut text).ok()?;
        Some((i64::from_le_bytes(token), serde_json::from_slice(&text).unwrap()))
    }

    /// The answer to a query: all rows of a stream, or the value.
    pub(crate) fn ask(&mut self, term: &Value) -> Value {
        self.try_ask(term).expect("the node answers")
    }

    /// As [`Self::ask`]; `None` if the connection ends.
    pub(crate) fn try_ask(&mut self, term: &Value) -> Option<Value> {
        self.token += 1;
        let token = self.token;
        self.try_send(token, &json!([1, term, {}]).to_string())?;
        let mut rows = Vec::new();
        loop {
            let (answered, mut answer) = self.try_receive()?;
            assert_eq!(answered, token);
            let kind = answer["t"].as_i64().unwrap();
            match kind {
                1 => return Some(answer["r"][0].take()),
                2 | 3 => rows.extend(answer["r"].as_array().unwrap().iter().cloned()),
                _ => return Some(answer),
            }
            if kind == 2 {
                return Some(Value::Array(rows));
            }
            self.try_send(token, "[2]")?;
        }
    }
}

/// A query whose answer nobody waits for.
pub(crate) struct Background(Client);

impl Client {
    /// Sends a query and leaves it running.
    pub(crate) fn run_in_background(mut self, term: &Value) -> Background {
        self.token += 1;
        self.send(self.token, &json!([1, term, {}]).to_string());
        Background(self)
    }
}

impl Background {
    /// Stops the query, and waits until it has.
    pub(crate) fn stop(&mut self) {
        let Client { token, .. } = self.0;
        self.0.send(token, "[3]");
        // Both the query and the wish are answered.
        for _ in 0..2 {
            let (answered, answer) = self.0.receive();
            assert_eq!((answered, &answer["t"]), (token, &json!(2)), "{answer}");
        }
    }
}

pub(crate) fn table(name: &str) -> Value {
    json!([15, [name]])
}

pub(crate) fn create(name: &str) -> Value {
    json!([60, [name]])
}

pub(crate) fn insert(name: &str, documents: &[Value]) -> Value {
    json!([56, [table(name), [2, documents]]])
}

fn get(name: &str, key: impl Into<Value>) -> Value {
    json!([16, [table(name), key.into()]])
}

/// `{n: row("n") + 1}` of what is selected.
fn increment(selection: &Value) -> Value {
    json!([53, [selection, [69, [[2, [1]], {"n": [24, [[170, [[10, [1]], "n"]], 1]]}]]]])
}

/// A query that nobody sees the end of.
fn endless() -> Value {
    count(&json!([173, [1_000_000_000_000_u64]]))
}

fn count(selection: &Value) -> Value {
    json!([43, [selection]])
}

/// How many rows come in the first answer to a query, and how many in the second.
fn batches(client: &mut Client, term: &Value, options: &Value) -> [usize; 2] {
    client.token += 1;
    let token = client.token;
    let sizes = [json!([1, term, options]), json!([2])].map(|request| {
        client.send(token, &request.to_string());
        client.receive().1["r"].as_array().unwrap().len()
    });
    client.send(token, "[3]");
    assert_eq!(client.receive().1["t"], 2, "the stream was open, and is stopped");
    sizes
}

fn check_batches(client: &mut Client) {
    let rows = json!({"max_batch_rows": 100, "first_batch_scaledown_factor": 10});
    assert_eq!(batches(client, &table("t"), &rows), [10, 100]);
    let bytes = json!({"max_batch_bytes": 1000, "first_batch_scaledown_factor": 1});
    let sizes = batches(client, &table("t"), &bytes);
    assert!(sizes.iter().all(|size| (20..100).contains(size)), "{sizes:?}");
    let least = json!({"max_batch_bytes": 1, "min_batch_rows": 30, "first_batch_scaledown_factor": 1});
    assert_eq!(batches(client, &table("t"), &least), [30, 30]);
    // 200 rows take longer than that.
    let endless = json!([173, []]);
    let soon = json!({"max_batch_seconds": 0.000_001, "max_batch_bytes": 50_000_000});
    let sizes = batches(client, &endless, &soon);
    assert!(sizes.iter().all(|size| (1..5000).contains(size)), "{sizes:?}");
}

fn check_everything(client: &mut Client) {
    assert_eq!(client.ask(&create("t"))["tables_created"], 1);
    assert_eq!(client.ask(&create("t"))["r"][0], "Table `test.t` already exists.");
    for (name, options, shards) in [("one", json!({}), 1), ("four", json!({"shards": 4}), 4)] {
        let made = client.ask(&json!([60, [name], options]));
        assert_eq!(made["config_changes"][0]["new_val"]["shards"].as_array().map(Vec::len), Some(shards), "{made}");
    }
    let documents: Vec<Value> = (0..2500).map(|id| json!({"id": id, "n": id % 10})).collect();
    for part in documents.chunks(500) {
        assert_eq!(client.ask(&insert("t", part))["inserted"], 500);
    }
    assert_eq!(client.ask(&insert("t", &documents[..1]))["errors"], 1);
    assert_eq!(client.ask(&get("t", 7)), json!({"id": 7, "n": 7}));
    assert_eq!(client.ask(&get("t", 9999)), Value::Null);
    assert_eq!(client.ask(&count(&table("t"))), 2500);
    // A stream of several batches.
    let mut ids: Vec<i64> =
        client.ask(&table("t")).as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..2500).collect::<Vec<_>>());
    let three = json!([39, [table("t"), {"n": 3}]]);
    assert_eq!(client.ask(&count(&three)), 250);
    // Most rows of each page are left out, and the stream goes on.
    assert_eq!(client.ask(&three).as_array().unwrap().len(), 250);
    check_batches(client);
    assert_eq!(client.ask(&increment(&three))["replaced"], 250);
    assert_eq!(client.ask(&count(&three)), 0);
    assert_eq!(client.ask(&get("t", 13)), json!({"id": 13, "n": 4}));
    // Writes of one document in one batch follow each other, also those that the document before them would refuse.
    let changing =
        [json!({"id": "twice", "n": 1}), json!({"id": "twice", "n": {"x": 1}}), json!({"id": "twice", "n": {"y": 2}})];
    let merged = client.ask(&json!([56, [table("t"), [2, changing]], {"conflict": "update"}]));
    assert_eq!(
        (&merged["inserted"], &merged["replaced"], &merged["errors"]),
        (&json!(1), &json!(2), &json!(0)),
        "{merged}"
    );
    assert_eq!(client.ask(&get("t", "twice")), json!({"id": "twice", "n": {"x": 1, "y": 2}}));
    let add =
        json!([69, [[2, [1, 2, 3]], {"id": "twice", "n": [24, [[170, [[10, [2]], "n"]], [170, [[10, [3]], "n"]]]]}]]);
    let numbers = json!([2, [{"id": "twice", "n": 5}, {"id": "twice", "n": 7}]]);
    client.ask(&json!([54, [get("t", "twice")]]));
    let summed = client.ask(&json!([56, [table("t"), numbers], {"conflict": add}]));
    assert_eq!((&summed["inserted"], &summed["replaced"]), (&json!(1), &json!(1)), "{summed}");
    assert_eq!(client.ask(&get("t", "twice"))["n"], 12);
    let same = vec![json!({"id": "twice", "n": 1}); 1500];
    let many = client.ask(&json!([56, [table("t"), [2, same]], {"conflict": add, "durability": "soft"}]));
    assert_eq!(many["replaced"], 1500, "{many}");
    assert_eq!(client.ask(&json!([54, [get("t", "twice")]]))["deleted"], 1);
    // In the order of keys, from the middle on.
    let range = json!([182, [table("t"), 1200, 1210]]);
    let ordered = client.ask(&json!([41, [range], {"index": "id"}]));
    let ids: Vec<i64> = ordered.as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, (1200..1210).collect::<Vec<_>>());
    assert_eq!(client.ask(&json!([54, [get("t", 13)]]))["deleted"], 1);
    assert_eq!(client.ask(&get("t", 13)), Value::Null);
    assert_eq!(client.ask(&json!([61, ["t"]]))["tables_dropped"], 1);
}

#[test]
fn documents_are_written_read_and_found_and_outlast_a_restart() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let setting = format!("reql.port={port}");
    let mut node = Node::start(data.path(), &[&setting]);
    let mut client = Client::to(port);
    check_everything(&mut client);
    node.cli("table create kept --model document --engine memory --durability soft --primary-key name");
    assert_eq!(client.ask(&insert("kept", &[json!({"name": "a", "n": 1})]))["inserted"], 1);
    assert_eq!(client.ask(&json!([15, []]))["t"], 17, "arguments are counted");
    // Tables for others are refused, with a word on what to use.
    let refused = client.ask(&get("default", "a"))["r"][0].to_string();
    assert!(refused.contains("--model document"), "{refused}");
    node.process.terminate();
    drop(node);
    let _node = Node::start(data.path(), &[&setting]);
    let mut client = Client::to(port);
    assert_eq!(client.ask(&get("kept", "a")), json!({"name": "a", "n": 1}));
}

#[test]
fn bad_input_is_answered_or_cut_and_harms_nobody() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}"), "reql.query_bytes=100000"]);
    let mut other = Client::to(port);
    let mut client = Client::to(port);
    for (text, kind) in
        [("no json", 16), ("[]", 16), ("[9]", 16), ("[1]", 16), ("[2]", 16), ("[3]", 16), ("[1,[9999]]", 17)]
    {
        client.send(5, text);
        let (token, answer) = client.receive();
        assert_eq!((token, answer["t"].as_i64()), (5, Some(kind)), "{text}: {answer}");
    }
    client.send(6, &"[".repeat(90_000));
    assert_eq!(client.receive().1["t"], 16);
    // An endless query is stopped.
    let endless = json!([1, endless(), {}]).to_string();
    client.send(7, &endless);
    client.send(7, "[3]");
    assert_eq!([client.receive().0, client.receive().0], [7, 7]);
    client.send(8, "[4]");
    assert_eq!(client.receive().1["t"], 4);
    // The reason arrives, though the query is sent whole.
    client.send(9, &" ".repeat(30_000_000));
    assert_eq!(client.receive().1["t"], 16);
    assert!(TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").is_ok());
    assert_eq!(other.ask(&json!([24, [1, 2]])), 3);
}

#[test]
fn three_nodes_answer_alike_and_nothing_is_lost_or_done_twice_when_one_ends() {
    let mut cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let mut clients: Vec<Client> = ports.iter().map(|port| Client::to(*port)).collect();
    assert_eq!(clients[0].ask(&json!([60, ["t"], {"replicas": 3}]))["tables_created"], 1);
    assert_eq!(clients[0].ask(&insert("t", &[json!({"id": "counter", "n": 0})]))["inserted"], 1);
    let writers: Vec<_> = ports[..2]
        .iter()
        .map(|port| {
            let port = *port;
            std::thread::spawn(move || {
                let mut client = Client::to(port);
                let (mut done, mut unknown) = (0, 0);
                for _ in 0..60 {
                    let answer = client.ask(&increment(&get("t", "counter")));
                    match (answer["replaced"].as_i64(), answer["e"].as_i64()) {
                        (Some(1), _) => done += 1,
                        (_, Some(4_200_000)) => unknown += 1,
                        _ => {}
                    }
                }
                (done, unknown)
            })
        })
        .collect();
    wait_for("some writes", PATIENCE, || (clients[2].ask(&get("t", "counter"))["n"].as_i64()? > 10).then_some(()));
    cluster.kill(2);
    let (mut done, mut unknown) = (0, 0);
    for writer in writers {
        let (its, may_be) = writer.join().unwrap();
        (done, unknown) = (done + its, unknown + may_be);
    }
    let n = wait_for("the counter is read", PATIENCE, || clients[1].ask(&get("t", "counter"))["n"].as_i64());
    assert!(done > 20 && (done..=done + unknown).contains(&n), "{n} of {done} and perhaps {unknown}");
    assert_eq!(clients[0].ask(&get("t", "counter"))["n"].as_i64(), Some(n));
}

/// A number of the node's metrics.
pub(crate) fn metric(node: &Node, name: &str) -> f64 {
    let text = http_get(node.admin_port, "/metrics").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// Clients that did not read long answers, that began long queries, or sent some of millions of values, were bounded each by itself
/// only.
#[test]
fn clients_that_hold_the_most_are_closed_before_all_hold_too_much() {
    const MIB: usize = 1 << 20;
    const LIMIT: usize = 32 * MIB;
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node =
        Node::start(data.path(), &[&format!("reql.port={port}"), &format!("clients.memory_limit_bytes={LIMIT}")]);
    node.cli("table create t --model document --database test --engine memory --partitions 1");
    let mut client = Client::to(port);
    assert_eq!(client.ask(&insert("t", &[json!({"id": "big", "text": "x".repeat(MIB)})]))["inserted"], 1);
    let frame = |token: i64, length: usize, text: &str| {
        let head = [&token.to_le_bytes()[..], &u32::try_from(length).unwrap().to_le_bytes()].concat();
        [head, text.as_bytes().to_vec()].concat()
    };
    let ask = json!([1, get("t", "big"), {}]).to_string();
    let unread = (0..30).flat_map(|token| frame(token, ask.len(), &ask)).collect::<Vec<_>>();
    let begun = frame(1, 100 * MIB, &"x".repeat(5 * MIB));
    let values = format!("[1,[2,[{}1]]]", "1,".repeat(MIB));
    let of_many_values = frame(1, values.len(), &values);
    let memory = crate::connections::resident_bytes(&node);
    for attack in [unread, begun, of_many_values] {
        let before = metric(&node, "tessera_clients_evicted_total{}");
        let mut attackers: Vec<Client> = (0..10).map(|_| Client::to(port)).collect();
        // It may be closed while it still writes.
        attackers.iter_mut().for_each(|attacker| _ = attacker.stream.write_all(&attack));
        wait_for("clients are closed", PATIENCE, || {
            assert_eq!(client.ask(&json!([24, [1, 2]])), 3, "others go on");
            let resident = crate::connections::resident_bytes(&node);
            assert!(resident < memory + 6 * LIMIT, "{} MiB", (resident - memory) / MIB);
            (metric(&node, "tessera_clients_evicted_total{}") > before).then_some(())
        });
    }
    wait_for("what they held is free", PATIENCE, || {
        (metric(&node, "tessera_clients_memory_bytes{}") == 0.0).then_some(())
    });
}

#[test]
fn connections_queries_and_errors_are_counted() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = Node::start(data.path(), &[&format!("reql.port={port}"), "reql.max_clients=2"]);
    let mut clients = [Client::to(port), Client::to(port)];
    let mut third = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut reason = String::new();
    third.read_to_string(&mut reason).unwrap();
    assert!(reason.starts_with("ERROR: ") && reason.contains("reql.max_clients"), "{reason}");
    assert_eq!(clients[0].ask(&json!([24, [1, 2]])), 3);
    assert_eq!(clients[1].ask(&json!([24, [1, "a"]]))["e"], 3_000_000);
    assert_eq!(clients[1].ask(&json!([15, []]))["t"], 17);
    clients[1].send(9, "no query");
    assert_eq!(clients[1].receive().1["t"], 16);
    for (name, count) in [
        ("open_connections{}", 2.0),
        ("connections_total{}", 3.0),
        ("connections_refused_total{}", 1.0),
        ("queries_total{}", 3.0),
        ("errors_total{class=\"query_logic\"}", 1.0),
        ("errors_total{class=\"compile\"}", 1.0),
        ("errors_total{class=\"client\"}", 1.0),
        ("errors_total{class=\"op_failed\"}", 0.0),
    ] {
        assert_eq!(metric(&node, &format!("tessera_reql_{name}")), count, "{name}");
    }
    drop(clients);
    wait_for("they have left", PATIENCE, || (metric(&node, "tessera_reql_open_connections{}") == 0.0).then_some(()));
}

#[test]
fn queries_that_run_when_a_node_stops_are_told_and_do_not_keep_it() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let mut node = Node::start(data.path(), &[&format!("reql.port={port}"), "reql.query_threads=2"]);
    let mut client = Client::to(port);
    // Two run, and one waits for its turn.
    let endless = json!([1, endless(), {}]).to_string();
    (0..3).for_each(|token| client.send(token, &endless));
    let mut other = Client::to(port);
    wait_for("they have begun", PATIENCE, || (metric(&node, "tessera_reql_queries_total{}") == 3.0).then_some(()));
    let began = std::time::Instant::now();
    assert_eq!(node.process.terminate(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    for _ in 0..3 {
        let answer = client.receive().1;
        assert!(answer["r"][0].as_str().unwrap().contains("shutting down"), "{answer}");
        assert!([4_100_000, 4_200_000].contains(&answer["e"].as_i64().unwrap()), "{answer}");
    }
    assert!(other.stream.read_exact(&mut [0]).is_err(), "the connection is closed");
}
