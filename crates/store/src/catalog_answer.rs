//! What the node that leads the catalog answers to a change.

use serde::{Deserialize, Serialize};
use tessera_cluster::{CatalogError, Changed};
use tessera_types::RequestError;

/// What the node that leads the catalog answers to a change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatalogAnswer {
    /// The change was made, and this is what it was about.
    Changed(Changed),
    /// The change was made, by the entry of this index in the log of the catalog's group. Nodes with version 6 of the protocol do
    /// not read this.
    ChangedAt(Changed, u64),
    /// The catalog refused the change, so nothing was changed.
    Refused(CatalogError),
    /// Not done: another node leads, or none.
    NotLeading,
    /// The change was proposed, and it is not known whether it was made.
    Unknown,
    /// The change was not made, for this reason.
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
