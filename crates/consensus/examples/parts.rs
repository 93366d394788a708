//! What the parts under a replicated write cost by themselves, to compare the whole with: the log alone, and groups
//! alone, with one replica and three, with a log and without. No network, no engine, no protocol; all of it in this
//! process.
//!
//! ```text
//! cargo run --release -p tessera-consensus --example parts
//! ```

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tessera_consensus::log::{LogBatch, LogRecord, StoredEntry};
use tessera_consensus::{
    Committed, Evaluated, Failure, GroupId, GroupSettings, GroupStart, Inbox, LogConfig, PeerMessage, SharedLog,
    StateMachine, Transport, Worker,
};
use tessera_types::{NodeId, ReplicaId};

const GROUPS: u64 = 24;
const PAYLOAD_BYTES: usize = 1_000;
const MEASURED: Duration = Duration::from_secs(3);

/// Seconds of CPU that this process has used.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let ticks: Vec<f64> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // User and system time are the 14th and 15th of all; the state, a letter, is not counted here.
    (ticks[10] + ticks[11]) / 100.0
}

/// Measures while `work` keeps so many writes under way, and prints a line.
fn measure(what: &str, window: usize, mut send: impl FnMut(), done: &AtomicU64) {
    let (mut sent, mut began) = (0u64, None);
    let warm = Instant::now();
    loop {
        while sent < done.load(Ordering::Relaxed) + window as u64 {
            send();
            sent += 1;
        }
        std::thread::park_timeout(Duration::from_micros(200));
        match began {
            None if warm.elapsed() > Duration::from_secs(1) => {
                began = Some((Instant::now(), cpu_seconds(), done.load(Ordering::Relaxed)));
            }
            Some((at, cpu, before)) if at.elapsed() >= MEASURED => {
                let writes = (done.load(Ordering::Relaxed) - before) as f64;
                let (seconds, cpu) = (at.elapsed().as_secs_f64(), cpu_seconds() - cpu);
                println!("| {what} | {window} | {:.0} | {:.0} |", writes / seconds, writes / cpu);
                break;
            }
            _ => {}
        }
    }
    while done.load(Ordering::Relaxed) < sent {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Takes what is committed and does nothing with it.
struct Sink {
    done: Arc<AtomicU64>,
    /// Writes that came while nobody led their group; they count as done, and are told of.
    refused: Arc<AtomicU64>,
    /// Who leads, by worker.
    serving: Arc<Mutex<HashMap<GroupId, usize>>>,
    worker: usize,
}

impl StateMachine for Sink {
    type Command = Bytes;
    type PendingReply = ();

    fn evaluate(&mut self, _group: GroupId, command: Bytes, payload: &mut BytesMut) -> Evaluated<()> {
        payload.extend_from_slice(&command);
        Evaluated::Replicate { reply: (), sync: true, leader_acked: false }
    }

    fn proposed(&mut self, _group: GroupId, _index: u64, _payload: &Bytes) {}

    fn apply(&mut self, _committed: &[Committed]) -> Result<Vec<GroupId>, String> {
        Ok(Vec::new())
    }

    fn answer(&mut self, (): (), outcome: Result<(), Failure>) {
        self.refused.fetch_add(u64::from(outcome.is_err()), Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn refuse(&mut self, _command: Bytes, _failure: Failure) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn serving(&mut self, group: GroupId) {
        self.serving.lock().insert(group, self.worker);
    }
}

/// Hands messages to the other workers of this process.
struct Loopback {
    inboxes: Vec<Arc<Inbox<Bytes>>>,
}

impl Transport for Loopback {
    fn send(&self, messages: Vec<PeerMessage>) {
        let mut by_node: Vec<VecDeque<PeerMessage>> = vec![VecDeque::new(); self.inboxes.len()];
        for message in messages {
            by_node[message.destination().0 as usize - 1].push_back(message);
        }
        for (inbox, messages) in self.inboxes.iter().zip(by_node) {
            inbox.deliver(messages.into());
        }
    }
}

fn groups(replicas: u32, has_log: bool, window: usize) {
    let directory = tempfile::TempDir::new_in(".").expect("a directory");
    let (done, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let serving = Arc::<Mutex<HashMap<GroupId, usize>>>::default();
    let inboxes: Vec<_> = (0..replicas).map(|_| Inbox::new(1_000_000)).collect();
    let transport = Arc::new(Loopback { inboxes: inboxes.clone() });
    let mut threads = Vec::new();
    for (at, inbox) in (1..).zip(&inboxes) {
        let log = has_log.then(|| {
            let path = directory.path().join(at.to_string());
            SharedLog::open(&path, &LogConfig::default()).expect("the log opens").0
        });
        let sink =
            Sink { done: done.clone(), refused: refused.clone(), serving: serving.clone(), worker: at as usize - 1 };
        let worker = Worker::new(sink, inbox.clone(), log);
        let worker = worker.with_transport(transport.clone());
        for id in (0..GROUPS).map(GroupId) {
            let initial_members = (1..=replicas).map(|node| ReplicaId { node: NodeId(node), incarnation: 0 }).collect();
            let settings = GroupSettings {
                persistent: has_log,
                synced: has_log,
                applied: 0,
                applied_term: None,
                replica: ReplicaId { node: NodeId(at), incarnation: 0 },
                initial_members,
            };
            inbox.start(GroupStart { id, settings, recovered: Default::default() });
        }
        threads.push(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(worker.run());
        }));
    }
    while (serving.lock().len() as u64) < GROUPS {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    let leaders: Vec<usize> = (0..GROUPS).map(|group| serving.lock()[&GroupId(group)]).collect();
    let mut next = 0;
    let send = || {
        next = (next + 1) % leaders.len();
        let inbox = &inboxes[leaders[next]];
        assert!(inbox.submit(GroupId(next as u64), payload.clone()).is_ok(), "the inbox is large enough");
    };
    let log = if has_log { "a log each" } else { "no log" };
    measure(&format!("groups of {replicas}, {log}"), window, send, &done);
    let refused = refused.load(Ordering::Relaxed);
    if refused > 0 {
        println!("{refused} of them were refused: groups changed leaders");
    }
    inboxes.iter().for_each(|inbox| inbox.stop());
    threads.into_iter().for_each(|thread| thread.join().expect("a worker ends"));
}

fn log_alone(window: usize) {
    let directory = tempfile::TempDir::new_in(".").expect("a directory");
    let (log, _) = SharedLog::open(directory.path(), &LogConfig::default()).expect("the log opens");
    let done = Arc::new(AtomicU64::new(0));
    let failed = Arc::new(AtomicBool::new(false));
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    let mut index = 0;
    let send = || {
        index += 1;
        let entries = vec![StoredEntry { index, term: 1, kind: 0, payload: payload.clone() }];
        let (done, failed) = (done.clone(), failed.clone());
        log.submit(LogBatch {
            records: vec![LogRecord::Entries { group: GroupId(1), entries }],
            sync: true,
            completion: Some(Box::new(move |outcome| {
                failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                done.fetch_add(1, Ordering::Relaxed);
            })),
        });
    };
    measure("the log, an entry each", window, send, &done);
    assert!(!failed.load(Ordering::Relaxed), "the log works");
    log.close();
}

fn main() {
    println!(
        "| 1 KB writes, fsynced where there is a log | under way | writes/s | writes per CPU-second |\n|---|---|---|---|"
    );
    for window in [256, 1_024] {
        log_alone(window);
        for has_log in [false, true] {
            for replicas in [1, 3] {
                groups(replicas, has_log, window);
            }
        }
    }
}
