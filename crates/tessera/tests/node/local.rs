//! `tessera local`: several nodes on this machine by one command.

use crate::resp_client::{Client, Value};
use crate::server::{tessera, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long three nodes may take to be ready, or a command to end.
const LIMIT: Duration = Duration::from_secs(120);

/// Above the default ports, below those of other tests and of outgoing connections; other runs beside this one choose others.
fn port_offset() -> u16 {
    1000 + u16::try_from(std::process::id() % 29).unwrap() * 30
}

struct Local {
    command: Child,
}

impl Local {
    fn start(directory: &Path, offset: u16) -> Self {
        Self::start_with(directory, offset, &[])
    }

    fn start_with(directory: &Path, offset: u16, settings: &[String]) -> Self {
        let mut command = tessera();
        command.args(["local", "--port-offset", &offset.to_string(), "--data-dir"]).arg(directory.join("data"));
        // These ports are among those of outgoing connections, or of other tests.
        for setting in ["pegasus.port=0", "pegasus.meta_port=0", "reql.port=0"] {
            command.args(["--set", setting]);
        }
        settings.iter().for_each(|setting| _ = command.args(["--set", setting]));
        for (name, number) in [("out", 1), ("errors", 2)] {
            let file = File::create(directory.join(name)).unwrap();
            if number == 1 {
                command.stdout(file)
            } else {
                command.stderr(file)
            };
        }
        Self { command: command.spawn().unwrap() }
    }

    fn stop(&mut self) {
        kill_process(Pid::from_child(&self.command), Signal::TERM).unwrap();
        let ended = wait_for("all nodes stop", LIMIT, || self.command.try_wait().unwrap());
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // A test that fails leaves no nodes behind: they end with their parent.
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}

fn said(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).unwrap()
}

fn status(offset: u16) -> Option<serde_json::Value> {
    let mut command = tessera();
    // Who is not asked for them may give them.
    command.envs([("TESSERA_ADMIN_USER", "admin"), ("TESSERA_ADMIN_PASSWORD", "secret")]);
    let output = command.args(["status", "--json", "--port-offset", &offset.to_string()]).output().unwrap();
    serde_json::from_slice(&output.stdout).ok()
}

/// A second cluster on the same ports once could say that it is ready, since the first one answered there.
#[test]
fn three_nodes_share_the_machine_and_their_ports_with_nobody() {
    let (first, second, offset) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), port_offset());
    let mut local = Local::start(first.path(), offset);
    wait_for("three nodes are ready", LIMIT, || said(first.path(), "out").contains("\nready: ").then_some(()));
    let mut client = Client::connect(6379 + offset + 20).unwrap();
    assert_eq!(client.run("SET k v"), Value::Simple("OK".into()));
    let limits: Vec<u64> =
        [0, 10, 20].map(|step| status(offset + step).unwrap()["memory_limit_bytes"].as_u64().unwrap()).to_vec();
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kilobytes: u64 = machine.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(limits.iter().sum::<u64>() <= kilobytes * 1024 / 2, "{limits:?} of {kilobytes} KiB");

    let mut other = Local::start(second.path(), offset);
    let ended = wait_for("the second cluster gives up", LIMIT, || other.command.try_wait().unwrap());
    assert_eq!(ended.code(), Some(4), "as of a node alone");
    assert!(!said(second.path(), "out").contains("ready"), "{}", said(second.path(), "out"));
    assert!(said(second.path(), "errors").contains("ended by itself"), "{}", said(second.path(), "errors"));
    assert_eq!(client.run("GET k"), Value::Bulk(b"v".to_vec()), "the first one goes on");

    for number in 1..=3 {
        let log = std::fs::read_to_string(first.path().join(format!("data/node-{number}.log"))).unwrap();
        assert!(log.contains("ready") && !log.contains('\u{1b}'), "no colours where nobody sees them: {log}");
        // Values once were logged as the program has them: `command=Place { table: TableId(0), witness: None }`.
        let dumped = log.lines().find(|line| ["Some(", "None", " { ", "Id("].iter().any(|part| line.contains(part)));
        assert_eq!(dumped, None, "{log}");
        assert!(
            log.matches("not let into the cluster yet").count() <= 3,
            "said once, and when the reason changes: {log}"
        );
    }
    let moves = std::fs::read_to_string(first.path().join("data/node-1.log")).unwrap();
    assert!(moves.contains("replicas of a partition are to move"), "{moves}");
    local.stop();
    assert!(status(offset).is_none());
}

