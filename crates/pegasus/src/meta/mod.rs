//! What clients ask a meta server, which here is any node: where partitions are led, and the administration of tables.

mod cluster;
mod envs;
mod messages;
mod routing;
mod tables;

use crate::frame::{Call, Frame, read_argument, read_call, write_error, write_reply};
use crate::server::PegasusServer;
use crate::wire::{ErrorCode, Input, input};
use messages::{
    ClusterInfoResponse, CompactRequest, CreateRequest, CreateResponse, DropRequest, LevelRequest, ListNodesRequest,
    ListTablesRequest, QueryConfigRequest, RecallRequest, RemoteCommand, RenameRequest, ReplicaCountRequest,
    UpdateEnvsRequest,
};
use std::sync::Arc;

/// Answers a call that is none of the data calls.
pub(crate) async fn answer(server: &Arc<PegasusServer>, call: &Call, frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    let arguments = read_call(frame).map_or(&[][..], |(_, arguments)| arguments);
    match dispatch(server, call, &mut input(arguments), &mut out).await {
        Ok(true) => {}
        Ok(false) => write_error(&mut out, call, "ERR_HANDLER_NOT_FOUND"),
        Err(_) => write_error(&mut out, call, "ERR_INVALID_DATA"),
    }
    out
}

/// Returns whether there is such a call.
async fn dispatch(
    server: &PegasusServer,
    call: &Call,
    message: &mut Input<'_>,
    out: &mut Vec<u8>,
) -> thrift::Result<bool> {
    match call.name() {
        "RPC_CM_QUERY_PARTITION_CONFIG_BY_INDEX" => {
            let request: QueryConfigRequest = read_argument(message)?;
            write_reply(out, call, &routing::query(server, &request).await);
        }
        "RPC_CM_CREATE_APP" => {
            let request: CreateRequest = read_argument(message)?;
            let (error, table) = tables::create(server, request).await;
            write_reply(out, call, &CreateResponse { error: ErrorCode(error.into()), table });
        }
        "RPC_CM_DROP_APP" => {
            let request: DropRequest = read_argument(message)?;
            write_reply(out, call, &tables::drop(server, request).await);
        }
        "RPC_CM_RECALL_APP" => {
            let request: RecallRequest = read_argument(message)?;
            write_reply(out, call, &tables::recall(server, request).await);
        }
        "RPC_CM_RENAME_APP" => {
            let request: RenameRequest = read_argument(message)?;
            write_reply(out, call, &tables::rename(server, request).await);
        }
        "RPC_CM_LIST_APPS" => {
            let request: ListTablesRequest = read_argument(message)?;
            write_reply(out, call, &tables::list(server, request.status));
        }
        "RPC_QUERY_APP_INFO" => write_reply(out, call, &tables::list(server, tables::AVAILABLE)),
        "RPC_CM_UPDATE_APP_ENV" => {
            let request: UpdateEnvsRequest = read_argument(message)?;
            write_reply(out, call, &envs::update(server, request).await);
        }
        "RPC_CM_START_MANUAL_COMPACT" => {
            let request: CompactRequest = read_argument(message)?;
            write_reply(out, call, &envs::compact(server, request).await);
        }
        "RPC_CM_GET_MAX_REPLICA_COUNT" => {
            let request: ReplicaCountRequest = read_argument(message)?;
            write_reply(out, call, &tables::replica_count(server, &request.table));
        }
        "RPC_CM_SET_MAX_REPLICA_COUNT" => {
            let request: ReplicaCountRequest = read_argument(message)?;
            write_reply(out, call, &tables::set_replica_count(server, request).await);
        }
        "RPC_CM_LIST_NODES" => {
            let request: ListNodesRequest = read_argument(message)?;
            write_reply(out, call, &cluster::nodes(server, request.status));
        }
        "RPC_CM_CLUSTER_INFO" => {
            let response: ClusterInfoResponse = cluster::info(server);
            write_reply(out, call, &response);
        }
        "RPC_CM_CONTROL_META" => {
            let request: LevelRequest = read_argument(message)?;
            write_reply(out, call, &cluster::level(&request));
        }
        "RPC_CLI_CLI_CALL" => {
            let request: RemoteCommand = read_argument(message)?;
            write_reply(out, call, &cluster::remote_command(server, &request));
        }
        _ => return Ok(false),
    }
    Ok(true)
}
