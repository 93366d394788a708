//! What no client should send: it is answered with an error that clients know, or its connection is closed; nobody else
//! notices.

use super::meta_client::Meta;
use super::wire::{Connection, Fields, Reply, key, message, message_of_blob, v0, v1};
use crate::server::{Node, free_port};
use tempfile::TempDir;

/// The number of the table `one`, which has one partition.
const TABLE: i32 = 1;

fn put(hash_key: &str, value: &[u8]) -> Vec<u8> {
    let request = Fields::default().blob(1, &key(hash_key, "s")).blob(2, value).i32(3, 0);
    message("RPC_RRDB_RRDB_PUT", 7, &request)
}

fn is_well(port: u16) {
    let reply = Connection::to(port).call(&v0(TABLE, 0, &put("h", b"v")));
    assert_eq!((reply.code(), reply.name.as_str(), reply.sequence), (0, "RPC_RRDB_RRDB_PUT_ACK", 7));
}

#[test]
fn bad_requests_are_refused_and_harm_nobody() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    node.cli("table create one --engine memory --partitions 1");
    node.cli("table create two --engine memory --partitions 2");
    is_well(port);

    // What is no request ends its connection.
    let mut wrong_version = v0(TABLE, 0, &put("h", b"v"));
    wrong_version[7] = 9;
    let mut long_header = v1(TABLE, 0, &put("h", b"v"));
    long_header[8] = 0xff;
    let mut wrong_header = v0(TABLE, 0, &put("h", b"v"));
    wrong_header[11] = 47;
    let mut no_call = v0(TABLE, 0, &put("h", b"v"));
    no_call[48] = 0;
    let requests = [b"POST / HTTP/1.1\r\n\r\n".to_vec(), wrong_version, long_header, wrong_header, no_call];
    for request in requests {
        let mut connection = Connection::to(port);
        connection.send(&request);
        assert_eq!(connection.receive(), None, "{request:?}");
        is_well(port);
    }

    // What is a request is answered, and the connection goes on.
    let mut connection = Connection::to(port);
    let mut refused = |request: &[u8], error: &str| {
        let reply = connection.call(request);
        assert_eq!(reply.error, error, "{reply:?}");
        assert_eq!(connection.call(&v1(TABLE, 0, &put("h", b"v"))).code(), 0, "after {error}");
    };
    refused(&v0(TABLE, 0, &message("RPC_NO_SUCH_CALL", 1, &Fields::default())), "ERR_HANDLER_NOT_FOUND");
    refused(&v0(TABLE, 0, &message("RPC_RRDB_RRDB_NO_SUCH", 1, &Fields::default())), "ERR_HANDLER_NOT_FOUND");
    refused(&v0(99, 0, &put("h", b"v")), "ERR_OBJECT_NOT_FOUND");
    refused(&v0(-1, 0, &put("h", b"v")), "ERR_OBJECT_NOT_FOUND");
    refused(&v0(TABLE, 1, &put("h", b"v")), "ERR_OBJECT_NOT_FOUND");
    Meta::at(port).set_env("two", "replica.split.validate_partition_hash", "true", "ERR_OK");
    let other = (0..2).map(|partition| Connection::to(port).call(&v0(2, partition, &put("h", b"v"))));
    let mut errors: Vec<String> = other.map(|reply: Reply| reply.error).collect();
    errors.sort();
    assert_eq!(errors, ["ERR_OK", "ERR_PARENT_PARTITION_MISUSED"]);
    let cut = put("h", b"v");
    refused(&v0(TABLE, 0, &cut[..cut.len() - 9]), "ERR_INVALID_DATA");
    let lying = Fields::default().blob(1, b"h").list(2, &[]).i32(3, 0);
    let mut lying = message("RPC_RRDB_RRDB_MULTI_PUT", 1, &lying);
    let length = lying.len();
    // The list claims to have two thousand million records.
    lying[length - 13..length - 9].copy_from_slice(&0x7fff_ffffu32.to_be_bytes());
    refused(&v0(TABLE, 0, &lying), "ERR_INVALID_DATA");
    refused(&v0(TABLE, 0, &message_of_blob("RPC_RRDB_RRDB_GET", 1, b"\0")), "ERR_INVALID_DATA");
    let long_key = Fields::default().blob(1, &key("h", &"s".repeat(2 << 20))).blob(2, b"v").i32(3, 0);
    refused(&v0(TABLE, 0, &message("RPC_RRDB_RRDB_PUT", 1, &long_key)), "ERR_INVALID_DATA");
    refused(&v0(TABLE, 0, &put("h", &vec![0; 17 << 20])), "ERR_INVALID_DATA");
    refused(&v0(TABLE, 0, &put("h", &vec![0; 80 << 20])), "ERR_INVALID_DATA");

    // Limits on what is in a request.
    let mut code = |request: &[u8]| connection.call(request).code();
    let empty = Fields::default().blob(1, b"h").list(2, &[]).i32(3, 0);
    assert_eq!(code(&v0(TABLE, 0, &message("RPC_RRDB_RRDB_MULTI_PUT", 1, &empty))), 4);
    assert_eq!(code(&v0(TABLE, 0, &message("RPC_RRDB_RRDB_MULTI_REMOVE", 1, &empty))), 4);
    let filter = Fields::default().blob(1, b"h").i32(10, 9).bool(8, true);
    assert_eq!(code(&v0(TABLE, 0, &message("RPC_RRDB_RRDB_MULTI_GET", 1, &filter))), 4);
    let check = Fields::default().blob(1, b"h").blob(2, b"s").i32(3, 18);
    assert_eq!(code(&v0(TABLE, 0, &message("RPC_RRDB_RRDB_CHECK_AND_SET", 1, &check))), 4);
    let context = Fields::default().i64(1, 12_345);
    assert_eq!(code(&v0(TABLE, 0, &message("RPC_RRDB_RRDB_SCAN", 1, &context))), 1, "no such scan");
    is_well(port);
}
