//! Keeps the node's tables, and the catalog's file, in step with the catalog.
//!
//! Following the catalog waits for the disk: RocksDB writes its manifest for each table that is created, and the files of the
//! catalog and of the replicas are fsynced. The catalog's group lives on the first worker's loop, together with all
//! connections to other nodes, whose heartbeats would wait as well. So the loop only hands over the latest catalog, and a thread
//! follows it. Catalogs in between may be skipped, as they are when a node gets the catalog as a snapshot.
//!
//! The catalog is in its group's log, so its file need not be written for each change, and must be before two things only: before
//! the log may let go of what the file reflects, and before the node lets go of something, such as a replica, which must not be
//! wanted again after a crash. While tables are being split, most changes say how far that is, thrice for each partition; they let go of
//! nothing. Their file is [late](UNSAVED).

use crate::node_context::NodeContext;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tessera_cluster::{CATALOG_GROUP, Catalog, CatalogFile, CatalogListener};
use tessera_consensus::{Inconsistent, Moment};
use tessera_store::hosting::ClusterView;
use tessera_types::NodeId;

/// Between two tries to follow a catalog.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the file may be late with how far tables are with being split.
const UNSAVED: Duration = Duration::from_secs(1);
pub(crate) struct CatalogFollower {
    news: Mutex<News>,
    has_come: Condvar,
    view: Arc<ClusterView>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct News {
    latest: Option<CatalogFile>,
    /// How many catalogs the loop has handed over.
    handed_over: u64,
    /// The index of a snapshot that the catalog's group waits to see on disk.
    awaited: Option<u64>,
    /// How many catalogs had been handed over when the catalog's group had caught up, until as many are followed.
    caught_up_at: Option<u64>,
    is_stopping: bool,
}

impl CatalogFollower {
    pub(crate) fn start(context: Arc<NodeContext>) -> std::io::Result<Arc<Self>> {
        let follower = Arc::new(Self {
            news: Mutex::default(),
            has_come: Condvar::new(),
            view: context.view.clone(),
            thread: Mutex::default(),
        });
        let following = follower.clone();
        let thread = std::thread::Builder::new().name("catalog".into()).spawn(move || following.run(&context))?;
        *follower.thread.lock() = Some(thread);
        Ok(follower)
    }

    /// Ends the thread; what it has not followed comes again from the log when the node starts.
    pub(crate) fn stop(&self) {
        self.news.lock().is_stopping = true;
        self.has_come.notify_all();
        self.view.progress().end();
        if let Some(thread) = self.thread.lock().take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }

    fn publish(&self, file: &CatalogFile, awaited: Option<u64>) {
        let mut news = self.news.lock();
        news.latest = Some(file.clone());
        news.handed_over += 1;
        news.awaited = awaited.or(news.awaited);
        self.view.progress().note_handed_over(news.handed_over, file.applied_index);
        self.has_come.notify_all();
    }

    fn run(&self, context: &NodeContext) {
        let mut saved = Saved::default();
        while let Some(Next { file, number, is_awaited }) = self.next(saved.late.as_ref()) {
            if !is_awaited && saved.may_be_late(&file, number, Instant::now()) {
                context.view.set_catalog(Arc::new(file.catalog));
            } else {
                if let Err(error) = follow(context, &file) {
                    tracing::warn!(error, "the catalog has changed, and cannot be followed yet; trying again");
                    self.try_again(file);
                    continue;
                }
                context.catalog_inbox.durable(CATALOG_GROUP, file.applied_index);
                let awaited = self.news.lock().awaited.take_if(|index| *index <= file.applied_index);
                if let Some(index) = awaited {
                    context.catalog_inbox.prepared(CATALOG_GROUP, index);
                }
                saved = Saved { catalog: Some(file.catalog), late: None };
            }
            self.view.progress().note_followed(number);
            context.take_part_again(number);
            if self.news.lock().caught_up_at.take_if(|at| *at <= number).is_some() {
                context.view.note_catalog_known();
            }
        }
    }

    /// The catalog's group has caught up; so has the node when it has followed.
    fn note_caught_up(&self, context: &NodeContext) {
        let mut news = self.news.lock();
        if self.view.progress().followed() >= news.handed_over {
            context.view.note_catalog_known();
        } else {
            news.caught_up_at = news.caught_up_at.or(Some(news.handed_over));
        }
    }

