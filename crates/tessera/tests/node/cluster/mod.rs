//! Clusters of real processes: nodes killed, stopped for a while and drained, links cut, while clients go on.
//!
//! Clients read and write registers through whatever node they like. What they saw must have an order
//! ([`linearizability`]), for tables on both engines, with hard durability and the default read mode.
//!
//! `TESSERA_CHAOS_SECONDS` and `TESSERA_SEED` choose length and sequence; `make chaos` runs longer.

mod linearizability;
mod net;

use crate::resp_client::{Client, Value, encode, words};
use crate::server::{Node, free_port, tessera, wait_for};
use linearizability::Operation;
use net::Net;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a cluster may take to be whole.
const WHOLE: Duration = Duration::from_secs(90);

struct Cluster {
    data: TempDir,
    /// Ports of each: Redis, admin, and for other nodes.
    ports: Vec<(u16, u16, u16)>,
    nodes: Vec<Option<Node>>,
    /// Nodes are hosts of their own there; else all are on loopback.
    net: Option<Net>,
}

impl Cluster {
    /// Starts a cluster and waits until every node knows every other one.
    fn start(count: usize) -> Self {
        Self::start_in(None, count)
    }

    fn start_in(net: Option<Net>, count: usize) -> Self {
        let ports = (0..count).map(|_| (free_port(), free_port(), free_port())).collect();
        let nodes = (0..count).map(|_| None).collect();
        let mut cluster = Self { data: TempDir::new().unwrap(), ports, nodes, net };
        for at in 0..count {
            cluster.start_node(at);
            // One after the other, so that node numbers follow.
            wait_for("the node joins", WHOLE, || (cluster.known_nodes(at)? == at + 1).then_some(()));
        }
        cluster
    }

    fn start_node(&mut self, at: usize) {
        let (redis, admin, peer) = self.ports[at];
        let mut settings = vec![format!("cluster.port={peer}"), "workers=1".into(), "log.limit_bytes=8388608".into()];
        settings.push("cluster.move_bytes_per_second=8388608".into());
        if at > 0 {
            settings.push(format!("cluster.join=[\"{}:{}\"]", self.host(0), self.ports[0].2));
        }
        let mut command = tessera();
        if let Some(net) = &self.net {
            for face in ["redis", "admin", "cluster"] {
                settings.push(format!("{face}.bind=\"{}\"", self.host(at)));
            }
            settings.push("insecure=true".into());
            command = Command::new("ip");
            command.args(["netns", "exec", &net.name(at), env!("CARGO_BIN_EXE_tessera")]);
        }
        command.arg("start");
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let directory = self.data.path().join(at.to_string());
        self.nodes[at] = Some(Node::spawn_with(command, &directory, redis, admin, &settings));
    }

    fn host(&self, at: usize) -> String {
        self.net.as_ref().map_or("127.0.0.1".into(), |net| net.address(at))
    }

    fn admin(&self, at: usize) -> String {
        format!("http://{}:{}", self.host(at), self.ports[at].1)
    }

    fn status(&self, at: usize) -> Option<serde_json::Value> {
        let output = tessera().args(["status", "--json", "--admin", &self.admin(at)]).output();
        serde_json::from_slice(&output.unwrap().stdout).ok()
    }

    fn known_nodes(&self, at: usize) -> Option<usize> {
        Some(self.status(at)?["cluster"]["nodes"].as_array()?.len())
    }

