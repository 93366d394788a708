//! Whoever carries out the queries that drivers in browsers ask through the admin port.

use axum::body::Bytes;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

/// Why a query has no answer.
pub enum NotAnswered {
    /// The request is none.
    NoRequest(String),
    /// There are too many at this moment.
    Busy(String),
    /// The connection was closed before.
    Closed(String),
}

/// What comes of a query.
pub type Answered = Pin<Box<dyn Future<Output = Result<Bytes, NotAnswered>> + Send>>;

/// Connections through which queries are asked, by users who have come in.
pub trait QuerySessions: Send + Sync {
    /// Opens one. Returns its name.
    ///
    /// # Errors
    /// Why there can be none now.
    fn open(&self, user: &str, client: SocketAddr) -> Result<String, String>;

    /// Has a query carried out that stands in a request.
    fn ask(&self, id: &str, user: &str, request: Bytes) -> Answered;

    /// Closes one.
    fn close(&self, id: &str, user: &str);
}
