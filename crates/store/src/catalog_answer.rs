//! What the node that leads the catalog answers to a change.

use serde::{Deserialize, Serialize};
use tessera_cluster::{CatalogError, Changed};
use tessera_types::RequestError;

/// What the node that leads the catalog answers to a change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatalogAnswer {
    Changed(Changed),
    /// Likewise, with the index in the log of the catalog's group that has it. Nodes whose protocol is of version 6 do not read it.
    ChangedAt(Changed, u64),
    Refused(CatalogError),
    /// Not done: another node leads, or none.
    NotLeading,
    Unknown,
    Failed(String),
}

impl From<Result<Result<Changed, CatalogError>, RequestError>> for CatalogAnswer {
    fn from(outcome: Result<Result<Changed, CatalogError>, RequestError>) -> Self {
        match outcome {
            Ok(Ok(changed)) => Self::Changed(changed),
            Ok(Err(error)) => Self::Refused(error),
            Err(RequestError::NotReady) => Self::NotLeading,
            Err(RequestError::Interrupted) => Self::Unknown,
            Err(error) => Self::Failed(error.to_string()),
        }
    }
}

impl From<CatalogAnswer> for Result<Result<Changed, CatalogError>, RequestError> {
    fn from(answer: CatalogAnswer) -> Self {
        match answer {
            CatalogAnswer::Changed(changed) | CatalogAnswer::ChangedAt(changed, _) => Ok(Ok(changed)),
            CatalogAnswer::Refused(error) => Ok(Err(error)),
            CatalogAnswer::NotLeading => Err(RequestError::NotReady),
            CatalogAnswer::Unknown => Err(RequestError::Interrupted),
            CatalogAnswer::Failed(error) => {
                Err(RequestError::Engine(format!("the node that leads the catalog: {error}")))
            }
        }
    }
}
