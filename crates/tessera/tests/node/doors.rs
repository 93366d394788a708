//! Who is kept out, by real processes.

use crate::resp_client::Value;
use crate::server::{Node, free_port, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tempfile::TempDir;

/// Sends a request to an admin port and returns the answer.
fn answer_to(port: u16, request: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = body.len();
    let text = format!("{request} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Likewise, and returns the status only.
fn http(port: u16, request: &str, headers: &str, body: &str) -> String {
    answer_to(port, request, headers, body).split(' ').nth(1).unwrap_or_default().to_string()
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

/// Who may give rights has all of them, so users in the configuration would protect nothing.
#[test]
fn users_in_the_configuration_keep_strangers_from_the_users_of_the_cluster() {
    let data = TempDir::new().unwrap();
    let hash = crate::reql_users::hash_password("secret", &[]);
    let user = format!("redis.users=[{{name=\"ann\", password_hash=\"{hash}\", access=[\"read\", \"admin\"]}}]");
    let node = Node::spawn(data.path(), free_port(), free_port(), &[&user]);
    // Redis clients without a password are no way to see whether it serves.
    let serves = || {
        let _ = TcpStream::connect(("127.0.0.1", node.admin_port)).ok()?;
        (http(node.admin_port, "GET /readyz", "Host: localhost\r\n", "") == "200").then_some(())
    };
    wait_for("the node serves", Duration::from_secs(60), serves);
    let (json, body) = ("Host: localhost\r\nContent-Type: application/json\r\n", "{\"name\": \"eve\"}");
    let as_ann = format!("{json}Authorization: Basic YW5uOnNlY3JldA==\r\n"); // ann:secret
    let ask = |request: &str, headers: &str, body: &str| http(node.admin_port, request, headers, body);
    assert_eq!(ask("POST /v1/users", json, body), "401");
    assert_eq!(ask("GET /v1/users", json, ""), "401");
    assert_eq!(ask("PATCH /v1/users/admin", json, "{\"password\": \"mine\"}"), "401");
    assert_eq!(ask("GET /v1/tables", json, ""), "200");
    assert_eq!(ask("GET /v1/users", &as_ann, ""), "200");
}

#[test]
fn what_the_admin_api_refuses_it_refuses_in_json() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    let too_long = format!("{{\"name\": \"{}\"}}", "n".repeat(2 << 20));
    for (request, body, status, code, reason) in [
        ("GET /v1/nothing", "", "404", "no_such_path", "the admin API has no path /v1/nothing"),
        ("GET /nothing", "", "404", "no_such_path", "the admin API has no path /nothing"),
        ("PUT /v1/tables", "{}", "405", "method_not_allowed", "/v1/tables does not take PUT"),
        ("POST /healthz", "{}", "405", "method_not_allowed", "/healthz does not take POST"),
        ("POST /v1/nodes/none/drain", "{\"is_draining\": true}", "400", "bad_request", "none"),
        ("POST /v1/tables", "[]", "400", "bad_request", "JSON object"),
        ("POST /v1/tables", &too_long, "413", "body_too_large", "2097152 bytes"),
        ("GET /v1/tables/gone", "", "404", "no_such_table", "no such table: gone"),
        ("POST /v1/tables", "{\"name\": \"default\"}", "409", "table_exists", "a table named 'default' exists"),
        ("POST /v1/tables", "{\"name\": \"t\", \"partitions\": 0}", "422", "invalid_partitions", "partitions"),
        ("DELETE /v1/tables/default", "{}", "422", "default_table", "can be neither dropped"),
        ("POST /v1/nodes/7/drain", "{\"is_draining\": true}", "422", "no_such_node", "no such node: 7"),
        ("PATCH /v1/users/nobody", "{\"password\": null}", "404", "no_such_user", "no such user: nobody"),
        ("PATCH /v1/users/admin", "{}", "422", "invalid_password", "give `password`"),
    ] {
        let headers = "Host: localhost\r\nContent-Type: application/json\r\n";
        let answer = answer_to(node.admin_port, request, headers, body);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(head.split(' ').nth(1), Some(status), "{request}: {answer}");
        let refusal: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{request}: {answer}"));
        assert!(refusal["error"].as_str().unwrap().contains(reason), "{request}: {body}");
        assert_eq!((&refusal["code"], &refusal["outcome"]), (&code.into(), &"not done".into()), "{request}");
    }
    // Such a request without that type was once told to send a body of it.
    for (request, methods) in
        [("PUT /v1/tables", "GET,HEAD,POST"), ("DELETE /v1/tables", "GET,HEAD,POST"), ("POST /v1/status", "GET,HEAD")]
    {
        let answer = answer_to(node.admin_port, request, "Host: localhost\r\n", "");
        assert!(answer.starts_with("HTTP/1.1 405 "), "{request}: {answer}");
        assert!(answer.contains(&format!("\r\nallow: {methods}\r\n")), "{request}: {answer}");
    }
}
