//! Clients of Redis, unmodified, on the default table of a cluster of three nodes, whose keys are in many partitions; those that have a
//! cluster mode also use it, on a table of slots. `scripts/redis-clients` fetches and builds them.
//!
//! `make test` runs redis-py, and Django with its cache for Redis. `make redis-clients` runs all.

use crate::cluster::Cluster;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user whose default table has the slots of Redis as partitions.
const USER: &str = "of-slots";
const PASSWORD: &str = "known to all clients";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A path in what `scripts/redis-clients` makes.
fn built(path: &str) -> PathBuf {
    let path = root().join("target/redis-clients").join(path);
    assert!(path.exists(), "{} is missing: make builds it first", path.display());
    path
}

fn run(mut command: Command, cluster: &Cluster) {
    let output = command.args(cluster.redis_ports().map(|port| port.to_string())).output().unwrap();
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}{failed}");
}

/// Python with one of the scripts. It keeps no compiled copy of what the script imports beside the sources.
fn python(script: &str) -> Command {
    let mut command = Command::new(built("python/bin/python"));
    command.arg("-B").arg(root().join("crates/tessera/tests/redis_clients/python").join(script));
    command
}

fn cluster() -> Cluster {
    let cluster = Cluster::start(3);
    cluster.wait_until_whole();
    cluster
}

/// A cluster with a table of slots for [`USER`]. Who gives no name uses the default table.
fn cluster_with_slots() -> Cluster {
    let hash = crate::reql_users::hash_password(PASSWORD, &[]);
    let access = "access=[\"read\", \"write\", \"admin\"]";
    let of_slots = format!("{{name=\"{USER}\", password_hash=\"{hash}\", {access}, default_table=\"slots\"}}");
    let cluster = Cluster::start_with_users(3, &format!("[{{name=\"default\", {access}}}, {of_slots}]"));
    cluster.cli(0, "table create slots --partitioner redis-slots").unwrap();
    cluster.wait_until_whole();
    cluster
}

/// Runs a client on the ports of all nodes, and in cluster mode.
fn on_any_node_and_in_cluster_mode(client: impl Fn() -> Command) {
    let cluster = cluster_with_slots();
    run(client(), &cluster);
    let mut in_cluster_mode = client();
    in_cluster_mode.args(["cluster", USER, PASSWORD]);
    run(in_cluster_mode, &cluster);
}

fn node(program: &'static str) -> impl Fn() -> Command {
    move || {
        let mut command = Command::new("node");
        command.arg(built("node").join(program));
        command
    }
}

fn java(program: &'static str) -> impl Fn() -> Command {
    move || {
        let java = built("java");
        let mut command = Command::new("java");
        command.arg("-cp").arg(format!("{0}/classes:{0}/lib/*", java.display())).arg(program);
        command
    }
}

#[test]
fn pipelines_of_redis_py_are_transactions_over_all_keys() {
    run(python("pipelines.py"), &cluster());
}

#[test]
fn redis_py_goes_to_the_nodes_that_lead_in_cluster_mode() {
    let mut command = python("cluster_mode.py");
    command.args([USER, PASSWORD]);
    run(command, &cluster_with_slots());
}

#[test]
fn django_keeps_its_cache_here() {
    run(python("django_cache.py"), &cluster());
}

#[test]
#[ignore = "needs Go; `make redis-clients` runs it"]
fn go_redis_has_transactions_over_all_keys() {
    on_any_node_and_in_cluster_mode(|| Command::new(built("go/client")));
}

#[test]
#[ignore = "needs Node.js; `make redis-clients` runs it"]
fn node_redis_has_transactions_over_all_keys() {
    on_any_node_and_in_cluster_mode(node("node_redis.js"));
}

#[test]
#[ignore = "needs Node.js; `make redis-clients` runs it"]
fn ioredis_has_transactions_over_all_keys() {
    on_any_node_and_in_cluster_mode(node("ioredis.js"));
}

#[test]
#[ignore = "needs a JDK and Maven; `make redis-clients` runs it"]
fn jedis_has_transactions_over_all_keys() {
    on_any_node_and_in_cluster_mode(java("tessera.JedisProgram"));
}

#[test]
#[ignore = "needs a JDK and Maven; `make redis-clients` runs it"]
fn lettuce_has_transactions_over_all_keys() {
    on_any_node_and_in_cluster_mode(java("tessera.LettuceProgram"));
}
