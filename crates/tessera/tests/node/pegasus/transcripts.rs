//! Golden transcripts: requests as clients send them with both versions of the header, and the exact bytes of the replies.
//! `TESSERA_WRITE_TRANSCRIPTS=1` writes the file anew; read what changed before you keep it.

use super::wire::{Connection, Fields, key, message, message_of_blob, v0, v1};
use crate::server::{Node, free_port};
use std::fmt::Write;
use std::path::Path;
use tempfile::TempDir;

const TABLE: i32 = 1;
/// In the place of the port that the test's node has.
const PORT: u16 = 34_801;

/// What is asked, in order, each under its name and with its message.
fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let record = |sort_key: &str, value: &str| Fields::default().blob(1, sort_key.as_bytes()).blob(2, value.as_bytes());
    let full_key = |sort_key: &str| Fields::default().blob(1, b"m").blob(2, sort_key.as_bytes());
    let range = || Fields::default().blob(1, b"m").i32(3, -1).i32(4, -1).bool(8, true).bool(9, true);
    let check = || Fields::default().blob(1, b"m").blob(2, b"a").i32(3, 10);
    let mutation = |operation: i32, sort_key: &str| {
        Fields::default().i32(1, operation).blob(2, sort_key.as_bytes()).blob(3, b"mutated").i32(4, 0)
    };
    let scanner = || Fields::default().blob(1, &[0, 0]).blob(2, &[0xff, 0xff]).bool(3, true).bool(4, false).i32(5, 100);
    vec![
        ("PUT", message("RPC_RRDB_RRDB_PUT", 1, &Fields::default().blob(1, &key("h", "s")).blob(2, b"v").i32(3, 0))),
        ("GET", message_of_blob("RPC_RRDB_RRDB_GET", 2, &key("h", "s"))),
        ("GET of nothing", message_of_blob("RPC_RRDB_RRDB_GET", 3, &key("h", "nothing"))),
        ("TTL without an end", message_of_blob("RPC_RRDB_RRDB_TTL", 4, &key("h", "s"))),
        ("REMOVE", message_of_blob("RPC_RRDB_RRDB_REMOVE", 5, &key("h", "s"))),
        ("MULTI_PUT", {
            let records = [record("a", "1"), record("b", "2"), record("c", "3")];
            let request = Fields::default().blob(1, b"m").list(2, &records).i32(3, 1_640_000_000);
            message("RPC_RRDB_RRDB_MULTI_PUT", 6, &request)
        }),
        ("MULTI_GET by sort keys, in their order", {
            message("RPC_RRDB_RRDB_MULTI_GET", 7, &range().blobs(2, &[b"c", b"nothing", b"a"]))
        }),
        ("MULTI_GET of a range, ascending although it is reverse, and cut short", {
            let request = Fields::default().blob(1, b"m").i32(3, 2).i32(4, -1).bool(8, true).bool(12, true);
            message("RPC_RRDB_RRDB_MULTI_GET", 8, &request)
        }),
        ("MULTI_GET of an empty range", {
            message("RPC_RRDB_RRDB_MULTI_GET", 9, &range().blob(6, b"x").blob(7, b"b"))
        }),
        ("MULTI_GET without values, filtered", {
            message("RPC_RRDB_RRDB_MULTI_GET", 10, &range().bool(5, true).i32(10, 2).blob(11, b"b"))
        }),
        ("BATCH_GET", {
            message("RPC_RRDB_RRDB_BATCH_GET", 11, &Fields::default().list(1, &[full_key("b"), full_key("nothing")]))
        }),
        ("SORTKEY_COUNT", message_of_blob("RPC_RRDB_RRDB_SORTKEY_COUNT", 12, b"m")),
        ("INCR", { message("RPC_RRDB_RRDB_INCR", 13, &Fields::default().blob(1, &key("n", "")).i64(2, 5).i32(3, 0)) }),
        ("INCR beyond the largest number", {
            message("RPC_RRDB_RRDB_INCR", 14, &Fields::default().blob(1, &key("n", "")).i64(2, i64::MAX).i32(3, 0))
        }),
        ("CHECK_AND_SET that passes, to another sort key", {
            let request = check().blob(4, b"1").bool(5, true).blob(6, b"d").blob(7, b"4").i32(8, 0).bool(9, true);
            message("RPC_RRDB_RRDB_CHECK_AND_SET", 15, &request)
        }),
        ("CHECK_AND_SET that fails", {
            let request = check().blob(4, b"2").bool(5, false).blob(7, b"4").i32(8, 0).bool(9, true);
            message("RPC_RRDB_RRDB_CHECK_AND_SET", 16, &request)
        }),
        ("CHECK_AND_MUTATE, without an operand that is not needed", {
            let request = Fields::default().blob(1, b"m").blob(2, b"a").i32(3, 3);
            let request = request.list(5, &[mutation(0, "e"), mutation(1, "a")]).bool(6, false);
            message("RPC_RRDB_RRDB_CHECK_AND_MUTATE", 17, &request)
        }),
        ("GET_SCANNER over everything, with times", {
            message("RPC_RRDB_RRDB_GET_SCANNER", 18, &scanner().bool(12, true))
        }),
        ("GET_SCANNER that counts", message("RPC_RRDB_RRDB_GET_SCANNER", 19, &scanner().bool(14, true))),
        ("GET_SCANNER that goes on after a key", {
            let request =
                Fields::default().blob(1, &key("m", "c")).blob(2, &[0xff, 0xff]).bool(3, false).bool(13, true);
            message("RPC_RRDB_RRDB_GET_SCANNER", 20, &request)
        }),
        ("GET_SCANNER of one hash key", {
            let request = Fields::default().blob(1, &key("m", "b")).blob(2, &key("n", "")).bool(3, true).bool(4, false);
            message("RPC_RRDB_RRDB_GET_SCANNER", 21, &request)
        }),
        ("MULTI_REMOVE counts what it was given", {
            message("RPC_RRDB_RRDB_MULTI_REMOVE", 22, &Fields::default().blob(1, b"m").blobs(2, &[b"b", b"nothing"]))
        }),
        ("QUERY_PARTITION_CONFIG_BY_INDEX", {
            message("RPC_CM_QUERY_PARTITION_CONFIG_BY_INDEX", 23, &Fields::default().string(1, "golden"))
        }),
        ("QUERY_PARTITION_CONFIG_BY_INDEX of no table", {
            message("RPC_CM_QUERY_PARTITION_CONFIG_BY_INDEX", 24, &Fields::default().string(1, "no such table"))
        }),
        ("LIST_NODES", message("RPC_CM_LIST_NODES", 25, &Fields::default().i32(1, 0))),
    ]
}

