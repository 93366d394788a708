//! Why a request was not carried out, or that nobody knows whether it was.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tessera_cluster::CatalogError;
use tessera_types::{Outcome, RequestError};

pub(crate) struct Failure(pub(crate) StatusCode, pub(crate) String, pub(crate) Outcome);

impl Failure {
    /// Of a request of several steps, when some of them are done.
    pub(crate) fn after(self, done: &[&str]) -> Self {
        if done.is_empty() {
            return self;
        }
        let Self(status, error, outcome) = self;
        let rest = if outcome == Outcome::NotDone { "the rest was not" } else { "whether the rest was is not known" };
        Self(status, format!("{} was changed, and {rest}: {error}", done.join(" and ")), Outcome::Unknown)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1, "outcome": self.2.to_string() }))).into_response()
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let status = match error {
            RequestError::NoSuchTable(_) => StatusCode::NOT_FOUND,
            RequestError::Removed => StatusCode::SERVICE_UNAVAILABLE,
            _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string(), error.outcome())
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        let status = match error {
            CatalogError::NoSuchTable(_) | CatalogError::NoSuchUser(_) => StatusCode::NOT_FOUND,
            CatalogError::Exists(_) | CatalogError::UserExists(_) | CatalogError::AlteredMeanwhile(_) => {
                StatusCode::CONFLICT
            }
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self(status, error.to_string(), Outcome::NotDone)
    }
}

pub(crate) type Reply<T> = Result<Json<T>, Failure>;
