//! The Go and the Python client of Apache Pegasus, unmodified, on a cluster of three nodes. `scripts/pegasus-clients` builds
//! them.

use crate::cluster::Cluster;
use crate::server::wait_for;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the client writes before a node is killed, and after: it gives a dead node five seconds, asks once a second
/// where partitions are led, and may be told of the dead one at first.
const BEFORE: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(20);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn client(path: &str) -> Command {
    let path = root().join("target/pegasus-clients").join(path);
    assert!(path.exists(), "{} is missing: `make test` builds it first", path.display());
    let mut command = Command::new(path);
    // The Go client writes a log file where it is started.
    command.current_dir(std::env::temp_dir());
    command
}

fn run(mut command: Command) {
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {words}");
}

#[test]
fn clients_of_apache_pegasus_make_every_call() {
    let cluster = Cluster::start_with_pegasus(3);
    let addresses = cluster.pegasus_addresses();
    let mut go = client("go-client");
    run({
        go.arg("acceptance").args(&addresses);
        go
    });
    for engine in ["rocksdb", "memory"] {
        cluster.cli(0, &format!("table create python_acceptance --engine {engine} --partitions 4")).unwrap();
        let mut python = client("python/bin/python");
        python.arg(root().join("crates/tessera/tests/pegasus_clients/acceptance.py")).args(&addresses);
        run(python);
        cluster.cli(0, "table drop python_acceptance").unwrap();
    }
}

#[test]
fn a_client_recovers_by_itself_when_a_leader_is_killed_and_loses_nothing() {
    let mut cluster = Cluster::start_with_pegasus(3);
    cluster.cli(0, "table create go_load --engine rocksdb --partitions 8").unwrap();
    cluster.wait_until_whole();
    let mut command = client("go-client");
    command.arg("load").args(cluster.pegasus_addresses());
    let mut load = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(load.stdout.take().unwrap());
    let mut errors = load.stderr.take().unwrap();
    let log = std::thread::spawn(move || {
        let mut log = String::new();
        errors.read_to_string(&mut log).map(|_| log)
    });
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "writing\n");
    std::thread::park_timeout(BEFORE);
    cluster.kill(1);
    std::thread::park_timeout(AFTER);
    load.stdin.take().unwrap().write_all(b".").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let outcome = wait_for("the client ends", Duration::from_secs(60), || load.try_wait().unwrap());
    assert!(outcome.success(), "{rest}\n{}", log.join().unwrap().unwrap());
    println!("{rest}");
}
