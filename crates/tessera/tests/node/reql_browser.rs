//! Queries as drivers in browsers ask them: through the admin port, each by a request of its own.

use crate::reql::{Client, PATIENCE, create, insert, table};
use crate::server::{Node, free_port, wait_for};
use base64::Engine as _;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// A driver in a browser.
#[derive(Clone)]
struct Browser {
    port: u16,
    headers: String,
    connection: String,
}

/// The status and the body of an answer.
type Answer = (u16, Vec<u8>);

impl Browser {
    fn new(port: u16, headers: &str) -> Self {
        Self { port, headers: headers.into(), connection: String::new() }
    }

    fn of_user(port: u16, user: &str, password: &str) -> Self {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        Self::new(port, &format!("Authorization: Basic {pair}\r\n"))
    }

    fn send(&self, method: &str, path: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = if self.headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
        let head = format!(
            "{method} /ajax/reql/{path} HTTP/1.1\r\n{host}{}Connection: close\r\nContent-Length: {}\r\n\r\n",
            self.headers,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        stream
    }

    fn post(&self, path: &str, body: &[u8]) -> Answer {
        answer_of(self.send("POST", path, body))
    }

    fn open(mut self) -> Self {
        let (status, id) = self.post("open-new-connection", b"");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&id));
        self.connection = String::from_utf8(id).unwrap();
        self
    }

    fn path(&self) -> String {
        format!("?conn_id={}", self.connection)
    }

    fn say(&self, token: i64, text: &str) -> Value {
        let (status, body) = self.post(&self.path(), &request(token, text));
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        understood(token, &body)
    }

    fn ask(&self, term: &Value) -> Value {
        self.say(77, &json!([1, term]).to_string())
    }
}

fn request(token: i64, text: &str) -> Vec<u8> {
    [&token.to_le_bytes()[..], text.as_bytes()].concat()
}

fn understood(token: i64, body: &[u8]) -> Value {
    assert_eq!(body[..8], token.to_le_bytes());
    assert_eq!(u32::from_le_bytes(body[8..12].try_into().unwrap()) as usize, body.len() - 12);
    serde_json::from_slice(&body[12..]).unwrap()
}

fn answer_of(mut stream: TcpStream) -> Answer {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let end = all.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    assert!(!head.to_ascii_lowercase().contains("access-control"), "pages from elsewhere must not read it: {head}");
    (head[9..12].parse().unwrap(), all[end + 4..].to_vec())
}

