//! Requests and responses of the meta server, with the field numbers of Apache Pegasus' interface. Fields that came after
//! version 2.5 and have a raw type are never sent: older clients would stumble over them.

use crate::wire::{Address, ErrorCode, Gpid, record};
use std::collections::{BTreeMap, BTreeSet};

record! {
    QueryConfigRequest { 1: table: String, 2: partitions: Vec<i32> }
    QueryConfigResponse {
        1: error: ErrorCode, 2: table: i32, 3: partition_count: i32, 4: is_stateful: bool,
        5: partitions: Vec<PartitionConfiguration>,
    }
    PartitionConfiguration {
        1: partition: Gpid, 2: ballot: i64, 3: replicas: i32, 4: primary: Address, 5: secondaries: Vec<Address>,
        6: last_drops: Vec<Address>, 7: last_committed_decree: i64, 8: flags: i32,
    }
    CreateOptions {
        1: partitions: i32, 2: replicas: i32, 3: success_if_exists: bool, 4: kind: String, 5: is_stateful: bool,
        6: envs: BTreeMap<String, String>,
    }
    CreateRequest { 1: table: String, 2: options: CreateOptions }
    CreateResponse { 1: error: ErrorCode, 2: table: i32 }
    DropOptions { 1: success_if_missing: bool, 2: reserve_seconds: Option<i64> }
    DropRequest { 1: table: String, 2: options: DropOptions }
    /// The answer to what cannot be done, where the other fields depend on the request.
    ErrorResponse { 1: error: ErrorCode }
    /// The answer to requests whose success needs no words.
    PlainResponse { 1: error: ErrorCode, 2: hint: String }
    RecallRequest { 1: table: i32, 2: new_name: String }
    RecallResponse { 1: error: ErrorCode, 2: info: TableInfo }
    RenameRequest { 1: old_name: String, 2: new_name: String }
    TableInfo {
        1: status: i32, 2: kind: String, 3: name: String, 4: id: i32, 5: partitions: i32,
        6: envs: BTreeMap<String, String>, 7: is_stateful: bool, 8: replicas: i32, 9: expire_second: i64,
        10: create_second: i64, 11: drop_second: i64, 12: is_duplicating: Option<bool>, 13: first_partitions: i32,
        14: is_bulk_loading: bool,
    }
    ListTablesRequest { 1: status: i32 }
    /// The answer to LIST_APPS, and to RPC_QUERY_APP_INFO.
    ListTablesResponse { 1: error: ErrorCode, 2: tables: Vec<TableInfo> }
    UpdateEnvsRequest {
        1: table: String, 2: operation: i32, 3: keys: Vec<String>, 4: values: Vec<String>, 5: prefix: Option<String>,
    }
    ListNodesRequest { 1: status: i32 }
    NodeInfo { 1: status: i32, 2: address: Address }
    ListNodesResponse { 1: error: ErrorCode, 2: nodes: Vec<NodeInfo> }
    ClusterInfoResponse { 1: error: ErrorCode, 2: keys: Vec<String>, 3: values: Vec<String> }
    LevelRequest { 1: level: i32 }
    LevelResponse { 1: error: ErrorCode, 2: level: i32 }
    ReplicaCountRequest { 1: table: String, 2: replicas: i32 }
    /// The answer to GET_MAX_REPLICA_COUNT, and to SET_MAX_REPLICA_COUNT with the number before.
    ReplicaCountResponse { 1: error: ErrorCode, 2: replicas: i32, 3: hint: String }
    /// What of it concerns levels and numbers at a time is RocksDB's own business here, and only checked.
    CompactRequest {
        1: table: String, 2: at: Option<i64>, 3: target_level: Option<i32>, 5: running_at_a_time: Option<i32>,
    }
    QueryCompactionRequest { 1: table: String }
    /// With the percentage that is done.
    QueryCompactionResponse { 1: error: ErrorCode, 2: hint: String, 3: progress: Option<i32> }
    DetectHotKeyRequest { 1: kind: i32, 2: action: i32, 3: partition: Gpid }
    DetectHotKeyResponse { 1: error: ErrorCode, 2: hint: Option<String>, 3: result: Option<String> }
    StartSplitRequest { 1: table: String, 2: partitions: i32 }
    ControlSplitRequest { 1: table: String, 2: control: i32, 3: partition: i32, 4: old_partitions: Option<i32> }
    /// The answer to CONTROL_PARTITION_SPLIT.
    ControlSplitResponse { 1: error: ErrorCode, 2: hint: Option<String> }
    QuerySplitRequest { 1: table: String }
    QuerySplitResponse { 1: error: ErrorCode, 2: partitions: i32, 3: states: BTreeMap<i32, i32>, 4: hint: Option<String> }
    /// The node is the one that is asked. What is raw has to be read to come to what follows.
    QueryDiskRequest { 1: node: Address, 2: table: String }
    QueryDiskResponse { 1: error: ErrorCode, 2: capacity: i64, 3: available: i64, 4: disks: Vec<DiskInfo> }
    /// Sizes are in mebibytes, and partitions are by the number of their table.
    DiskInfo {
        1: tag: String, 2: directory: String, 3: capacity: i64, 4: available: i64,
        5: primaries: BTreeMap<i32, BTreeSet<Gpid>>, 6: secondaries: BTreeMap<i32, BTreeSet<Gpid>>,
    }
    RemoteCommand { 1: name: String, 2: arguments: Vec<String> }
}