    fn cli(&self, at: usize, arguments: &str) -> Result<String, String> {
        let output = tessera().args(arguments.split(' ')).args(["--admin", &self.admin(at)]).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Who is wanted as replicas of a table, as a node knows that is up.
    fn replicas_of(&self, at: usize, table: &str) -> Vec<serde_json::Value> {
        let placement = self.cli(at, &format!("table placement {table} --json")).unwrap();
        let placement: Vec<serde_json::Value> = serde_json::from_str(&placement).unwrap();
        placement.into_iter().map(|partition| partition["wanted"].clone()).collect()
    }

    /// Waits until nothing is wrong and nothing moves.
    fn wait_until_whole(&self) {
        wait_for("the cluster is whole", WHOLE, || {
            (0..self.nodes.len()).filter(|at| self.nodes[*at].is_some()).all(|at| self.is_whole(at)).then_some(())
        });
    }

    fn is_whole(&self, at: usize) -> bool {
        let Some(status) = self.status(at) else { return false };
        let moving = status["cluster"]["tables"].as_array().unwrap().iter().any(|table| table["moving"] != 0);
        status["issues"].as_array().is_some_and(Vec::is_empty) && !moving
    }

    fn kill(&mut self, at: usize) {
        self.nodes[at].take().expect("it runs").process.kill();
    }

    fn signal(&self, at: usize, signal: &str) {
        let id = self.nodes[at].as_ref().expect("it runs").process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    fn client(&self, at: usize) -> Client {
        Client::connect_to(&self.host(at), self.ports[at].0).unwrap()
    }
}

/// What clients did, by table and key.
type Histories = Mutex<HashMap<(usize, u32), Vec<Operation>>>;

const TABLES: &[(&str, &str)] = &[
    ("rocks", "--engine rocksdb --durability hard --replicas 3"),
    ("memory", "--engine memory --durability hard --replicas 3"),
    ("pair", "--engine rocksdb --durability hard --replicas 2"),
];
const KEYS: u32 = 12;

struct Load {
    began: Instant,
    /// Host and port of each node.
    addresses: Vec<(String, u16)>,
    histories: Histories,
    /// Values are never used twice.
    next_value: AtomicU64,
    stop: AtomicBool,
    done: AtomicU64,
    unknown: AtomicU64,
    refused: AtomicU64,
    refusals: Mutex<HashMap<String, u64>>,
}

impl Load {
    fn now(&self) -> u64 {
        // Zero is before everything.
        1 + u64::try_from(self.began.elapsed().as_nanos()).unwrap()
    }

    fn client(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut connection: Option<(Client, usize)> = None;
        while !self.stop.load(Ordering::Relaxed) {
            if connection.is_none() || random.random_bool(0.02) {
                let (host, port) = self.addresses.choose(&mut random).unwrap();
                let table = random.random_range(0..TABLES.len());
                connection = Client::connect_to(host, *port).ok().map(|client| (client, table));
                let choose = [b"TABLE".to_vec(), TABLES[table].0.as_bytes().to_vec()];
                // Half of the clients trust leases, the others have reads confirmed.
                let reads = if seed.is_multiple_of(2) { "READS majority" } else { "READS single" };
                if let Some((client, _)) = &mut connection {
                    let _ = client.call(&words(reads));
                }
                match connection.as_mut().map(|(client, _)| client.call(&choose)) {
                    Some(Ok(Value::Simple(_))) => {}
                    _ => {
                        connection = None;
                        std::thread::park_timeout(Duration::from_millis(20));
                        continue;
                    }
                }
            }
            let (client, table) = connection.as_mut().expect("just connected");
            let table = *table;
            let key = random.random_range(0..KEYS);
            let is_write = random.random_bool(0.5);
            if !self.operate(client, table, key, is_write) {
                connection = None;
            }
        }
    }

    /// Returns whether the connection is still of use.
    fn operate(&self, client: &mut Client, table: usize, key: u32, is_write: bool) -> bool {
        let name = format!("register{key}").into_bytes();
        let value = self.next_value.fetch_add(1, Ordering::Relaxed);
        let command = match is_write {
            true => vec![b"SET".to_vec(), name, value.to_string().into_bytes()],
            false => vec![b"GET".to_vec(), name],
        };
        let began = self.now();
        let reply = client.send(&encode(&command)).and_then(|()| client.read());
        let ended = self.now();
        let (value, ended) = match (&reply, is_write) {
            (Ok(Value::Simple(_)), true) => (value, ended),
            (Ok(Value::Null), false) => (0, ended),
            (Ok(Value::Bulk(bytes)), false) => (std::str::from_utf8(bytes).unwrap().parse().unwrap(), ended),
            (Ok(Value::Error(line)), _) if !line.contains("outcome unknown") => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                *self.refusals.lock().unwrap().entry(line.clone()).or_default() += 1;
                return true;
            }
            (Ok(Value::Error(_)) | Err(_), true) => {
                self.unknown.fetch_add(1, Ordering::Relaxed);
                (value, u64::MAX)
            }
            (Ok(Value::Error(_)) | Err(_), false) => return reply.is_ok(),
            (Ok(other), _) => panic!("{other}"),
        };
        self.done.fetch_add(u64::from(ended != u64::MAX), Ordering::Relaxed);
        let operation = Operation { is_write, value, began, ended };
        self.histories.lock().unwrap().entry((table, key)).or_default().push(operation);
        reply.is_ok()
    }

    fn check(&self, seed: u64) {
        for ((table, key), operations) in self.histories.lock().unwrap().iter() {
            if let Err(contradiction) = linearizability::check(operations) {
                panic!("seed {seed}: {} register{key}: {contradiction}", TABLES[*table].0);
            }
        }
    }
}

/// What is done to a cluster, each with how often it was.
#[derive(Debug, Default)]
struct Faults {
    kills: u32,
    stops: u32,
    drains: u32,
    replica_changes: u32,
    cuts: u32,
}

fn disturb(cluster: &mut Cluster, random: &mut StdRng, faults: &mut Faults) {
    let at = random.random_range(0..cluster.nodes.len());
    let pause = Duration::from_millis(random.random_range(300..2_500));
    let another = (at + 1) % cluster.nodes.len();
    if cluster.net.is_some() && random.random_bool(0.6) {
        return cut(cluster, random, at, pause, faults);
    }
    match random.random_range(0..10) {
        0..4 => {
            cluster.kill(at);
            std::thread::park_timeout(pause);
            cluster.start_node(at);
            faults.kills += 1;
        }
        4..8 => {
            cluster.signal(at, "-STOP");
            std::thread::park_timeout(pause);
            cluster.signal(at, "-CONT");
            faults.stops += 1;
        }
        8 => {
            // Whether it is refused or unknown does not matter: what follows must hold anyway.
            let _ = cluster.cli(another, &format!("node drain {}", at + 1));
            std::thread::park_timeout(pause);
            let _ = cluster.cli(another, &format!("node drain {} --undo", at + 1));
            faults.drains += 1;
        }
        _ => {
            let replicas = random.random_range(1..=3);
            let _ = cluster.cli(another, &format!("table alter rocks --replicas {replicas}"));
            std::thread::park_timeout(pause);
            let _ = cluster.cli(another, "table alter rocks --replicas 3");
            faults.replica_changes += 1;
        }
    }
    // Some faults follow one another at once.
    std::thread::park_timeout(Duration::from_millis(random.random_range(0..2_000)));
}

/// Cuts a node off, or one of its links, or one direction of that; often while replicas move.
fn cut(cluster: &mut Cluster, random: &mut StdRng, at: usize, pause: Duration, faults: &mut Faults) {
    let nodes = cluster.nodes.len();
    let other = (at + random.random_range(1..nodes)) % nodes;
    let whole = random.random_bool(0.5);
    let one_way = random.random_bool(0.3);
    let net = cluster.net.as_ref().expect("there are links");
    for peer in (0..nodes).filter(|peer| *peer != at && (whole || *peer == other)) {
        net.cut(at, peer);
        if !one_way {
            net.cut(peer, at);
        }
    }
    let is_moving = random.random_bool(0.4);
    if is_moving {
        let _ = cluster.cli(other, &format!("node drain {}", at + 1));
    }
    std::thread::park_timeout(pause);
    cluster.net.as_ref().expect("there are links").heal();
    if is_moving {
        std::thread::park_timeout(pause);
        let _ = cluster.cli(other, &format!("node drain {} --undo", at + 1));
    }
    faults.cuts += 1;
}

#[test]
fn what_clients_see_has_an_order_whatever_happens_to_nodes() {
    chaos(Cluster::start(3));
}

#[test]
fn what_clients_see_has_an_order_whatever_happens_to_links() {
    let Some(net) = Net::new(4) else {
        eprintln!("skipped: network namespaces need root and iproute2");
        return;
    };
    net.enter();
    chaos(Cluster::start_in(Some(net), 4));
}

fn chaos(mut cluster: Cluster) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("TESSERA_CHAOS_SECONDS").unwrap_or(15);
    let seed = number("TESSERA_SEED").unwrap_or(1);
    let mut random = StdRng::seed_from_u64(seed);
    for (name, options) in TABLES {
        cluster.cli(0, &format!("table create {name} {options} --partitions 4")).unwrap();
    }
    cluster.wait_until_whole();
    let load = Arc::new(Load {
        began: Instant::now(),
        addresses: (0..cluster.nodes.len()).map(|at| (cluster.host(at), cluster.ports[at].0)).collect(),
        histories: Mutex::default(),
        next_value: AtomicU64::new(1),
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        unknown: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        refusals: Mutex::default(),
    });
    let clients: Vec<_> = (0..6)
        .map(|_| {
            let (load, seed) = (load.clone(), random.random());
            std::thread::spawn(move || load.client(seed))
        })
        .collect();
    let mut faults = Faults::default();
    while load.began.elapsed() < Duration::from_secs(seconds) {
        disturb(&mut cluster, &mut random, &mut faults);
    }
    cluster.wait_until_whole();
    load.stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    // What is there in the end counts too.
    for (table, (name, _)) in TABLES.iter().enumerate() {
        let mut client = cluster.client(0);
        client.run(&format!("TABLE {name}"));
        (0..KEYS).for_each(|key| assert!(load.operate(&mut client, table, key, false)));
    }
    load.check(seed);
    let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let (done, unknown, refused) = (count(&load.done), count(&load.unknown), count(&load.refused));
    eprintln!(
        "seed {seed}, {seconds} s: {faults:?}, {done} operations, {unknown} unknown, {refused} refused {:?}",
        load.refusals.lock().unwrap()
    );
    assert!(done > 100 * seconds, "{done} operations in {seconds} seconds");
}

