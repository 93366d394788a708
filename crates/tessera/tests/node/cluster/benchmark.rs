//! The benchmark against a cluster.

use super::Cluster;
use crate::server::{Node, tessera};
use tempfile::TempDir;

fn bench(arguments: &[&str]) -> String {
    let output = tessera().arg("bench").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Requests that nodes handed to others.
fn forwarded(cluster: &Cluster) -> f64 {
    (0..cluster.ports.len()).map(|at| cluster.metric(at, "tessera_redis_forwarded_total").unwrap()).sum()
}

#[test]
fn clients_that_know_clusters_go_straight_to_the_leaders() {
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --partitions 12 --partitioner redis-slots").unwrap();
    cluster.wait_until_whole();
    let port = cluster.ports[0].0.to_string();
    let load = |protocol| {
        let arguments = ["run", "--load-only", "--quiet", "--records", "2000", "--field-bytes", "10", "--table", "t"];
        bench(&[&arguments[..], &["--port", &port, "--protocol", protocol]].concat());
        forwarded(&cluster)
    };
    assert_eq!(load("redis-cluster"), 0.0);
    assert!(load("redis") > 0.0);
}

#[test]
fn a_suite_measures_a_running_cluster_beside_a_peer_and_leaves_nothing_behind() {
    let cluster = Cluster::start(3);
    let (output, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let peer = Node::start(data.path(), &[]);
    let (directory, admin) = (output.path().to_str().unwrap(), cluster.admin(1));
    let peer = format!("redis://127.0.0.1:{}", peer.redis_port);
    let arguments = ["suite", "quick", "--experiment", "partitions", "--only", "_write_", "--output", directory];
    bench(&[&arguments[..], &["--cluster", &admin, "--peer", &peer]].concat());
    let report = std::fs::read_to_string(output.path().join("README.md")).unwrap();
    let rows: Vec<&str> = report.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    assert!(rows.len() == 2 && rows[0].contains("| Tessera |") && rows[1].contains("| redis at "), "{report}");
    let rates = rows.iter().map(|row| row.split('|').map(str::trim).nth(13).unwrap().replace(',', ""));
    assert!(rates.into_iter().all(|rate| rate.parse::<u64>().unwrap() > 0), "{report}");
    assert!(!cluster.cli(0, "table list").unwrap().contains("tessera_bench"));
    // What was not measured is told where no progress is shown either, and the exit status says so.
    let failing =
        tessera().arg("bench").args(arguments).args(["--cluster", &admin, "--peer", "redis://127.0.0.1:1"]).output();
    let failing = failing.unwrap();
    let said = String::from_utf8_lossy(&failing.stderr);
    assert!(!failing.status.success() && said.contains("was not measured: redis at 127.0.0.1:1"), "{said}");
}

/// The published query, over documents that the benchmark has written, through all nodes.
#[test]
fn the_map_reduce_query_is_measured_through_reql_only() {
    let cluster = Cluster::start_with_reql(3);
    cluster.cli(0, "table create docs --model document --partitions 4 --replicas 2").unwrap();
    cluster.wait_until_whole();
    let ports: Vec<String> = cluster.reql_ports().iter().map(u16::to_string).collect();
    let directory = TempDir::new().unwrap();
    let json = directory.path().join("result.json");
    let of_table = [
        "--protocol",
        "rethinkdb",
        "--table",
        "test.docs",
        "--records",
        "1000",
        "--fields",
        "10",
        "--field-bytes",
        "50",
    ];
    let at: Vec<&str> = ports.iter().flat_map(|port| ["--port", port.as_str()]).chain(of_table).collect();
    bench(&[&["run", "--quiet", "--load-only"][..], &at].concat());
    let query = ["run", "--quiet", "--mix", "map-reduce", "--operations", "20", "--warm-up", "0"];
    bench(&[&query[..], &["--json", json.to_str().unwrap()], &at].concat());
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let reads = &result["reads"];
    assert_eq!((&reads["errors"], &result["writes"]["operations"]), (&0.into(), &0.into()), "{result}");
    assert!(reads["operations"].as_u64().unwrap() >= 20 && reads["mean_ms"].as_f64().unwrap() > 0.0, "{result}");
    let redis = cluster.ports[0].0.to_string();
    let refused = tessera().args(["bench", "run", "--mix", "map-reduce", "--port", &redis]).output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--protocol rethinkdb"));
}
