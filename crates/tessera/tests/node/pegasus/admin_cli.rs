//! What admin-cli of Apache Pegasus asks beside tables and their settings.

use super::meta_client::Meta;
use super::wire::Fields;
use crate::server::{Node, free_port};
use tempfile::TempDir;

/// At an error in the header, clients ask again until their time is over, and some end with a panic then.
#[test]
fn what_there_is_nothing_for_is_refused_in_the_body() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let _node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    let mut meta = Meta::at(port);
    let with_hint = [
        "RPC_CM_START_BACKUP_APP",
        "RPC_CM_QUERY_BACKUP_STATUS",
        "RPC_CM_ADD_BACKUP_POLICY",
        "RPC_CM_MODIFY_BACKUP_POLICY",
        "RPC_CM_START_BULK_LOAD",
        "RPC_CM_CONTROL_BULK_LOAD",
        "RPC_CM_CLEAR_BULK_LOAD",
        "RPC_REPLICA_DISK_MIGRATE",
        "RPC_ADD_NEW_DISK",
        "RPC_CM_START_RECOVERY",
    ];
    let without = [
        "RPC_CM_QUERY_BACKUP_POLICY",
        "RPC_CM_START_RESTORE",
        "RPC_CM_QUERY_RESTORE_STATUS",
        "RPC_CM_QUERY_BULK_LOAD_STATUS",
        "RPC_CM_ADD_DUPLICATION",
        "RPC_CM_MODIFY_DUPLICATION",
        "RPC_CM_QUERY_DUPLICATION",
        "RPC_CM_LIST_DUPLICATION",
        "RPC_CM_PROPOSE_BALANCER",
        "RPC_CM_DDD_DIAGNOSE",
        "RPC_CM_GET_ATOMIC_IDEMPOTENT",
        "RPC_CM_SET_ATOMIC_IDEMPOTENT",
    ];
    let error = Fields::default().blob(1, b"ERR_OPERATION_DISABLED");
    for name in with_hint.into_iter().chain(without) {
        let reply = meta.expect(name, &Fields::default(), "ERR_OPERATION_DISABLED");
        assert_eq!((reply.error.as_str(), reply.name), ("ERR_OK", format!("{name}_ACK")));
        let has_hint = reply.fields.len() > error.clone().bytes().len() + 8;
        assert_eq!(has_hint, with_hint.contains(&name), "{name}: {}", reply.fields.escape_ascii());
    }
    assert_eq!(meta.call("RPC_CM_NO_SUCH_CALL", &Fields::default()).error, "ERR_HANDLER_NOT_FOUND");
}
