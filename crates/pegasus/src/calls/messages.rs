//! Requests and responses of the data calls, with the field numbers of Apache Pegasus' `rrdb.thrift`. Optional fields of
//! requests that only Pegasus' own servers send each other are left out.

use crate::wire::{Blob, Shared, record};

record! {
    PutRequest { 1: key: Blob, 2: value: Blob, 3: expire_ts: i32 }
    /// The answer to PUT, MULTI_PUT and REMOVE.
    UpdateResponse { 1: error: i32, 2: table: i32, 3: partition: i32, 4: decree: i64, 5: server: Shared }
    ReadResponse { 1: error: i32, 2: value: Blob, 3: table: i32, 4: partition: i32, 6: server: Shared }
    TtlResponse { 1: error: i32, 2: seconds: i32, 3: table: i32, 4: partition: i32, 6: server: Shared }
    CountResponse { 1: error: i32, 2: count: i64, 3: table: i32, 4: partition: i32, 6: server: Shared }
    /// In MULTI_PUT and MULTI_GET the key is a sort key, in scans a stored key.
    KeyValue { 1: key: Blob, 2: value: Blob, 3: expire_ts: Option<i32> }
    MultiPutRequest { 1: hash_key: Blob, 2: records: Vec<KeyValue>, 3: expire_ts: i32 }
    MultiRemoveRequest { 1: hash_key: Blob, 2: sort_keys: Vec<Blob>, 3: max_count: i64 }
    /// The answer to MULTI_REMOVE.
    MultiRemoveResponse {
        1: error: i32, 2: count: i64, 3: table: i32, 4: partition: i32, 5: decree: i64, 6: server: Shared,
    }
    MultiGetRequest {
        1: hash_key: Blob, 2: sort_keys: Vec<Blob>, 3: max_count: i32, 4: max_bytes: i32, 5: no_value: bool,
        6: start: Blob, 7: stop: Blob, 8: start_inclusive: bool, 9: stop_inclusive: bool, 10: filter_type: i32,
        11: filter_pattern: Blob, 12: reverse: bool,
    }
    MultiGetResponse { 1: error: i32, 2: records: Vec<KeyValue>, 3: table: i32, 4: partition: i32, 6: server: Shared }
    FullKey { 1: hash_key: Blob, 2: sort_key: Blob }
    BatchGetRequest { 1: keys: Vec<FullKey> }
    FullData { 1: hash_key: Blob, 2: sort_key: Blob, 3: value: Blob }
    BatchGetResponse { 1: error: i32, 2: records: Vec<FullData>, 3: table: i32, 4: partition: i32, 6: server: Shared }
    IncrRequest { 1: key: Blob, 2: increment: i64, 3: expire_ts: i32 }
    IncrResponse {
        1: error: i32, 2: new_value: i64, 3: table: i32, 4: partition: i32, 5: decree: i64, 6: server: Shared,
    }
    CheckAndSetRequest {
        1: hash_key: Blob, 2: check_sort_key: Blob, 3: check_type: i32, 4: operand: Blob, 5: sets_other_sort_key: bool,
        6: set_sort_key: Blob, 7: set_value: Blob, 8: set_expire_ts: i32, 9: wants_check_value: bool,
    }
    Mutation { 1: operation: i32, 2: sort_key: Blob, 3: value: Blob, 4: expire_ts: i32 }
    CheckAndMutateRequest {
        1: hash_key: Blob, 2: check_sort_key: Blob, 3: check_type: i32, 4: operand: Blob, 5: mutations: Vec<Mutation>,
        6: wants_check_value: bool,
    }
    /// The answer to CHECK_AND_SET and CHECK_AND_MUTATE.
    CheckResponse {
        1: error: i32, 2: has_check_value: bool, 3: check_value_exists: bool, 4: check_value: Blob, 5: table: i32,
        6: partition: i32, 7: decree: i64, 8: server: Shared,
    }
    GetScannerRequest {
        1: start: Blob, 2: stop: Blob, 3: start_inclusive: bool, 4: stop_inclusive: bool, 5: batch_size: i32,
        6: no_value: bool, 7: hash_filter_type: i32, 8: hash_filter_pattern: Blob, 9: sort_filter_type: i32,
        10: sort_filter_pattern: Blob, 11: validates_partition_hash: Option<bool>, 12: wants_expire_ts: Option<bool>,
        13: full_scan: Option<bool>, 14: only_count: Option<bool>,
    }
    ScanRequest { 1: context: i64 }
    /// The answer to GET_SCANNER and SCAN.
    ScanResponse {
        1: error: i32, 2: records: Vec<KeyValue>, 3: context: i64, 4: table: i32, 5: partition: i32, 6: server: Shared,
        7: count: Option<i32>,
    }
}
