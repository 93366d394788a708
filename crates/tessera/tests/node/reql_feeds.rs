//! Changefeeds on clusters: every acknowledged write is told once and in order, whatever happens to the nodes and the table.

use crate::cluster::Cluster;
use crate::reql::{Client, PATIENCE, table};
use crate::server::{Node, free_port, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a feed may take for what was acknowledged.
const TOLD: Duration = Duration::from_secs(60);
const WRITERS: usize = 3;
const DOCUMENTS: usize = 12;

/// An open feed.
pub struct Feed {
    client: Client,
    /// Messages that came with the first answer.
    first: Vec<Value>,
    is_asked: bool,
}

impl Feed {
    const TOKEN: i64 = 77;

    /// `None` if the node does not answer.
    fn try_open(port: u16, term: &Value) -> Option<Result<Self, Value>> {
        let mut client = Client::try_to(port)?;
        client.try_send(Self::TOKEN, &json!([1, term, {}]).to_string())?;
        let (_, answer) = client.try_receive()?;
        if answer["t"] != 3 {
            return Some(Err(answer));
        }
        Some(Ok(Self { client, first: answer["r"].as_array()?.clone(), is_asked: false }))
    }

    pub fn open(port: u16, term: &Value) -> Self {
        Self::try_open(port, term).expect("the node answers").unwrap()
    }

    /// The next messages.
    fn try_next(&mut self) -> Option<Vec<Value>> {
        if !self.first.is_empty() {
            return Some(std::mem::take(&mut self.first));
        }
        if !std::mem::replace(&mut self.is_asked, true) {
            self.client.try_send(Self::TOKEN, "[2]")?;
        }
        let (_, answer) = self.client.try_receive()?;
        self.is_asked = false;
        assert_eq!(answer["t"], 3, "{answer}");
        Some(answer["r"].as_array().unwrap().clone())
    }

    pub fn next(&mut self) -> Vec<Value> {
        self.try_next().expect("the node answers")
    }

    /// So many messages.
    pub fn take(&mut self, count: usize) -> Vec<Value> {
        let mut messages = Vec::new();
        while messages.len() < count {
            messages.extend(self.next());
        }
        assert_eq!(messages.len(), count, "{messages:?}");
        messages
    }

    /// The error with which the feed ends.
    fn end(mut self) -> Value {
        self.client.send(Self::TOKEN, "[2]");
        self.client.receive().1
    }
}

pub fn changes(of: &Value, options: &Value) -> Value {
    json!([152, [of], options])
}

pub fn put(id: &str, n: usize) -> Value {
    json!([56, [table("t"), {"id": id, "n": n}], {"conflict": "replace"}])
}

/// What was told of each document: all of its states, one after the other.
#[derive(Default)]
struct Told(BTreeMap<String, Vec<u64>>);

impl Told {
    fn note(&mut self, message: &Value) {
        let id = message["new_val"]["id"].as_str().unwrap_or_else(|| panic!("{message}"));
        let states = self.0.entry(id.to_string()).or_default();
        // What a document was is what was told of it before: nothing is missing, and nothing comes twice.
        assert_eq!(message["old_val"]["n"].as_u64(), states.last().copied(), "{message}");
        states.push(message["new_val"]["n"].as_u64().unwrap());
    }

    fn has(&self, acknowledged: &BTreeMap<String, Vec<u64>>) -> bool {
        acknowledged.iter().all(|(id, numbers)| self.0.get(id).and_then(|states| states.last()) >= numbers.last())
    }

    /// Every acknowledged write was told once.
    fn check(&self, acknowledged: &BTreeMap<String, Vec<u64>>) {
        for (id, numbers) in acknowledged {
            let states = &self.0[id];
            assert!(states.is_sorted_by(|one, other| one < other), "{id}: {states:?}");
            for number in numbers {
                assert!(
                    states.binary_search(number).is_ok(),
                    "{id}: {number} was acknowledged, and not told: {states:?}"
                );
            }
        }
    }
}

/// Writes to documents of its own, each time a greater number, through any node that answers. Returns what was acknowledged.
fn write(number: usize, ports: &[u16], ending: &AtomicBool, written: &AtomicUsize) -> BTreeMap<String, Vec<u64>> {
    let (mut acknowledged, mut at, mut n) = (BTreeMap::<String, Vec<u64>>::new(), number, 0);
    let mut client = None;
    while !ending.load(Ordering::Relaxed) {
        if client.is_none() {
            at += 1;
            client = Client::try_to(ports[at % ports.len()]);
        }
        let Some(connected) = &mut client else { continue };
        n += 1;
        let id = format!("{number}-{}", n % DOCUMENTS);
        match connected.try_ask(&put(&id, n)) {
            None => client = None,
            Some(answer) if answer["inserted"] == 1 || answer["replaced"] == 1 => {
                acknowledged.entry(id).or_default().push(n as u64);
                written.fetch_add(1, Ordering::Relaxed);
            }
            // It may have been done or not; the next one is for another document.
            Some(_) => {}
        }
    }
    acknowledged
}

#[test]
fn every_acknowledged_write_is_told_once_through_a_kill_a_move_a_split_and_reconnects() {
    let mut cluster = Cluster::start_with_reql(4);
    let ports = cluster.reql_ports();
    let mut client = Client::to(ports[0]);
    let create = json!([60, ["t"], {"shards": 4, "replicas": 3, "durability": "soft"}]);
    assert_eq!(client.ask(&create)["tables_created"], 1);
    client.ask(&json!([177, [table("t")]]));
    let (ending, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let feed = Feed::open(ports[0], &changes(&table("t"), &json!({})));
    let resumable = json!({"include_resume_token": true});
    let first = Feed::open(ports[1], &changes(&table("t"), &resumable));
    // Whoever writes leaves out the node that is to be killed, so that its writes are acknowledged; the killed one leads some partitions.
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (ports, ending, written) = (vec![ports[0], ports[1], ports[3]], ending.clone(), written.clone());
            std::thread::spawn(move || write(number, &ports, &ending, &written))
        })
        .collect();
    let all = Arc::<OnceLock<BTreeMap<String, Vec<u64>>>>::default();
    let staying = {
        let (all, mut feed) = (all.clone(), feed);
        std::thread::spawn(move || {
            let mut told = Told::default();
            loop {
                feed.next().iter().for_each(|message| told.note(message));
                if let Some(acknowledged) = all.get()
                    && told.has(acknowledged)
                {
                    return told;
                }
            }
        })
    };
    let moving = {
        let (all, ports) = (all.clone(), ports.clone());
        let (mut feed, mut at) = (Some(first), 1);
        std::thread::spawn(move || {
            let (mut told, mut token, mut batches) = (Told::default(), Value::Null, 0);
            loop {
                let Some(open) = &mut feed else {
                    // It goes on at another node, which may be the one that was killed.
                    at = (at + 1) % ports.len();
                    let options = json!({"include_resume_token": true, "resume": token});
                    let opened = Feed::try_open(ports[at], &changes(&table("t"), &options));
                    // A node may not serve just now, but all changes are retained.
                    let refused = |answer: &Value| assert!(!answer.to_string().contains("Cannot resume"), "{answer}");
                    feed = opened.and_then(|opened| opened.inspect_err(refused).ok());
                    continue;
                };
                match open.try_next() {
                    None => feed = None,
                    Some(messages) => {
                        for message in &messages {
                            told.note(message);
                            token = message["resume_token"].clone();
                        }
                        batches += 1;
                        if batches % 20 == 0 && !token.is_null() {
                            feed = None;
                        }
                    }
                }
                if let Some(acknowledged) = all.get()
                    && told.has(acknowledged)
                {
                    return told;
                }
            }
        })
    };
    let wait_for_more = |count: usize| {
        let before = written.load(Ordering::Relaxed);
        wait_for("more is written", TOLD, || (written.load(Ordering::Relaxed) >= before + count).then_some(()));
    };
    wait_for_more(300);
    cluster.kill(2);
    wait_for_more(300);
    cluster.cli(0, "table alter test.t --partitions 8").unwrap();
    let partitions = || {
        let placement = cluster.cli(0, "table placement test.t --json").ok()?;
        let placement: Vec<Value> = serde_json::from_str(&placement).ok()?;
        (placement.len() == 8).then_some(())
    };
    wait_for("the table is split", TOLD, partitions);
    wait_for_more(300);
    // The replicas of this node go to another one where there is one; its leaders go in any case.
    cluster.cli(0, "node drain 4").unwrap();
    wait_for_more(300);
    ending.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeMap::new();
    writers.into_iter().for_each(|writer| acknowledged.extend(writer.join().unwrap()));
    all.set(acknowledged.clone()).unwrap();
    // The feeds wait for something to come.
    let until = Instant::now() + TOLD;
    let mut n = 1_000_000;
    while !(staying.is_finished() && moving.is_finished()) {
        assert!(Instant::now() < until, "the feeds do not tell all that was acknowledged");
        n += 1;
        client.try_ask(&put("end", n));
        std::thread::park_timeout(Duration::from_millis(20));
    }
    staying.join().unwrap().check(&acknowledged);
    moving.join().unwrap().check(&acknowledged);
}

