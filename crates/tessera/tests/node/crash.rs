//! kill -9 and power cuts under load, then an oracle of what was acknowledged.
//!
//! Writers set and delete keys of their own, and note, per key, what it held after the last acknowledged command and after each one
//! sent since. After a restart a key must hold one of these, and holds it from then on: less is a lost write, anything else was
//! never written, or had been undone. Kills may lose nothing of hard and soft tables, power cuts nothing of hard ones; of others
//! only invented values are looked for. A node has a staging file now and then. Where power is cut, processes are killed too: what a
//! restart shows then must outlive the next power cut.
//!
//! The oracle knows what was written, and where it looks for it. What an engine holds beside that, such as a record in a partition
//! or of a time where none should be, it cannot see. So in the end another node gets a replica of each partition, the first one is
//! ended again under load, and what it has got out of its engines and its log must be, record for record, what the other node's
//! replica has, which was there all the time ([`compare_with_another`]).
//!
//! `TESSERA_KILLS` sets the number of either; `make crash` runs 200.

use crate::disk::DiskWithPower;
use crate::resp_client::{Client, Value, words};
use crate::server::{Node, free_port, tessera, wait_for};
use crate::skipped::skip;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const TABLES: &[(&str, &str)] = &[
    ("rocks_hard", "--engine rocksdb --durability hard"),
    ("rocks_soft", "--engine rocksdb --durability soft"),
    ("memory_hard", "--engine memory --durability hard"),
    ("memory_soft", "--engine memory --durability soft"),
    ("memory_none", "--engine memory --durability none"),
];
const WRITERS: usize = 4;
const KEYS: u64 = 40;

/// How long anything may take here.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a key holds, by the number of the write; zero is nothing.
type Held = u64;

/// What is known of a key.
#[derive(Default)]
struct Known {
    /// Commands sent, which are numbered.
    sent: u64,
    /// What it held after the last command that was acknowledged, or found at a restart.
    settled: Held,
    /// What it holds after each later command, with the command's number.
    since: VecDeque<(u64, Held)>,
}

impl Known {
    /// Notes that a command is sent, and returns its number.
    fn send(&mut self, is_delete: bool) -> u64 {
        self.sent += 1;
        self.since.push_back((self.sent, if is_delete { 0 } else { self.sent }));
        self.sent
    }

    fn acknowledge(&mut self, command: u64) {
        while let Some((_, held)) = self.since.pop_front_if(|(number, _)| *number <= command) {
            self.settled = held;
        }
    }

    fn may_hold(&self, found: Held) -> bool {
        self.settled == found || self.since.iter().any(|(_, held)| *held == found)
    }

    fn settle(&mut self, found: Held) {
        self.settled = found;
        self.since.clear();
    }
}

/// By table and key.
type Oracle = HashMap<(usize, String), Known>;

/// A number and padding, so that log segments and memtables fill up.
fn value(number: u64) -> Vec<u8> {
    format!("{number}:{}", "x".repeat((number % 700) as usize)).into_bytes()
}

fn number(value: &Value) -> u64 {
    match value {
        Value::Null => 0,
        Value::Bulk(bytes) => {
            let text = String::from_utf8(bytes.clone()).unwrap();
            let (number, padding) = text.split_once(':').unwrap();
            let number = number.parse().unwrap();
            assert_eq!(padding.len() as u64, number % 700, "the value of another write");
            number
        }
        other => panic!("{other}"),
    }
}

/// Writes until the node is gone.
fn write(port: u16, writer: usize, seed: u64, oracle: &Mutex<Oracle>, stop: &AtomicBool) {
    let mut random = StdRng::seed_from_u64(seed);
    let Ok(mut client) = Client::connect(port) else { return };
    while !stop.load(Ordering::Relaxed) {
        let table = random.random_range(0..TABLES.len());
        if client.call(&words(&format!("TABLE {}", TABLES[table].0))).is_err() {
            return;
        }
        let burst = random.random_range(1..20);
        let mut commands = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..burst {
            let is_hash = random.random_bool(0.3);
            let key = format!("{}{writer}k{}", if is_hash { "h" } else { "w" }, random.random_range(0..KEYS));
            let is_delete = random.random_bool(0.2);
            let mut oracle = oracle.lock().unwrap();
            let number = oracle.entry((table, key.clone())).or_default().send(is_delete);
            commands.push(match (is_delete, is_hash) {
                (true, _) => vec![b"DEL".to_vec(), key.clone().into()],
                (false, false) => vec![b"SET".to_vec(), key.clone().into(), value(number)],
                (false, true) => vec![b"HSET".to_vec(), key.clone().into(), b"f".to_vec(), value(number)],
            });
            sent.push((key, number));
        }
        let bytes: Vec<u8> = commands.iter().flat_map(|command| crate::resp_client::encode(command)).collect();
        if client.send(&bytes).is_err() {
            return;
        }
        for (key, number) in sent {
            match client.read() {
                Ok(Value::Simple(_) | Value::Integer(_)) => {
                    let mut oracle = oracle.lock().unwrap();
                    oracle.get_mut(&(table, key)).unwrap().acknowledge(number);
                }
                // Shutting down or interrupted: not acknowledged.
                Ok(Value::Error(_)) => {}
                Ok(other) => panic!("{other}"),
                Err(_) => return,
            }
        }
    }
}

