//! What is asked, and what comes of it.

use std::time::Duration;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method, in capitals.
    pub method: String,
    /// The URL to which it goes.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The body, if the request has one.
    pub body: Option<Vec<u8>>,
    /// How long all attempts may take together.
    pub timeout: Duration,
    /// How often it is made, as long as there is no answer, or one that says that another one may be had later.
    pub attempts: u64,
    /// How many redirects are followed.
    pub redirects: u32,
    /// Whether the server's certificate must be right.
    pub verify: bool,
}

/// What a server has answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Names in small letters, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It was not to be asked for even once.
    #[error("could not perform, no attempts allowed")]
    NoAttempts,
    /// None came in time.
    #[error("timed out after {seconds:.3} seconds", seconds = .0.as_secs_f64())]
    TimedOut(Duration),
    /// Nobody waits for it any more.
    #[error("interrupted")]
    Interrupted,
    /// As many requests are under way as may be at one time.
    #[error("this node makes as many HTTP requests as it may at one time")]
    TooMany,
    /// Nobody has connected.
    #[error("could not connect to server")]
    NotConnected,
    /// What was sent did not come through.
    #[error("error when receiving data")]
    Broken,
    /// The name has no address.
    #[error("Couldn't resolve host name")]
    NoHost,
    /// The host has no address that requests may go to.
    #[error("the host has no address that `reql.http` allows requests to")]
    Forbidden,
    /// It is neither HTTP nor HTTPS.
    #[error("Unsupported protocol")]
    Protocol,
    /// It is no URL.
    #[error("URL using bad/illegal format or missing URL")]
    Url,
    /// There were too many.
    #[error("Number of redirects hit maximum amount")]
    Redirects,
    /// The certificate is not the server's, or nobody trusted has signed it.
    #[error("SSL peer certificate or SSH remote key was not OK")]
    Certificate,
    /// There can be no encrypted connection.
    #[error("SSL connect error")]
    Tls,
    /// It is larger than an answer may be.
    #[error("the answer has more than {0} bytes")]
    TooLong(u64),
    /// A header, or something else of the request, is none.
    #[error("{0}")]
    Request(String),
}

impl Failure {
    /// Whether it may be otherwise the next time.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::NotConnected | Self::Broken)
    }
}

impl Answer {
    /// Whether the server says that another answer may be had later.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.status, 408 | 500 | 502 | 503 | 504)
    }
}
