//! Which requests are carried out at all: a page in a browser must not reach the API of a node on the same machine, or in a
//! network that only the browser can reach.
//!
//! Such a page can send requests that look like anybody's, except for some headers that it has no say in:
//!
//! - `Host` is the name by which the page knows the node. A page that has its own name point to the node's address ("DNS
//!   rebinding") is told by that name. An address in digits has no owner who could point it elsewhere.
//! - `Origin` and `Sec-Fetch-Site` say where the page comes from. It has to be this API itself.
//! - A form, and a script that does not ask the server first, cannot send JSON under its own content type. So whatever
//!   changes something has a body of JSON, an empty object if there is nothing to say.

use crate::failure::Failure;
use crate::server::AdminServer;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::net::{Ipv4Addr, Ipv6Addr};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The body of what changes something and takes no settings: `{}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Lets requests in that come from where they may.
pub(crate) async fn guard(State(server): State<AdminServer>, request: Request, next: Next) -> Response {
    match check_source(request.headers(), &server.hosts) {
        Ok(()) => next.run(request).await,
        Err((status, reason)) => Failure::of_status(status, reason).into_response(),
    }
}

/// Lets through what changes something if it is JSON. What drivers in browsers send is none, and does not come this way: a page from
/// elsewhere that posts a form says where it comes from.
pub(crate) async fn guard_changes(request: Request, next: Next) -> Response {
    match check_body(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err((status, reason)) => Failure::of_status(status, reason).into_response(),
    }
}

/// Whether a request has a body of the right type, if it needs one.
fn check_body(method: &Method, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
    let changes_something = ![Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    let is_json = || {
        let kind = text(headers, header::CONTENT_TYPE).and_then(|kind| kind.split(';').next());
        kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    };
    if changes_something && !is_json() {
        let reason = "what changes something needs a JSON object as its body, `{}` if there is nothing to say, and the \
                      header `Content-Type: application/json`";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, reason.into()));
    }
    Ok(())
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("(not ASCII)"))
}

/// Whether a request comes from where it may; `hosts` are names of this node.
fn check_source(headers: &HeaderMap, hosts: &[String]) -> Result<(), (StatusCode, String)> {
    let forbidden = |reason: String| Err((StatusCode::FORBIDDEN, reason));
    let text = |name: HeaderName| text(headers, name);
    let Some(host) = text(header::HOST) else {
        return Err((StatusCode::BAD_REQUEST, "the header `Host` is missing".into()));
    };
    // A name with a user before it is none, as is one with what is no port behind it.
    let is_name = |name: &Authority| {
        let rest = name.as_str().strip_prefix(name.host());
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
        })
    };
    if !host.parse().is_ok_and(|host: Authority| is_name(&host) && is_own(host.host(), hosts)) {
        return forbidden(format!(
            "this node does not answer to the name '{host}'; if it should, add the name to the setting `admin.hosts`"
        ));
    }
    if let Some(origin) = text(header::ORIGIN)
        && origin.split_once("://").is_none_or(|(_, origin)| !origin.eq_ignore_ascii_case(host))
    {
        return forbidden(format!("pages from '{origin}' may not use this API"));
    }
    if let Some(site) = text(FETCH_SITE).filter(|site| !["same-origin", "none"].contains(site)) {
        return forbidden(format!("pages from elsewhere may not use this API (sec-fetch-site: {site})"));
    }
    Ok(())
}

fn is_own(host: &str, hosts: &[String]) -> bool {
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_address = match in_brackets {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<Ipv4Addr>().is_ok(),
    };
    // With a dot at its end a name is the same one, said to be whole.
    let host = host.strip_suffix('.').unwrap_or(host);
    is_address || host.eq_ignore_ascii_case("localhost") || hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(method: Method, headers: &[(&'static str, &str)]) -> u16 {
        let header = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        let headers: HeaderMap = headers.iter().map(header).collect();
        match check_source(&headers, &["db.example".into()]).and_then(|()| check_body(&method, &headers)) {
            Ok(()) => 200,
            Err((status, _)) => status.as_u16(),
        }
    }

    #[test]
    fn only_own_names_are_answered_to() {
        let hosts = [
            "localhost:8080",
            "LOCALHOST",
            "127.0.0.1:8080",
            "[::1]:8080",
            "10.1.2.3",
            "DB.example:8080",
            "db.example.:8080",
        ];
        for host in hosts {
            assert_eq!(outcome(Method::GET, &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "a b",
            "user@",
            "me@localhost:8080",
            "[127.0.0.1]",
            "[localhost]",
            "localhost:http",
            "localhost:99999",
            "localhost:",
        ] {
            assert_eq!(outcome(Method::GET, &[("host", host)]), 403, "{host}");
        }
        assert_eq!(outcome(Method::GET, &[]), 400);
    }

    #[test]
    fn pages_from_elsewhere_are_refused() {
        let with = |name, value| outcome(Method::GET, &[("host", "localhost:8080"), (name, value)]);
        assert_eq!(with("origin", "http://localhost:8080"), 200);
        for origin in ["http://localhost:3000", "https://evil.example", "null", "http://localhost:8080.evil.example"] {
            assert_eq!(with("origin", origin), 403, "{origin}");
        }
        assert_eq!((with("sec-fetch-site", "same-origin"), with("sec-fetch-site", "none")), (200, 200));
        assert_eq!((with("sec-fetch-site", "cross-site"), with("sec-fetch-site", "same-site")), (403, 403));
    }

    #[test]
    fn what_changes_something_is_json() {
        for method in [Method::POST, Method::PATCH, Method::DELETE] {
            let with = |kind| outcome(method.clone(), &[("host", "localhost"), ("content-type", kind)]);
            assert_eq!((with("application/json"), with("application/json; charset=utf-8")), (200, 200));
            assert_eq!((with("text/plain"), with("application/x-www-form-urlencoded")), (415, 415));
            assert_eq!(outcome(method, &[("host", "localhost")]), 415);
        }
    }
}
