//! The words of Tessera: keys, partitions, table schemas, settings, limits and errors.
//!
//! No I/O and no async: everything here is a plain value that every storey above may name. Only [`UnixMillis::now`] and
//! [`monotonic_millis`] ask the system, for its clocks; code that decides something by a time gets that time as an argument.
//! Read first: [`RecordKey`] (a record's address), [`StoredValue`] (a record's bytes with their expiry) and
//! [`TableSchema`].

#![warn(missing_docs)]

mod admission;
mod error;
mod key;
mod limits;
mod node;
mod pace;
mod partitioner;
mod rights;
mod rules;
mod settings;
mod space;
mod stored_document;
mod stored_value;
mod table;
mod text;
mod time;

pub use admission::{Admission, Admitted, Denial, Rate};
pub use error::{Outcome, RequestError};
pub use key::{RecordKey, hash_of, successor};
pub use limits::Limits;
pub use node::{ClusterId, NodeId, ReplicaId};
pub use pace::Pace;
pub use partitioner::{Partitioner, REDIS_SLOTS, redis_slot, redis_tag};
pub use rights::{ADMIN, PermissionChanges, Permissions, Right, Rights, SYSTEM_DATABASE, Scope};
pub use rules::{KeyPattern, Rule, RuleAction, RuleCondition, RuleOutcome};
pub use settings::{Acks, Durability, EngineKind, Model, ReadMode, UsageScenario, WhenFull};
pub use space::Space;
pub use stored_document::StoredDocument;
pub use stored_value::{Expiry, StoredValue, ValueKind};
pub use table::{FeedRetention, TableId, TableNameError, TableNumber, TableSchema, TableSettings, check_table_name};
pub use time::{UnixMillis, monotonic_millis, monotonic_millis_at};
