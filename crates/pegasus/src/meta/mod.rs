//! What clients ask a meta server, which here is any node: where partitions are led, and the administration of tables.

mod cluster;
mod compaction;
mod create;
mod disk;
mod envs;
mod hot_keys;
mod kept_envs;
mod messages;
mod outcome;
mod perf_counters;
pub(crate) mod replicas_here;
mod routing;
mod rules;
mod split;
mod tables;
mod unsupported;

use crate::frame::{Call, Frame, read_argument, read_call, write_error, write_reply};
use crate::server::PegasusServer;
use crate::wire::{ErrorCode, Input, input};
use messages::{
    CreateRequest, CreateResponse, ListNodesRequest, ListTablesRequest, QueryConfigRequest, ReplicaCountRequest,
};
use std::sync::Arc;
use tessera_store::Table;

/// Asks where a table's partitions are led.
pub(crate) const WHERE: &str = "RPC_CM_QUERY_PARTITION_CONFIG_BY_INDEX";

/// The table of which a call asks [where](WHERE) its partitions are, if this node has heard of it.
pub(crate) fn located_table(server: &PegasusServer, call: &Call, frame: &Frame) -> Option<Arc<Table>> {
    let (_, arguments) = read_call(frame).filter(|_| call.name() == WHERE)?;
    let request: QueryConfigRequest = read_argument(&mut input(arguments)).ok()?;
    server.store.table_named(&request.table)
}

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
        WHERE => {
            write_reply(out, call, &routing::query(server, &read_argument(message)?).await);
        }
        "RPC_CM_CREATE_APP" => {
            let request: CreateRequest = read_argument(message)?;
            let (error, table) = create::create(server, request).await;
            write_reply(out, call, &CreateResponse { error: ErrorCode(error.into()), table });
        }
        "RPC_CM_DROP_APP" => {
            write_reply(out, call, &tables::drop(server, read_argument(message)?).await);
        }
        "RPC_CM_RECALL_APP" => {
            write_reply(out, call, &tables::recall(server, read_argument(message)?).await);
        }
        "RPC_CM_RENAME_APP" => {
            write_reply(out, call, &tables::rename(server, read_argument(message)?).await);
        }
        "RPC_CM_LIST_APPS" => {
            let request: ListTablesRequest = read_argument(message)?;
            write_reply(out, call, &tables::list(server, request.status));
        }
        "RPC_QUERY_APP_INFO" => write_reply(out, call, &tables::list(server, tables::AVAILABLE)),
        "RPC_CM_UPDATE_APP_ENV" => {
            write_reply(out, call, &envs::update(server, read_argument(message)?).await);
        }
        "RPC_CM_START_MANUAL_COMPACT" => {
            write_reply(out, call, &compaction::start(server, read_argument(message)?).await);
        }
        "RPC_CM_QUERY_MANUAL_COMPACT_STATUS" => {
            write_reply(out, call, &compaction::query(server, read_argument(message)?).await);
        }
        "RPC_CM_GET_MAX_REPLICA_COUNT" => {
            let request: ReplicaCountRequest = read_argument(message)?;
            write_reply(out, call, &tables::replica_count(server, &request.table));
        }
        "RPC_CM_SET_MAX_REPLICA_COUNT" => {
            write_reply(out, call, &tables::set_replica_count(server, read_argument(message)?).await);
        }
        "RPC_CM_START_PARTITION_SPLIT" => {
            write_reply(out, call, &split::start(server, read_argument(message)?).await);
        }
        "RPC_CM_CONTROL_PARTITION_SPLIT" => {
            write_reply(out, call, &split::control(server, read_argument(message)?).await);
        }
        "RPC_CM_QUERY_PARTITION_SPLIT" => {
            write_reply(out, call, &split::query(server, &read_argument(message)?).await);
        }
        "RPC_DETECT_HOTKEY" => {
            write_reply(out, call, &hot_keys::detect(server, &read_argument(message)?));
        }
        "RPC_QUERY_DISK_INFO" => {
            write_reply(out, call, &disk::query(server, read_argument(message)?).await);
        }
        "RPC_CM_LIST_NODES" => {
            let request: ListNodesRequest = read_argument(message)?;
            write_reply(out, call, &cluster::nodes(server, request.status));
        }
        "RPC_CM_CLUSTER_INFO" => {
            write_reply(out, call, &cluster::info(server));
        }
        "RPC_CM_CONTROL_META" => {
            write_reply(out, call, &cluster::level(&read_argument(message)?));
        }
        "RPC_CLI_CLI_CALL" => {
            write_reply(out, call, &cluster::remote_command(server, read_argument(message)?).await);
        }
        _ => return Ok(unsupported::answer(call, out)),
    }
    Ok(true)
}
