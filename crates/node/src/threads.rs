//! Threads for work that takes long, while a worker's loop goes on.
//!
//! The system may have no thread to give: a limit of the user or of the container is reached, or memory is. Work that must be done
//! then waits here, and the maintenance thread, which is there since the node was started, tries again to start it.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Longer than a process lives.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

type Work = Box<dyn FnOnce() + Send>;

/// A runtime on the thread that uses it. It has a thread for what blocks from the beginning, and keeps it: tokio panics when work
/// that blocks has no thread at all, but lets it wait for one that is busy.
///
/// # Errors
/// If the system does not give what it needs.
pub fn runtime() -> io::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().thread_keep_alive(FOR_EVER).build()?;
    drop(runtime.spawn_blocking(|| ()));
    Ok(runtime)
}

/// Starts threads, and keeps the work for which there was none.
#[derive(Default)]
pub(crate) struct Threads {
    waiting: Mutex<Vec<(&'static str, Work)>>,
    /// Whether the system has no threads to give.
    #[cfg(test)]
    pub(crate) are_used_up: std::sync::atomic::AtomicBool,
}

impl Threads {
    /// Does work in a thread of that name, as soon as there is one.
    pub(crate) fn run(&self, name: &'static str, work: impl FnOnce() + Send + 'static) {
        if let Err((work, error)) = self.start(name, Box::new(work)) {
            tracing::warn!(thread = name, %error, "no thread can be started; trying again");
            self.waiting.lock().push((name, work));
        }
    }

    /// Tries again to start what waits.
    pub(crate) fn start_waiting(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for (name, work) in waiting {
            if let Err((work, _)) = self.start(name, work) {
                self.waiting.lock().push((name, work));
            }
        }
    }

    /// Gives the work back with the reason if no thread can be started.
    fn start(&self, name: &'static str, work: Work) -> Result<(), (Work, io::Error)> {
        #[cfg(test)]
        if self.are_used_up.load(std::sync::atomic::Ordering::Relaxed) {
            return Err((work, io::ErrorKind::WouldBlock.into()));
        }
        // A thread that cannot be started drops what it was to run.
        let place = Arc::new(Mutex::new(Some(work)));
        let taken = place.clone();
        let run = move || {
            let work = taken.lock().take();
            if let Some(work) = work {
                work();
            }
        };
        match std::thread::Builder::new().name(name.into()).spawn(run) {
            Ok(_) => Ok(()),
            Err(error) => {
                let work = place.lock().take();
                Err((work.expect("no thread has taken it"), error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::PartitionsMachine;
    use crate::test_node::TestNode;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::channel;
    use tessera_consensus::StateMachine;
    use tessera_engine::{Applied, mutation};
    use tessera_store::Store;
    use tessera_store::hosting::group_of;
    use tessera_types::{Expiry, RecordKey, StoredValue, ValueKind};

    #[test]
    fn work_waits_until_there_is_a_thread() {
        let threads = Threads::default();
        let (sender, done) = channel();
        threads.are_used_up.store(true, Ordering::Relaxed);
        for number in 0..3 {
            let sender = sender.clone();
            threads.run("work", move || sender.send(number).unwrap());
        }
        threads.start_waiting();
        assert!(done.try_recv().is_err());
        threads.are_used_up.store(false, Ordering::Relaxed);
        threads.start_waiting();
        let mut all: Vec<i32> = done.iter().take(3).collect();
        all.sort_unstable();
        assert_eq!((all, threads.waiting.lock().len()), (vec![0, 1, 2], 0));
    }

    /// It once took the whole node down, with all partitions that it led.
    #[tokio::test]
    async fn records_are_replaced_by_a_snapshot_although_there_was_no_thread_for_it_at_first() {
        let node = TestNode::start(|_| {});
        let table = node.create_table("t", 1).await;
        let context = node.context.clone();
        context.threads.are_used_up.store(true, Ordering::Relaxed);
        let index = table.engine().applied_index(0) + 100;
        // An empty snapshot keeps the records, as those of its index.
        let mut machine = PartitionsMachine::new(context.clone());
        assert!(!machine.prepare(group_of(table.id(), 0), index, b""), "it is done elsewhere, and later");
        assert_ne!(table.engine().applied_index(0), index);
        context.threads.are_used_up.store(false, Ordering::Relaxed);
        let is_done = |_: &Store| (table.engine().applied_index(0) == index).then_some(());
        node.wait_for("the maintenance thread starts the work that waits", is_done).await;
    }

    /// Its records were once left over then.
    #[tokio::test]
    async fn a_replica_that_goes_is_removed_although_there_was_no_thread_for_it_at_first() {
        let node = TestNode::start(|_| {});
        let table = node.create_table("t", 1).await;
        let context = node.context.clone();
        let mut payload = bytes::BytesMut::new();
        let (key, expiry) = (RecordKey::new(b"k", b""), Expiry::NEVER);
        mutation::encode_put(&mut payload, &key, &StoredValue { expiry, kind: ValueKind::Plain, payload: b"v" });
        let index = table.engine().applied_index(0) + 1;
        table.engine().write(&[Applied { partition: 0, index, term: 1, payloads: &[payload.freeze()] }]).unwrap();
        let is_there = || table.engine().get(0, &key, &mut |_| ()).unwrap();

        context.threads.are_used_up.store(true, Ordering::Relaxed);
        let (mut machine, group) = (PartitionsMachine::new(context.clone()), group_of(table.id(), 0));
        machine.is_idle(group); // from then on it knows the partition
        machine.removed(group);
        assert!(is_there());
        context.threads.are_used_up.store(false, Ordering::Relaxed);
        node.wait_for("the maintenance thread starts the work that waits", |_| (!is_there()).then_some(())).await;
    }
}
