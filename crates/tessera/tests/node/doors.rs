//! Who is kept out, by real processes.

use crate::resp_client::Value;
use crate::server::Node;
use std::io::{Read, Write};
use std::net::TcpStream;
use tempfile::TempDir;

/// Sends a request to an admin port and returns the status.
fn http(port: u16, request: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = body.len();
    let text = format!("{request} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_string()
}

#[test]
fn pages_in_a_browser_do_not_reach_the_admin_api() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &["admin.hosts=[\"db.example\"]"]);
    node.client().run("SET key value");
    let truncate = "POST /v1/tables/default/truncate";
    let ask = |request: &str, headers: &str, body: &str| http(node.admin_port, request, headers, body);
    // What a page of another origin can send without asking first.
    let cross_site = "Host: localhost:8080\r\nOrigin: https://evil.example\r\nContent-Type: text/plain\r\nSec-Fetch-Site: cross-site\r\n";
    assert_eq!(ask(truncate, cross_site, ""), "403");
    assert_eq!(ask(truncate, "Host: localhost\r\nContent-Type: text/plain\r\n", "{}"), "415", "a form");
    assert_eq!(ask(truncate, "Host: localhost\r\n", ""), "415", "nothing");
    assert_eq!(ask(truncate, "Host: localhost\r\nContent-Type: application/json\r\n", ""), "400", "no object");
    assert_eq!(ask("DELETE /v1/tables/default", "Host: localhost\r\n", ""), "415");
    assert_eq!(ask("DELETE /v1/nodes/1", "Host: localhost\r\n", ""), "415");
    // A name that somebody else has point here.
    assert_eq!(ask("GET /v1/tables", "Host: rebound.evil.example\r\n", ""), "403");
    assert_eq!(ask("GET /v1/tables", "Host: db.example:8080\r\n", ""), "200");
    assert_eq!(ask("GET /healthz", "Host: whoever.asks\r\n", ""), "200");
    assert_eq!(node.client().run("GET key"), Value::Bulk(b"value".to_vec()), "nothing was deleted");
    assert_eq!(ask(truncate, "Host: localhost\r\nContent-Type: application/json\r\n", "{}"), "200");
}
