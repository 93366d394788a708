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
}
