//! Keeps the node's tables, and the catalog's file, in step with the catalog.
//!
//! Following the catalog waits for the disk: RocksDB writes its manifest for each table that is created, and the files of the
//! catalog and of the replicas are fsynced. The catalog's group lives on the first worker's loop, together with all
//! connections to other nodes, whose heartbeats would wait as well. So the loop only hands over the latest catalog, and a thread
//! follows it. Catalogs in between may be skipped, as they are when a node gets the catalog as a snapshot.

use crate::host::Host;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use tessera_cluster::{CATALOG_GROUP, Catalog, CatalogFile, CatalogListener};
use tessera_consensus::Inconsistent;
use tessera_types::NodeId;
use tokio::sync::watch;

/// Between two tries to follow a catalog.
const PAUSE: Duration = Duration::from_secs(1);
/// How long somebody who has changed the catalog waits for the tables here.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct CatalogFollower {
    news: Mutex<News>,
    has_come: Condvar,
    /// How many of the catalogs that the loop handed over are followed.
    followed: watch::Sender<u64>,
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
    pub(crate) fn start(host: Arc<Host>) -> std::io::Result<Arc<Self>> {
        let follower = Arc::new(Self {
            news: Mutex::default(),
            has_come: Condvar::new(),
            followed: watch::Sender::new(0),
            thread: Mutex::default(),
        });
        let following = follower.clone();
        let thread = std::thread::Builder::new().name("catalog".into()).spawn(move || following.run(&host))?;
        *follower.thread.lock() = Some(thread);
        Ok(follower)
    }

    /// Ends the thread; what it has not followed comes again from the log when the node starts.
    pub(crate) fn stop(&self) {
        self.news.lock().is_stopping = true;
        self.has_come.notify_all();
        self.followed.send_replace(u64::MAX); // nobody is to wait for it any more
        if let Some(thread) = self.thread.lock().take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }

    /// Waits until the tables here are those of the catalog as the loop has it now, for a while.
    pub(crate) async fn caught_up(&self) {
        let handed_over = self.news.lock().handed_over;
        let mut followed = self.followed.subscribe();
        let wait = followed.wait_for(|followed| *followed >= handed_over);
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            tracing::warn!("the catalog has changed, and the tables here do not follow yet");
        }
    }

    fn hand_over(&self, file: &CatalogFile, awaited: Option<u64>) {
        let mut news = self.news.lock();
        news.latest = Some(file.clone());
        news.handed_over += 1;
        news.awaited = awaited.or(news.awaited);
        self.has_come.notify_all();
    }

    fn run(&self, host: &Host) {
        while let Some((file, number)) = self.next() {
            if let Err(error) = follow(host, &file) {
                tracing::warn!(error, "the catalog has changed, and cannot be followed yet; trying again");
                self.try_again(file);
                continue;
            }
            host.catalog_inbox.durable(CATALOG_GROUP, file.applied_index);
            let awaited = self.news.lock().awaited.take_if(|index| *index <= file.applied_index);
            if let Some(index) = awaited {
                host.catalog_inbox.prepared(CATALOG_GROUP, index);
            }
            self.followed.send_replace(number);
            host.take_part_again(number);
            if self.news.lock().caught_up_at.take_if(|at| *at <= number).is_some() {
                host.knows_catalog.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The catalog's group has caught up; so has the node when it has followed.
    fn note_caught_up(&self, host: &Host) {
        let mut news = self.news.lock();
        if *self.followed.borrow() >= news.handed_over {
            host.knows_catalog.store(true, Ordering::Relaxed);
        } else {
            news.caught_up_at = news.caught_up_at.or(Some(news.handed_over));
        }
    }

    /// Waits for a catalog; `None` at the end.
    fn next(&self) -> Option<(CatalogFile, u64)> {
        let mut news = self.news.lock();
        while !news.is_stopping {
            if let Some(file) = news.latest.take() {
                return Some((file, news.handed_over));
            }
            self.has_come.wait(&mut news);
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

fn follow(host: &Host, file: &CatalogFile) -> Result<(), String> {
    let path = host.directory.catalog();
    // First: what the node lets go of, such as a replica, must not be wanted again after a crash.
    file.save(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    host.follow(&file.catalog).map_err(|error| error.to_string())
}

/// What the catalog's group tells, on the first worker's loop.
pub(crate) struct CatalogNews {
    pub(crate) host: Arc<Host>,
    pub(crate) follower: Arc<CatalogFollower>,
}

impl CatalogListener for CatalogNews {
    fn changed(&mut self, file: &CatalogFile) {
        self.follower.hand_over(file, None);
    }

    fn is_to_be_replaced(&mut self, file: &CatalogFile) {
        self.follower.hand_over(file, Some(file.applied_index));
    }

    fn leader(&mut self, node: NodeId) {
        self.host.catalog_leader.store(node.0, Ordering::Relaxed);
    }

    fn set_aside(&mut self, reason: &Inconsistent) {
        tracing::error!(%reason, "the catalog's replica here is set aside: this node hears of no changes any more");
        self.host.replicas.set_aside(CATALOG_GROUP, reason);
    }

    fn caught_up(&mut self, catalog: &Catalog) {
        // Whoever of this and the thread comes second sees what the other one did.
        self.host.current_from.store(self.follower.news.lock().handed_over, Ordering::Release);
        let followed = *self.follower.followed.borrow();
        self.host.take_part_again(followed);
        self.host.forget_unknown_groups(catalog);
        self.follower.note_caught_up(&self.host);
    }
}

#[cfg(test)]
mod tests {
    use crate::test_node::TestNode;
    use std::time::Duration;
    use tessera_cluster::CatalogCommand;

    #[tokio::test]
    async fn the_loop_goes_on_while_a_change_of_the_catalog_waits_for_the_disk() {
        let node = TestNode::start(|_| ());
        node.create_table("before", 1).await;
        // Who follows the catalog holds this while it writes replicas down; here the disk takes its time.
        let (host, store) = (node.store.host.clone(), node.store.clone());
        let (disk, is_back) = std::sync::mpsc::channel::<()>();
        let (holds, held) = tokio::sync::oneshot::channel();
        let slow_host = host.clone();
        let slow_disk = std::thread::spawn(move || {
            let _settling = slow_host.replicas.settling.lock();
            holds.send(()).unwrap();
            let _ = is_back.recv();
        });
        held.await.unwrap();
        let handed_over = || store.catalog_follower.news.lock().handed_over;
        let before = handed_over();
        let changing = node.store.clone();
        let rename = CatalogCommand::Rename { name: "before".into(), to: "after".into() };
        let change = tokio::spawn(async move { changing.change_catalog(rename).await });
        node.wait_for("the change is committed", |_| (handed_over() > before).then_some(())).await;
        for inbox in &host.inboxes {
            let (sender, views) = tokio::sync::oneshot::channel();
            inbox.look(Box::new(move |views| _ = sender.send(views)));
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
