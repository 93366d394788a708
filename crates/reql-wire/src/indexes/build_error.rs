//! Why an index is not built, or not now.

use bytes::Bytes;
use std::time::Duration;
use tessera_types::RequestError;

/// How long the functions of one page may take. One that takes longer is tried again later, so its index is never built.
pub(crate) const EVALUATION: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(super) enum BuildError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("a stored document or definition is damaged")]
    Damaged,
    #[error("the function of the index takes longer than {} seconds for some documents", EVALUATION.as_secs())]
    TooSlow,
    #[error("somebody else changes the index")]
    Overtaken,
    #[error("a partition has refused claims: {0}")]
    Refused(String),
    #[error("two documents have the same key")]
    Hindered(Bytes),
}