/// Every command of the differential test, on a partition that is led elsewhere: all of it is forwarded.
#[test]
fn commands_through_another_node_answer_as_redis() {
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 1 --replicas 1").unwrap();
    cluster.wait_until_whole();
    let placement: serde_json::Value =
        serde_json::from_str(&cluster.cli(0, "table placement t --json").unwrap()).unwrap();
    let elsewhere = if placement[0]["leader"] == 1 { 1 } else { 0 };
    for protocol in ["2", "3"] {
        crate::differential::compare_through(200, cluster.client(elsewhere), protocol);
    }
}

/// What came of writes through another node.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    longest: Duration,
    refused: u64,
    /// Under way when the leader changed: they may have taken effect.
    unknown: u64,
}

impl Outcomes {
    fn and(self, other: Self) -> Self {
        Self {
            longest: self.longest.max(other.longest),
            refused: self.refused + other.refused,
            unknown: self.unknown + other.unknown,
        }
    }
}

/// Writes through a node while `disturb` happens to another one.
fn write_while(port: u16, table: &str, disturb: impl FnOnce()) -> Outcomes {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u32)
            .map(|writer| {
                let stop = &stop;
                scope.spawn(move || {
                    let mut client = Client::connect(port).unwrap();
                    client.run(&format!("TABLE {table}"));
                    let mut outcomes = Outcomes::default();
                    for number in 0u64.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let began = Instant::now();
                        let reply = client.run(&format!("SET w{writer}n{} {number}", number % 100));
                        outcomes.longest = outcomes.longest.max(began.elapsed());
                        match reply {
                            Value::Simple(_) => {}
                            Value::Error(line) if line.contains("outcome unknown") => outcomes.unknown += 1,
                            other => {
                                eprintln!("{other}");
                                outcomes.refused += 1;
                            }
                        }
                    }
                    outcomes
                })
            })
            .collect();
        disturb();
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).fold(Outcomes::default(), Outcomes::and)
    })
}

