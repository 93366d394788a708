//! Which service of a node a request from another node is for, by number, and who serves the requests of faces.
//!
//! The store answers some numbers itself, the node some others ([`number`]), and each face registers one of its own, so that neither
//! the store nor the node names a face.

use crate::router::{Envelope, Outcomes};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The numbers that the store and the node answer. Faces have 3, 6, 13 and 18, which are theirs; a new face takes the next free one.
pub mod number {
    /// To change the catalog.
    pub const CATALOG: u8 = 1;
    /// To be let into the cluster.
    pub const JOIN: u8 = 2;
    /// To delete all records of some partitions.
    pub const CLEAR: u8 = 4;
    /// A piece of a snapshot.
    pub const SNAPSHOT: u8 = 5;
    /// A step of copying a table that is being split.
    pub const COPY: u8 = 7;
    /// To count which keys of a partition are asked.
    pub const HOT_KEYS: u8 = 8;
    /// How far a node is with compacting a table.
    pub const COMPACTION: u8 = 9;
    /// To take part in comparing the replicas of a partition.
    pub const TAKE_PART: u8 = 10;
    /// To compare the replicas of partitions, or to tell what came of that.
    pub const COMPARE: u8 = 11;
    /// To ask the sender, which is about to go, nothing more. Answered when what it was asked has been answered.
    pub const ASK_NO_MORE: u8 = 12;
    /// Whether the tables of a node are those of the catalog at a log index of the catalog's group. Answered when they are.
    pub const FOLLOWS: u8 = 14;
    /// Up to which log index of the catalog's group the node that leads it knows the catalog.
    pub const CATALOG_INDEX: u8 = 15;
    /// To take part in transactions over partitions.
    pub const TRANSACTION: u8 = 16;
    /// To read partitions at one instant.
    pub const INSTANT: u8 = 17;

    pub(super) const ALL: [u8; 14] = [
        CATALOG,
        JOIN,
        CLEAR,
        SNAPSHOT,
        COPY,
        HOT_KEYS,
        COMPACTION,
        TAKE_PART,
        COMPARE,
        ASK_NO_MORE,
        FOLLOWS,
        CATALOG_INDEX,
        TRANSACTION,
        INSTANT,
    ];
}

/// Carries out what a client asked another node.
type Serve = Arc<dyn Fn(Bytes) -> Outcomes + Send + Sync>;

/// What serves the requests of faces that clients made to other nodes, by the number of the face's service.
#[derive(Default)]
pub struct Services {
    by_number: RwLock<BTreeMap<u8, Serve>>,
}

impl Services {
    /// Has requests of that number served as long as `server` is there.
    ///
    /// # Panics
    /// If the number is taken.
    pub(crate) fn add<S: Send + Sync + 'static>(
        &self,
        number: u8,
        server: &Arc<S>,
        serve: impl Fn(Arc<S>, Bytes) -> Outcomes + Send + Sync + 'static,
    ) {
        let serving = Arc::downgrade(server);
        let serve: Serve = Arc::new(move |request| match serving.upgrade() {
            Some(server) => serve(server, request),
            None => Box::pin(std::future::ready(Envelope::default())),
        });
        let is_free = !number::ALL.contains(&number) && self.by_number.write().insert(number, serve).is_none();
        assert!(is_free, "service {number} is taken");
    }

    /// Has a request served by the face that has this number; `None` if none has.
    pub(crate) fn ask(&self, number: u8, request: Bytes) -> Option<Outcomes> {
        let serve = self.by_number.read().get(&number)?.clone();
        Some(serve(request))
    }
}
