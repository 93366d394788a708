//! Why a request was not carried out, or that nobody knows whether it was.

use crate::code::Code;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tessera_cluster::CatalogError;
use tessera_types::{Outcome, RequestError};

pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    code: Code,
    error: String,
    outcome: Outcome,
}

impl Failure {
    /// Of a request of which nothing was done.
    pub(crate) fn refused(status: StatusCode, code: Code, error: impl Into<String>) -> Self {
        Self { status, code, error: error.into(), outcome: Outcome::NotDone }
    }

    /// Of one that was refused before anybody looked at what it asks for.
    pub(crate) fn of_status(status: StatusCode, error: impl Into<String>) -> Self {
        Self::refused(status, status.into(), error)
    }

    /// Of one that is understood and cannot be carried out as it is.
    pub(crate) fn unprocessable(code: &'static str, error: impl Into<String>) -> Self {
        Self::refused(StatusCode::UNPROCESSABLE_ENTITY, Code(code), error)
    }

    /// Of one of which nobody knows whether it was carried out.
    pub(crate) fn in_doubt(status: StatusCode, code: &'static str, error: String) -> Self {
        Self { status, code: Code(code), error, outcome: Outcome::Unknown }
    }

    /// With what to do about it, if it has this code.
    pub(crate) fn advise(mut self, code: &str, advice: &str) -> Self {
        if self.code.0 == code {
            self.error = format!("{}; {advice}", self.error);
        }
        self
    }

    /// Of a request of several steps, when some of them are done.
    pub(crate) fn after(self, done: &[&str]) -> Self {
        if done.is_empty() {
            return self;
        }
        let rest = match self.outcome {
            Outcome::NotDone => "the rest was not",
            Outcome::Unknown => "whether the rest was is not known",
        };
        let error = format!("{} was changed, and {rest}: {}", done.join(" and "), self.error);
        Self { error, outcome: Outcome::Unknown, ..self }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({ "code": self.code.0, "error": self.error, "outcome": self.outcome.to_string() });
        (self.status, Json(body)).into_response()
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
        Self { status, code: Code::from(&error), error: error.to_string(), outcome: error.outcome() }
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
        Self::refused(status, Code::from(&error), error.to_string())
    }
}

pub(crate) type Reply<T> = Result<Json<T>, Failure>;
