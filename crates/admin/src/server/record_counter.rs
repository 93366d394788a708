//! Counting the records of tables whose engine only estimates how many there are.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_engine::{PageLimit, Visit, from_caches};
use tessera_store::{Store, Table, TableStatistics};
use tokio::sync::Semaphore;
use tokio::time::timeout_at;

/// How long tables are counted for who asks, all of them together.
const COUNTING: Duration = Duration::from_millis(500);
/// So much longer an answer waits for the end of a count, which is noticed between two records only.
const STEP: Duration = Duration::from_millis(250);

/// Counts for all who ask the admin port, one at a time, so that no threads pile up when somebody asks over and over.
#[derive(Clone)]
pub(crate) struct RecordCounter(Arc<Semaphore>);

impl Default for RecordCounter {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl RecordCounter {
    /// Says how many records tables have exactly, where the engine only estimates it, and with them counts deletions and what the node
    /// keeps for itself. Many are not counted, since it would take as long as reading them all; nor are those that the caches do not have:
    /// whoever watches a cluster is not to read its disks, nor to drive out what others read. Of those that are not counted in time the
    /// estimate stays.
    pub(crate) async fn count(&self, store: &Store, tables: &mut [TableStatistics], in_all: PageLimit) {
        let until = Instant::now() + COUNTING;
        let estimated = tables.iter().enumerate().filter(|(_, table)| table.engine.records_are_estimated);
        let (places, estimated): (Vec<usize>, Vec<Arc<Table>>) =
            estimated.filter_map(|(at, table)| Some((at, store.table_numbered(table.number)?))).unzip();
        if estimated.is_empty() {
            return;
        }
        let Ok(Ok(turn)) = timeout_at(until.into(), self.0.clone().acquire_owned()).await else { return };
        // The thread has the turn until it ends, also if nobody waits for it any more.
        let counting = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            from_caches(|| Table::count_few_of(&estimated, Visit::NextRecord, in_all, until))
        });
        let Ok(Ok(counted)) = timeout_at((until + STEP).into(), counting).await else { return };
        for (at, records) in places.into_iter().zip(counted) {
            if let Some(records) = records {
                let engine = &mut tables[at].engine;
                (engine.records, engine.records_are_estimated) = (records, false);
            }
        }
    }
}
