//! A node whose data directory is older than what it had: a copy of an earlier time was put back under it.
//!
//! It has forgotten votes, and writes that it had acknowledged, of any durability. So it takes part in nothing as who it was:
//! its replica of the catalog is replaced by one with another name, which learns everything anew, and then the catalog
//! [decides](crate::lost) what becomes of all other replicas here. Where those that have not forgotten are no majority, all wait
//! until an operator starts the node with the word that its data is to count as it is.
//!
//! No node takes part in anything before those that it reaches have [seen its start](crate::generation), which is when it is
//! told. It is started again then, because its groups may be running already.

use crate::data_directory::DataDirectory;
use crate::node_context::NodeContext;
use crate::{boot, generation};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tessera_cluster::{CatalogCommand, Changed};
use tessera_store::hosting::{CatalogAnswer, number};
use tessera_transport::Generation;
use tessera_types::{NodeId, ReplicaId};

/// How long a node that starts waits for those that neither answer nor refuse.
const SEEN: Duration = Duration::from_secs(3);
/// Between two looks at whether others have answered.
const LOOK: Duration = Duration::from_millis(5);
/// Between two rounds of asking for another replica of the catalog.
const PAUSE: Duration = Duration::from_millis(200);

impl NodeContext {
    /// Another node has seen a later start of this one.
    pub(crate) fn note_overtaken(&self, by: NodeId, known: u64) {
        tracing::error!(
            %by,
            "the data directory is older than what this node had: another node knows a later start of it. What is in it does \
             not count any more; the node starts again and gets new replicas from others"
        );
        match boot::note_overtaken(&self.directory.boot(), known) {
            Ok(()) => self.must_start_again.notify_one(),
            Err(error) => tracing::error!(%error, "that cannot be written down"),
        }
    }

    /// So many catalogs are followed. Once the cluster's own is, replicas may start. What it wants on this node others may know as
    /// something that has acknowledged writes, whether it was in the copy or not.
    pub(crate) fn take_part_again(&self, followed: u64) {
        let is_current = followed >= self.current_from.load(Ordering::Acquire);
        if is_current && self.is_overtaken && self.holds_back.load(Ordering::Acquire) {
            self.shun_all(&self.view.catalog());
            self.holds_back.store(false, Ordering::Release);
        }
    }

    /// Starts the catalog's group, and lets the others start unless they have to wait for it.
    pub(crate) fn take_part(&self) {
        if let Some(start) = self.catalog_start.lock().take() {
            self.catalog_inbox.start(start);
        }
        if !self.is_overtaken {
            self.holds_back.store(false, Ordering::Release);
        }
    }
}

impl NodeContext {
    /// Lets this node take part once others have seen its start.
    pub(crate) async fn begin_to_take_part(self: &Arc<Self>) {
        if self.catalog_start.lock().is_none() {
            return; // it is alone
        }
        let began = Instant::now();
        while began.elapsed() < SEEN && !self.others().into_iter().all(|node| self.transport.has_tried(node)) {
            self.dial_peers();
            tokio::time::sleep(LOOK).await;
        }
        if self.is_overtaken {
            let replica = self.replace_catalog_replica().await;
            if let Some(start) = &mut *self.catalog_start.lock() {
                start.settings.replica = replica;
            }
        }
        self.take_part();
        let context = self.clone();
        let settled = tokio::task::spawn_blocking(move || context.reconcile_replicas()).await;
        if let Ok(Err(error)) = settled {
            tracing::warn!(%error, "replicas cannot be begun; trying again");
        }
    }

    fn others(&self) -> Vec<NodeId> {
        self.view.catalog().nodes().map(|node| node.id).filter(|node| *node != self.identity.node).collect()
    }

