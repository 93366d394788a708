//! Succession: how a replica takes the place of an earlier replica of its partition on one node.
//!
//! A node stores a replica in three places: the list of its replicas, the log with the replica's votes and entries, and
//! the engine with its records. These are written one after the other, and the process may be killed, or the machine
//! lose power, between any two of these writes. So the writes have an order in which no replica ever begins with the
//! data of another one, and none begins twice: a replica that begins again has forgotten its votes.
//!
//! The data of the earlier replica is removed, durably, before the list names the next replica; and the list names a
//! replica, durably, before it takes part in anything.

use crate::rules::{Rule, holds};
use tessera_types::ReplicaId;

/// The node's next step for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Succession {
    /// Take the present replica off the list, and end it. A record for the log to forget it is queued before any other
    /// data of it is removed.
    Leave,
    /// Wait until the earlier replica has ended, because its end removes its data from the log and the engine.
    Wait,
    /// Sync the log, in which a record says to forget the earlier replica.
    ForgetLog,
    /// Remove the records of an earlier replica from the engine, durably.
    Clear,
    /// Write the new replica down in the list.
    List,
    /// Start the replica that the list names on disk.
    Start,
    /// Do nothing.
    Stay,
}

/// The replicas of a partition that a node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The replica that the list names.
    pub listed: Option<ReplicaId>,
    /// Whether the listed replica runs.
    pub runs: bool,
    /// Whether an earlier replica, which the list no longer names, has not ended yet.
    pub is_leaving: bool,
}

/// The next step towards the replica that the catalog wants on this node; the node's copy of that catalog is on disk.
/// `log_remembers` and `has_records` return whether the log may still know an earlier replica, and whether the engine
/// has records of it, in memory or on disk. They are called only if it matters.
///
/// # Errors
/// If `has_records` fails.
pub fn succession<E>(
    due: Option<ReplicaId>,
    holding: Holding,
    log_remembers: impl FnOnce() -> bool,
    has_records: impl FnOnce() -> Result<bool, E>,
) -> Result<Succession, E> {
    let Holding { listed, runs, is_leaving } = holding;
    Ok(match (listed, due) {
        (Some(here), due) if due != Some(here) => Succession::Leave,
        (_, None) => Succession::Stay,
        (Some(_), _) if runs => Succession::Stay,
        (Some(_), _) => Succession::Start,
        (None, _) if is_leaving && holds(Rule::EndedBeforeTheNext) => Succession::Wait,
        (None, _) if holds(Rule::LogForgetsBeforeTheNext) && log_remembers() => Succession::ForgetLog,
        (None, _) if holds(Rule::RecordsGoBeforeTheNext) && has_records()? => Succession::Clear,
        (None, _) if runs || holds(Rule::ListedBeforeItRuns) => Succession::List,
        (None, _) => Succession::Start,
    })
}