pub fn node(settings: &[&str]) -> (tempfile::TempDir, u16, Node) {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let own = format!("reql.port={port}");
    let settings: Vec<&str> = std::iter::once(&*own).chain(settings.iter().copied()).collect();
    let node = Node::start(data.path(), &settings);
    (data, port, node)
}

fn make(client: &mut Client) {
    assert_eq!(client.ask(&json!([60, ["t"], {"shards": 2}]))["tables_created"], 1);
    client.ask(&json!([177, [table("t")]]));
}

#[test]
fn a_feed_begins_with_what_is_there_and_misses_nothing_that_is_written_meanwhile() {
    let (_data, port, _node) = node(&[]);
    let mut client = Client::to(port);
    make(&mut client);
    assert_eq!(client.ask(&json!([75, [table("t"), "n"]]))["created"], 1);
    client.ask(&json!([140, [table("t")]]));
    for part in 0..10 {
        let documents: Vec<Value> = (0..200).map(|id| json!({"id": format!("{part}-{id}"), "n": 1})).collect();
        client.ask(&json!([56, [table("t"), [2, documents]]]));
    }
    let ending = Arc::new(AtomicBool::new(false));
    let writer = {
        let ending = ending.clone();
        std::thread::spawn(move || {
            let (mut client, mut n) = (Client::to(port), 1);
            let mut last = BTreeMap::new();
            while !ending.load(Ordering::Relaxed) {
                n += 1;
                let id = format!("{}-{}", n % 10, n % 200);
                assert_eq!(client.ask(&put(&id, n))["errors"], 0);
                last.insert(id, n as u64);
            }
            last
        })
    };
    // By the primary key, and by an index in which documents move on while it is read.
    let between = json!([182, [table("t"), 0, 1_000_000_000], {"index": "n"}]);
    let options = json!({"include_initial": true, "include_states": true, "include_resume_token": true});
    let mut feeds: Vec<_> = [table("t"), between.clone()].map(|of| Feed::open(port, &changes(&of, &options))).into();
    let mut known = vec![BTreeMap::<String, u64>::new(); 2];
    let mut tokens = vec![Value::Null; 2];
    let note = |known: &mut BTreeMap<String, u64>, message: &Value| {
        if message["state"].is_string() {
            return message["state"] == "ready";
        }
        let id = message["new_val"]["id"].as_str().unwrap_or_else(|| panic!("{message}")).to_string();
        let before = known.insert(id, message["new_val"]["n"].as_u64().unwrap());
        assert_eq!(message["old_val"]["n"].as_u64(), before, "{message}");
        false
    };
    for (feed, known) in feeds.iter_mut().zip(&mut known) {
        let mut is_ready = false;
        while !is_ready {
            for message in feed.next() {
                is_ready |= note(known, &message);
            }
        }
        assert_eq!(known.len(), 2_000);
    }
    ending.store(true, Ordering::Relaxed);
    let last = writer.join().unwrap();
    // The first token that there is; what comes after it goes to two feeds.
    for ((feed, known), token) in feeds.iter_mut().zip(&mut known).zip(&mut tokens) {
        while token.is_null() && last.iter().any(|(id, n)| known[id] != *n) {
            for message in feed.next() {
                note(known, &message);
                *token = message["resume_token"].clone();
            }
        }
        let mut resumed = known.clone();
        while last.iter().any(|(id, n)| known[id] != *n) {
            feed.next().iter().for_each(|message| _ = note(known, message));
        }
        if !token.is_null() {
            let options = json!({"resume": token});
            let mut feed = Feed::open(port, &changes(&table("t"), &options));
            while resumed != *known {
                feed.next().iter().for_each(|message| _ = note(&mut resumed, message));
            }
        }
    }
}