    /// Has the cluster give this node another replica of the catalog, and writes down which.
    async fn replace_catalog_replica(&self) -> ReplicaId {
        tracing::warn!("the data here is older than what this node had; asking the cluster for new replicas");
        loop {
            if let Some(replica) = self.ask_for_catalog_replica().await {
                match crate::identity::save_catalog_replica(&self.directory.identity(), replica, false) {
                    Ok(()) => return replica,
                    Err(error) => {
                        tracing::error!(%error, "which replica of the catalog is here cannot be written down")
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks each other node once to have the cluster give this one another replica of the catalog. The one that leads the catalog
    /// answers.
    pub(crate) async fn ask_for_catalog_replica(&self) -> Option<ReplicaId> {
        let command = CatalogCommand::RenewCatalogReplica { node: self.identity.node };
        let request = serde_json::to_vec(&command).expect("commands have a JSON form");
        self.dial_peers();
        for node in self.others() {
            let answer = self.transport.request(node, number::CATALOG, &request).await;
            let answer = answer.ok().and_then(|answer| serde_json::from_slice::<CatalogAnswer>(&answer).ok());
            if let Some(Ok(Ok(Changed::Replica(replica)))) = answer.map(Result::from) {
                return Some(replica);
            }
        }
        None
    }
}

/// How a node starts.
pub(crate) struct Start {
    pub(crate) generation: Generation,
    pub(crate) is_overtaken: bool,
}

/// Counts this start, and finds out whether the data directory is older than what the node had, as far as it can tell by
/// itself or was told before.
pub(crate) fn begin(directory: &DataDirectory, accepts_older: bool, is_alone: bool) -> io::Result<Start> {
    let (boot, counted, lock) = (directory.boot(), directory.generation(), directory.lock());
    let is_copy = generation::is_copy(&counted, &lock)?;
    let root = directory.root().display();
    if is_copy && is_alone {
        tracing::info!(path = %root, "the data directory is a copy; what was written after it was made is not in it");
    } else if is_copy && !accepts_older {
        tracing::warn!(path = %root, "the data directory is a copy, and may lack what this node has acknowledged");
        // Before the copy counts as the place where the data is.
        boot::note_overtaken(&boot, 0)?;
    }
    let overtaken = boot::overtaken(&boot)?;
    let generation = generation::begin(&counted, &lock, overtaken.unwrap_or(0))?;
    if accepts_older {
        if overtaken.is_some() || is_copy {
            tracing::warn!(path = %root, "what the data directory holds counts, as somebody said, although the node had more");
        }
        boot::accept_older(&boot)?;
    }
    Ok(Start { generation, is_overtaken: overtaken.is_some() && !accepts_older })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn copy(from: &DataDirectory, to: &Path) -> DataDirectory {
        let copy = DataDirectory::open(to).unwrap();
        for file in ["boot.json", "generation.json"] {
            fs::copy(from.root().join(file), to.join(file)).unwrap();
        }
        copy
    }

    #[test]
    fn a_copy_is_overtaken_until_it_is_renewed_or_somebody_says_that_it_counts() {
        let parent = tempfile::TempDir::new().unwrap();
        let first = DataDirectory::open(&parent.path().join("data")).unwrap();
        boot::begin(&first.boot(), false).unwrap();
        for number in 1..3 {
            let start = begin(&first, false, false).unwrap();
            assert_eq!((start.generation.number, start.is_overtaken), (number, false));
        }
        let alone = copy(&first, &parent.path().join("alone"));
        assert!(!begin(&alone, false, true).unwrap().is_overtaken, "nobody else has what it lacks");
        let copied = copy(&first, &parent.path().join("copy"));
        assert!(begin(&copied, false, false).unwrap().is_overtaken);
        assert!(begin(&copied, false, false).unwrap().is_overtaken, "it is not renewed yet");
        boot::note_overtaken(&copied.boot(), 40).unwrap();
        let told = begin(&copied, false, true).unwrap();
        assert!(told.is_overtaken && told.generation.number == 41, "others know better than it whether it is alone");
        let accepted = begin(&copied, true, false).unwrap();
        assert!(!accepted.is_overtaken && accepted.generation.number == 42);
        assert!(!begin(&copied, false, false).unwrap().is_overtaken, "it is remembered");
        boot::note_overtaken(&first.boot(), 7).unwrap();
        boot::renewed(&first.boot()).unwrap();
        assert!(!begin(&first, false, false).unwrap().is_overtaken);
    }
}
