//! `r.http`: requests that queries make, to a server of this test.

use crate::reql::{Client, PATIENCE};
use crate::reql_users::log_in;
use crate::server::{Node, free_port, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// A server of somebody else. It keeps the requests that it was sent.
struct Server {
    port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, heard) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Vec<String>>>::default());
        let all = heard.clone();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = read(&mut stream);
                let path = request.split(' ').nth(1).unwrap_or_default().to_string();
                all.lock().unwrap().push(request);
                match answer(port, &path) {
                    Some((status, head, body)) => {
                        let length = body.len();
                        let head = format!(
                            "HTTP/1.1 {status} X\r\n{head}Content-Length: {length}\r\nConnection: close\r\n\r\n"
                        );
                        let _ = stream.write_all(&[head.as_bytes(), &body[..]].concat());
                    }
                    None => kept.push(stream),
                }
            }
        });
        Self { port, heard }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    fn last(&self) -> String {
        self.heard.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

/// A node whose queries may send requests anywhere, with its data; a client of it, and a server of somebody else.
fn start() -> ((Node, TempDir), Client, Server) {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = Node::start(data.path(), &[&format!("reql.port={port}"), "reql.http=all"]);
    ((node, data), Client::to(port), Server::start())
}

fn read(stream: &mut TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut text, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        text += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    text + "\r\n" + &String::from_utf8(body).unwrap()
}

/// The status, more lines of the head, and the body; `None` for no answer at all.
fn answer(port: u16, path: &str) -> Option<(u16, String, Vec<u8>)> {
    let kind = |kind: &str| format!("Content-Type: {kind}\r\n");
    let page = path.split(['=', '&']).nth(1).and_then(|page| page.parse::<u32>().ok()).unwrap_or(1);
    Some(match path.split('?').next().unwrap_or_default() {
        "/json" => (200, kind("application/json; charset=utf-8"), br#"{"a": [1, null]}"#.to_vec()),
        "/jsonp" => (200, kind("text/javascript"), b"call({\"a\": 1});".to_vec()),
        "/text" => (200, kind("text/plain"), "[1] h\u{e9}".into()),
        "/image" => (200, kind("image/png"), vec![0xff, 0, 1]),
        "/bytes" => (200, kind("text/plain"), vec![0xff, 0, 1]),
        "/broken" => (200, kind("application/json"), b"{".to_vec()),
        "/missing" => (404, kind("text/plain"), b"nothing".to_vec()),
        "/away" => (302, format!("Location: http://127.0.0.1:{port}/text\r\n"), Vec::new()),
        "/pages" => {
            let next = format!("Link: <http://127.0.0.1:{port}/pages?page={}>; rel=\"next\"\r\n", page + 1);
            let link = if page < 3 { next } else { String::new() };
            (200, kind("application/json") + &link, format!("[{page}, {}]", 10 * page).into_bytes())
        }
        "/elsewhere" => {
            let link = format!("Link: <http://localhost:{port}/pages?page=2>; rel=\"next\"\r\n");
            (200, kind("application/json") + &link, b"[0]".to_vec())
        }
        "/silent" => return None,
        _ => (200, kind("text/plain"), Vec::new()),
    })
}

fn http(url: &str, options: Value) -> Value {
    json!([153, [url], options])
}

fn error(answer: &Value) -> &str {
    answer["r"][0].as_str().unwrap_or_else(|| panic!("no error: {answer}"))
}

#[test]
fn answers_of_servers_are_values() {
    let (_node, mut client, server) = start();
    let mut get = |path: &str, options: Value| client.ask(&http(&server.url(path), options));
    assert_eq!(get("json", json!({})), json!({"a": [1, null]}));
    assert_eq!(get("json", json!({"result_format": "text"})), "{\"a\": [1, null]}");
    assert_eq!(get("jsonp", json!({})), json!({"a": 1}));
    assert_eq!(get("jsonp", json!({"result_format": "jsonp"})), json!({"a": 1}));
    assert_eq!(get("text", json!({})), "[1] h\u{e9}");
    let binary = json!({"$reql_type$": "BINARY", "data": "/wAB"});
    assert_eq!((get("image", json!({})), get("bytes", json!({"result_format": "binary"}))), (binary.clone(), binary));
    assert_eq!(get("json", json!({"method": "HEAD"})), Value::Null);
    assert_eq!(get("away", json!({})), "[1] h\u{e9}");

    // What goes wrong can be caught.
    let missing = get("missing", json!({}));
    let begins = format!("Error in HTTP GET of `{}`: status code 404.\nheader:\n{{", server.url("missing"));
    assert!(error(&missing).starts_with(&begins) && error(&missing).ends_with("}\nbody:\n\"nothing\""), "{missing}");
    assert_eq!(missing["e"], 3_100_000, "{missing}");
    let broken = get("broken", json!({}));
    assert!(error(&broken).contains("failed to parse JSON response.") && error(&broken).ends_with("body:\n\"{\""));
    assert!(error(&get("bytes", json!({}))).contains("no text in UTF-8"));
    assert!(error(&get("away", json!({"redirects": 0}))).contains("status code 302."));
    let silent = get("silent", json!({"timeout": 0.25, "attempts": 1}));
    assert_eq!(
        error(&silent),
        format!("Error in HTTP GET of `{}`: timed out after 0.250 seconds.", server.url("silent"))
    );
    let nobody = format!("http://127.0.0.1:{}/", free_port());
    let refused = client.ask(&http(&nobody, json!({"attempts": 1})));
    let text = format!("Error in HTTP GET of `{nobody}`: could not connect to server.\nheader:\nnull\nbody:\nnull");
    assert_eq!(error(&refused), text);
    assert_eq!(client.ask(&json!([92, [http(&nobody, json!({"attempts": 1})), "none"]])), "none");
}

#[test]
fn requests_say_what_their_options_say() {
    let (_node, mut client, server) = start();
    let url = server.url("echo");
    for (options, begins, has, ends) in [
        (json!({"params": {"a b": 1, "c": "x&y", "d": null}}), "GET /echo?a%20b=1&c=x%26y&d= ", "", "\r\n\r\n"),
        (
            json!({"method": "POST", "data": {"a": 1.5, "b": "c d"}}),
            "POST /echo ",
            "content-type: application/x-www-form-urlencoded",
            "\r\n\r\na=1.5&b=c%20d",
        ),
        (json!({"method": "POST", "data": "raw"}), "POST /echo ", "", "\r\n\r\nraw"),
        (json!({"method": "PUT", "data": {"a": true}}), "PUT /echo ", "content-type: application/json", "{\"a\":true}"),
        (json!({"method": "PATCH", "data": "raw"}), "PATCH /echo ", "", "\r\n\r\nraw"),
        (json!({"method": "DELETE", "data": [2, [1]]}), "DELETE /echo ", "", "\r\n\r\n[1]"),
        (
            json!({"method": "PUT", "data": {"a": 1}, "header": {"content-type": "text/x", "X-A": "b"}}),
            "PUT /echo ",
            "content-type: text/x",
            "{\"a\":1}",
        ),
        (json!({"header": [2, ["X-A: b", "X-C: d"]]}), "GET /echo ", "x-c: d", "\r\n\r\n"),
        (
            json!({"auth": {"user": "ann", "pass": "secret"}}),
            "GET /echo ",
            "authorization: basic yw5uonnly3jlda==",
            "\r\n\r\n",
        ),
    ] {
        assert_eq!(client.ask(&http(&url, options.clone())), "", "{options}");
        let heard = server.last();
        assert!(heard.starts_with(begins), "{options}: {heard}");
        assert!(heard.ends_with(ends), "{options}: {heard}");
        assert!(heard.to_ascii_lowercase().contains(has), "{options}: {heard}");
    }
    // These are the words of RethinkDB.
    for (options, text) in [
        (
            json!({"method": "FETCH"}),
            "`method` (FETCH) is not recognized (GET, HEAD, POST, PUT, PATCH and DELETE are allowed).",
        ),
        (json!({"method": 1}), "Expected type STRING but found NUMBER."),
        (json!({"params": 1}), "Expected `params` to be an OBJECT, but found NUMBER:\n1"),
        (
            json!({"params": {"a": [2, [1]]}}),
            "Expected `params.a` to be a NUMBER, STRING or NULL, but found ARRAY:\n[\n\t1\n]",
        ),
        (
            json!({"data": "x"}),
            "`data` should only be specified on a PUT, POST, PATCH, or DELETE request.  If you want URL parameters, use \
             `params` instead.",
        ),
        (json!({"header": {"A": 1}}), "Expected `header.A` to be a STRING or NULL, but found NUMBER."),
        (json!({"header": {"A": "b\r\nC: d"}}), "A `header` item contains newline characters."),
        (json!({"auth": 1}), "Expected `auth` to be an OBJECT, but found NUMBER."),
        (json!({"auth": {"user": "a"}}), "`auth.pass` not found in the auth object."),
        (
            json!({"auth": {"type": "x", "user": "a", "pass": "b"}}),
            "`auth.type` is not recognized ('basic', and 'digest' are allowed).",
        ),
        (
            json!({"result_format": "xml"}),
            "`result_format` (xml) is not recognized, ('auto', 'json', 'jsonp', 'text', and 'binary' are allowed).",
        ),
        (json!({"redirects": -1}), "Integer too large: -1"),
        (json!({"timeout": "a"}), "Expected type NUMBER but found STRING."),
        (
            json!({"page": "link-next"}),
            "Cannot use `page` without specifying `page_limit` (a positive number performs that many requests, -1 is \
             unlimited).",
        ),
        (json!({"page": "x", "page_limit": -2}), "`page` method 'x' not recognized, only 'link-next' is available."),
        (json!({"page": "link-next", "page_limit": -2}), "`page_limit` should be greater than or equal to -1."),
    ] {
        assert_eq!(error(&client.ask(&http(&url, options.clone()))), text, "{options}");
    }
    for (url, options, what) in [
        (url.as_str(), json!({"attempts": 0}), "could not perform, no attempts allowed"),
        ("ftp://127.0.0.1:9/", json!({}), "Unsupported protocol"),
        ("nonsense:", json!({}), "URL using bad/illegal format or missing URL"),
    ] {
        let text = format!("Error in HTTP GET of `{url}`: {what}.\nheader:\nnull\nbody:\nnull");
        assert_eq!(error(&client.ask(&http(url, options))), text);
    }
}

#[test]
fn pages_are_asked_for_when_they_are_wanted() {
    let (_node, mut client, server) = start();
    let url = server.url("pages?page=1");
    let asked = || server.heard.lock().unwrap().len();
    let all = client.ask(&http(&url, json!({"page": "link-next", "page_limit": -1})));
    assert_eq!((all, asked()), (json!([1, 10, 2, 20, 3, 30]), 3));
    let some = client.ask(&http(&url, json!({"page": "link-next", "page_limit": 2})));
    assert_eq!((some, asked()), (json!([1, 10, 2, 20]), 5));
    assert_eq!(client.ask(&http(&url, json!({"page": "link-next", "page_limit": 0}))), json!([]));
    let first = json!([71, [http(&url, json!({"page": "link-next", "page_limit": -1})), 1]]);
    assert_eq!((client.ask(&first), asked()), (json!([1]), 6), "no page is asked for in vain");
    // A function gets what has come, and says where to go on: the next one with other parameters, until there are three.
    let row = |field: &str| json!([170, [[10, [1]], field]]);
    let number = json!([170, [row("body"), 0]]);
    let more = json!({"params": {"page": [24, [&number, 1]]}});
    let page = json!([69, [[2, [1]], [65, [[19, [&number, 3]], more, null]]]]);
    let options = json!({"params": {"page": 1}, "page": page, "page_limit": -1});
    let all = client.ask(&http(&server.url("pages"), options));
    assert_eq!((all, asked()), (json!([1, 10, 2, 20, 3, 30]), 9));
    let wrong = json!({"page": [69, [[2, [1]], 5]], "page_limit": 2});
    let failed = client.ask(&http(&url, wrong));
    let text = "Expected `page` to return an OBJECT, but found NUMBER.";
    assert!(error(&failed).contains(text) && error(&failed).contains("Error occurred during `page` called with:"));
    let changes = client.ask(&json!([152, [http(&url, json!({"page": "link-next", "page_limit": 2}))]]));
    assert_eq!(changes["t"], 18, "{changes}");
}

/// Pages are found where a server says, and that server was told who asks the first one.
#[test]
fn other_servers_are_not_told_who_asks_the_first() {
    let (_node, mut client, server) = start();
    for secret in [
        json!({"auth": {"user": "ann", "pass": "secret"}}),
        json!({"header": {"AUTHORIZATION": "secret", "Cookie": "secret", "Proxy-Authorization": "secret"}}),
    ] {
        let mut options = json!({"page": "link-next", "page_limit": 3});
        options.as_object_mut().unwrap().extend(secret.as_object().unwrap().clone());
        server.heard.lock().unwrap().clear();
        client.ask(&http(&server.url("elsewhere"), options.clone()));
        let told = |request: &String| {
            let request = request.to_ascii_lowercase();
            ["authorization:", "cookie:"].iter().any(|header| request.contains(header))
        };
        let heard: Vec<bool> = server.heard.lock().unwrap().iter().map(told).collect();
        // `localhost` is another host than 127.0.0.1, and what is dropped does not come back.
        assert_eq!(heard, [true, false, false], "{options}");
        server.heard.lock().unwrap().clear();
        client.ask(&http(&server.url("pages?page=1"), options));
        assert!(server.heard.lock().unwrap().iter().all(told), "pages of one server are asked for as the first one");
    }
}

#[test]
fn the_right_to_connect_is_asked_for_each_page() {
    let (data, port, server) = (tempfile::tempdir().unwrap(), free_port(), Server::start());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}"), "reql.http=all"]);
    let mut admin = Client::to(port);
    let user = json!([56, [[15, [[14, ["rethinkdb"]], "users"]], {"id": "ann", "password": "secret"}]]);
    assert_eq!(admin.ask(&user)["inserted"], 1);
    assert_eq!(admin.ask(&json!([188, ["ann", {"connect": true}]]))["granted"], 1);
    let mut ann = log_in(port, "ann", "secret").ok().unwrap();
    let pages = http(&server.url("pages?page=1"), json!({"page": "link-next", "page_limit": -1}));
    ann.send(1001, &json!([1, pages, {"max_batch_rows": 2, "first_batch_scaledown_factor": 1}]).to_string());
    assert_eq!(ann.receive().1["r"], json!([1, 10]));
    assert_eq!(admin.ask(&json!([188, ["ann", {"connect": false}]]))["granted"], 1);
    ann.send(1001, "[2]");
    let refused = ann.receive().1;
    assert_eq!(error(&refused), "User `ann` does not have the required `connect` permission.");
    assert_eq!(server.heard.lock().unwrap().len(), 1, "the next page was not asked for");
}

#[test]
fn requests_go_where_they_may_for_those_who_may() {
    let (data, port, server) = (tempfile::tempdir().unwrap(), free_port(), Server::start());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}")]);
    let mut client = Client::to(port);
    // Without a setting, nothing of this machine or its networks is reached.
    for url in [server.url("json"), server.url("json").replace("127.0.0.1", "localhost"), "http://[::1]/".into()] {
        let refused = client.ask(&http(&url, json!({})));
        assert!(error(&refused).contains("the host has no address that `reql.http` allows requests to."), "{refused}");
        assert_eq!(refused["e"], 3_100_000, "{refused}");
    }
    assert_eq!(server.last(), "");
    let user = json!([56, [[15, [[14, ["rethinkdb"]], "users"]], {"id": "ann", "password": "secret"}]]);
    assert_eq!(client.ask(&user)["inserted"], 1);
    let mut ann = log_in(port, "ann", "secret").ok().unwrap();
    let refused = ann.ask(&http(&server.url("json"), json!({})));
    assert_eq!(error(&refused), "User `ann` does not have the required `connect` permission.");

    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _other = Node::start(data.path(), &[&format!("reql.port={port}"), "reql.http=all", "reql.query_threads=2"]);
    let mut client = Client::to(port);
    // Requests that wait do not keep others from their queries, and end with theirs.
    client.send(1001, &json!([1, http(&server.url("silent"), json!({}))]).to_string());
    wait_for("the request", PATIENCE, || server.last().contains("/silent").then_some(()));
    let mut other = Client::to(port);
    let too_many = other.ask(&http(&server.url("json"), json!({})));
    assert!(error(&too_many).contains("as many HTTP requests as it may at one time"), "{too_many}");
    assert_eq!(other.ask(&json!([43, [[173, [10]]]])), 10);
    client.send(1001, "[3]");
    for _ in 0..2 {
        let (token, answer) = client.receive();
        assert_eq!((token, &answer["t"]), (1001, &json!(2)), "{answer}");
    }
}
