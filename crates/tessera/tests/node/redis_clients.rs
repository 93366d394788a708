//! redis-py, and Django with its cache for Redis, unmodified, on the default table of a cluster of three nodes.
//! `scripts/redis-clients` fetches them.

use crate::cluster::Cluster;
use std::path::Path;
use std::process::Command;

fn run(script: &str) {
    let cluster = Cluster::start(3);
    cluster.wait_until_whole();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/redis-clients/python/bin/python");
    assert!(python.exists(), "{} is missing: `make test` makes it first", python.display());
    // Python keeps no compiled copy of what the script imports beside the sources.
    let mut command = Command::new(python);
    command.arg("-B").arg(root.join("crates/tessera/tests/redis_clients").join(script));
    let output = command.args(cluster.redis_ports().map(|port| port.to_string())).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn pipelines_of_redis_py_are_transactions_over_all_keys() {
    run("pipelines.py");
}

#[test]
fn django_keeps_its_cache_here() {
    run("django_cache.py");
}