/// Looks whether tables with one of the durabilities `kept` have lost something. Returns how many keys were looked at.
fn check(node: &Node, oracle: &mut Oracle, kept: &[&str]) -> usize {
    let mut client = node.client();
    for (table, (name, options)) in TABLES.iter().enumerate() {
        client.run(&format!("TABLE {name}"));
        let is_kept = kept.iter().any(|durability| options.ends_with(durability));
        for ((_, key), known) in oracle.iter_mut().filter(|((of, _), _)| *of == table) {
            let read = if key.starts_with('h') { format!("HGET {key} f") } else { format!("GET {key}") };
            let found = number(&client.run(&read));
            assert!(found <= known.sent, "{name} {key}: {found} was never sent, only {}", known.sent);
            let Known { settled, since, .. } = &*known;
            assert!(
                !is_kept || known.may_hold(found),
                "{name} {key}: {found} is there; it was {settled}, and then {since:?}"
            );
            known.settle(found);
        }
    }
    oracle.len()
}

/// A set, a delete and another set, of which the first is acknowledged.
#[test]
fn a_key_holds_what_was_acknowledged_or_sent_since() {
    let mut known = Known::default();
    let numbers = [false, true, false].map(|is_delete| known.send(is_delete));
    assert_eq!(numbers, [1, 2, 3]);
    known.acknowledge(1);
    assert!([1, 0, 3].into_iter().all(|found| known.may_hold(found)) && !known.may_hold(2));
    known.acknowledge(3);
    assert!(known.may_hold(3) && !known.may_hold(1) && !known.may_hold(0));
    // What a restart has shown stays.
    known.send(true);
    known.settle(0);
    assert!(known.may_hold(0) && !known.may_hold(3));
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    let data = TempDir::new().unwrap();
    hunt("kills", 15, data.path(), &[], &["hard", "soft"], |mut node, _| node.process.kill());
}

#[test]
fn nothing_acknowledged_as_hard_is_lost_by_power_cuts() {
    let (directory, memory) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let Some(disk) = DiskWithPower::mount(directory.path(), 1 << 30) else {
        return skip("mounting a file system needs root and loop devices");
    };
    let staging = format!("log.staging_directory={}", memory.path().display());
    hunt("power cuts", 20, &disk.path().join("data"), &[&staging], &["hard"], |mut node, random| {
        if random.random_bool(0.2) {
            return node.process.kill();
        }
        disk.cut_power();
        node.process.kill();
        let staged = std::fs::read_dir(memory.path()).unwrap();
        staged.for_each(|file| std::fs::remove_file(file.unwrap().path()).unwrap());
        disk.power_up();
    });
}

/// Small, so that flushes, checkpoints and the deletion of segments happen between kills.
const SMALL: [&str; 5] = [
    "log.segment_bytes=1048576",
    "log.limit_bytes=4194304",
    "tables.flush_age_seconds=1",
    "rocksdb.write_buffer_bytes=262144",
    "log.soft_sync_interval_ms=20",
];

/// A node that is ended again and again while clients write.
struct Hunt<'a> {
    what: &'a str,
    data: &'a Path,
    settings: Vec<&'a str>,
    /// Durabilities of tables that lose nothing.
    kept: &'a [&'a str],
    end: &'a mut dyn FnMut(Node, &mut StdRng),
    random: StdRng,
    redis_port: u16,
    admin_port: u16,
    oracle: Arc<Mutex<Oracle>>,
    checked: usize,
}

