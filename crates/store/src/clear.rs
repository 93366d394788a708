//! Deleting all records of a table.

use crate::operation::{Operation, Verdict, WriteOptions};
use crate::router::PATIENCE;
use crate::services::number;
use crate::store::Store;
use crate::table::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_transport::RequestFailure;
use tessera_types::{NodeId, Outcome, RequestError};

/// Between two tries to reach the leaders of partitions that are to be emptied.
const PAUSE: Duration = Duration::from_millis(50);

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

    /// Deletes all records of a table, partition by partition, wherever they are led. A partition that cannot be reached, or has no
    /// leader, is tried again for [`PATIENCE`].
    ///
    /// # Errors
    /// If some partitions could not be emptied: [`RequestError::Interrupted`] if others are empty already, or may be.
    pub async fn truncate(&self, table: &Arc<Table>) -> Result<(), RequestError> {
        let began = Instant::now();
        let mut left: BTreeSet<u32> = (0..table.schema.partitions).collect();
        let mut may_be_begun = false;
        loop {
            let mut failure = RequestError::NotReady;
            let mut by_node: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
            for partition in &left {
                if let Some(node) = table.known_leader(*partition) {
                    by_node.entry(node).or_default().push(*partition);
                }
            }
            for (node, partitions) in by_node {
                match self.clear_on(node, table, &partitions).await {
                    Ok(()) => {
                        may_be_begun = true;
                        left.retain(|partition| !partitions.contains(partition));
                    }
                    Err(ClearError { error, is_begun }) => {
                        may_be_begun |= is_begun;
                        failure = error;
                    }
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            if began.elapsed() >= PATIENCE {
                let partitions = left.len();
                tracing::warn!(table = %table.name(), partitions, %failure, "not all partitions of a table could be emptied");
                return Err(if may_be_begun { RequestError::Interrupted } else { failure });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Deletes all records of partitions on the node that leads them.
    async fn clear_on(&self, node: NodeId, table: &Arc<Table>, partitions: &[u32]) -> Result<(), ClearError> {
        if node == self.node() {
            for (done, partition) in partitions.iter().enumerate() {
                let cleared = self.clear(table, *partition..*partition + 1).await;
                cleared
                    .map_err(|error| ClearError { is_begun: done > 0 || error.outcome() == Outcome::Unknown, error })?;
            }
            return Ok(());
        }
        let request = serde_json::to_vec(&(table.id, partitions)).expect("numbers have a JSON form");
        match self.transport().request(node, number::CLEAR, &request).await {
            Ok(answer) if &answer[..] == b"ok" => Ok(()),
            // It does not say which of them are empty by now.
            Ok(answer) => {
                let error = RequestError::Engine(String::from_utf8_lossy(&answer).into_owned());
                Err(ClearError { error, is_begun: true })
            }
            Err(RequestFailure::NotSent) => Err(ClearError { error: RequestError::NotReady, is_begun: false }),
            Err(RequestFailure::Lost) => Err(ClearError { error: RequestError::Interrupted, is_begun: true }),
        }
    }
}

/// Why partitions were not emptied.
struct ClearError {
    error: RequestError,
    /// Whether some of them may be empty all the same.
    is_begun: bool,
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