#[test]
fn drivers_in_browsers_ask_queries_streams_and_feeds() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let browser = Browser::new(node.admin_port, "").open();
    let three = browser.ask(&json!([24, [1, 2]]));
    assert_eq!((&three["t"], &three["r"]), (&json!(1), &json!([3])));
    assert_eq!(browser.ask(&create("t"))["r"][0]["tables_created"], 1);
    let documents: Vec<Value> = (0..10).map(|id| json!({"id": id})).collect();
    assert_eq!(browser.ask(&insert("t", &documents))["r"][0]["inserted"], 10);

    // A stream goes on under its token.
    let query = json!([1, table("t"), {"max_batch_rows": 8, "first_batch_scaledown_factor": 2}]);
    let (mut rows, mut answer) = (0, browser.say(1, &query.to_string()));
    assert_eq!(answer["t"], 3, "{answer}");
    loop {
        rows += answer["r"].as_array().unwrap().len();
        if answer["t"] == 2 {
            break;
        }
        answer = browser.say(1, "[2]");
    }
    assert_eq!(rows, 10);
    assert_eq!(browser.say(1, "[2]")["t"], 16, "the stream has ended");

    // A request waits for what a feed tells, while others are answered, and ends with the feed.
    assert_eq!(browser.say(2, &json!([1, [152, [table("t")]]]).to_string())["t"], 3);
    let waiting = browser.send("POST", &browser.path(), &request(2, "[2]"));
    assert_eq!(browser.ask(&insert("t", &[json!({"id": "new"})]))["r"][0]["inserted"], 1);
    let (status, body) = answer_of(waiting);
    assert_eq!((status, &understood(2, &body)["r"][0]["new_val"]["id"]), (200, &json!("new")));
    let waiting = browser.send("POST", &browser.path(), &request(2, "[2]"));
    let jobs = json!([39, [[15, [[14, ["rethinkdb"]], "jobs"]], {"type": "query"}]]);
    wait_for("the feed", PATIENCE, || browser.ask(&jobs)["r"].as_array().unwrap().get(1).map(|_| ()));
    assert_eq!(browser.say(2, "[3]")["t"], 2);
    assert_eq!(understood(2, &answer_of(waiting).1)["t"], 2);

    // What is no query, or cannot be answered.
    assert_eq!(browser.say(3, "[")["t"], 16);
    let refused = browser.say(4, &json!([1, insert("t", &[json!({"id": "x"})]), {"noreply": true}]).to_string());
    assert_eq!((&refused["t"], &refused["r"][0]), (&json!(16), &json!("noreply queries are not supported over HTTP")));
    assert_eq!(browser.ask(&json!([16, [table("t"), "x"]]))["r"][0], Value::Null);
    let (status, body) = browser.post(&browser.path(), b"short");
    assert_eq!(status, 400);
    assert!(String::from_utf8_lossy(&body).contains("Client is buggy (request too small)."));
    let nobody = Browser { connection: "00".into(), ..browser.clone() };
    let unknown = nobody.say(5, "[1,1]");
    assert_eq!((&unknown["t"], &unknown["r"][0]), (&json!(16), &json!("This HTTP connection is not open.")));
    assert_eq!(answer_of(browser.send("GET", "", b"")).0, 405);

    // Whoever leaves ends what is asked: a query that would run for hours.
    let endless = json!([1, [43, [[173, [1_000_000_000_000_u64]]]]]).to_string();
    let asked = browser.send("POST", &browser.path(), &request(6, &endless));
    let mut client = Client::to(port);
    let count = json!([43, [&jobs]]);
    wait_for("the query", PATIENCE, || (client.ask(&count) == 2).then_some(()));
    drop(asked);
    wait_for("its end", PATIENCE, || (client.ask(&count) == 1).then_some(()));

    // So does whoever closes the connection.
    let waiting = browser.send("POST", &browser.path(), &request(7, &endless));
    wait_for("the query", PATIENCE, || (client.ask(&count) == 2).then_some(()));
    assert_eq!(browser.post(&format!("close-connection{}", browser.path()), b"").0, 200);
    assert_eq!(answer_of(waiting).0, 409);
    wait_for("its end", PATIENCE, || (client.ask(&count) == 1).then_some(()));
    assert_eq!(browser.ask(&json!(1))["r"][0], "This HTTP connection is not open.");
}

#[test]
fn pages_from_elsewhere_and_too_many_connections_are_refused() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    for headers in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Host: evil.example\r\n",
    ] {
        let page = Browser::new(node.admin_port, headers);
        for path in ["open-new-connection", "?conn_id=1", "close-connection?conn_id=1"] {
            assert_eq!(page.post(path, &request(1, "[1,1]")).0, 403, "{headers} {path}");
        }
        assert_ne!(answer_of(page.send("OPTIONS", "", b"")).0, 200, "{headers}");
    }
    let own = Browser::new(node.admin_port, "Origin: http://localhost\r\nSec-Fetch-Site: same-origin\r\n").open();
    assert_eq!(own.ask(&json!(1))["r"][0], 1);
    let mut opened = vec![own];
    let refused = loop {
        let browser = Browser::new(node.admin_port, "");
        match browser.post("open-new-connection", b"") {
            (200, id) => opened.push(Browser { connection: String::from_utf8(id).unwrap(), ..browser }),
            (status, _) => break status,
        }
    };
    assert_eq!((refused, opened.len()), (503, 64), "as many as one user may have");
    assert_eq!(opened[63].ask(&json!([24, [1, 2]]))["r"][0], 3);
    let last = opened.pop().unwrap();
    assert_eq!(last.post(&format!("close-connection{}", last.path()), b"").0, 200);
    wait_for("room", PATIENCE, || (last.post("open-new-connection", b"").0 == 200).then_some(()));
}

