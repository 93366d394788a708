//! Calls of Apache Pegasus that there is nothing for here. Their answers say so in their bodies: at an error in the header, clients
//! ask again until their time is over.

use super::messages::{ErrorResponse, PlainResponse};
use crate::frame::{Call, write_reply};
use crate::wire::ErrorCode;

const ERROR: &str = "ERR_OPERATION_DISABLED";

const BACKUP: &str = "there are no backups by this call";
const BULK_LOAD: &str = "there is no bulk load";
const DISKS: &str = "a node has one data directory: no disk can be added, and no replica can change its disk";
const RECOVERY: &str =
    "nodes know their tables by themselves; `tessera recover` is for a cluster that has lost most of its nodes";

/// Answers a call of these; returns whether it is one.
pub(super) fn answer(call: &Call, out: &mut Vec<u8>) -> bool {
    let hint = match call.name() {
        "RPC_CM_START_BACKUP_APP"
        | "RPC_CM_QUERY_BACKUP_STATUS"
        | "RPC_CM_ADD_BACKUP_POLICY"
        | "RPC_CM_MODIFY_BACKUP_POLICY" => BACKUP,
        "RPC_CM_START_BULK_LOAD" | "RPC_CM_CONTROL_BULK_LOAD" | "RPC_CM_CLEAR_BULK_LOAD" => BULK_LOAD,
        "RPC_REPLICA_DISK_MIGRATE" | "RPC_ADD_NEW_DISK" => DISKS,
        "RPC_CM_START_RECOVERY" => RECOVERY,
        // The second field of these responses is not a text.
        "RPC_CM_QUERY_BACKUP_POLICY"
        | "RPC_CM_START_RESTORE"
        | "RPC_CM_QUERY_RESTORE_STATUS"
        | "RPC_CM_QUERY_BULK_LOAD_STATUS"
        | "RPC_CM_ADD_DUPLICATION"
        | "RPC_CM_MODIFY_DUPLICATION"
        | "RPC_CM_QUERY_DUPLICATION"
        | "RPC_CM_LIST_DUPLICATION"
        | "RPC_CM_PROPOSE_BALANCER"
        | "RPC_CM_DDD_DIAGNOSE"
        | "RPC_CM_GET_ATOMIC_IDEMPOTENT"
        | "RPC_CM_SET_ATOMIC_IDEMPOTENT" => {
            write_reply(out, call, &ErrorResponse { error: ErrorCode(ERROR.into()) });
            return true;
        }
        _ => return false,
    };
    write_reply(out, call, &PlainResponse { error: ErrorCode(ERROR.into()), hint: hint.into() });
    true
}
