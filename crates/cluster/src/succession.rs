//! How a replica takes the place of an earlier one of its partition on one node.
//!
//! A node has a replica in three places: a list of what it holds, the log with the replica's votes and entries, and the engine
//! with its records. They are written one after the other, and the process may be killed, or the machine lose power, between any
//! two of these writes. So they are written in an order in which no replica ever begins with what another one had, and none
//! begins twice: who begins again has forgotten what it voted.
//!
//! What a replica leaves is removed, and that is on disk, before the list names the next one; and the list names a replica, on
//! disk, before it takes part in anything.

use crate::rules::{Rule, holds};
use tessera_types::ReplicaId;

/// What the node is to do next about a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Succession {
    /// Take the replica that is here off the list, and end it. The log is told to forget it before anything else of it goes.
    Leave,
    /// Nothing before the earlier replica has ended, since its end removes what the log and the engine have.
    Wait,
    /// Sync the log, which was told to forget what an earlier replica left.
    ForgetLog,
    /// Remove what an earlier replica left in the engine, on disk too.
    Clear,
    /// Write the new replica down in the list.
    List,
    /// Start the replica that the list names on disk.
    Start,
    /// Nothing.
    Stay,
}

/// What is known of a partition's replicas on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The replica that the list names.
    pub listed: Option<ReplicaId>,
    /// Whether that one runs.
    pub runs: bool,
    /// Whether an earlier one, which the list names no more, has not ended yet.
    pub is_leaving: bool,
}

/// The next step towards the replica that the catalog wants here, of which the node's own copy of the catalog is on disk. Whether the
/// log may still remember an earlier replica, or the engine have records of it, on disk or not, is asked only where it matters.
///
/// # Errors
/// If the engine cannot tell what it has.
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
