//! How indexes of tables that are in use are built: how fast, and what is told of it.

use crate::reql::{Client, PATIENCE, insert, table};
use crate::server::{Node, free_port, wait_for};
use serde_json::{Value, json};
use std::time::Instant;

/// A build went as fast as it could, and of a table of one shard nothing was told until it was over.
#[test]
fn an_index_is_built_at_a_rate_and_tells_how_far_it_is() {
    // Each of them counts as 1 KiB, so it takes some five seconds.
    const DOCUMENTS: i64 = 5_000;
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let _node = Node::start(data.path(), &[&format!("reql.port={port}"), "reql.index_bytes_per_second=1048576"]);
    let mut client = Client::to(port);
    assert_eq!(client.ask(&json!([60, ["t"], {"shards": 1}]))["tables_created"], 1);
    let documents: Vec<Value> = (0..DOCUMENTS).map(|id| json!({"id": id, "n": id % 10})).collect();
    assert_eq!(client.ask(&insert("t", &documents))["inserted"], DOCUMENTS);
    let began = Instant::now();
    assert_eq!(client.ask(&json!([75, [table("t"), "n"]]))["created"], 1);
    let mut told: Vec<f64> = Vec::new();
    wait_for("the index is built", 2 * PATIENCE, || {
        let status = client.ask(&json!([139, [table("t"), "n"]]))[0].clone();
        if status["ready"] == true {
            assert!(status.get("progress").is_none(), "{status}");
            return Some(());
        }
        let progress = status["progress"].as_f64().unwrap_or_else(|| panic!("no progress: {status}"));
        // A page of 200 is looked at at once.
        let most = 200.0 + 1_024.0 * began.elapsed().as_secs_f64();
        assert!(progress * DOCUMENTS as f64 <= most + 0.5, "{progress} after {:?}", began.elapsed());
        assert!(progress <= 1.0 && told.last().is_none_or(|last| *last <= progress), "{progress} after {told:?}");
        told.push(progress);
        None
    });
    told.dedup();
    let within = told.iter().filter(|progress| **progress > 0.0 && **progress < 1.0).count();
    assert!(within >= 3, "{told:?}");
    let count = json!([43, [[78, [table("t"), 7], {"index": "n"}]]]);
    assert_eq!(client.ask(&count), DOCUMENTS / 10);
}