/// Node 1 once lived in `node-0`.
#[test]
fn nodes_live_in_folders_of_their_numbers_and_old_folders_are_used_on() {
    let (directory, offset) = (tempfile::tempdir().unwrap(), port_offset() + 1_000);
    let data = directory.path().join("data");
    let is_ready = || said(directory.path(), "out").contains("\nready: ").then_some(());
    let mut local = Local::start(directory.path(), offset);
    wait_for("three nodes are ready", LIMIT, is_ready);
    for number in 1..=3 {
        let identity = std::fs::read_to_string(data.join(format!("node-{number}/node.json"))).unwrap();
        let identity: serde_json::Value = serde_json::from_str(&identity).unwrap();
        assert_eq!(identity["node"], number);
    }
    assert_eq!(Client::connect(6379 + offset).unwrap().run("SET k v"), Value::Simple("OK".into()));
    // What is closed once was not ready for ever when it was started again.
    let mut close = tessera();
    close.args(["user", "alter", "admin", "--port-offset", &offset.to_string()]);
    let mut close = close.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    close.stdin.take().unwrap().write_all(b"secret").unwrap();
    assert!(close.wait().unwrap().success());
    local.stop();
    // The folders as the version before called them.
    for number in 1..=3 {
        std::fs::rename(data.join(format!("node-{number}")), data.join(format!("node-{}", number - 1))).unwrap();
    }
    let mut local = Local::start(directory.path(), offset);
    wait_for("three nodes are ready again", LIMIT, is_ready);
    for number in 0..3 {
        assert_eq!(status(offset + 10 * number).unwrap()["cluster"]["node"], number + 1);
    }
    let said = said(directory.path(), "out");
    assert!(said.contains("the nodes are not shown here: the node wants to know who asks"), "{said}");
    let mut client = Client::connect(6379 + offset).unwrap();
    assert_eq!(client.run("AUTH admin secret"), Value::Simple("OK".into()));
    assert_eq!(client.run("GET k"), Value::Bulk(b"v".to_vec()));
    assert!(!data.join("node-3").exists());
    local.stop();
}

/// They were waited for until the command gave up, and named another node's log.
#[test]
fn nodes_that_were_removed_are_left_out() {
    let (directory, offset) = (tempfile::tempdir().unwrap(), port_offset() + 1_500);
    let data = directory.path().join("data");
    let is_ready = || said(directory.path(), "out").contains("\nready: ").then_some(());
    let cli = |arguments: &str| {
        let mut command = tessera();
        command.args(arguments.split(' ')).args(["--port-offset", &(offset + 10).to_string()]);
        command.output().unwrap()
    };
    let mut local = Local::start(directory.path(), offset);
    wait_for("three nodes are ready", LIMIT, is_ready);
    assert_eq!(Client::connect(6379 + offset).unwrap().run("SET k v"), Value::Simple("OK".into()));
    assert!(cli("node drain 1").status.success());
    wait_for("the first one can be removed", LIMIT, || cli("node remove 1").status.success().then_some(()));
    local.stop();
    let mut local = Local::start(directory.path(), offset);
    wait_for("two nodes are ready", LIMIT, is_ready);
    let left_out = said(directory.path(), "out");
    assert!(left_out.contains(&format!("the node in {} was removed", data.join("node-1").display())), "{left_out}");
    assert_eq!(Client::connect(6379 + offset + 10).unwrap().run("GET k"), Value::Bulk(b"v".to_vec()));
    local.stop();
    // Another one comes in its place, and does not found a cluster of its own.
    std::fs::rename(data.join("node-1"), data.join("removed")).unwrap();
    let mut local = Local::start(directory.path(), offset);
    wait_for("three nodes are ready again", LIMIT, is_ready);
    assert_eq!(status(offset).unwrap()["cluster"]["node"], 4);
    assert_eq!(Client::connect(6379 + offset).unwrap().run("GET k"), Value::Bulk(b"v".to_vec()));
    local.stop();
}

/// The nodes once were asked without TLS, and so were never ready. Their certificate may be for another name than this machine's.
#[test]
fn nodes_that_have_a_certificate_are_asked_with_tls() {
    let (directory, offset) = (tempfile::tempdir().unwrap(), port_offset() + 500);
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (certificate, key) = (file("certificate.pem"), file("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=shop", "-addext", "subjectAltName=DNS:shop.example", "-keyout", &key]);
    assert!(openssl.args(["-out", &certificate]).output().unwrap().status.success());
    let settings = [format!("tls.certificate={certificate}"), format!("tls.key={key}")];
    let mut local = Local::start_with(directory.path(), offset, &settings);
    wait_for("three nodes are ready", LIMIT, || said(directory.path(), "out").contains("\nready: ").then_some(()));
    let said = said(directory.path(), "out");
    assert!(said.contains(&format!("127.0.0.1:{}", 6379 + offset + 20)), "the nodes are shown: {said}");
    assert!(said.contains("redis-cli --tls"), "{said}");
    local.stop();
}

/// What its nodes would refuse is refused before one is started.
#[test]
fn settings_that_nodes_would_refuse_are_named_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut local = Local::start_with(directory.path(), port_offset() + 600, &["redis.colour=7".into()]);
    let ended = wait_for("it ends", LIMIT, || local.command.try_wait().unwrap());
    assert_eq!(ended.code(), Some(3));
    let errors = said(directory.path(), "errors");
    assert!(errors.contains("redis.colour") && !errors.contains("last words"), "{errors}");
}
