use super::*;
use crate::group::GroupSettings;
use crate::log::LogConfig;
use crate::small_disk::SmallDisk;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use tempfile::TempDir;

/// Sums of numbers per group.
#[derive(Clone, Default)]
struct Sums {
    by_group: Arc<Mutex<HashMap<GroupId, u64>>>,
    /// Groups that take nothing for now.
    slow: Arc<Mutex<HashSet<GroupId>>>,
    /// Whether nothing can be written now.
    is_full: Arc<Mutex<bool>>,
    removed: Arc<Mutex<Vec<GroupId>>>,
    /// Groups of which an entry makes all fail that come with it, and those that were set aside for that.
    damaged: Arc<Mutex<HashSet<GroupId>>>,
    aside: Arc<Mutex<Vec<GroupId>>>,
    /// What is told at once when a group is removed.
    on_removed: Arc<Mutex<Option<Sender<()>>>>,
}

struct Add {
    number: u64,
    times: usize,
    sync: bool,
    may_use_reserve: bool,
    reply: Sender<Result<(), Failure>>,
}

impl StateMachine for Sums {
    type Command = Add;
    type PendingReply = Sender<Result<(), Failure>>;

    fn may_use_reserve(&self, command: &Add) -> bool {
        command.may_use_reserve
    }

    fn evaluate(&mut self, _group: GroupId, command: Add, payload: &mut BytesMut) -> Evaluated<Self::PendingReply> {
        if command.number == 0 {
            return Evaluated::NoChange { reply: command.reply, confirm: false };
        }
        payload.extend_from_slice(&command.number.to_le_bytes().repeat(command.times));
        Evaluated::Replicate { reply: command.reply, sync: command.sync, leader_acked: false }
    }

    fn proposed(&mut self, _group: GroupId, _index: u64, _payload: &Bytes) {}

    fn apply(&mut self, committed: &[Committed]) -> Result<Vec<GroupId>, String> {
        if *self.is_full.lock() {
            return Err("full".into());
        }
        let (mut sums, slow) = (self.by_group.lock(), self.slow.lock());
        let damaged = self.damaged.lock();
        if committed.iter().any(|committed| damaged.contains(&committed.group) && !committed.payloads.is_empty()) {
            return Err("damaged".into());
        }
        for Committed { group, payloads, .. } in committed.iter().filter(|committed| !slow.contains(&committed.group)) {
            let numbers = payloads.iter().flat_map(|payload: &Bytes| payload.chunks(8));
            let sum: u64 = numbers.map(|number| u64::from_le_bytes(number.try_into().unwrap())).sum();
            *sums.entry(*group).or_default() += sum;
        }
        Ok(slow.iter().copied().collect())
    }

    fn answer(&mut self, reply: Self::PendingReply, outcome: Result<(), Failure>) {
        let _ = reply.send(outcome);
    }

    fn refuse(&mut self, command: Add, failure: Failure) {
        let _ = command.reply.send(Err(failure));
    }

    fn serving(&mut self, _group: GroupId) {}

    fn removed(&mut self, group: GroupId) {
        self.removed.lock().push(group);
        if let Some(sender) = self.on_removed.lock().take() {
            // Whoever waits for this is done with the log before the loop goes on.
            let _ = sender.send(());
            std::thread::park_timeout(PATIENCE);
        }
    }

    fn set_aside(&mut self, group: GroupId, _reason: &Inconsistent) {
        self.aside.lock().push(group);
    }

    fn unusable(&mut self, _committed: &[Committed]) -> Vec<(GroupId, String)> {
        self.damaged.lock().iter().map(|group| (*group, "damaged".into())).collect()
    }
}

struct Running {
    inbox: Arc<Inbox<Add>>,
    log: Arc<SharedLog>,
    sums: Sums,
    thread: std::thread::JoinHandle<()>,
}

fn start(directory: &Path, groups: u64) -> Running {
    start_with(directory, groups, &LogConfig::default())
}