fn hunt(what: &str, times: u64, data: &Path, settings: &[&str], kept: &[&str], mut end: impl FnMut(Node, &mut StdRng)) {
    let times = std::env::var("TESSERA_KILLS").ok().and_then(|times| times.parse().ok()).unwrap_or(times);
    let seed: u64 = std::env::var("TESSERA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let cluster_port = free_port();
    let for_others = format!("cluster.port={cluster_port}");
    let mut hunt = Hunt {
        what,
        data,
        settings: [&SMALL[..], settings, &[&for_others]].concat(),
        kept,
        end: &mut end,
        random: StdRng::seed_from_u64(seed),
        redis_port: free_port(),
        admin_port: free_port(),
        oracle: Arc::default(),
        checked: 0,
    };
    let mut node = hunt.start();
    // There will be two nodes.
    node.cli("table alter default --replicas 1");
    for (name, options) in TABLES {
        node.cli(&format!("table create {name} {options} --partitions 4 --replicas 1"));
    }
    for time in 1..=times {
        node = hunt.end_under_load(node);
        if time.is_multiple_of(50) {
            eprintln!("{time} {what}, {} writes sent, {} keys checked", hunt.sent(), hunt.checked);
        }
    }
    compare_with_another(&mut hunt, node, cluster_port);
    eprintln!("{times} {what}, seed {seed}: {} writes sent, {} keys checked", hunt.sent(), hunt.checked);
}

impl Hunt<'_> {
    fn start(&mut self) -> Node {
        let mut settings = self.settings.clone();
        if self.random.random_bool(0.3) {
            settings.push("log.staging_directory=");
        }
        Node::start_on(self.data, self.redis_port, self.admin_port, &settings)
    }

    fn sent(&self) -> u64 {
        self.oracle.lock().unwrap().values().map(|known| known.sent).sum()
    }

    /// Ends the node while clients write, starts it again, and looks for what was acknowledged.
    fn end_under_load(&mut self, node: Node) -> Node {
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (oracle, stop, seed) = (self.oracle.clone(), stop.clone(), self.random.random());
                let port = self.redis_port;
                std::thread::spawn(move || write(port, writer, seed, &oracle, &stop))
            })
            .collect();
        // The load is what passes the time: the end comes after a random number of writes.
        let until = self.sent() + self.random.random_range(1..3_000);
        wait_for("writes go on", PATIENCE, || (self.sent() > until).then_some(()));
        (self.end)(node, &mut self.random);
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let node = self.start();
        self.checked += check(&node, &mut self.oracle.lock().unwrap(), self.kept);
        node
    }
}

/// Has another node take part, ends the first one a few times more, and compares all records of both.
fn compare_with_another(hunt: &mut Hunt<'_>, mut node: Node, cluster_port: u16) {
    let data = TempDir::new().unwrap();
    let join = format!("cluster.join=[\"127.0.0.1:{cluster_port}\"]");
    let _another = Node::start(data.path(), &[&SMALL[..], &[&join]].concat());
    // A node alone with another one cannot go on where one of them has forgotten what it acknowledged.
    let is_kept = |options: &&str| hunt.kept.iter().any(|durability| options.ends_with(durability));
    let tables: Vec<&str> = TABLES.iter().filter(|(_, options)| is_kept(options)).map(|(name, _)| *name).collect();
    wait_for("the other node is there", PATIENCE, || {
        let nodes = status(&node)["cluster"]["nodes"].as_array()?.clone();
        (nodes.len() == 2 && nodes.iter().all(|node| node["is_expected"] == false)).then_some(())
    });
    for name in &tables {
        node.cli(&format!("table alter {name} --replicas 2"));
    }
    for _ in 0..2 {
        wait_until_whole(&node);
        node = hunt.end_under_load(node);
    }
    wait_until_whole(&node);
    for name in tables {
        let compare = ["table", "compare", name, "--bytes-per-second", "0"];
        // A replica may be busy.
        let compared = wait_for("all replicas are compared", PATIENCE, || {
            let admin = format!("http://127.0.0.1:{}", node.admin_port);
            let output = tessera().args(compare).args(["--admin", &admin]).output().unwrap();
            (output.status.code() != Some(7)).then_some(output)
        });
        assert!(compared.status.success(), "{}, {name}: {}", hunt.what, String::from_utf8_lossy(&compared.stdout));
    }
}

fn status(node: &Node) -> serde_json::Value {
    serde_json::from_str(&node.cli("status --json")).unwrap()
}

/// Waits until nothing needs attention and nothing moves.
fn wait_until_whole(node: &Node) {
    wait_for("all replicas are there", PATIENCE, || {
        let status = status(node);
        let is_settled = |table: &serde_json::Value| table["moving"] == 0;
        let is_whole =
            status["issues"].as_array()?.is_empty() && status["cluster"]["tables"].as_array()?.iter().all(is_settled);
        is_whole.then_some(())
    });
}
