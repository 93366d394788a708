//! Who may come in through the ReQL port, with handshakes written by hand.

use crate::reql::Client;
use crate::resp_client::{Value as Reply, words};
use crate::scram::{Flaw, ScramClient};
use crate::server::{Node, free_port, tessera, wait_for};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

pub fn hash_password(password: &str, arguments: &[&str]) -> String {
    let mut command = tessera();
    command.arg("hash-password").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{password}").unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim_end().into()
}

fn exchange(stream: &mut TcpStream, message: &Value) -> Value {
    stream.write_all(format!("{message}\0").as_bytes()).unwrap();
    answer(stream)
}

fn answer(stream: &mut TcpStream) -> Value {
    let mut text = Vec::new();
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() && byte[0] != 0 {
        text.push(byte[0]);
    }
    serde_json::from_slice(&text).unwrap()
}

/// A V1_0 handshake. Returns the connection, or what the server says in the end.
pub fn log_in(port: u16, user: &str, password: &str) -> Result<Client, Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(&0x34c2_bdc3_u32.to_le_bytes()).unwrap();
    assert_eq!(answer(&mut stream)["success"], true);
    let client = ScramClient::new(user, password);
    let challenge = exchange(&mut stream, &client.first());
    let Some(text) = challenge["authentication"].as_str() else { return Err(challenge) };
    let (last, signature) = client.last(text, Flaw::None);
    let outcome = exchange(&mut stream, &last);
    if outcome["success"] == false {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "the connection is closed");
        return Err(outcome);
    }
    assert_eq!(outcome["authentication"], signature, "it is the right server");
    Ok(Client::on(stream))
}

/// A V0_4 handshake. Returns what the server says.
fn show_key(port: u16, key: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = u32::try_from(key.len()).unwrap().to_le_bytes();
    let greeting = [&0x400c_2d20_u32.to_le_bytes(), &length, key.as_bytes(), &0x7e69_70c7_u32.to_le_bytes()].concat();
    stream.write_all(&greeting).unwrap();
    let mut text = Vec::new();
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() && byte[0] != 0 {
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

fn refused(port: u16, user: &str, password: &str) -> (u64, String) {
    let said = log_in(port, user, password).err().unwrap_or_else(|| panic!("{user} came in"));
    (said["error_code"].as_u64().unwrap(), said["error"].as_str().unwrap().into())
}

fn user(name: &str, password_hash: &str, access: &str) -> String {
    format!("[[redis.users]]\nname = \"{name}\"\npassword_hash = \"{password_hash}\"\naccess = [{access}]\n")
}

fn start(data: &std::path::Path, port: u16, users: &[String]) -> Node {
    let config = data.join("tessera.toml");
    std::fs::write(&config, users.concat()).unwrap();
    let mut command = tessera();
    command.args(["start", "--config"]).arg(config);
    let setting = format!("reql.port={port}");
    let node = Node::spawn_with(command, &data.join("data"), free_port(), free_port(), &[&setting]);
    let is_ready = || crate::server::http_get(node.admin_port, "/readyz")?.starts_with("HTTP/1.1 200").then_some(());
    wait_for("the node serves", Duration::from_secs(30), is_ready);
    node
}

const NO_CONFIG: &str = "User `reader` does not have the required `config` permission.";

const ALL: &str = "\"read\", \"write\", \"admin\"";

#[test]
fn users_come_in_with_the_right_password_only() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let hash = hash_password("secret", &["--scram"]);
    assert!(hash.starts_with("SCRAM-SHA-256$65536:"), "{hash}");
    let (shown, argon) = (hash_password("päss", &["--scram"]), hash_password("secret", &[]));
    let users = [
        user("admin", &hash, ALL),
        user("a,b=c", &shown, ALL),
        user("reader", &hash, "\"read\""),
        user("r", &argon, ALL),
    ];
    let node = start(data.path(), port, &users);
    for (name, password) in [("admin", "secret"), ("a,b=c", "päss")] {
        let mut client = log_in(port, name, password).unwrap_or_else(|said| panic!("{name}: {said}"));
        assert_eq!(client.ask(&json!([24, [1, 2]])), 3);
    }
    let wrong = (12, "Wrong password".to_string());
    assert_eq!(refused(port, "admin", "Secret"), wrong);
    assert_eq!(refused(port, "admin", ""), wrong);
    assert_eq!(refused(port, "a,b=c", "secret"), wrong);
    let unknown = (17, "Unknown user".to_string());
    assert_eq!(refused(port, "nobody", "secret"), unknown);
    assert_eq!(refused(port, "ADMIN", "secret"), unknown);
    assert_eq!(refused(port, "r", "secret"), unknown, "its hash is of no use here");
    assert_eq!(refused(port, "", "secret"), (18, "Empty username".into()));
    // Its password does not tell more than it is to know.
    assert_eq!(refused(port, "reader", "wrong"), wrong);
    // What it may do is what the configuration says.
    let mut reader = log_in(port, "reader", "secret").ok().unwrap();
    assert_eq!(reader.ask(&json!([24, [1, 2]])), 3);
    let answer = reader.ask(&json!([57, ["mine"]]));
    assert_eq!((&answer["e"], &answer["r"][0]), (&json!(6_000_000), &json!(NO_CONFIG)), "{answer}");
    // The key of the old handshakes is the password of admin.
    assert_eq!(show_key(port, "secret"), "SUCCESS");
    for key in ["", "wrong", "päss"] {
        assert_eq!(show_key(port, key), "ERROR: Incorrect authorization key.\n", "{key}");
    }
    // Redis clients use the same password.
    let mut client = node.client();
    assert_eq!(client.call(&words("AUTH admin secret")).unwrap(), Reply::Simple("OK".into()));
    assert!(matches!(client.call(&words("AUTH admin wrong")).unwrap(), Reply::Error(_)));
}

#[test]
fn without_a_user_named_admin_there_is_no_key() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = start(data.path(), port, &[user("ann", &hash_password("secret", &["--scram"]), ALL)]);
    assert!(log_in(port, "ann", "secret").is_ok());
    assert_eq!(refused(port, "admin", ""), (17, "Unknown user".into()));
    for key in ["", "secret"] {
        assert_eq!(show_key(port, key), "ERROR: Incorrect authorization key.\n");
    }
}

#[test]
fn a_node_whose_users_have_no_password_for_it_says_how_to_make_one() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = start(data.path(), port, &[user("admin", &hash_password("secret", &[]), ALL)]);
    let (code, text) = refused(port, "admin", "secret");
    assert!(code == 20 && text.contains("hash-password --scram"), "{text}");
    assert!(show_key(port, "secret").contains("hash-password --scram"));
    assert!(node.cli("status").contains("the ReQL port lets no user of the configuration in"));
}

#[test]
fn without_users_admin_comes_in_without_a_password() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = start(data.path(), port, &[]);
    assert_eq!(log_in(port, "admin", "").ok().unwrap().ask(&json!([24, [1, 2]])), 3);
    assert_eq!(refused(port, "admin", "secret"), (12, "Wrong password".into()));
    assert_eq!(refused(port, "ann", ""), (17, "Unknown user".into()));
    assert_eq!([show_key(port, ""), show_key(port, "x")], ["SUCCESS", "ERROR: Incorrect authorization key.\n"]);
}