fn start_with(directory: &Path, groups: u64, config: &LogConfig) -> Running {
    let (log, mut recovered) = SharedLog::open(directory, config).unwrap();
    let (inbox, sums) = (Inbox::new(1_000_000), Sums::default());
    for id in (0..groups).map(GroupId) {
        let recovered = recovered.remove(&id).unwrap_or_default();
        inbox.start(GroupStart { id, settings: GroupSettings::alone(true, 0), recovered });
    }
    let worker = Worker::new(sums.clone(), inbox.clone(), Some(log.clone()));
    let thread = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(worker.run());
    });
    let running = Running { inbox, log, sums, thread };
    for group in 0..groups {
        while running.add(group, 0, true).recv().unwrap() == Err(Failure::NotServing) {
            std::thread::yield_now();
        }
    }
    running
}

impl Running {
    fn add(&self, group: u64, number: u64, sync: bool) -> Receiver<Result<(), Failure>> {
        self.add_often(group, number, 1, sync)
    }

    fn add_often(&self, group: u64, number: u64, times: usize, sync: bool) -> Receiver<Result<(), Failure>> {
        self.submit(group, |reply| Add { number, times, sync, may_use_reserve: false, reply })
    }

    fn add_on_full_disk(&self, group: u64, number: u64) -> Result<(), Failure> {
        let add = |reply| Add { number, times: 1, sync: true, may_use_reserve: true, reply };
        self.submit(group, add).recv_timeout(PATIENCE).unwrap()
    }

    fn submit(
        &self,
        group: u64,
        add: impl FnOnce(Sender<Result<(), Failure>>) -> Add,
    ) -> Receiver<Result<(), Failure>> {
        let (reply, receiver) = channel();
        self.inbox.submit(GroupId(group), add(reply)).ok().unwrap();
        receiver
    }

    fn sum(&self, group: u64) -> u64 {
        self.sums.by_group.lock().get(&GroupId(group)).copied().unwrap_or(0)
    }

