//! Which queries are not sent to the nodes that have the documents, though they could be evaluated there.

use crate::cluster::Cluster;
use crate::reql::{Client, table};
use crate::server::Node;
use serde_json::{Value, json};

const MIB: usize = 1 << 20;

/// The most memory that a node ever had, in bytes.
fn peak_bytes(node: &Node) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.process.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")).unwrap();
    peak.parse::<usize>().unwrap() * 1024
}

/// A pipeline with a value of 17 MiB went to each partition with each slice.
#[test]
fn a_pipeline_that_is_too_large_is_not_sent_to_each_partition() {
    const DOCUMENTS: usize = 200;
    let cluster = Cluster::start_with_reql(3);
    let mut client = Client::to(cluster.reql_ports()[0]);
    assert_eq!(client.ask(&json!([60, ["t"], {"shards": 32}]))["tables_created"], 1);
    client.ask(&json!([177, [table("t")]]));
    let documents: Vec<Value> = (0..DOCUMENTS).map(|id| json!({"id": id, "text": "x"})).collect();
    assert_eq!(client.ask(&json!([56, [table("t"), [2, documents]]]))["inserted"], DOCUMENTS);
    // `r.expr(text).do(text => text.add(text, ...)).do(text => table.filter(row => row("text").ne(text)).count())`
    let of = |times: usize| {
        let long = json!([24, vec![json!([10, [1]]); times]]);
        let long = json!([64, [[69, [[2, [1]], long]], "x".repeat(MIB)]]);
        let other = json!([69, [[2, [3]], [18, [[170, [[10, [3]], "text"]], [10, [2]]]]]]);
        json!([64, [[69, [[2, [2]], [43, [[39, [table("t"), other]]]]]], long]])
    };
    assert_eq!(client.ask(&of(2)), DOCUMENTS, "it is sent");
    let peaks = || [1, 2].map(|at| peak_bytes(cluster.node(at)));
    let before = peaks();
    assert_eq!(client.ask(&of(17)), DOCUMENTS);
    // Each leads a third of the partitions.
    for (before, after) in before.into_iter().zip(peaks()) {
        assert!(after - before < 60 * MIB, "{before} bytes became {after}");
    }
}
