//! The body of a request that changes something: a JSON object.

use crate::failure::Failure;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What a request says. Arrays, which could pass for objects without names, and everything else are refused.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| Failure::of_status(error.status(), error.body_text()))?;
        let refuse = |error: serde_json::Error| {
            let reason = format!(
                "the body must be a JSON object of what this request takes, `{{}}` if that is nothing: {error}"
            );
            Failure::of_status(StatusCode::BAD_REQUEST, reason)
        };
        let object: Map<String, Value> = serde_json::from_slice(&bytes).map_err(refuse)?;
        serde_json::from_value(Value::Object(object)).map(Body).map_err(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::Nothing;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Limit {
        bytes: u64,
    }

    async fn body<T: DeserializeOwned>(text: &str) -> Result<T, StatusCode> {
        let request = Request::new(axum::body::Body::from(text.to_string()));
        Body::from_request(request, &()).await.map(|Body(body)| body).map_err(|failure| failure.status)
    }

    #[tokio::test]
    async fn objects_are_taken_and_nothing_else() {
        assert!(body::<Nothing>("{}").await.is_ok());
        assert_eq!(body::<Limit>(r#"{"bytes": 7}"#).await.unwrap().bytes, 7);
        for text in ["", "[]", "[7]", "null", "7", "\"bytes\"", "{", r#"{"bytes": -1}"#, r#"{"bytes": 7, "more": 1}"#] {
            assert_eq!(body::<Limit>(text).await.unwrap_err(), StatusCode::BAD_REQUEST, "{text}");
            assert_eq!(body::<Nothing>(text).await.err(), Some(StatusCode::BAD_REQUEST), "{text}");
        }
    }
}