#[test]
fn a_token_that_is_too_old_is_refused_and_one_that_is_not_works_after_a_restart() {
    let (data, port, mut process) = node(&[]);
    let mut client = Client::to(port);
    make(&mut client);
    let options = json!({"include_resume_token": true});
    let mut feed = Feed::open(port, &changes(&table("t"), &options));
    client.ask(&put("a", 1));
    let token = feed.take(1)[0]["resume_token"].clone();
    drop((feed, client));
    process.process.kill();
    let own = format!("reql.port={port}");
    let process = Node::start(data.path(), &[&own]);
    let mut client = wait_for("the node answers", PATIENCE, || Client::try_to(port));
    client.ask(&json!([177, [table("t")]]));
    client.ask(&put("a", 2));
    let resumed = changes(&table("t"), &json!({"include_resume_token": true, "resume": token}));
    let told = Feed::open(port, &resumed).take(1);
    assert_eq!((&told[0]["old_val"]["n"], &told[0]["new_val"]["n"]), (&json!(1), &json!(2)));
    // One byte for all changes: only the last one is kept.
    process.cli("table alter test.t --feed-retention-bytes 1");
    wait_for("the changes are not kept any more", PATIENCE, || {
        client.ask(&put("a", 3));
        client.ask(&put("a", 4));
        let answer = Feed::try_open(port, &resumed)?.err()?;
        assert!(answer["r"][0].as_str().unwrap().starts_with("Cannot resume the changefeed"), "{answer}");
        Some(())
    });
    let foreign = changes(&table("t"), &json!({"resume": "00"}));
    let answer = Feed::try_open(port, &foreign).unwrap().err().unwrap();
    assert!(answer["r"][0].as_str().unwrap().contains("not a resume token"), "{answer}");
}

