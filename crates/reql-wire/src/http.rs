//! Requests of HTTP that queries make.

use crate::tables::Tables;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tessera_fetch::{Failure, Request};
use tessera_reql::{HttpAnswer, HttpClient, HttpFailure, HttpRequest};

impl HttpClient for Tables {
    fn fetch(&self, request: &HttpRequest, goes_on: &dyn Fn() -> bool) -> Result<HttpAnswer, HttpFailure> {
        let mut headers = request.headers.clone();
        if let Some((name, password)) = &request.login {
            headers.push(("Authorization".into(), format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))));
        }
        let request = Request {
            method: request.method.into(),
            url: request.url.clone(),
            headers,
            body: request.body.clone(),
            timeout: request.timeout,
            attempts: request.attempts,
            redirects: request.redirects,
            verify: request.verify,
        };
        let answer = self.0.fetcher.fetch(&request, goes_on).map_err(|failure| HttpFailure {
            message: failure.to_string(),
            is_late: matches!(failure, Failure::TimedOut(_)),
        })?;
        Ok(HttpAnswer { status: answer.status, headers: answer.headers, body: answer.body })
    }
}
