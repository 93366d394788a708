//! What admin-cli of Apache Pegasus asks with HTTP, on the port of the other calls. A connection carries one request, and none changes
//! anything.

use crate::meta::replicas_here;
use crate::server::PegasusServer;
use serde_json::{Map, Value, json};

/// As every such request begins. Those of other methods are none of a client of Pegasus.
const METHOD: &[u8] = b"GET ";
/// Longest head of a request.
const HEAD_BYTES: usize = 8 << 10;
/// The format in which Pegasus has a table's records, which tools compare before they copy tables.
const DATA_VERSION: &str = "1";

/// What the beginning of a connection's input is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Head<'a> {
    /// No request of HTTP.
    Other,
    /// One of which more is to come.
    Incomplete,
    /// One for this target: a path, and perhaps a query.
    Target(&'a str),
}

/// Looks at the beginning of a connection's input.
pub(crate) fn head(input: &[u8]) -> Head<'_> {
    let common = input.len().min(METHOD.len());
    if input.is_empty() || input[..common] != METHOD[..common] {
        return Head::Other;
    }
    let Some(end) = memchr::memmem::find(input, b"\r\n\r\n") else {
        return if input.len() < HEAD_BYTES { Head::Incomplete } else { Head::Other };
    };
    let line =
        input[METHOD.len()..end].split(|byte| *byte == b'\r').next().and_then(|line| std::str::from_utf8(line).ok());
    match line.and_then(|line| line.split_once(" HTTP/1.")) {
        Some((target, _)) => Head::Target(target),
        None => Head::Other,
    }
}

/// The response to a request for a target.
pub(crate) fn respond(server: &PegasusServer, target: &str) -> Vec<u8> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (status, content) = match content(server, path, query) {
        Some(content) => ("200 OK", content),
        None => ("404 Not Found", json!({ "error": "there is no such path" }).to_string()),
    };
    let length = content.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n");
    format!("{head}Connection: close\r\n\r\n{content}").into_bytes()
}

/// What is under a path, if anything.
fn content(server: &PegasusServer, path: &str, query: &str) -> Option<String> {
    let no_such =
        |name: &str| format!("ERR_OBJECT_NOT_FOUND: '{name}' is no setting that can be asked for or changed here");
    let parameter = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    Some(match path {
        "/version" => json!({ "version": env!("CARGO_PKG_VERSION") }).to_string(),
        // Settings of Pegasus: there are none.
        "/configs" => json!({}).to_string(),
        "/config" => no_such(parameter("name").unwrap_or_default()),
        "/updateConfig" => json!({ "update_status": no_such(query.split('=').next().unwrap_or_default()) }).to_string(),
        "/replica/data_version" => {
            let asked: u32 = parameter("app_id")?.parse().ok()?;
            let here = replicas_here::all(server).into_iter().filter(|replica| replica.table.number().0 == asked);
            let version = |partition: u32| (partition.to_string(), json!({ "data_version": DATA_VERSION }));
            Value::Object(here.map(|replica| version(replica.partition)).collect::<Map<_, _>>()).to_string()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_by_its_head() {
        assert_eq!(head(b"GET /config?name=x HTTP/1.1\r\nHost: a\r\n\r\n"), Head::Target("/config?name=x"));
        assert_eq!(head(b"GET / HTTP/1.0\r\n\r\n"), Head::Target("/"));
        for part in ["G", "GET ", "GET / HTTP/1.1\r\nHost: a\r\n"] {
            assert_eq!(head(part.as_bytes()), Head::Incomplete, "{part}");
        }
        let long = [b"GET /".to_vec(), vec![b'x'; HEAD_BYTES]].concat();
        for other in [
            &b""[..],
            b"THFT",
            b"GETX",
            b"POST / HTTP/1.1\r\n\r\n",
            b"GET /\r\n\r\n",
            b"GET \xff HTTP/1.1\r\n\r\n",
            &long[..],
        ] {
            assert_eq!(head(other), Head::Other, "{}", other.escape_ascii());
        }
    }
}
