//! What every face calls: records read and written with durability, deadlines and atomicity inside one partition, by
//! table. The store does not know how a request came in.
//!
//! Read first: [`Store`], then [`Transaction`] (how a write is evaluated), then the router ([`Route`]: how a request reaches the node that can
//! carry it out). How a write becomes state, and everything else that a node does, is in the crate `tessera-node`, which uses
//! [`hosting`].

#![warn(missing_docs)]

mod admission;
mod answers;
mod catalog_answer;
mod catalog_changes;
mod catalog_progress;
mod catalog_told;
mod change_capture;
mod change_set;
mod clear;
mod clock;
mod cluster_view;
mod compaction_query;
mod compaction_state;
mod coordination;
mod deleted_hash_keys;
mod disk_readers;
mod disk_refusals;
mod errors;
mod expiry_fence;
mod face_meter;
mod group;
mod histogram;
mod hot_key_search;
mod hot_keys;
mod inboxes;
mod known_leader;
mod known_starts;
mod lease;
mod ledger;
mod meter;
mod operation;
mod ordered_keys;
mod overlay;
mod partition;
mod read_gate;
mod registry;
mod request_times;
mod role;
mod router;
mod seal;
mod services;
mod space_writes;
mod statistics;
mod store;
mod store_parts;
mod table;
#[cfg(test)]
mod test_table;
mod transaction;
mod truncation;
mod watch;

pub use admission::Admissions;
pub use catalog_changes::AlterError;
pub use compaction_state::CompactionState;
pub use coordination::{Transacted, TransactionCounts, TransactionPart};
pub use disk_readers::DiskReaders;
pub use face_meter::{CommandStatistics, FaceMeter, FaceStatistics, RequestStatistics};
pub use histogram::HistogramCounts;
pub use hot_key_search::LONGEST as LONGEST_COUNT;
pub use hot_keys::{HotKey, HotKeysFound};
pub use ledger::{Evaluator, PartitionName};
pub use meter::{CAPACITY_UNIT_BYTES, Counts};
pub use operation::{Operation, Verdict, WriteOptions};
pub use request_times::RequestKind;
pub use router::{Envelope, Outcomes, PATIENCE, Part, PartOutcome, READ_TRIES, Route};
pub use statistics::{StoreStatistics, TableStatistics};
pub use store::{QUIET, Store};
pub use table::{InstantScope, KEYS_AT_ONCE, Leader, Table, TableIdentity};
pub use tessera_transaction::Access;
pub use transaction::{Copies, Record, SpaceScan, Transaction};
pub use watch::Watch;

/// What a node needs that opens tables and runs the loops of their partitions. Faces use none of it.
pub mod hosting {
    pub use crate::catalog_answer::CatalogAnswer;
    pub use crate::catalog_progress::CatalogProgress;
    pub use crate::change_capture::{ChangeCapture, Tap};
    pub use crate::clock::{ClusterClock, HeardClock};
    pub use crate::cluster_view::ClusterView;
    pub use crate::errors::{damaged, request_error};
    pub use crate::expiry_fence::ExpiryFence;
    pub use crate::group::{group_of, partition_of_group};
    pub use crate::inboxes::Inboxes;
    pub use crate::known_leader::KnownLeader;
    pub use crate::ledger::PartitionLedger;
    pub use crate::operation::{PendingReply, WriteCommand, failed};
    pub use crate::overlay::Overlay;
    pub use crate::partition::{Partition, WakesGroups};
    pub use crate::registry::{Registry, Tables};
    pub use crate::router::{decode_reason, encode_reason};
    pub use crate::seal::Seal;
    pub use crate::services::number;
    pub use crate::store::QUIET;
    pub use crate::store_parts::StoreParts;
    pub use crate::table::HostedTable;
    pub use crate::transaction::{Changes, Missing, Times};
}
