//! Requests of `r.http`, as whoever makes them sees them.

use std::time::Duration;

/// A request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: &'static str,
    /// Where it goes, with its parameters.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The name and the password to show.
    pub login: Option<(String, String)>,
    /// The body, if the request has one.
    pub body: Option<Vec<u8>>,
    /// How long all attempts may take together.
    pub timeout: Duration,
    /// How often it is made at most.
    pub attempts: u64,
    /// How many redirects are followed.
    pub redirects: u32,
    /// Whether the server's certificate must be right.
    pub verify: bool,
}

/// What a server has answered.
#[derive(Debug, Clone)]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// Names in small letters, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, Clone)]
pub struct HttpFailure {
    /// What is told, in the words of RethinkDB where it has some.
    pub message: String,
    /// Whether it took too long.
    pub is_late: bool,
}

/// Whoever makes requests.
pub trait HttpClient: Send + Sync {
    /// Makes a request. Blocks while `goes_on` says that the answer is wanted.
    ///
    /// # Errors
    /// Why there is no answer.
    fn fetch(&self, request: &HttpRequest, goes_on: &dyn Fn() -> bool) -> Result<HttpAnswer, HttpFailure>;
}