#[test]
#[ignore = "a measurement; `make failover` runs it"]
fn failover_takes() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine rocksdb --partitions 16 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let (mut gaps, mut all) = (Vec::new(), Outcomes::default());
    for kill in 0..20 {
        let at = kill % 3;
        let port = cluster.ports[(at + 1) % 3].0;
        let outcomes = write_while(port, "t", || {
            std::thread::park_timeout(Duration::from_millis(500));
            cluster.kill(at);
            std::thread::park_timeout(Duration::from_secs(4));
        });
        gaps.push(outcomes.longest);
        all = all.and(outcomes);
        cluster.start_node(at);
        cluster.wait_until_whole();
        // Leaders go back to where they belong, or the next kill would hit nobody.
        std::thread::park_timeout(Duration::from_secs(5));
    }
    gaps.sort_unstable();
    eprintln!("longest write per kill: median {:?}, worst {:?}; {all:?}", gaps[10], gaps[19]);
}

#[test]
fn stopping_a_node_refuses_no_request_made_to_others() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 8 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let port = cluster.ports[1].0;
    let outcomes = write_while(port, "t", || {
        let mut node = cluster.nodes[0].take().unwrap();
        assert_eq!(node.process.terminate(), Some(0));
    });
    assert_eq!((outcomes.refused, outcomes.unknown), (0, 0));
    eprintln!("while a node stopped: {outcomes:?}");
}

