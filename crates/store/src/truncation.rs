//! Truncating a table, from any node.

use crate::router::PATIENCE;
use crate::store::Store;
use std::time::{Duration, Instant};
use tessera_cluster::{Catalog, CatalogCommand, CatalogError, Changed, TableState, Truncation};
use tessera_types::{RequestError, TableId, TableNumber, UnixMillis};

/// Between two looks at how far it is.
const PAUSE: Duration = Duration::from_millis(10);

/// How far the empty table is that is to take a table's place.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// It waits until all partitions of the other one are sealed; or this node has not heard of it yet.
    UnderWay,
    /// It has taken the other one's place.
    Done,
    /// Somebody has given it up.
    GivenUp,
}

fn progress_of(catalog: &Catalog, into: TableId) -> Progress {
    match catalog.get(into).map(|table| table.state) {
        Some(TableState::Growing) => Progress::UnderWay,
        Some(TableState::Active | TableState::Dropped { .. }) => Progress::Done,
        None if catalog.is_over(into) => Progress::GivenUp,
        None => Progress::UnderWay,
    }
}

impl Store {
    /// Has an empty table take the place of a table, and keeps that one dropped until a time. Returns the number by which it can be
    /// recalled until then. Once this returns, no node serves what the table held. If partitions have no leader for
    /// [`PATIENCE`], nothing is changed.
    ///
    /// Cancellation: the table may still be truncated.
    ///
    /// # Errors
    /// The catalog's reason inside, the node's outside: [`RequestError::NotReady`] if it was not done, [`RequestError::Interrupted`] if
    /// it may be done yet.
    pub async fn truncate(
        &self,
        name: &str,
        purge_at: UnixMillis,
    ) -> Result<Result<TableNumber, CatalogError>, RequestError> {
        let began = Instant::now();
        let command = CatalogCommand::truncate(name, purge_at);
        let into = match self.change_catalog(command).await? {
            Ok(Changed::Table(into)) => into,
            Ok(_) => return Err(RequestError::Interrupted),
            Err(error) => return Ok(Err(error)),
        };
        let mut is_to_end = true;
        loop {
            match progress_of(&self.catalog(), into) {
                Progress::Done => break,
                Progress::GivenUp => return Err(RequestError::NotReady),
                Progress::UnderWay if is_to_end && began.elapsed() >= PATIENCE => {
                    // Not for ever: whoever asked believes by then that the table is as it was.
                    let cancelled = self.change_catalog(CatalogCommand::CancelSplit { name: name.into() }).await;
                    tracing::warn!(
                        table = name,
                        ?cancelled,
                        "not all partitions of a table could be ended to truncate it"
                    );
                    // As long as nobody knows whether it was given up, it may be done yet.
                    if cancelled.is_err() {
                        return Err(RequestError::Interrupted);
                    }
                    is_to_end = false;
                }
                Progress::UnderWay if began.elapsed() >= 2 * PATIENCE => return Err(RequestError::Interrupted),
                Progress::UnderWay => tokio::time::sleep(PAUSE).await,
            }
        }
        self.wait_until_served(into).await;
        Ok(Ok(Truncation::number_beside(into)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_cluster::{CopyReport, Site};
    use tessera_types::{EngineKind, Limits};

    #[test]
    fn how_far_a_truncation_is_is_told_by_the_table_that_grows() {
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Memory);
        let into = TableId(1);
        assert_eq!(progress_of(&catalog, into), Progress::UnderWay, "this node has not heard of it");
        let truncate = CatalogCommand::truncate("default", UnixMillis::new(1));
        let apply = |catalog: &mut Catalog, command| catalog.apply(&command, &Limits::default()).unwrap();
        assert_eq!(apply(&mut catalog, truncate.clone()), Changed::Table(into));
        assert_eq!(progress_of(&catalog, into), Progress::UnderWay);
        let mut given_up = catalog.clone();
        apply(&mut given_up, CatalogCommand::CancelSplit { name: "default".into() });
        assert_eq!(progress_of(&given_up, into), Progress::GivenUp);
        for report in [CopyReport::Begun, CopyReport::Done] {
            for partition in 0..16 {
                let copy = CatalogCommand::Copy { table: TableId(0), partition, attempt: 1, report };
                apply(&mut catalog, copy);
            }
        }
        assert_eq!(progress_of(&catalog, into), Progress::Done);
        assert!(catalog.get(TableId(0)).unwrap().is_dropped());
        assert_eq!(catalog.get(TableId(0)).unwrap().number, Truncation::number_beside(into));
    }
}
