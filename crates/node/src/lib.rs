//! What a node does: it opens tables, runs the loops of their partitions, holds the replicas that the catalog wants here, moves records
//! to other nodes, looks after files, and does its part for the cluster. What faces call is in the crate `tessera-store`.
//!
//! Read first: [`Node`], then [`machine`] (how a write becomes state), then [`driver`] (how the cluster becomes what the catalog says).

#![warn(missing_docs)]

mod addresses;
mod boot;
mod catalog_aside;
mod catalog_follower;
mod cold_commands;
mod compactions;
mod comparison;
mod config;
mod conversion;
mod damage;
mod data_directory;
mod driver;
mod generation;
mod held_commands;
mod identity;
mod known_damage;
mod leading;
mod lost;
mod machine;
mod maintenance;
mod message;
mod node;
mod node_context;
mod open;
mod open_error;
mod overtaken;
mod peers;
mod presence;
mod recovery;
mod refused_writes;
mod removed;
mod replicas;
mod rules;
mod snapshot;
mod split;
mod stalled_writes;
mod status_query;
mod stopping_nodes;
mod survivors;
#[cfg(test)]
mod test_node;
mod threads;
mod traffic;
#[cfg(all(test, not(feature = "rocksdb")))]
mod without_rocksdb_tests;
mod worker;

pub use comparison::{Comparison, ComparisonOutcome, Difference, PartitionComparison, ReplicaDigest};
pub use config::NodeConfig;
pub use data_directory::DataDirectoryError;
pub use node::Node;
pub use open_error::OpenError;
pub use recovery::{RecoverError, StoppedNode};
pub use rules::RulesApplied;
pub use snapshot::Progress;
pub use threads::runtime;
pub use traffic::{PartitionTraffic, hot_partitions};
pub use worker::NodeWorker;