#[test]
fn draining_a_node_refuses_no_request() {
    let cluster = Cluster::start(4);
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 8 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let (at, other) = (0, 1);
    let outcomes = write_while(cluster.ports[other].0, "t", || {
        cluster.cli(other, &format!("node drain {}", at + 1)).unwrap();
        wait_for("the node is empty", WHOLE, || {
            let status = cluster.status(other)?;
            let nodes = status["cluster"]["nodes"].as_array()?;
            (nodes.iter().find(|node| node["id"] == at + 1)?["replicas"] == 0).then_some(())
        });
    });
    assert_eq!((outcomes.refused, outcomes.unknown), (0, 0), "while node {} was drained", at + 1);
    eprintln!("while node {} was drained: {outcomes:?}", at + 1);
}

/// Numbered writes, each to a key of its own, as far as they were acknowledged.
fn write_numbers(client: &mut Client, numbers: std::ops::Range<u32>) -> Vec<u32> {
    let is_done = |number: &u32| matches!(client.run(&format!("SET n{number} {number}")), Value::Simple(_));
    numbers.filter(is_done).collect()
}

fn assert_there(client: &mut Client, numbers: &[u32]) {
    for number in numbers {
        let value = client.run(&format!("GET n{number}"));
        assert!(
            matches!(&value, Value::Bulk(bytes) if *bytes == number.to_string().into_bytes()),
            "n{number}: {value}"
        );
    }
}

/// Two replicas and a witness, on both engines and without a log: whichever node is lost, all goes on with everything.
#[test]
fn two_replicas_and_a_witness_go_on_without_any_one_node() {
    let mut cluster = Cluster::start(3);
    let tables = ["--engine rocksdb", "--engine memory --durability hard", "--engine memory --durability none"];
    for (at, options) in tables.iter().enumerate() {
        cluster.cli(0, &format!("table create t{at} {options} --partitions 3 --replicas 2")).unwrap();
    }
    cluster.wait_until_whole();
    let mut written = vec![Vec::new(); tables.len()];
    for lost in 0..3u32 {
        let other = (lost as usize + 1) % 3;
        for (table, written) in written.iter_mut().enumerate() {
            let mut client = cluster.client(other);
            client.run(&format!("TABLE t{table}"));
            let done = write_numbers(&mut client, 200 * lost..200 * lost + 100);
            assert_eq!(done.len(), 100, "all nodes are there");
            written.extend(done);
        }
        cluster.kill(lost as usize);
        for (table, written) in written.iter_mut().enumerate() {
            let mut client = cluster.client(other);
            client.run(&format!("TABLE t{table}"));
            assert_there(&mut client, written);
            let done = write_numbers(&mut client, 200 * lost + 100..200 * lost + 200);
            assert_eq!(done.len(), 100, "node {} is lost", lost + 1);
            written.extend(done);
        }
        let before = cluster.replicas_of(other, "t2");
        cluster.start_node(lost as usize);
        wait_for("what has forgotten is renewed", WHOLE, || (cluster.replicas_of(other, "t2") != before).then_some(()));
        cluster.wait_until_whole();
    }
    for (table, written) in written.iter().enumerate() {
        let mut client = cluster.client(0);
        client.run(&format!("TABLE t{table}"));
        assert_there(&mut client, written);
    }
}

/// A replica that has forgotten its votes comes back as another one, and when most have, the table begins anew.
#[test]
fn a_table_without_a_log_survives_one_node_and_begins_anew_after_all() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability none --partitions 4 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE t");
    let written = write_numbers(&mut client, 0..500);
    assert_eq!(written.len(), 500);
    for lost in [1, 2] {
        cluster.kill(lost);
        assert_there(&mut client, &written);
        let before = cluster.replicas_of(0, "t");
        cluster.start_node(lost);
        wait_for("replicas are others", WHOLE, || (cluster.replicas_of(0, "t") != before).then_some(()));
        cluster.wait_until_whole();
    }
    assert_there(&mut client, &written);
    (0..3).for_each(|at| cluster.kill(at));
    (0..3).for_each(|at| cluster.start_node(at));
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE t");
    wait_for("the table serves again", WHOLE, || (write_numbers(&mut client, 1_000..1_001).len() == 1).then_some(()));
    assert!(matches!(client.run("GET n1"), Value::Null));
}

