//! Deleting all records of a table.

use crate::operation::{Operation, Verdict, WriteOptions};
use crate::services::number;
use crate::store::Store;
use crate::table::Table;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tessera_transport::RequestFailure;
use tessera_types::{NodeId, RequestError};

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

    /// Deletes all records of a table, partition by partition, wherever they are led.
    ///
    /// # Errors
    /// The first partition's that failed; others may be empty already.
    pub async fn truncate(&self, table: &Arc<Table>) -> Result<(), RequestError> {
        let mut by_node: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for partition in 0..table.schema.partitions {
            let node = table.known_leader(partition).ok_or(RequestError::NotReady)?;
            by_node.entry(node).or_default().push(partition);
        }
        for (node, partitions) in by_node {
            if node == self.node() {
                for partition in partitions {
                    self.clear(table, partition..partition + 1).await?;
                }
                continue;
            }
            let request = serde_json::to_vec(&(table.id, partitions)).expect("numbers have a JSON form");
            match self.transport().request(node, number::CLEAR, &request).await {
                Ok(answer) if &answer[..] == b"ok" => {}
                Ok(answer) => return Err(RequestError::Engine(String::from_utf8_lossy(&answer).into_owned())),
                Err(RequestFailure::NotSent) => return Err(RequestError::NotReady),
                Err(RequestFailure::Lost) => return Err(RequestError::Interrupted),
            }
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
