//! Replacing the replica that stands alone.

use super::walk::Walked;
use crate::node_context::NodeContext;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_cluster::CatalogCommand;
use tessera_store::Table;
use tessera_store::hosting::group_of;
use tessera_types::ReplicaId;

/// How long it is waited until another replica leads.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// A request to lead can be lost, or come to nothing on a busy machine; then it is made again. One that is under way is not disturbed by it.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Does something about a replica that differs from what a majority agrees on, and says what; `None` if nobody can tell who is
/// right.
pub(super) async fn mend(context: &NodeContext, table: &Arc<Table>, partition: u32, walked: &Walked) -> Option<String> {
    let Walked { found, alone, own } = walked;
    // One at a time: the others are compared with it again.
    let replica = *alone.first()?;
    if found.reason.is_some() {
        return Some(format!("replica {replica} stands alone, and is replaced once all replicas answer"));
    }
    if Some(replica) == *own {
        let is_right = |other: &&ReplicaId| !alone.contains(other) && context.store.is_heard(other.node);
        let heir = *found.replicas.iter().find(is_right)?;
        if !has_handed_over(context, table, partition, heir).await {
            return Some(format!("replica {replica}, which leads, stands alone, and is replaced once {heir} leads"));
        }
    }
    let replace = CatalogCommand::Replace { table: table.id(), partition, replica };
    let outcome = match context.store.change_catalog(replace).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let said = match outcome {
        Ok(()) => format!("replica {replica} stands alone and is being replaced"),
        Err(error) => format!("replica {replica} stands alone and is to be replaced: {error}"),
    };
    tracing::error!(table = %table.name(), partition, "{said}");
    Some(said)
}

/// Lets another replica lead. Returns whether this one leads no longer.
async fn has_handed_over(context: &NodeContext, table: &Table, partition: u32, heir: ReplicaId) -> bool {
    let state = table.partition(partition);
    let began = Instant::now();
    let mut asked: Option<Instant> = None;
    while state.is_serving() {
        if began.elapsed() > PATIENCE {
            return false;
        }
        if asked.is_none_or(|at| at.elapsed() >= ASK_AGAIN) {
            asked = Some(Instant::now());
            context.inbox_of(table.id(), partition).transfer_leadership(group_of(table.id(), partition), heir);
        }
        tokio::time::sleep(POLL).await;
    }
    true
}