/// With `READS outdated` the replica on the node that is asked answers, also when there is no leader, and says how far it may
/// be behind.
#[test]
fn outdated_reads_are_answered_by_whoever_is_left() {
    let mut cluster = Cluster::start(3);
    for (table, replicas) in [("everywhere", 3), ("once", 1)] {
        cluster.cli(0, &format!("table create {table} --engine rocksdb --partitions 4 --replicas {replicas}")).unwrap();
    }
    cluster.wait_until_whole();
    let client = |cluster: &Cluster, at: usize, table: &str, mode: &str| {
        let mut client = cluster.client(at);
        client.run(&format!("TABLE {table}"));
        assert!(matches!(client.run(&format!("READS {mode}")), Value::Simple(_)));
        client
    };
    let numbers: Vec<u32> = (0..100).collect();
    for table in ["everywhere", "once"] {
        assert_eq!(write_numbers(&mut client(&cluster, 0, table, "single"), 0..100), numbers);
        for at in 0..3 {
            let mut client = client(&cluster, at, table, "outdated");
            let is_there =
                |client: &mut Client, number| matches!(client.run(&format!("GET n{number}")), Value::Bulk(_));
            // A replica hears of a commit with the next message.
            wait_for("all of it is there", WHOLE, || {
                numbers.iter().all(|number| is_there(&mut client, number)).then_some(())
            });
            assert_there(&mut client, &numbers);
        }
    }
    cluster.kill(1);
    cluster.kill(2);
    let mut outdated = client(&cluster, 0, "everywhere", "outdated");
    assert_there(&mut outdated, &numbers);
    let mut longest_lag = || {
        let lag = |number| match outdated.run(&format!("READS LAG n{number}")) {
            Value::Integer(millis) => millis,
            other => panic!("{other}"),
        };
        numbers.iter().map(lag).max()
    };
    wait_for("what has no leader gets older", WHOLE, || longest_lag().filter(|millis| *millis > 2_000));
    // Others have to say that they do not know.
    let mut single = client(&cluster, 0, "everywhere", "single");
    assert!(matches!(single.run("GET n1"), Value::Error(_)));
}

/// Replicas are filled a piece at a time, no faster than allowed; a node that is killed meanwhile begins again.
#[test]
fn large_replicas_are_fetched_slowly_and_come_through_a_crash() {
    let mut cluster = Cluster::start(3);
    for engine in ["rocksdb", "memory --durability hard"] {
        let table = &engine[..5];
        cluster.cli(0, &format!("table create {table} --engine {engine} --partitions 1 --replicas 1")).unwrap();
        cluster.wait_until_whole();
        let mut client = cluster.client(0);
        client.run(&format!("TABLE {table}"));
        // Not to be compressed.
        let value: String =
            StdRng::seed_from_u64(1).sample_iter(rand::distr::Alphanumeric).take(100_000).map(char::from).collect();
        let value = |number: usize| format!("{}{}", &value[number..], &value[..number]);
        for number in 0..300 {
            assert!(matches!(client.run(&format!("SET n{number} {}", value(number))), Value::Simple(_)));
        }
        cluster.cli(0, &format!("table alter {table} --replicas 3")).unwrap();
        let placement = |cluster: &Cluster| -> serde_json::Value {
            serde_json::from_str(&cluster.cli(0, &format!("table placement {table} --json")).unwrap()).unwrap()
        };
        let leader = placement(&cluster)[0]["leader"].as_u64().unwrap();
        let lost = if leader == 2 { 2 } else { 1 };
        let is_under_way = |fetch: &serde_json::Value| {
            fetch["node"] == lost as u64 + 1 && fetch["bytes"].as_u64() > Some(0) && fetch["bytes"] != fetch["of_bytes"]
        };
        wait_for("a replica is being fetched", WHOLE, || {
            placement(&cluster)[0]["fetches"].as_array()?.iter().any(is_under_way).then_some(())
        });
        cluster.kill(lost);
        assert!(matches!(client.run(&format!("SET n300 {}", value(300))), Value::Simple(_)), "the leader goes on");
        cluster.start_node(lost);
        wait_for("the replicas are there", WHOLE, || {
            (placement(&cluster)[0]["members"].as_array()?.len() == 3).then_some(())
        });
        cluster.wait_until_whole();
        for at in 0..3 {
            let mut client = cluster.client(at);
            client.run(&format!("TABLE {table}"));
            client.run("READS outdated");
            for number in 0..=300 {
                let found = wait_for("the record is there", WHOLE, || match client.run(&format!("GET n{number}")) {
                    Value::Bulk(bytes) => Some(bytes),
                    _ => None,
                });
                assert!(found == value(number).into_bytes(), "n{number}");
            }
        }
    }
}