#[test]
fn a_feed_that_nobody_reads_costs_others_nothing_and_tells_what_it_dropped() {
    let (_data, port, _node) = node(&[]);
    let mut client = Client::to(port);
    make(&mut client);
    let mut slow = Feed::open(port, &changes(&table("t"), &json!({"changefeed_queue_size": 3})));
    let mut quick = Feed::open(port, &changes(&table("t"), &json!({})));
    // A first message each, so that the slow one's client is one that does not ask.
    client.ask(&put("a", 0));
    assert_eq!((slow.take(1).len(), quick.take(1).len()), (1, 1));
    for n in 1..=10 {
        client.ask(&put("a", n));
    }
    assert_eq!(quick.take(10).last().unwrap()["new_val"]["n"], 10);
    let told = slow.next();
    assert_eq!(told[0]["error"], "Changefeed cache over array size limit, skipped 8 elements.");
    assert_eq!((told[1]["new_val"]["n"].as_u64(), told.len()), (Some(9), 3));
    // Nothing else waits for feeds.
    let mut waiting = Feed::open(port, &changes(&json!([16, [table("t"), "b"]]), &json!({})));
    waiting.client.send(Feed::TOKEN, "[2]");
    waiting.client.send(1, "[4]");
    assert_eq!(waiting.client.receive(), (1, json!({"t": 4, "r": []})));
    client.ask(&put("b", 1));
    assert_eq!(waiting.client.receive().1["r"][0]["new_val"]["n"], 1);
}

