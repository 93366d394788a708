//! Calls to a node's admin API.

use crate::NodeArgs;
use crate::admin_tls::TlsConnector;
use crate::exit::ExitError;
use crate::trust::{client_config, client_config_of_own};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::CertificateError;
use serde_json::Value;
use std::time::{Duration, UNIX_EPOCH};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, TcpConnector};

/// The admin port before any offset.
const PORT: u16 = 8080;
/// How long a connection may take.
const CONNECTED: Duration = Duration::from_secs(5);

fn url(node: &NodeArgs, path: &str) -> String {
    let base = match &node.admin {
        Some(url) if url.contains("://") => url.trim_end_matches('/').to_string(),
        Some(address) => format!("http://{}", address.trim_end_matches('/')),
        None => format!("http://127.0.0.1:{}", PORT.saturating_add(node.port_offset)),
    };
    format!("{base}{path}")
}

/// A name as a part of a path, whatever characters it has: `?` and the like would end the path, and the request would concern what is
/// called like the part before them.
pub fn escaped(name: &str) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');
    utf8_percent_encode(name, ESCAPED).to_string()
}

/// What is wrong with the certificate, if that is what the request failed for.
fn of_certificate(error: &ureq::Error) -> Option<&CertificateError> {
    let ureq::Error::Io(error) = error else { return None };
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(reason) => Some(reason),
        _ => None,
    }
}

/// What to say of a request that got no answer.
fn unanswered(url: &str, method: &str, error: &ureq::Error) -> String {
    if let ureq::Error::Timeout(timeout) = error
        && !matches!(timeout, ureq::Timeout::Resolve | ureq::Timeout::Connect)
    {
        let outcome = if method == "GET" { "" } else { "it may or may not have done what was asked, now or later; " };
        return format!(
            "the node at {url} accepted the connection and did not answer in time ({error}): it may be overloaded or stand still; \
             {outcome}ask another node with --admin, or wait longer with --timeout"
        );
    }
    match of_certificate(error) {
        Some(CertificateError::ExpiredContext { not_after, .. }) => {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(not_after.as_secs()));
            return format!(
                "the certificate of the node at {url} expired on {date}: the node needs a new one (`tls.certificate`), and is to be \
                 started again with it"
            );
        }
        Some(_) => {
            return format!(
                "the node at {url} is not trusted: {error}; --cacert names the certificate of the authority that has signed the \
                 node's certificate, or the node's own"
            );
        }
        None => {}
    }
    let is_refused = match error {
        // A name that nobody knows has no kind of its own.
        ureq::Error::Io(error) => {
            error.kind() == std::io::ErrorKind::ConnectionRefused || error.to_string().contains("lookup address")
        }
        ureq::Error::HostNotFound => true,
        _ => false,
    };
    let advice = match url.strip_prefix("http://") {
        Some(rest) if !is_refused => {
            let address = rest.split('/').next().unwrap_or_default();
            format!("something listens there; if the node has a certificate (`[tls]`), say --admin https://{address}")
        }
        _ => "is it running? --port-offset or --admin name another".into(),
    };
    format!("no node answers at {url}: {error}; {advice}")
}

/// What to say of a node that does not know who asks.
fn who_is_asking(node: &NodeArgs) -> &'static str {
    match (&node.token, &node.user) {
        (None, None) => {
            "the node wants to know who asks: give --token (TESSERA_ADMIN_TOKEN), or --user (TESSERA_ADMIN_USER) with the password in \
             TESSERA_ADMIN_PASSWORD"
        }
        (Some(_), _) => "the node does not know this token",
        (None, Some(_)) => "the node knows no user of this name with this password",
    }
}

/// Sends a request and returns the JSON answer. What changes something has a body, an empty object if it is not given.
///
/// # Errors
/// That no node answers in the time that the user allows, or what it answered.
pub fn call(node: &NodeArgs, method: &str, path: &str, body: Option<&Value>) -> Result<Value, ExitError> {
    call_within(Some(Duration::from_secs(node.timeout)), node, method, path, body)
}

/// The same for what is answered when its work is done, however long that takes.
pub fn call_without_limit(node: &NodeArgs, method: &str, path: &str, body: Option<&Value>) -> Result<Value, ExitError> {
    call_within(None, node, method, path, body)
}

fn call_within(
    limit: Option<Duration>,
    node: &NodeArgs,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, ExitError> {
    let url = url(node, path);
    let mut request = ureq::http::Request::builder().method(method).uri(&url);
    if let Some(token) = &node.token {
        request = request.header("authorization", format!("Bearer {token}"));
    } else if let Some(user) = &node.user {
        let pair = format!("{user}:{}", node.password.as_deref().unwrap_or_default());
        request = request.header("authorization", format!("Basic {}", STANDARD.encode(pair)));
    }
    let nothing = Value::Object(serde_json::Map::new());
    let body = match body.or_else(|| (method != "GET").then_some(&nothing)) {
        Some(body) => {
            request = request.header("content-type", "application/json");
            body.to_string()
        }
        None => String::new(),
    };
    let request = request.body(body).map_err(|error| ExitError::Usage(format!("{url}: {error}")))?;
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        .timeout_connect(Some(limit.map_or(CONNECTED, |limit| limit.min(CONNECTED))))
        .timeout_recv_response(limit)
        .timeout_recv_body(limit)
        .build();
    let agent = match url.starts_with("https://") {
        true => {
            let tls = match &node.own_certificate {
                Some(certificate) => client_config_of_own(certificate)?,
                None => client_config(node.cacert.as_deref())?,
            };
            let tls = TlsConnector(tls);
            let connector = ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default()).chain(tls);
            ureq::Agent::with_parts(config, connector, DefaultResolver::default())
        }
        false => config.into(),
    };
    let mut response = agent.run(request).map_err(|error| ExitError::Other(unanswered(&url, method, &error)))?;
    let text = response.body_mut().read_to_string().map_err(|error| ExitError::Other(format!("{url}: {error}")))?;
    let value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    if response.status().is_success() {
        return Ok(value);
    }
    if value["code"] == "unauthorized" {
        // What the node says of it is for those who write HTTP.
        return Err(ExitError::Unauthorized(format!("{} ({})", who_is_asking(node), response.status())));
    }
    let message = value["error"].as_str().map_or_else(|| value.to_string(), str::to_string);
    Err(ExitError::Other(format!("{message} ({})", response.status())))
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(escaped("shop-1"), "shop-1");
        assert_eq!(escaped("a b/ü"), "a%20b%2F%C3%BC");
        assert_eq!(escaped("cache?"), "cache%3F");
        assert_eq!(escaped("a#b%62.."), "a%23b%2562%2E%2E");
    }
}
