use super::*;
use crate::group::GroupSettings;
use crate::log::LogConfig;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use tempfile::TempDir;

/// Sums of numbers per group; a command answers with the sum that includes it.
#[derive(Clone, Default)]
struct Sums(Arc<Mutex<HashMap<GroupId, u64>>>);

struct Add {
    number: u64,
    sync: bool,
    reply: Sender<Result<(), Failure>>,
}

impl StateMachine for Sums {
    type Command = Add;
    type Ticket = Sender<Result<(), Failure>>;

    fn evaluate(&mut self, _group: GroupId, command: Add, payload: &mut BytesMut) -> Evaluated<Self::Ticket> {
        if command.number == 0 {
            return Evaluated::NoChange { ticket: command.reply, confirm: false };
        }
        payload.extend_from_slice(&command.number.to_le_bytes());
        Evaluated::Replicate { ticket: command.reply, sync: command.sync, early: false }
    }

    fn proposed(&mut self, _group: GroupId, _index: u64, _payload: &Bytes) {}

    fn apply(&mut self, committed: &[Committed]) -> Result<(), String> {
        let mut sums = self.0.lock();
        for Committed { group, payloads, .. } in committed {
            let numbers = payloads.iter().flat_map(|payload: &Bytes| payload.chunks(8));
            let sum: u64 = numbers.map(|number| u64::from_le_bytes(number.try_into().unwrap())).sum();
            *sums.entry(*group).or_default() += sum;
        }
        Ok(())
    }

    fn answer(&mut self, ticket: Self::Ticket, outcome: Result<(), Failure>) {
        let _ = ticket.send(outcome);
    }

    fn refuse(&mut self, command: Add, failure: Failure) {
        let _ = command.reply.send(Err(failure));
    }

    fn serving(&mut self, _group: GroupId) {}
}

struct Running {
    inbox: Arc<Inbox<Add>>,
    log: Arc<SharedLog>,
    sums: Sums,
    thread: std::thread::JoinHandle<()>,
}

fn start(directory: &Path, groups: u64) -> Running {
    let (log, mut recovered) = SharedLog::open(directory, &LogConfig::default()).unwrap();
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
        let (reply, receiver) = channel();
        self.inbox.submit(GroupId(group), Add { number, sync, reply }).ok().unwrap();
        receiver
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
        assert!(
            (0..8).all(|group| running.sums.0.lock().get(&GroupId(group)).copied().unwrap_or(0) == (round - 1) * 500)
        );
        // Hard and soft commands mixed: a soft one must not make a hard one before it count too early.
        let replies: Vec<_> = (0..4_000).map(|number| running.add(number % 8, 1, number % 3 == 0)).collect();
        assert!(replies.iter().all(|reply| reply.recv().unwrap() == Ok(())));
        assert!((0..8).all(|group| running.sums.0.lock()[&GroupId(group)] == round * 500));
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