    /// Waits for a catalog, or until the one that is late is due; `None` at the end.
    fn next(&self, late: Option<&Late>) -> Option<Next> {
        let mut news = self.news.lock();
        while !news.is_stopping {
            if let Some(file) = news.latest.take() {
                return Some(Next { file, number: news.handed_over, is_awaited: news.awaited.is_some() });
            }
            match late {
                None => self.has_come.wait(&mut news),
                Some(Late { file, number, due }) => {
                    if self.has_come.wait_until(&mut news, *due).timed_out() && news.latest.is_none() {
                        return Some(Next { file: file.clone(), number: *number, is_awaited: false });
                    }
                }
            }
        }
        None
    }

    /// Waits before the next try, which is for this catalog unless there is a later one.
    fn try_again(&self, file: CatalogFile) {
        let mut news = self.news.lock();
        if !news.is_stopping {
            news.latest.get_or_insert(file);
            self.has_come.wait_for(&mut news, PAUSE);
        }
    }
}

/// A catalog to follow.
struct Next {
    file: CatalogFile,
    /// How many catalogs had been handed over with it.
    number: u64,
    /// Whether the catalog's group waits to see it, or an earlier one, on disk.
    is_awaited: bool,
}

/// What the catalog's file has.
#[derive(Default)]
struct Saved {
    /// `None` until the first one is written by this process.
    catalog: Option<Catalog>,
    late: Option<Late>,
}

/// A catalog that is followed but not in the file.
struct Late {
    file: CatalogFile,
    number: u64,
    /// When it is to be in the file.
    due: Instant,
}

impl Saved {
    /// Whether a catalog may wait for its file, as it may when nothing else has changed than how far tables are with being split.
    /// The first one that waits says how long all do.
    fn may_be_late(&mut self, file: &CatalogFile, number: u64, now: Instant) -> bool {
        let due = self.late.as_ref().map_or(now + UNSAVED, |late| late.due);
        let is_progress = |saved: &Catalog| file.catalog.differs_in_progress_only(saved);
        let may_be_late = now < due && self.catalog.as_ref().is_some_and(is_progress);
        if may_be_late {
            self.late = Some(Late { file: file.clone(), number, due });
        }
        may_be_late
    }
}

fn follow(context: &NodeContext, file: &CatalogFile) -> Result<(), String> {
    let path = context.directory.catalog();
    // First: what the node lets go of, such as a replica, must not be wanted again after a crash.
    file.save(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    context.follow(&file.catalog).map_err(|error| error.to_string())
}

/// What the catalog's group tells, on the first worker's loop.
pub(crate) struct CatalogNews {
    pub(crate) context: Arc<NodeContext>,
    pub(crate) follower: Arc<CatalogFollower>,
}

impl CatalogListener for CatalogNews {
    fn changed(&mut self, file: &CatalogFile) {
        self.follower.publish(file, None);
    }

    fn is_to_be_replaced(&mut self, file: &CatalogFile) {
        self.follower.publish(file, Some(file.applied_index));
    }

    fn fresh(&mut self, as_of: Option<Moment>) {
        self.context.view.set_catalog_as_of(as_of);
    }

    fn leader(&mut self, node: NodeId) {
        self.context.view.set_catalog_leader(node);
    }

    fn set_aside(&mut self, reason: &Inconsistent) {
        tracing::error!(%reason, "the catalog's replica here is set aside: this node hears of no changes until another one takes its place");
        self.context.replicas.set_aside(CATALOG_GROUP, reason);
    }

    fn caught_up(&mut self, catalog: &Catalog) {
        // Whoever of this and the thread comes second sees what the other one did.
        self.context.current_from.store(self.follower.news.lock().handed_over, Ordering::Release);
        let followed = self.follower.view.progress().followed();
        self.context.take_part_again(followed);
        self.context.forget_unknown_groups(catalog);
        self.follower.note_caught_up(&self.context);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::NodeConfig;
    use crate::test_node::TestNode;
    use bytes::BytesMut;
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};
    use tessera_cluster::{CatalogCommand, CatalogFile, CopyReport, CopyState};
    use tessera_engine::{Applied, mutation};
    use tessera_store::Store;
    use tessera_types::{Durability, EngineKind, Expiry, RecordKey, StoredValue, ValueKind};

    /// The split of a table of 4,096 partitions once wrote the file 8,000 times.
    #[tokio::test]
    async fn how_far_a_split_is_is_written_to_the_file_now_and_then_and_is_not_lost() {
        const PARTITIONS: u32 = 64;
        const REPORTS: u64 = 500;
        // The one copier that may begin waits for its turn to send.
        let slow = |config: &mut NodeConfig| config.move_bytes_per_second = 1;
        let node = TestNode::start(slow);
        let table = node.create_durable_table("t", PARTITIONS, EngineKind::Memory, Durability::Soft).await;
        let value = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: &[7; 100_000] };
        for partition in 0..PARTITIONS {
            let is_there = |key: &[u8; 4]| table.partition_of(&RecordKey::new(key, b"")) == partition;
            let hash_key = (0u32..).map(u32::to_le_bytes).find(is_there).unwrap();
            let mut record = BytesMut::new();
            mutation::encode_put(&mut record, &RecordKey::new(&hash_key, b""), &value);
            let index = table.engine().applied_index(partition);
            table.engine().write(&[Applied { partition, index, term: 1, payloads: &[record.freeze()] }]).unwrap();
        }
        let split = CatalogCommand::Split { name: "t".into(), partitions: 2 * PARTITIONS, absent: Default::default() };
        node.change(split).await;
        let path = node.context.directory.catalog();
        let in_file = || CatalogFile::load(&path).unwrap().unwrap().applied_index;
        let (began, mut written) = (Instant::now(), BTreeSet::from([in_file()]));
        for attempt in 1..=REPORTS {
            let (table, report) = (table.id(), CopyReport::Begun);
            node.change(CatalogCommand::Copy { table, partition: PARTITIONS - 1, attempt, report }).await;
            written.insert(in_file());
        }
        let often = u64::try_from(written.len()).unwrap();
        assert!(often <= 3 + 2 * began.elapsed().as_secs(), "written {often} times in {:?}", began.elapsed());
        let state = |store: &Store| Some(store.catalog().get(table.id())?.split.as_ref()?.copies[63]);
        assert_eq!(state(&node.store), Some(CopyState::Copying(REPORTS)));

        // What was not in the file comes from the log.
        let node = node.restart(|_| (), slow);
        let is_known = |store: &Store| (state(store)? == CopyState::Copying(REPORTS)).then_some(());
        node.wait_for("the last report is known again", is_known).await;
        let path = node.context.directory.catalog();
        let in_file = || {
            let file = CatalogFile::load(&path).unwrap().unwrap();
            Some(file.catalog.get(table.id())?.split.as_ref()?.copies[63])
        };
        let is_in_file = |_: &Store| (in_file()? == CopyState::Copying(REPORTS)).then_some(());
        node.wait_for("the log may let go of it", is_in_file).await;
    }

    #[tokio::test]
    async fn the_loop_goes_on_while_a_change_of_the_catalog_waits_for_the_disk() {
        let node = TestNode::start(|_| ());
        node.create_table("before", 1).await;
        // Who follows the catalog holds this while it writes replicas down; here the disk takes its time.
        let context = node.context.clone();
        let (disk, is_back) = std::sync::mpsc::channel::<()>();
        let (holds, held) = tokio::sync::oneshot::channel();
        let slow_host = context.clone();
        let slow_disk = std::thread::spawn(move || {
            let _settling = slow_host.replicas.settling.lock();
            holds.send(()).unwrap();
            let _ = is_back.recv();
        });
        held.await.unwrap();
        let handed_over = || context.view.progress().handed_over();
        let before = handed_over();
        let changing = node.store.clone();
        let rename = CatalogCommand::Rename { name: "before".into(), to: "after".into() };
        let change = tokio::spawn(async move { changing.change_catalog(rename).await });
        node.wait_for("the change is committed", |_| (handed_over() > before).then_some(())).await;
        for inbox in context.inboxes.all() {
            let (sender, views) = tokio::sync::oneshot::channel();
            inbox.query_status(Box::new(move |views| _ = sender.send(views)));
            let views = tokio::time::timeout(Duration::from_secs(20), views).await.expect("the loop goes on");
            assert!(views.unwrap().iter().any(|view| view.is_serving));
        }
        assert!(!change.is_finished(), "who changed the catalog waits for the tables here");
        drop(disk);
        slow_disk.join().unwrap();
        change.await.unwrap().unwrap().unwrap();
        assert!(node.store.table_named("after").is_some());
    }
}
