//! How far nodes are with compacting a table.

use crate::compaction_state::CompactionState;
use crate::services::number;
use crate::store::Store;
use crate::table::Table;
use tessera_types::NodeId;

impl Store {
    /// How far each node is with compacting a table; `None` of one that cannot be asked, or does not know the table.
    pub async fn compactions(&self, table: &Table) -> Vec<(NodeId, Option<CompactionState>)> {
        let request = serde_json::to_vec(&table.id).expect("an id has a JSON form");
        let mut states = Vec::new();
        for node in self.catalog().nodes().map(|node| node.id).collect::<Vec<_>>() {
            let state = if node == self.node() {
                Some(*table.compaction.lock())
            } else {
                let answer = self.transport().request(node, number::COMPACTION, &request).await;
                answer.ok().and_then(|answer| serde_json::from_slice(&answer).ok()).flatten()
            };
            states.push((node, state));
        }
        states
    }
}

/// Does what [`Store::compactions`] asked another node.
pub(crate) fn answer(store: &Store, request: &[u8]) -> Option<CompactionState> {
    let table = store.registry().any(serde_json::from_slice(request).ok()?)?;
    let state = *table.compaction.lock();
    Some(state)
}
