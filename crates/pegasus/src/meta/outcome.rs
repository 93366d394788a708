//! What comes of a change of the catalog, in the words of Pegasus.

use super::messages::PlainResponse;
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use tessera_cluster::{CatalogCommand, CatalogError, Changed};
use tessera_types::RequestError;

pub(super) const OK: &str = "ERR_OK";

/// The name of an error, and what to say about it.
pub(super) type Refusal = (&'static str, String);

/// Why the catalog refuses a change.
pub(super) fn refused(error: &CatalogError) -> Refusal {
    let name = match error {
        CatalogError::Exists(_) => "ERR_APP_EXIST",
        CatalogError::NoSuchTable(_) => "ERR_APP_NOT_EXIST",
        CatalogError::AlteredMeanwhile(_) | CatalogError::Splitting(_) => "ERR_BUSY",
        CatalogError::NotSplitting(_) => "ERR_INVALID_STATE",
        CatalogError::SplitTakesEffect(_) => "ERR_CHILD_REGISTERED",
        _ => "ERR_INVALID_PARAMETERS",
    };
    (name, error.to_string())
}

/// Why the catalog could not be changed.
pub(super) fn failed(error: &RequestError) -> Refusal {
    let name = match error {
        RequestError::NotReady | RequestError::Interrupted => "ERR_TIMEOUT",
        RequestError::Busy => "ERR_BUSY",
        _ => "ERR_SERVICE_NOT_ACTIVE",
    };
    (name, error.to_string())
}

pub(super) async fn change(server: &PegasusServer, command: CatalogCommand) -> Result<Changed, Refusal> {
    let outcome = server.store.change_catalog(command).await.map_err(|error| failed(&error))?;
    outcome.map_err(|error| refused(&error))
}

pub(super) fn plain(outcome: Result<Changed, Refusal>) -> PlainResponse {
    match outcome {
        Ok(_) => PlainResponse { error: ErrorCode(OK.into()), hint: String::new() },
        Err((error, hint)) => PlainResponse { error: ErrorCode(error.into()), hint },
    }
}
