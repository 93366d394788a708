//! Nodes killed, stopped for a while and drained, their power and links cut, links made slow, clocks set, tables split, while
//! clients go on.
//!
//! Clients read and write registers through whatever node they like. What they saw must have an order
//! ([`linearizability`]), for tables on both engines, with a witness and without, with hard durability, or soft where only
//! processes end, and the read modes that promise it. Where power is cut, a soft table may lose its newest writes; it has to
//! serve again all the same, with what was written long before.
//!
//! `TESSERA_CHAOS_SECONDS` and `TESSERA_SEED` choose length and sequence; `make chaos` runs longer.

use super::Cluster;
use super::clock::Clocks;
use super::linearizability::{self, Operation};
use super::net::Net;
use crate::resp_client::{Client, Value, encode, words};
use crate::server::wait_for;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What clients did, by table and key.
type Histories = Mutex<HashMap<(usize, u32), Vec<Operation>>>;

/// Names of tables and how they are made.
const TABLES: &[(&str, &str)] = &[
    ("rocks", "--engine rocksdb --durability hard --replicas 3"),
    ("memory", "--engine memory --durability hard --replicas 3"),
    ("pair", "--engine rocksdb --durability hard --replicas 2"),
    (SOFT, "--engine memory --durability soft --replicas 2"),
];
const SOFT: &str = "soft";
const KEYS: u32 = 12;
/// Records that nobody changes, so that copying a table takes a while.
const STILL: usize = 10_000;
const STILL_BYTES: usize = 1_000;
/// Tables are split until they have so many.
const MOST_PARTITIONS: u64 = 32;

/// How long a clock may take to be seen.
const PATIENCE: Duration = Duration::from_secs(20);

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

    fn check(&self, seed: u64, may_lose: Option<&str>) {
        for ((table, key), operations) in self.histories.lock().unwrap().iter() {
            let (name, _) = TABLES[*table];
            if may_lose == Some(name) {
                continue;
            }
            if let Err(contradiction) = linearizability::check(operations) {
                panic!("seed {seed}: {name} register{key}: {contradiction}");
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
    splits: u32,
    cuts: u32,
    slow_links: u32,
    clock_steps: u32,
    power_cuts: u32,
    blackouts: u32,
}

fn disturb(cluster: &mut Cluster, random: &mut StdRng, faults: &mut Faults) {
    let at = random.random_range(0..cluster.nodes.len());
    let pause = Duration::from_millis(random.random_range(300..2_500));
    let another = (at + 1) % cluster.nodes.len();
    if random.random_bool(0.3) {
        split(cluster, random, another, faults);
    }
    if let Some(net) = &cluster.net {
        match random.random_range(0..10) {
            0..4 => return cut(cluster, random, at, pause, faults),
            4..6 => return slow(net, random, at, pause, faults),
            _ => {}
        }
    }
    if let Some(clocks) = cluster.clocks.as_ref().filter(|_| random.random_bool(0.5)) {
        let most = [1, 60, 3_600, 100 * 86_400].choose(random).expect("there are some");
        clocks.set(&cluster.data_directory(at), random.random_range(-most..=*most));
        std::thread::park_timeout(pause);
        faults.clock_steps += 1;
        return;
    }
    if !cluster.disks.is_empty() && random.random_bool(0.6) {
        let all: Vec<usize> = (0..cluster.nodes.len()).collect();
        let of = if random.random_bool(0.1) { &all[..] } else { &all[at..=at] };
        cluster.cut_power(of);
        std::thread::park_timeout(pause);
        of.iter().for_each(|at| cluster.start_node(*at));
        faults.power_cuts += u32::from(of.len() == 1);
        faults.blackouts += u32::from(of.len() > 1);
        std::thread::park_timeout(pause);
        return;
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

/// Begins to split a table, which goes on while other things happen.
fn split(cluster: &Cluster, random: &mut StdRng, at: usize, faults: &mut Faults) {
    let (name, _) = TABLES.choose(random).expect("there are tables");
    let shown = cluster.cli(at, &format!("table show {name} --json")).unwrap_or_default();
    let table: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
    let Some(partitions) = table["partitions"].as_u64().filter(|partitions| *partitions < MOST_PARTITIONS) else {
        return;
    };
    if table["split"].is_null()
        && cluster.cli(at, &format!("table alter {name} --partitions {}", 2 * partitions)).is_ok()
    {
        faults.splits += 1;
        std::thread::park_timeout(Duration::from_millis(random.random_range(0..1_500)));
    }
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

/// Delays and loses a part of what a node is sent, or sends, or both.
fn slow(net: &Net, random: &mut StdRng, at: usize, pause: Duration, faults: &mut Faults) {
    let (rate, delay) = (random.random_range(100..4_000), random.random_range(20..600));
    let directions: &[bool] = [&[true][..], &[false], &[true, false]].choose(random).expect("there are some");
    directions.iter().for_each(|is_incoming| net.slow(at, *is_incoming, rate, delay));
    std::thread::park_timeout(pause);
    net.heal();
    faults.slow_links += 1;
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

#[test]
fn what_clients_see_has_an_order_whatever_happens_to_clocks() {
    let Some(clocks) = Clocks::new() else {
        eprintln!("skipped: clocks are set by libfaketime, which is not installed");
        return;
    };
    let cluster = Cluster::start_with_clocks(clocks, 3);
    let mut client = cluster.client(0);
    client.run("SET short-lived value EX 1800");
    cluster.set_clocks(3_600);
    wait_for("what expires in half an hour is gone in an hour", PATIENCE, || {
        (client.run("GET short-lived") == Value::Null).then_some(())
    });
    cluster.set_clocks(0);
    chaos(cluster);
}

#[test]
fn what_clients_see_has_an_order_whatever_happens_to_power() {
    match Cluster::start_with_power(3, &[]) {
        Some(cluster) => chaos(cluster),
        None => eprintln!("skipped: mounting file systems needs root and loop devices"),
    }
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
    for (name, _) in TABLES {
        let mut client = cluster.client(0);
        client.run(&format!("TABLE {name}"));
        let value = vec![b'v'; STILL_BYTES];
        let set = |key: usize| encode(&[b"SET".to_vec(), format!("still{key}").into_bytes(), value.clone()]);
        for keys in (0..STILL).collect::<Vec<_>>().chunks(500) {
            client.send(&keys.iter().flat_map(|key| set(*key)).collect::<Vec<u8>>()).unwrap();
            keys.iter().for_each(|_| assert_eq!(client.read().unwrap(), Value::Simple("OK".into())));
        }
    }
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
        for keys in (0..STILL).collect::<Vec<_>>().chunks(500) {
            let exists = keys.iter().fold("EXISTS".to_string(), |line, key| format!("{line} still{key}"));
            assert_eq!(client.run(&exists), Value::Integer(i64::try_from(keys.len()).unwrap()), "seed {seed}: {name}");
        }
    }
    load.check(seed, (!cluster.disks.is_empty()).then_some(SOFT));
    let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let (done, unknown, refused) = (count(&load.done), count(&load.unknown), count(&load.refused));
    eprintln!(
        "seed {seed}, {seconds} s: {faults:?}, {done} operations, {unknown} unknown, {refused} refused {:?}",
        load.refusals.lock().unwrap()
    );
    assert!(done > 100 * seconds, "{done} operations in {seconds} seconds");
}
