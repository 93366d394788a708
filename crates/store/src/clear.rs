//! Deleting all records of partitions, as nodes of version 6 of the protocol ask for to truncate a table.

use crate::operation::{Operation, Verdict, WriteOptions};
use crate::store::Store;
use crate::table::Table;
use std::ops::Range;
use std::sync::Arc;
use tessera_types::RequestError;

impl Store {
    /// Deletes all records of partitions that this node leads, one after the other.
    ///
    /// # Errors
    /// The first partition's that failed; others may be empty already.
    pub async fn clear(&self, table: &Arc<Table>, partitions: Range<u32>) -> Result<(), RequestError> {
        let (sender, mut outcomes) = tokio::sync::mpsc::unbounded_channel();
        let operation: Arc<dyn Operation> = Arc::new(Clear { sender });
        self.write(table, WriteOptions::default(), &operation, partitions.clone());
        for _ in partitions {
            outcomes.recv().await.unwrap_or(Err(RequestError::Interrupted))?;
        }
        Ok(())
    }
}

struct Clear {
    sender: tokio::sync::mpsc::UnboundedSender<Result<(), RequestError>>,
}

impl Operation for Clear {
    fn evaluate(&self, _part: usize, transaction: &mut crate::Transaction<'_>) -> Verdict {
        transaction.clear();
        Verdict::Commit
    }

    fn answer(&self, _part: usize, outcome: Result<(), RequestError>) {
        let _ = self.sender.send(outcome);
    }
}
