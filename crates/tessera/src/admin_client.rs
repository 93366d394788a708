//! Calls to a node's admin API.

use crate::NodeArgs;
use crate::exit::ExitError;
use serde_json::Value;
use std::path::Path;
use ureq::tls::{PemItem, RootCerts, TlsConfig};

/// The admin port before any offset.
const PORT: u16 = 8080;

fn url(node: &NodeArgs, path: &str) -> String {
    let base = match &node.admin {
        Some(url) => url.trim_end_matches('/').to_string(),
        None => format!("http://127.0.0.1:{}", PORT.saturating_add(node.port_offset)),
    };
    format!("{base}{path}")
}

/// The certificates of a PEM file, which alone are trusted then.
fn authority(path: &Path) -> Result<RootCerts, ExitError> {
    let usage = |reason: String| ExitError::Usage(format!("--cacert {}: {reason}", path.display()));
    let pem = std::fs::read(path).map_err(|error| usage(error.to_string()))?;
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| usage(error.to_string()))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(usage("there is no certificate in the file".into()));
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

/// Sends a request and returns the JSON answer. What changes something has a body, an empty object if it is not given.
///
/// # Errors
/// That no node answers, or what it answered.
pub fn call(node: &NodeArgs, method: &str, path: &str, body: Option<&Value>) -> Result<Value, ExitError> {
    let url = url(node, path);
    let mut request = ureq::http::Request::builder().method(method).uri(&url);
    if let Some(token) = &node.token {
        request = request.header("authorization", format!("Bearer {token}"));
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
    let mut config = ureq::Agent::config_builder().http_status_as_error(false).allow_non_standard_methods(true);
    if let Some(path) = &node.cacert {
        config = config.tls_config(TlsConfig::builder().root_certs(authority(path)?).build());
    }
    let agent: ureq::Agent = config.build().into();
    let mut response = agent.run(request).map_err(|error| {
        ExitError::Other(format!(
            "no node answers at {url}: {error}. Is it running? --port-offset or --admin name another"
        ))
    })?;
    let text = response.body_mut().read_to_string().map_err(|error| ExitError::Other(format!("{url}: {error}")))?;
    let value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    if response.status().is_success() {
        return Ok(value);
    }
    let message = value["error"].as_str().map_or_else(|| value.to_string(), str::to_string);
    Err(ExitError::Other(format!("{message} ({})", response.status())))
}
