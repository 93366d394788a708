//! What the cluster knows about itself: the catalog of nodes and tables, agreed on by a consensus group of its own.
//!
//! [`Catalog`] is a pure state machine: commands and time in, a new state or an error out. [`CatalogMachine`] drives it:
//! it evaluates commands in the order of the log, keeps the state in a file, and tells a listener what changed. This
//! crate knows no protocol and opens no table.

#![warn(missing_docs)]

mod catalog;
mod catalog_renewal;
mod machine;
mod members;
mod placement;
mod presence;
mod recovery;
mod rules;
#[cfg(test)]
mod simulation;
mod succession;
#[cfg(test)]
mod test_schema;

pub use catalog::{
    AmnesiacReplica, Catalog, CatalogCommand, CatalogError, Changed, CopyReport, CopyState, IndexEntry, Indexes,
    JoinToken, NodeEntry, PasswordHash, Placement, RecoveryNote, SharedList, Site, Split, Survivor, SurvivorKnows,
    TableEntry, TableState, Truncation, UserEntry, UserList,
};
pub use catalog_renewal::renewal;
pub use machine::{
    CATALOG_GROUP, CatalogFile, CatalogListener, CatalogMachine, CatalogReply, CatalogRequest, load_json, save_json,
};
pub use members::{Step, catalog_replica, has_target_members, next_catalog_step, next_step};
pub use placement::{IsLed, Weight, Weights, next_moves, next_trade, replacement};
pub use presence::{Presence, Standing};
pub use recovery::{Lack, Outcome, RecoveredPartition, Recovery, RecoveryError, Survey, SurveyedReplica, recover};
pub use succession::{Holding, Succession, succession};
