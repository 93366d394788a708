//! The Python and the Go driver of RethinkDB, and the tools of the Python package, unmodified, on a cluster of three nodes whose users
//! have passwords. `scripts/reql-drivers` fetches and builds them.

use crate::cluster::Cluster;
use crate::server::{Node, free_port, self_signed, tessera, wait_for};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PASSWORD: &str = "known to all drivers";

/// How long a driver writes before a node is killed, and after.
const BEFORE: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(15);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn driver(path: &str) -> Command {
    let path = root().join("target/reql-drivers").join(path);
    assert!(path.exists(), "{} is missing: `make test` builds it first", path.display());
    Command::new(path)
}

/// Python with one of the scripts. It keeps no compiled copy of what the script imports beside the sources.
fn script(name: &str) -> Command {
    let mut command = driver("python/bin/python");
    command.arg("-B").arg(root().join("crates/tessera/tests/reql_drivers").join(name));
    command
}

fn python(name: &str, cluster: &Cluster) -> Command {
    let mut command = script(name);
    command.args(cluster.reql_ports().iter().map(u16::to_string)).arg(PASSWORD);
    command
}

fn go(test: &str, cluster: &Cluster) -> Command {
    let mut command = driver("go-driver");
    let addresses = cluster.reql_ports().into_iter().map(|port| format!("127.0.0.1:{port}"));
    command.arg(test).args(addresses).arg(PASSWORD);
    command
}

fn cluster() -> Cluster {
    let hash = crate::reql_users::hash_password(PASSWORD, &["--scram"]);
    Cluster::start_with_reql_users(
        3,
        &format!("[{{name=\"admin\", password_hash=\"{hash}\", access=[\"read\", \"write\", \"admin\"]}}]"),
    )
}

fn run(mut command: Command) {
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {words}");
}

#[test]
fn drivers_of_rethinkdb_write_and_read_in_every_way() {
    let cluster = cluster();
    run(python("acceptance.py", &cluster));
    run(go("acceptance", &cluster));
}

#[test]
fn the_python_driver_reads_feeds_of_every_kind() {
    run(python("feeds.py", &cluster()));
}

#[test]
fn a_feed_of_the_python_driver_tells_every_write_once_through_a_kill_a_split_and_a_move() {
    let mut cluster = cluster();
    let load = Load::start(python("feeds_load.py", &cluster));
    std::thread::park_timeout(BEFORE);
    cluster.kill(1);
    std::thread::park_timeout(BEFORE);
    cluster.cli(0, "table alter test.feeds --partitions 8").unwrap();
    std::thread::park_timeout(BEFORE);
    // What this node leads goes to the one that is left beside it.
    cluster.cli(0, "node drain 3").unwrap();
    std::thread::park_timeout(AFTER);
    load.end();
}

#[test]
fn the_tools_of_the_python_package_make_a_round_trip() {
    run(python("tools.py", &cluster()));
}

#[test]
fn the_python_driver_speaks_tls() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed(directory.path(), "node");
    let (other, _) = self_signed(directory.path(), "other");
    let hash = crate::reql_users::hash_password(PASSWORD, &["--scram"]);
    let port = free_port();
    let settings = [
        format!("reql.port={port}"),
        format!("redis.users=[{{name=\"admin\", password_hash=\"{hash}\", access=[\"read\", \"write\", \"admin\"]}}]"),
        format!("tls.certificate={}", certificate.display()),
        format!("tls.key={}", key.display()),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let node = Node::spawn(&directory.path().join("data"), free_port(), free_port(), &settings);
    let ready = || {
        let mut status = tessera();
        status.args(["status", "--admin", &format!("https://localhost:{}", node.admin_port), "--cacert"]);
        status.arg(&certificate).output().unwrap().status.success().then_some(())
    };
    wait_for("the node serves", Duration::from_secs(30), ready);
    let mut command = script("over_tls.py");
    command.arg(port.to_string()).args([&certificate, &other]).arg(PASSWORD);
    run(command);
}

/// A driver that writes until it is told to stop.
struct Load {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
    log: std::thread::JoinHandle<String>,
}

impl Load {
    fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (output, mut errors) = (BufReader::new(process.stdout.take().unwrap()), process.stderr.take().unwrap());
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            let _ = errors.read_to_string(&mut log);
            log
        });
        let mut load = Self { process, output, log };
        load.hear("writing");
        load
    }

    fn hear(&mut self, word: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), word);
    }

    /// Has it check what it has written.
    fn end(mut self) {
        drop(self.process.stdin.take());
        let mut words = String::new();
        self.output.read_to_string(&mut words).unwrap();
        let outcome = wait_for("the driver ends", Duration::from_secs(60), || self.process.try_wait().unwrap());
        let log = self.log.join().unwrap();
        assert!(outcome.success(), "{words}{log}");
        print!("{words}");
    }
}

#[test]
fn a_driver_goes_on_with_another_node_and_nothing_is_lost() {
    let mut cluster = cluster();
    let load = Load::start(python("failover.py", &cluster));
    std::thread::park_timeout(BEFORE);
    // The one that it is connected to.
    cluster.kill(0);
    std::thread::park_timeout(AFTER);
    load.end();
}

#[test]
fn a_driver_with_many_connections_goes_on_by_itself_and_nothing_is_lost() {
    let mut cluster = cluster();
    let mut load = Load::start(go("load", &cluster));
    std::thread::park_timeout(BEFORE);
    cluster.kill(1);
    load.process.stdin.as_mut().unwrap().write_all(b".").unwrap();
    load.hear("told");
    std::thread::park_timeout(AFTER);
    load.end();
}
