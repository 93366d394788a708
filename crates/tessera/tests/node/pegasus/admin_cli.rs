//! What admin-cli of Apache Pegasus asks beside tables and their settings.

use super::meta_client::{Meta, text};
use super::wire::Fields;
use crate::server::{Node, free_port, http_get, wait_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
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

/// The perf counters whose names contain a text.
fn counters(meta: &mut Meta, part: &str) -> Vec<(String, f64)> {
    let command = Fields::default().string(1, "perf-counters-by-substr").strings(2, &[part]);
    let reply = meta.call("RPC_CLI_CLI_CALL", &command);
    let answer: serde_json::Value = serde_json::from_slice(&reply.fields).unwrap();
    assert_eq!(answer["result"], "OK");
    let counter = |counter: &serde_json::Value| {
        assert!(counter["name"].as_str().unwrap().contains(part), "{counter}");
        (counter["name"].as_str().unwrap().to_string(), counter["value"].as_f64().unwrap())
    };
    answer["counters"].as_array().unwrap().iter().map(counter).collect()
}

#[test]
fn perf_counters_tell_the_load_of_partitions_and_the_size_of_the_node() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    node.cli("table create feeds --engine memory --partitions 2 --replicas 1");
    let mut meta = Meta::at(port);
    let mut client = node.client();
    client.run("TABLE feeds");
    client.run(&format!("SET k {}", "x".repeat(3 << 20)));
    let is_done = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let is_done = is_done.clone();
        move || {
            while !is_done.load(Ordering::Relaxed) {
                client.run("EXISTS k");
            }
        }
    });
    let reads = counters(&mut meta, "get_qps@1.");
    is_done.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    assert_eq!(reads.len(), 2, "{reads:?}");
    assert!(reads.iter().map(|(_, value)| value).sum::<f64>() > 1.0, "{reads:?}");
    assert!(reads.iter().any(|(_, value)| *value == 0.0), "all reads are of one key: {reads:?}");

    let sizes = counters(&mut meta, "disk.storage.sst(MB)");
    // A tool takes the name apart at its @, and panics without one.
    assert!(sizes.iter().all(|(name, _)| name.starts_with("replica*app.pegasus*disk.storage.sst(MB)@")), "{sizes:?}");
    let of_feeds = sizes.iter().filter(|(name, _)| name.contains("@1.")).map(|(_, value)| value);
    assert!((3.0..4.0).contains(&of_feeds.sum::<f64>()), "{sizes:?}");

    let of_node = |name: &str| counters(&mut meta, name)[0].1;
    let [total, available, memory] =
        ["disk.capacity.total(MB)", "disk.available.total(MB)", "memused.res(MB)"].map(of_node);
    assert!(total >= 1.0 && available <= total && memory > 1.0, "{total} {available} {memory}");
    assert!(counters(&mut meta, "no such counter").is_empty());
}

#[test]
fn a_node_tells_of_its_disk_and_of_the_replicas_on_it() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    node.cli("table create feeds --engine memory --partitions 2 --replicas 1");
    let mut meta = Meta::at(port);
    // The first field is an address, which clients leave empty; it is as long as a partition.
    let of = |table: &str| Fields::default().partition(1, 0, 0).string(2, table);
    let name = "RPC_QUERY_DISK_INFO";
    let feeds = meta.expect(name, &of("feeds"), "ERR_OK");
    let directory = data.path().display().to_string();
    assert!(feeds.has(&Fields::default().string(1, "data").string(2, &directory)), "{feeds:?}");
    let primaries = Fields::default().partitions(5, &[(1, &[0, 1])]).partitions(6, &[]);
    assert!(feeds.has(&primaries), "{feeds:?}");
    let all = meta.expect(name, &of(""), "ERR_OK");
    assert!(all.fields.len() > feeds.fields.len(), "the table default is there too: {all:?}");
    meta.expect(name, &of("nobody"), "ERR_OBJECT_NOT_FOUND");
}

#[test]
fn meta_servers_have_the_ports_of_meta_servers() {
    let data = TempDir::new().unwrap();
    let (port, meta_port) = (free_port(), free_port());
    let info = |settings: &[&str], port: u16| {
        let _node = Node::start(data.path(), settings);
        let mut meta = Meta::at(port);
        // All of them, and the primary one. A node that was started again tells its addresses soon after.
        wait_for("the address is known", Duration::from_secs(30), || {
            let info = text(&meta.expect("RPC_CM_CLUSTER_INFO", &Fields::default(), "ERR_OK"));
            (info.matches(&format!("127.0.0.1:{port}")).count() == 2).then_some(info)
        })
    };
    let [data_setting, meta_setting] = [format!("pegasus.port={port}"), format!("pegasus.meta_port={meta_port}")];
    let both = info(&[&data_setting, &meta_setting], meta_port);
    assert!(!both.contains(&format!("127.0.0.1:{port}")), "{both}");
    info(&[&data_setting], port);
}

/// Some of what admin-cli asks comes as HTTP, on the same port.
#[test]
fn the_paths_that_admin_cli_asks_answer() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    node.cli("table create feeds --engine memory --partitions 2 --replicas 1");
    let get = |path: &str| {
        let response = http_get(port, path).unwrap();
        let (head, content) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", content.len())), "{response}");
        (head.lines().next().unwrap().to_string(), content.to_string())
    };
    let ok = |path: &str| {
        let (status, content) = get(path);
        assert_eq!(status, "HTTP/1.1 200 OK", "{path}");
        content
    };
    assert_eq!(ok("/version"), format!(r#"{{"version":"{}"}}"#, env!("CARGO_PKG_VERSION")));
    assert_eq!(ok("/configs"), "{}");
    assert!(ok("/config?name=rocksdb_verbose_log").contains("ERR_OBJECT_NOT_FOUND: 'rocksdb_verbose_log'"));
    assert!(ok("/updateConfig?a=b").starts_with(r#"{"update_status":"ERR_OBJECT_NOT_FOUND: 'a'"#));
    assert_eq!(ok("/replica/data_version?app_id=1"), r#"{"0":{"data_version":"1"},"1":{"data_version":"1"}}"#);
    assert_eq!(ok("/replica/data_version?app_id=99"), "{}");
    for path in ["/", "/replica/data_version", "/replica/data_version?app_id=x", "/v1/tables"] {
        assert_eq!(get(path).0, "HTTP/1.1 404 Not Found", "{path}");
    }
    // Calls of Thrift are answered as before.
    assert!(Meta::at(port).tables(1).contains("feeds"));
}
