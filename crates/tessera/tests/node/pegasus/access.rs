//! Pegasus clients have no passwords: beside Redis users they may do only what a setting says.

use super::wire::{Connection, Fields, key, message, message_of_blob, v0};
use crate::server::{Node, free_port, http_get};
use tempfile::TempDir;

const USERS: &str = "redis.users=[{name=\"default\",access=[\"read\",\"write\",\"admin\"]}]";

fn put() -> Vec<u8> {
    message("RPC_RRDB_RRDB_PUT", 7, &Fields::default().blob(1, &key("h", "s")).blob(2, b"v").i32(3, 0))
}

#[test]
fn beside_redis_users_only_what_was_opened_can_be_used() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let pegasus = format!("pegasus.port={port}");
    let node = Node::start(data.path(), &[USERS, &pegasus]);
    node.cli("table create one --engine memory --partitions 1 --durability soft");
    node.cli("table create two --engine memory --partitions 1 --durability soft");
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "nobody listens");
    assert!(node.cli("status").contains("door        the Pegasus ports are closed"));
    drop(node);

    let node = Node::start(data.path(), &[USERS, &pegasus, "pegasus.open_tables=[\"one\"]"]);
    let mut connection = Connection::to(port);
    assert_eq!(connection.call(&v0(1, 0, &put())).code(), 0);
    assert_eq!(connection.call(&v0(2, 0, &put())).error, "ERR_ACL_DENY");
    let get = message_of_blob("RPC_RRDB_RRDB_GET", 8, &key("h", "s"));
    assert_eq!(connection.call(&v0(1, 0, &get)).code(), 0);
    assert_eq!(connection.call(&v0(2, 0, &get)).error, "ERR_ACL_DENY");
    assert_eq!(connection.call(&v0(0, 0, &message("RPC_CM_LIST_APPS", 9, &Fields::default()))).error, "ERR_ACL_DENY");
    assert_eq!(http_get(port, "/version").as_deref(), Some(""), "closed without an answer");
    drop(node);

    let _node = Node::start(data.path(), &[USERS, &pegasus, "pegasus.open_addresses=[\"127.0.0.0/8\"]"]);
    assert_eq!(Connection::to(port).call(&v0(2, 0, &put())).code(), 0);
}

#[test]
fn the_first_password_of_admin_closes_connections_that_are_open() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}"), "pegasus.open_tables=[\"one\"]"]);
    node.cli("table create one --engine memory --partitions 1 --durability soft");
    node.cli("table create two --engine memory --partitions 1 --durability soft");
    let mut connection = Connection::to(port);
    assert_eq!([1, 2].map(|table| connection.call(&v0(table, 0, &put())).code()), [0, 0]);
    node.try_cli("user alter admin", "secret\n").unwrap();
    for mut connection in [connection, Connection::to(port)] {
        assert_eq!(connection.call(&v0(1, 0, &put())).code(), 0);
        assert_eq!(connection.call(&v0(2, 0, &put())).error, "ERR_ACL_DENY");
    }
}
