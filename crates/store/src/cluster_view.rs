//! What a node knows of its cluster: the catalog, who leads it, and how far the tables here are in step with it.

use crate::catalog_progress::CatalogProgress;
use crate::lease::Lease;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tessera_cluster::Catalog;
use tessera_consensus::Moment;
use tessera_types::NodeId;

/// What this node knows of its cluster. The node writes it, the store reads it.
pub struct ClusterView {
    catalog: ArcSwap<Catalog>,
    /// Whether the catalog names no other node.
    is_alone: AtomicBool,
    /// How often the users of the catalog have been changed.
    user_changes: AtomicU64,
    /// The node that leads the catalog's group; zero is none.
    catalog_leader: AtomicU32,
    /// When the catalog here was last known to be what its leader had.
    catalog_as_of: Lease,
    knows_catalog: AtomicBool,
    is_removed: AtomicBool,
    progress: CatalogProgress,
}

impl ClusterView {
    /// As of the start of a node, which knows this catalog from before.
    pub fn new(catalog: Catalog) -> Self {
        Self {
            user_changes: AtomicU64::new(catalog.users().changes()),
            catalog: ArcSwap::from_pointee(catalog),
            is_alone: AtomicBool::new(true),
            catalog_leader: AtomicU32::new(0),
            catalog_as_of: Lease::default(),
            knows_catalog: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            progress: CatalogProgress::default(),
        }
    }

    /// The catalog as this node knows it.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Replaces the catalog that this node knows.
    pub fn set_catalog(&self, catalog: Arc<Catalog>) {
        let user_changes = catalog.users().changes();
        self.is_alone.store(catalog.nodes().count() <= 1, Ordering::Relaxed);
        self.catalog.store(catalog);
        // Whoever sees the number finds what it counts.
        self.user_changes.store(user_changes, Ordering::Release);
    }

    /// Another number whenever a user has been changed: cheaper to ask for than the catalog.
    pub fn user_changes(&self) -> u64 {
        self.user_changes.load(Ordering::Acquire)
    }

    /// Whether the catalog names no other node.
    pub fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed)
    }

    /// The node that leads the catalog, as far as this one knows.
    pub fn catalog_leader(&self) -> Option<NodeId> {
        Some(NodeId(self.catalog_leader.load(Ordering::Relaxed))).filter(|node| node.0 != 0)
    }

    /// Notes which node leads the catalog.
    pub fn set_catalog_leader(&self, node: NodeId) {
        self.catalog_leader.store(node.0, Ordering::Relaxed);
    }

    /// How old the catalog here may be; `None` if this node has not heard since its start what the catalog's leader has.
    pub fn catalog_age(&self) -> Option<Duration> {
        (!self.catalog_as_of.is_unset()).then(|| self.catalog_as_of.ago())
    }

    /// The catalog here is what its leader had then; `None` is now and for ever.
    pub fn set_catalog_as_of(&self, as_of: Option<Moment>) {
        self.catalog_as_of.set(as_of);
    }

    /// Whether the catalog here is no older than this start of the node. Before that members are left as they are: what the
    /// node knows may have been given up since.
    pub fn knows_catalog(&self) -> bool {
        self.knows_catalog.load(Ordering::Relaxed)
    }

    /// Notes that this node's copy of the catalog is no longer one from before its start.
    pub fn note_catalog_known(&self) {
        self.knows_catalog.store(true, Ordering::Relaxed);
    }

    /// Whether this node was removed from its cluster, as another node has said.
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// This node was removed from its cluster. Returns whether that is news.
    pub fn note_removed(&self) -> bool {
        !self.is_removed.swap(true, Ordering::AcqRel)
    }

    /// How far the tables here are in step with the catalog's group.
    pub fn progress(&self) -> &CatalogProgress {
        &self.progress
    }
}