/// Ports differ from run to run.
fn with_usual_port(mut bytes: Vec<u8>, port: u16) -> Vec<u8> {
    let address = |port: u16| [&[0x7f, 0, 0, 1][..], &port.to_be_bytes(), &[0, 1]].concat();
    let pairs = [(format!(":{port}").into_bytes(), format!(":{PORT}").into_bytes()), (address(port), address(PORT))];
    for (found, usual) in pairs {
        for at in 0..bytes.len().saturating_sub(found.len() - 1) {
            if bytes[at..].starts_with(&found) {
                bytes[at..at + found.len()].copy_from_slice(&usual);
            }
        }
    }
    bytes
}

#[test]
fn replies_are_the_same_byte_by_byte() {
    let mut transcript = String::new();
    for (version, frame) in [("0", v0 as fn(i32, i32, &[u8]) -> Vec<u8>), ("1", v1)] {
        let data = TempDir::new().unwrap();
        let port = free_port();
        let node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
        node.cli("table create golden --engine memory --durability hard --partitions 1");
        let mut connection = Connection::to(port);
        for (what, message) in requests() {
            let request = frame(TABLE, 0, &message);
            connection.send(&request);
            let reply = with_usual_port(connection.receive().expect("the server answers"), port);
            writeln!(transcript, "# {what}, header version {version}").unwrap();
            writeln!(transcript, "> {}\n< {}\n", request.escape_ascii(), reply.escape_ascii()).unwrap();
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/pegasus/transcripts.txt");
    if std::env::var_os("TESSERA_WRITE_TRANSCRIPTS").is_some() {
        std::fs::write(&path, &transcript).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    for (found, wanted) in transcript.lines().zip(golden.lines()) {
        assert_eq!(found, wanted);
    }
    assert_eq!(transcript.lines().count(), golden.lines().count());
}
