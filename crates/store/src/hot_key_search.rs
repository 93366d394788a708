//! Has the leader of a partition count which hash keys are asked most, and tells what it found.

use crate::hot_keys::{HotKeys, HotKeysFound};
use crate::services::number;
use crate::store::Store;
use crate::table::Table;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tessera_types::{RequestError, TableId};

/// How long may be counted at one time.
pub const LONGEST: Duration = Duration::from_secs(150);

/// Ends the counting when it is dropped, because the client may have given up.
struct Counting<'a>(&'a HotKeys);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A request to another node.
#[derive(Serialize, Deserialize)]
struct Request {
    table: TableId,
    partition: u32,
    time: Duration,
}

impl Store {
    /// Counts for some time, [`LONGEST`] at most, which hash keys of a partition are asked, on the node that leads it.
    ///
    /// # Errors
    /// [`RequestError::NotReady`] if no node leads it, or it cannot be reached; [`RequestError::Busy`] if somebody counts
    /// already.
    pub async fn find_hot_keys(
        &self,
        table: &Arc<Table>,
        partition: u32,
        time: Duration,
    ) -> Result<HotKeysFound, RequestError> {
        let leader = table.known_leader(partition).ok_or(RequestError::NotReady)?;
        if leader == self.node() {
            return count_here(table, partition, time).await;
        }
        let request = Request { table: table.id, partition, time };
        let request = serde_json::to_vec(&request).expect("a request has a JSON form");
        let answer = self.transport().request(leader, number::HOT_KEYS, &request).await;
        let answer = answer.map_err(|_| RequestError::NotReady)?;
        let found: Option<HotKeysFound> = serde_json::from_slice(&answer).map_err(|_| RequestError::NotReady)?;
        found.ok_or(RequestError::Busy)
    }
}

async fn count_here(table: &Table, partition: u32, time: Duration) -> Result<HotKeysFound, RequestError> {
    let hot_keys = &table.partitions[partition as usize].hot_keys;
    if !hot_keys.begin() {
        return Err(RequestError::Busy);
    }
    let counting = Counting(hot_keys);
    tokio::time::sleep(time.min(LONGEST)).await;
    drop(counting);
    Ok(hot_keys.found())
}

/// Does what [`Store::find_hot_keys`] asked another node.
pub(crate) async fn answer(store: &Store, request: &[u8]) -> Option<HotKeysFound> {
    let Request { table, partition, time } = serde_json::from_slice(request).ok()?;
    let table = store.registry().any(table).filter(|table| partition < table.schema.partitions)?;
    count_here(&table, partition, time).await.ok()
}