    fn stop(self) {
        self.inbox.stop();
        self.thread.join().unwrap();
        self.log.close();
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let directory = TempDir::new().unwrap();
    for round in 1..=3u64 {
        let running = start(directory.path(), 8);
        assert!((0..8).all(|group| running.sum(group) == (round - 1) * 500));
        // Hard and soft commands mixed: a soft one must not make a hard one before it count too early.
        let replies: Vec<_> = (0..4_000).map(|number| running.add(number % 8, 1, number % 3 == 0)).collect();
        assert!(replies.iter().all(|reply| reply.recv().unwrap() == Ok(())));
        assert!((0..8).all(|group| running.sum(group) == round * 500));
        assert!(running.log.statistics().syncs < 2_000, "{:?}", running.log.statistics());
        running.stop();
    }
}

#[test]
fn a_stopped_worker_refuses_and_answers_everybody() {
    let directory = TempDir::new().unwrap();
    let running = start(directory.path(), 1);
    let replies: Vec<_> = (0..100).map(|_| running.add(0, 1, true)).collect();
    running.inbox.stop();
    let late: Vec<_> = (0..100).map(|_| running.add(0, 1, true)).collect();
    running.thread.join().unwrap();
    drop(running.inbox);
    for reply in replies.into_iter().chain(late) {
        // Done, interrupted, refused, or dropped with the inbox; what matters is that nobody waits for ever.
        let _ = reply.recv();
    }
}

#[test]
fn an_inbox_has_a_limit() {
    let inbox = Inbox::new(2);
    inbox.submit(GroupId(1), 'a').unwrap();
    inbox.submit(GroupId(1), 'b').unwrap();
    assert_eq!(inbox.submit(GroupId(1), 'c').unwrap_err().0, 'c');
}

#[test]
fn of_commands_that_are_queued_together_the_last_ones_are_refused() {
    let inbox = Inbox::new(3);
    let submit = |commands: &str| {
        let commands = commands.chars().map(|command| (GroupId(1), command)).collect();
        inbox.submit_all(commands).into_iter().map(|full| full.0).collect::<String>()
    };
    assert_eq!(submit(""), "");
    assert_eq!(submit("ab"), "");
    assert_eq!(submit("cde"), "de");
    assert_eq!(submit("f"), "f");
}

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_group_that_cannot_keep_up_stops_no_other_one() {
    let directory = TempDir::new().unwrap();
    let running = start(directory.path(), 2);
    running.sums.slow.lock().insert(GroupId(1));
    let slow: Vec<_> = (1..=100).map(|number| running.add(1, number, true)).collect();
    for number in 1..=100 {
        assert_eq!(running.add(0, number, true).recv_timeout(PATIENCE).unwrap(), Ok(()));
    }
    assert_eq!((running.sum(0), running.sum(1)), (5050, 0));
    assert!(slow.iter().all(|reply| reply.try_recv().is_err()), "nothing is answered that is not applied");
    running.sums.slow.lock().clear();
    // Before it is told, too, nothing overtakes what waits.
    let later = running.add(1, 1, true);
    running.inbox.caught_up();
    assert!(slow.iter().chain([&later]).all(|reply| reply.recv_timeout(PATIENCE).unwrap() == Ok(())));
    assert_eq!(running.sum(1), 5051);
    running.stop();
}

#[test]
fn what_waits_for_a_slow_state_machine_is_bounded() {
    let directory = TempDir::new().unwrap();
    let running = start(directory.path(), 2);
    running.sums.slow.lock().insert(GroupId(1));
    let mut waiting = Vec::new();
    let (entries, megabyte) = (200, 1 << 17);
    let refused = (0..entries).find_map(|_| {
        let reply = running.add_often(1, 1, megabyte, true);
        // The other group answers when the loop has dealt with this one.
        running.add(0, 1, true).recv_timeout(PATIENCE).unwrap().unwrap();
        let outcome = reply.try_recv();
        waiting.push(reply);
        outcome.ok()
    });
    assert_eq!(refused, Some(Err(Failure::Busy)));
    waiting.pop();
    running.sums.slow.lock().clear();
    running.inbox.caught_up();
    assert!(waiting.iter().all(|reply| reply.recv_timeout(PATIENCE).unwrap() == Ok(())));
    assert_eq!(running.sum(1), (waiting.len() * megabyte) as u64);
    assert_eq!(running.add(1, 1, true).recv_timeout(PATIENCE).unwrap(), Ok(()));
    running.stop();
}

#[test]
fn a_group_is_not_removed_while_its_state_machine_is_at_work() {
    let directory = TempDir::new().unwrap();
    let running = start(directory.path(), 2);
    running.sums.slow.lock().insert(GroupId(1));
    let slow = running.add(1, 1, true);
    // What came in one order is durable in that order.
    running.add(0, 1, true).recv_timeout(PATIENCE).unwrap().unwrap();
    running.inbox.remove(GroupId(1));
    running.add(0, 1, true).recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(running.sums.removed.lock().is_empty());
    running.inbox.caught_up();
    assert_eq!(slow.recv_timeout(PATIENCE).unwrap(), Err(Failure::Interrupted));
    running.add(0, 1, true).recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(*running.sums.removed.lock(), [GroupId(1)]);
    running.stop();
}

/// It once kept all groups of its worker from going on, and one whose log did not fit its state ended the process.
#[test]
fn a_replica_that_cannot_go_on_is_set_aside_alone() {
    let directory = TempDir::new().unwrap();
    let running = start(directory.path(), 2);
    running.sums.damaged.lock().insert(GroupId(1));
    let (damaged, sound) = (running.add(1, 1, true), running.add(0, 1, true));
    assert_eq!(damaged.recv_timeout(PATIENCE).unwrap(), Err(Failure::Interrupted));
    assert_eq!(sound.recv_timeout(PATIENCE).unwrap(), Ok(()));
    assert_eq!(running.add(1, 1, true).recv_timeout(PATIENCE).unwrap(), Err(Failure::NotServing));
    let recovered = crate::log::RecoveredGroup { truncated: (7, 1), ..Default::default() };
    running.inbox.start(GroupStart { id: GroupId(2), settings: GroupSettings::alone(true, 0), recovered });
    assert_eq!(running.add(0, 1, true).recv_timeout(PATIENCE).unwrap(), Ok(()));
    assert_eq!(*running.sums.aside.lock(), [GroupId(1), GroupId(2)]);
    // It can still be removed, and then the log forgets it.
    running.inbox.remove(GroupId(1));
    running.add(0, 1, true).recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(*running.sums.removed.lock(), [GroupId(1)]);
    running.stop();
    let (_log, recovered) = SharedLog::open(directory.path(), &LogConfig::default()).unwrap();
    assert!(recovered.contains_key(&GroupId(0)) && !recovered.contains_key(&GroupId(1)));
}

/// It once said that writes are refused until the node is restarted, and took them again by itself.
#[test]
fn what_cannot_be_applied_now_is_applied_later() {
    let directory = TempDir::new().unwrap();
    let running = start(directory.path(), 1);
    *running.sums.is_full.lock() = true;
    assert_eq!(running.add(0, 1, true).recv_timeout(PATIENCE).unwrap(), Err(Failure::Interrupted));
    let refused = running.add(0, 1, true).recv_timeout(PATIENCE).unwrap();
    assert_eq!(refused, Err(Failure::NotApplied("full".into())));
    *running.sums.is_full.lock() = false;
    let began = Instant::now();
    while running.add(0, 1, true).recv_timeout(PATIENCE).unwrap() == Err(Failure::NotApplied("full".into())) {
        assert!(began.elapsed() < PATIENCE, "it is not tried again");
        std::thread::yield_now();
    }
    assert_eq!(running.sum(0), 2, "what was interrupted counts, and what was refused does not");
    running.stop();
}

/// Whoever hears that a group is gone, and syncs the log, knows that the log has forgotten it. It was once told before.
#[test]
fn the_log_hears_that_a_group_is_removed_before_anybody_else() {
    let directory = TempDir::new().unwrap();
    let running = start(directory.path(), 2);
    let (sender, hears) = channel();
    *running.sums.on_removed.lock() = Some(sender);
    running.inbox.remove(GroupId(1));
    hears.recv_timeout(PATIENCE).unwrap();
    running.log.wait_synced().unwrap();
    let copy = TempDir::new().unwrap();
    for file in std::fs::read_dir(directory.path()).unwrap().flatten() {
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let (_log, recovered) = SharedLog::open(copy.path(), &LogConfig::default()).unwrap();
    assert!(recovered.contains_key(&GroupId(0)) && !recovered.contains_key(&GroupId(1)));
    running.thread.thread().unpark();
    running.stop();
}

#[test]
fn on_a_full_disk_what_ends_something_is_done_and_nothing_else() {
    let Some(disk) = SmallDisk::mount(8 << 20) else { return };
    let directory = disk.path().join("log");
    let config = LogConfig { segment_bytes: 256 << 10, ..LogConfig::default() };
    let running = start_with(&directory, 1, &config);
    disk.fill();
    let mut stored = 0;
    let refusal = loop {
        match running.add_often(0, 1, 1_000, true).recv_timeout(PATIENCE).unwrap() {
            Ok(()) => stored += 1_000,
            Err(failure) => break failure,
        }
        assert!(stored < 1_000_000, "the disk never filled up");
    };
    assert_eq!(refusal, Failure::DiskFull, "nothing is in doubt");
    for _ in 0..5 {
        assert_eq!(running.add_on_full_disk(0, 1), Ok(()));
        assert_eq!(running.add_on_full_disk(0, 0), Ok(()), "a read");
        assert_eq!(running.add(0, 1, true).recv_timeout(PATIENCE).unwrap(), Err(Failure::DiskFull));
        stored += 1;
    }
    assert_eq!(running.sum(0), stored);
    disk.empty();
    let began = Instant::now();
    while running.add(0, 1, true).recv_timeout(PATIENCE).unwrap() == Err(Failure::DiskFull) {
        assert!(began.elapsed() < PATIENCE, "writes do not go on");
        std::thread::yield_now();
    }
    assert_eq!(running.sum(0), stored + 1);
    running.stop();
    let again = start_with(&directory, 1, &config);
    assert_eq!(again.sum(0), stored + 1);
    again.stop();
}