/// A feed that went on would tell nothing of what is gone from the table.
#[test]
fn a_feed_ends_when_its_table_is_truncated_and_the_indexes_are_there_again() {
    let (_data, port, process) = node(&[]);
    let mut client = Client::to(port);
    make(&mut client);
    assert_eq!(client.ask(&json!([75, [table("t"), "n"]]))["created"], 1);
    client.ask(&json!([140, [table("t")]]));
    client.ask(&put("a", 1));
    let mut feed = Feed::open(port, &changes(&table("t"), &json!({"include_resume_token": true})));
    client.ask(&put("a", 2));
    let token = feed.take(1)[0]["resume_token"].clone();
    let said = process.cli("table truncate test.t --yes --json");
    let answer = feed.end();
    let reason = "Changefeed aborted (unavailable): the table was truncated.";
    assert_eq!((&answer["e"], &answer["r"][0]), (&json!(4_100_000), &json!(reason)));
    let resumed = client.ask(&changes(&table("t"), &json!({"resume": token})));
    let reason = resumed["r"][0].as_str().unwrap();
    assert!(reason.starts_with("Cannot resume the changefeed") && reason.contains("truncated"), "{resumed}");
    assert_eq!(client.ask(&json!([43, [table("t")]])), 0);
    let mut feed = Feed::open(port, &changes(&table("t"), &json!({})));
    client.ask(&put("b", 7));
    assert_eq!(feed.take(1)[0]["new_val"]["n"], 7);
    client.ask(&json!([140, [table("t")]]));
    assert_eq!(client.ask(&json!([78, [table("t"), 7], {"index": "n"}]))[0]["id"], "b");
    let truncated: Value = serde_json::from_str(&said).unwrap();
    process.cli(&format!("table recall {} --as test.before", truncated["number"]));
    assert_eq!(client.ask(&json!([78, [table("before"), 2], {"index": "n"}]))[0]["id"], "a");
    assert_eq!(client.ask(&json!([43, [table("t")]])), 1);
}

#[test]
fn a_feed_ends_with_its_table_and_with_its_node() {
    let (_data, port, mut process) = node(&[]);
    let mut client = Client::to(port);
    make(&mut client);
    let feed = Feed::open(port, &changes(&table("t"), &json!({})));
    assert_eq!(client.ask(&json!([61, ["t"]]))["tables_dropped"], 1);
    let answer = feed.end();
    assert_eq!((&answer["e"], &answer["r"][0]), (&json!(4_100_000), &json!("Changefeed aborted (unavailable).")));
    // Of the tables that tell how the cluster is.
    let databases = json!([15, [[14, ["rethinkdb"]], "db_config"]]);
    let mut feed = Feed::open(port, &changes(&databases, &json!({"include_initial": true})));
    assert_eq!(feed.take(1)[0]["new_val"]["name"], "test");
    assert_eq!(client.ask(&json!([57, ["other"]]))["dbs_created"], 1);
    assert_eq!(feed.take(1)[0]["new_val"]["name"], "other");
    feed.client.send(Feed::TOKEN, "[2]");
    process.process.kill();
    assert!(feed.client.try_receive().is_none());
}