/// They kept the connections of the admin port, which served nobody else any more.
#[test]
fn requests_that_wait_are_bounded_and_end() {
    const MOST: i64 = 32;
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let browser = Browser::new(node.admin_port, "").open();
    assert_eq!(browser.ask(&create("t"))["r"][0]["tables_created"], 1);
    let feed = json!([1, [152, [table("t")]]]).to_string();
    for token in 1..=MOST {
        assert_eq!(browser.say(token, &feed)["t"], 3);
    }
    let go_on = |token| browser.send("POST", &browser.path(), &request(token, "[2]"));
    let waiting: Vec<TcpStream> = (1..=MOST).map(go_on).collect();
    let status = || browser.post(&browser.path(), &request(99, "[1,1]")).0;
    wait_for("all that may wait", PATIENCE, || (status() == 503).then_some(()));
    let other = Browser::new(node.admin_port, "").open();
    assert_eq!(other.ask(&json!([24, [1, 2]]))["r"][0], 3, "other connections go on");
    // Whoever stops a feed makes room.
    assert_eq!(browser.say(1, "[3]")["t"], 2);
    wait_for("room", PATIENCE, || (status() == 200).then_some(()));
    // A feed that has nothing says so after a while, and goes on when it is asked again.
    let mut answers = waiting.into_iter().map(answer_of);
    assert_eq!(understood(1, &answers.next().unwrap().1)["t"], 2);
    for (token, (status, body)) in (2..).zip(answers) {
        let nothing = understood(token, &body);
        assert_eq!((status, &nothing["t"], &nothing["r"]), (200, &json!(3), &json!([])));
    }
    let again = go_on(2);
    assert_eq!(browser.ask(&insert("t", &[json!({"id": "new"})]))["r"][0]["inserted"], 1);
    assert_eq!(understood(2, &answer_of(again).1)["r"][0]["new_val"]["id"], "new");
}

#[test]
fn queries_need_a_login_where_the_port_does() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut admin = Client::to(port);
    let users = json!([15, [[14, ["rethinkdb"]], "users"]]);
    for name in ["ann", "ben"] {
        assert_eq!(admin.ask(&json!([56, [&users, {"id": name, "password": "secret"}]]))["inserted"], 1);
    }
    assert_eq!(admin.ask(&create("t"))["tables_created"], 1);
    assert_eq!(admin.ask(&json!([53, [[16, [&users, "admin"]], {"password": "locked"}]]))["replaced"], 1);
    assert_eq!(admin.ask(&json!([188, [table("t"), "ann", {"read": true}]]))["granted"], 1);
    let port = node.admin_port;
    for stranger in [
        Browser::new(port, ""),
        Browser::of_user(port, "ann", "wrong"),
        Browser::of_user(port, "admin", ""),
        Browser::of_user(port, "nobody", "secret"),
        Browser::new(port, "Authorization: Bearer x\r\n"),
    ] {
        assert_eq!(stranger.post("open-new-connection", b"").0, 401, "{}", stranger.headers);
    }
    let (ann, ben) = (Browser::of_user(port, "ann", "secret").open(), Browser::of_user(port, "ben", "secret").open());
    assert_eq!(ann.ask(&table("t"))["r"], json!([]));
    // Each has its own rights, and its own connections.
    assert_eq!(ben.ask(&table("t"))["e"], 6_000_000);
    assert_eq!(ann.ask(&create("u"))["e"], 6_000_000);
    let thief = Browser { connection: ann.connection.clone(), ..ben.clone() };
    assert_eq!(thief.ask(&table("t"))["r"][0], "This HTTP connection is not open.");
    thief.post(&format!("close-connection{}", thief.path()), b"");
    assert_eq!(ann.ask(&table("t"))["r"], json!([]));
    let nobody = Browser { headers: String::new(), ..ann.clone() };
    assert_eq!(nobody.post(&nobody.path(), &request(1, "[1,1]")).0, 401);
    let root = Browser::of_user(port, "admin", "locked").open();
    assert_eq!(root.ask(&json!([170, [[15, [[14, ["rethinkdb"]], "jobs"]], "info"]]))["r"][0]["user"], "admin");
}

#[test]
fn without_a_port_for_drivers_browsers_have_none_either() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &["reql.port=0"]);
    assert_eq!(Browser::new(node.admin_port, "").post("open-new-connection", b"").0, 404);
}
