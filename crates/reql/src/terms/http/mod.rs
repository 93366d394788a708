//! `r.http`: what a server of others answers, as a value or, page by page, as a stream.

mod answer;
mod options;
mod pages;

use std::collections::VecDeque;
use std::sync::Arc;

use tessera_types::Right;

use answer::Format;
use options::{add_parameter, parameter};
use pages::HttpPages;

use crate::account::Place;
use crate::call::Call;
use crate::env::Env;
use crate::error::{At as _, Error, ErrorKind, FrameId, Result};
use crate::function::Function;
use crate::http::{HttpAnswer, HttpRequest};
use crate::plan::Definition;
use crate::stream::Stream;
use crate::val::{Kind, Val};
use crate::value::{Value, ValueExt as _};

pub const TERMS: &[Definition] = &[Definition::new(153, 1, 1, http)
    .optargs(&[
        "data",
        "timeout",
        "method",
        "params",
        "header",
        "attempts",
        "redirects",
        "verify",
        "depaginate",
        "auth",
        "result_format",
        "page",
        "page_limit",
    ])
    .nondeterministic()];

/// Headers that say who asks.
const SECRET: &[&str] = &["authorization", "cookie", "proxy-authorization"];

/// What a call asks for.
struct Asked {
    request: HttpRequest,
    /// The URL as it was given, and what is added to it.
    url: String,
    params: Value,
    format: Format,
    frame: FrameId,
}

/// How the next page is found.
enum Page {
    /// The answer has a link to it, whose `rel` is `next`.
    Link,
    Function(Arc<Function>),
}

fn http(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let url = call.string(env, 0)?;
    let asked = options::read(call, env, &url)?;
    let Some((page, limit)) = wanted_pages(call, env)? else {
        let answer = asked.perform(env)?;
        return call.value(answer::read(env, &asked, answer)?.1);
    };
    let rows = HttpPages { asked, page, left: limit, is_done: limit == 0, ready: VecDeque::new() };
    Ok(call.result(Kind::Stream(Stream::new(call.frame(), Box::new(rows)))))
}

/// Whether there are pages, and how many at most; -1 is no limit.
fn wanted_pages(call: &Call<'_>, env: &Env) -> Result<Option<(Page, i64)>> {
    let (page, limit) = (call.optarg(env, "page")?, call.optarg(env, "page_limit")?);
    let Some(page) = page else { return Ok(None) };
    let Some(limit) = limit else {
        return Err(Error::logic(
            "Cannot use `page` without specifying `page_limit` (a positive number performs that many requests, -1 is \
             unlimited).",
        )
        .at(page.frame));
    };
    let frame = page.frame;
    let page = match page.kind {
        Kind::Function(function) => Page::Function(function),
        kind => {
            let name = Val { frame, kind }.as_string()?;
            if &*name != "link-next" {
                return Err(Error::logic(format!(
                    "`page` method '{name}' not recognized, only 'link-next' is available."
                ))
                .at(frame));
            }
            Page::Link
        }
    };
    let count = limit.as_integer()?;
    if count < -1 {
        return Err(Error::logic("`page_limit` should be greater than or equal to -1.").at(limit.frame));
    }
    Ok(Some((page, count)))
}

/// The scheme, the host and the port of a URL.
fn origin(url: &str) -> (String, String, String) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let (scheme, place) = (scheme.to_ascii_lowercase(), place.to_ascii_lowercase());
    let port = match &*scheme {
        "https" => "443",
        _ => "80",
    };
    // The colons of an address in brackets are none before a port.
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (&*place, port),
    };
    (scheme.clone(), host.into(), port.into())
}

impl Asked {
    /// The URL with its parameters.
    fn full_url(&self) -> Result<String> {
        let mut added = String::new();
        for (name, value) in &self.params.to_fields()? {
            add_parameter(&mut added, name, &parameter(value).unwrap_or_default());
        }
        let url = &self.url;
        Ok(match url.rsplit_once('?') {
            _ if added.is_empty() => url.clone(),
            Some((_, "")) => format!("{url}{added}"),
            Some(_) => format!("{url}&{added}"),
            None => format!("{url}?{added}"),
        })
    }

    /// Has the next request go to another URL. What the first server was to know of the client is for no other one.
    fn leave_for(&mut self, url: &str) {
        if origin(url) != origin(&self.url) {
            self.request.login = None;
            self.request
                .headers
                .retain(|(name, _)| !SECRET.iter().any(|secret| name.trim().eq_ignore_ascii_case(secret)));
        }
        self.url = url.into();
    }

    fn error(&self, what: &str, shown: Option<(&Value, &Value)>) -> Result<Error> {
        let mut message = format!("Error in HTTP {} of `{}`: {what}.", self.request.method, self.url);
        if let Some((header, body)) = shown {
            message += &format!("\nheader:\n{}\nbody:\n{}", header.print()?, body.print()?);
        }
        // Whatever servers of others do can be caught by `default`.
        Ok(Error::new(ErrorKind::NonExistence, message).at(self.frame))
    }

    /// Has the request made.
    fn perform(&self, env: &Env) -> Result<HttpAnswer> {
        // For each page, since the right may be taken away while a stream is open.
        env.source()?.require(Right::Connect, Place::Global).at(self.frame)?;
        let Some(client) = env.source()?.http() else {
            return Err(Error::logic("HTTP requests out of queries are not available on this server."));
        };
        let request = HttpRequest { url: self.full_url()?, ..self.request.clone() };
        let answer = env.outside(|is_wanted| client.fetch(&request, is_wanted))?;
        answer.or_else(|failure| {
            let shown = (!failure.is_late).then_some((&Value::Null, &Value::Null));
            Err(self.error(&failure.message, shown)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_apart() {
        let same = "http://example.org/a";
        for url in ["HTTP://Example.org:80?b", "example.org", "http://ann:secret@example.org/"] {
            assert_eq!(origin(url), origin(same), "{url}");
        }
        for url in [
            "https://example.org/a",
            "http://example.org:8080/a",
            "http://example.org.other/a",
            "http://example.org@other/a",
            "http://other/http://example.org/a",
            "http://other\\@example.org/a",
            "http://[::1]/",
        ] {
            assert_ne!(origin(url), origin(same), "{url}");
        }
        assert_eq!(origin("http://[::1]/"), origin("http://[::1]:80/"));
    }
}
