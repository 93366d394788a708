//! `r.http`: what a server of others answers, as a value or, page by page, as a stream.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use regex::Regex;
use tessera_types::Right;

use crate::account::Place;
use crate::call::Call;
use crate::env::Env;
use crate::error::{At as _, Error, ErrorKind, FrameId, Result};
use crate::function::Function;
use crate::http::{HttpAnswer, HttpRequest};
use crate::lazy::Lazy;
use crate::plan::Definition;
use crate::stream::{Rows, Stream};
use crate::val::{Kind, Val};
use crate::value::{self, Value, ValueExt as _};

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

const TIMEOUT: Duration = Duration::from_secs(30);
const ATTEMPTS: u64 = 5;
const REDIRECTS: u32 = 1;
/// A longer timeout counts as this one: 30 days.
const LONGEST_SECONDS: f64 = 2_592_000.0;

/// Headers that say who asks.
const SECRET: &[&str] = &["authorization", "cookie", "proxy-authorization"];

/// What an answer is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// By its content type.
    Auto,
    Json,
    Jsonp,
    Text,
    Binary,
}

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
    /// By the link of the answer whose `rel` is `next`.
    Link,
    Function(Arc<Function>),
}

fn http(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let url = call.string(env, 0)?;
    let asked = options(call, env, &url)?;
    let Some((page, limit)) = pages(call, env)? else {
        let answer = perform(env, &asked)?;
        return call.value(body(env, &asked, answer)?.1);
    };
    let rows = HttpPages { asked, page, left: limit, is_done: limit == 0, ready: VecDeque::new() };
    Ok(call.result(Kind::Stream(Stream::new(call.frame(), Box::new(rows)))))
}

fn options(call: &Call<'_>, env: &Env, url: &str) -> Result<Asked> {
    let (mut headers, mut body) = (Vec::new(), None);
    let login = match call.optarg(env, "auth")? {
        None => None,
        Some(option) => {
            let frame = option.frame;
            Some(login(&option.into_datum()?).at(frame)?)
        }
    };
    let method = match call.optarg(env, "method")? {
        None => "GET",
        Some(option) => {
            let name = option.as_string()?;
            let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"].into_iter().find(|known| **known == *name);
            known.ok_or_else(|| {
                Error::logic(format!(
                    "`method` ({name}) is not recognized (GET, HEAD, POST, PUT, PATCH and DELETE are allowed)."
                ))
                .at(option.frame)
            })?
        }
    };
    if let Some(option) = call.optarg(env, "data")? {
        let frame = option.frame;
        if ["GET", "HEAD"].contains(&method) {
            return Err(Error::logic(
                "`data` should only be specified on a PUT, POST, PATCH, or DELETE request.  If you want URL parameters, use \
                 `params` instead.",
            ));
        }
        let (bytes, kind) = data(method, &option.into_datum()?).at(frame)?;
        headers.push(("Content-Type".to_string(), kind.into()));
        body = Some(bytes);
    } else if ["POST", "PUT", "PATCH"].contains(&method) {
        body = Some(Vec::new());
    }
    let format = match call.optarg(env, "result_format")? {
        None => Format::Auto,
        Some(option) => match &*option.as_string()? {
            "auto" => Format::Auto,
            "json" => Format::Json,
            "jsonp" => Format::Jsonp,
            "text" => Format::Text,
            "binary" => Format::Binary,
            other => {
                return Err(Error::logic(format!(
                    "`result_format` ({other}) is not recognized, ('auto', 'json', 'jsonp', 'text', and 'binary' are \
                     allowed)."
                ))
                .at(option.frame));
            }
        },
    };
    let params = match call.optarg(env, "params")? {
        None => value::object([])?,
        Some(option) => {
            let (frame, params) = (option.frame, option.into_datum()?);
            check_params(&params).at(frame)?;
            params
        }
    };
    if let Some(option) = call.optarg(env, "header")? {
        let frame = option.frame;
        for (name, value) in header(&option.into_datum()?).at(frame)? {
            headers.retain(|(own, _): &(String, String)| !own.eq_ignore_ascii_case(&name));
            headers.push((name, value));
        }
    }
    let timeout = match call.optarg(env, "timeout")? {
        None => TIMEOUT,
        Some(option) => match option.as_number()? {
            seconds if seconds < 0.0 => {
                return Err(Error::logic("`timeout` may not be negative.").at(option.frame));
            }
            seconds => Duration::from_secs_f64(seconds.min(LONGEST_SECONDS)),
        },
    };
    let count = |name: &str| -> Result<Option<u64>> {
        let Some(option) = call.optarg(env, name)? else { return Ok(None) };
        let number = option.as_integer()?;
        let too_large = |_| Error::logic(format!("Integer too large: {number}")).at(option.frame);
        u64::try_from(number).map(Some).map_err(too_large)
    };
    let attempts = count("attempts")?.unwrap_or(ATTEMPTS);
    let redirects = count("redirects")?.map_or(REDIRECTS, |count| u32::try_from(count).unwrap_or(u32::MAX));
    let verify = call.optarg_bool(env, "verify")?.unwrap_or(true);
    let request =
        HttpRequest { method, url: String::new(), headers, login, body, timeout, attempts, redirects, verify };
    Ok(Asked { request, url: url.into(), params, format, frame: call.frame() })
}

/// Whether there are pages, and how many at most; -1 is no limit.
fn pages(call: &Call<'_>, env: &Env) -> Result<Option<(Page, i64)>> {
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

/// The name and the password of an `auth`.
fn login(auth: &Value) -> Result<(String, String)> {
    if !auth.is_object() {
        return Err(Error::logic(format!("Expected `auth` to be an OBJECT, but found {}.", auth.type_name())));
    }
    let text = |name: &str| match auth.get_field(name) {
        None => Err(Error::logic(format!("`auth.{name}` not found in the auth object."))),
        Some(Value::String(text)) => Ok(text),
        Some(other) => {
            let found = other.type_name();
            Err(Error::logic(format!("Expected `auth.{name}` to be a STRING, but found {found}.")))
        }
    };
    let kind = if auth.get_field("type").is_some() { text("type")? } else { Arc::from("basic") };
    let (user, password) = (text("user")?, text("pass")?);
    match &*kind {
        "basic" => Ok((user.to_string(), password.to_string())),
        "digest" => Err(Error::logic("Tessera knows no `auth.type` but 'basic'.")),
        _ => Err(Error::logic("`auth.type` is not recognized ('basic', and 'digest' are allowed).")),
    }
}

/// The body of a request, and its content type.
fn data(method: &str, data: &Value) -> Result<(Vec<u8>, &'static str)> {
    const FORM: &str = "application/x-www-form-urlencoded";
    match data {
        Value::String(text) => Ok((text.as_bytes().to_vec(), FORM)),
        _ if method != "POST" => Ok((data.to_json()?.into_bytes(), "application/json")),
        data if data.is_object() => {
            let mut form = String::new();
            for (name, value) in &data.to_fields()? {
                let text = parameter(value).ok_or_else(|| {
                    let found = value.type_name();
                    Error::logic(format!("Expected `data.{name}` to be a NUMBER, STRING or NULL, but found {found}."))
                })?;
                add_parameter(&mut form, name, &text);
            }
            Ok((form.into_bytes(), FORM))
        }
        data => {
            let found = data.type_name();
            Err(Error::logic(format!("Expected `data` to be a STRING or OBJECT, but found {found}.")))
        }
    }
}

fn parameter(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::String(text) => Some(text.to_string()),
        value => value.as_number().map(tessera_document::reconstructable),
    }
}

fn check_params(params: &Value) -> Result<()> {
    if !params.is_object() {
        let (found, shown) = (params.type_name(), params.print()?);
        return Err(Error::logic(format!("Expected `params` to be an OBJECT, but found {found}:\n{shown}")));
    }
    for (name, value) in &params.to_fields()? {
        if parameter(value).is_none() {
            let (found, shown) = (value.type_name(), value.print()?);
            return Err(Error::logic(format!(
                "Expected `params.{name}` to be a NUMBER, STRING or NULL, but found {found}:\n{shown}"
            )));
        }
    }
    Ok(())
}

fn add_parameter(to: &mut String, name: &str, value: &str) {
    if !to.is_empty() {
        to.push('&');
    }
    encode(to, name);
    to.push('=');
    encode(to, value);
}

fn encode(to: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => to.push(char::from(byte)),
            other => *to += &format!("%{other:02X}"),
        }
    }
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

/// Lines of a header.
fn header(header: &Value) -> Result<Vec<(String, String)>> {
    let mut lines = Vec::new();
    match header {
        Value::Array(items) => {
            for (at, line) in items.iter().enumerate() {
                let Value::String(line) = line else {
                    let found = line.type_name();
                    return Err(Error::logic(format!("Expected `header[{at}]` to be a STRING, but found {found}.")));
                };
                let (name, text) = line.split_once(':').unwrap_or((line, ""));
                lines.push((name.to_string(), text.trim().to_string()));
            }
        }
        header if header.is_object() => {
            for (name, value) in &header.to_fields()? {
                let text = match value {
                    Value::Null => String::new(),
                    Value::String(text) => text.to_string(),
                    other => {
                        let found = other.type_name();
                        return Err(Error::logic(format!(
                            "Expected `header.{name}` to be a STRING or NULL, but found {found}."
                        )));
                    }
                };
                lines.push((name.to_string(), text));
            }
        }
        other => {
            let found = other.type_name();
            return Err(Error::logic(format!("Expected `header` to be an ARRAY or OBJECT, but found {found}.")));
        }
    }
    match lines.iter().any(|(name, text)| name.contains(['\r', '\n']) || text.contains(['\r', '\n'])) {
        true => Err(Error::logic("A `header` item contains newline characters.")),
        false => Ok(lines),
    }
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
}

fn perform(env: &Env, asked: &Asked) -> Result<HttpAnswer> {
    // For each page, since the right may be taken away while a stream is open.
    env.source()?.require(Right::Connect, Place::Global).at(asked.frame)?;
    let Some(client) = env.source()?.http() else {
        return Err(Error::logic("HTTP requests out of queries are not available on this server."));
    };
    let request = HttpRequest { url: asked.full_url()?, ..asked.request.clone() };
    let answer = client.fetch(&request, &|| env.pacer().goes_on());
    env.check()?;
    answer.or_else(|failure| {
        let shown = (!failure.is_late).then_some((&Value::Null, &Value::Null));
        Err(asked.error(&failure.message, shown)?)
    })
}

/// The header and the body of an answer as values, if it is one that says that all is well.
fn body(env: &Env, asked: &Asked, answer: HttpAnswer) -> Result<(Value, Value)> {
    let header = header_value(&answer.headers)?;
    let content_type = answer.headers.iter().rfind(|(name, _)| name == "content-type");
    let content_type = content_type.map(|(_, value)| value.to_ascii_lowercase()).unwrap_or_default();
    if !(200..300).contains(&answer.status) {
        let text = String::from_utf8_lossy(&answer.body);
        let body = if text.is_empty() { Value::Null } else { Value::from(&*text) };
        return Err(asked.error(&format!("status code {}", answer.status), Some((&header, &body)))?);
    }
    if asked.request.method == "HEAD" {
        return Ok((header, Value::Null));
    }
    let is = |kinds: &[&str]| kinds.iter().any(|kind| content_type.starts_with(kind));
    let format = match asked.format {
        Format::Auto if is(&["audio/", "image/", "video/", "application/octet-stream"]) => Format::Binary,
        Format::Auto if is(&["application/json-p", "text/json-p", "text/javascript"]) => Format::Auto,
        Format::Auto if is(&["application/json"]) => Format::Json,
        Format::Auto => Format::Text,
        format => format,
    };
    if format == Format::Binary {
        return Ok((header, Value::Binary(answer.body.into())));
    }
    let Ok(text) = String::from_utf8(answer.body) else {
        let what = "the answer is no text in UTF-8, ask for it with `result_format` 'binary'";
        return Err(asked.error(what, Some((&header, &Value::Null)))?);
    };
    let parsed = match format {
        Format::Json => json(&text).ok_or("failed to parse JSON response"),
        Format::Jsonp => jsonp(&text).ok_or("failed to parse JSONP response"),
        // It may be any of these.
        Format::Auto => Ok(json(&text).or_else(|| jsonp(&text)).unwrap_or_else(|| Value::from(&*text))),
        Format::Text | Format::Binary => Ok(Value::from(&*text)),
    };
    match parsed {
        Ok(value) => {
            super::literals::check_arrays(env, &value)?;
            Ok((header, value))
        }
        Err(what) => Err(asked.error(what, Some((&header, &Value::from(&*text))))?),
    }
}

fn json(text: &str) -> Option<Value> {
    Value::from_json(text).ok()
}

/// Reads the JSON that a call of a function in JavaScript has as its argument.
fn jsonp(text: &str) -> Option<Value> {
    static CALL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let name = r"\s*[$_\p{L}\p{Nl}][$_\p{L}\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}]*\s*";
        Regex::new(&format!(r#"(?s)^{name}(?:\.{name}|\[\s*['"].*?['"]\s*\]\s*)?\((.*)\)\s*;?\s*$"#)).ok()
    });
    json(CALL.as_ref()?.captures(text)?.get(1)?.as_str())
}

/// The lines of a header as an object; `link` as one of its own, from what the links are to what they are for.
fn header_value(lines: &[(String, String)]) -> Result<Value> {
    let (mut fields, mut links) = (Vec::new(), Vec::new());
    for (name, text) in lines {
        match &**name {
            "link" => links.extend(read_links(text)),
            name => fields.push((name, Value::from(&**text))),
        }
    }
    // The last one counts.
    let mut header = std::collections::BTreeMap::from_iter(fields);
    if !links.is_empty() {
        let links = std::collections::BTreeMap::from_iter(links);
        header.insert("link", Value::object(links.iter().map(|(kind, url)| (&**kind, Value::from(&**url))))?);
    }
    Ok(Value::object(header)?)
}

/// The links of a line, by what they are for: `<https://example.org/2>; rel="next"`.
fn read_links(line: &str) -> Vec<(String, String)> {
    let mut links = Vec::new();
    let mut rest = line;
    while let Some((url, behind)) = rest.split_once('<').and_then(|(_, link)| link.split_once('>')) {
        let end = behind.find(',').unwrap_or(behind.len());
        let kind = behind[..end].trim().strip_prefix(';').unwrap_or_default().trim();
        links.push((kind.to_string(), url.to_string()));
        rest = &behind[end..];
    }
    links
}

/// The pages of an answer, each asked for when the rows before it are taken.
struct HttpPages {
    asked: Asked,
    page: Page,
    /// Pages that may still be asked for; less than none stands for any number.
    left: i64,
    is_done: bool,
    ready: VecDeque<Value>,
}

impl Rows for HttpPages {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        while self.ready.is_empty() && !self.is_done {
            self.read_page(env)?;
        }
        let count = limit.min(self.ready.len());
        Ok(self.ready.drain(..count).map(Lazy::Value).collect())
    }
}

impl HttpPages {
    fn read_page(&mut self, env: &Env) -> Result<()> {
        let answer = perform(env, &self.asked)?;
        let (header, body) = body(env, &self.asked, answer)?;
        self.is_done = !self.turn(env, &header, &body)?;
        match &body {
            Value::Array(items) => self.ready.extend(items.iter().cloned()),
            _ => self.ready.push_back(body),
        }
        Ok(())
    }

    /// Finds the next page. Returns whether there is one.
    fn turn(&mut self, env: &Env, header: &Value, body: &Value) -> Result<bool> {
        if self.left > 0 {
            self.left -= 1;
        }
        if self.left == 0 {
            return Ok(false);
        }
        let function = match &self.page {
            Page::Link => {
                let links = header.get_field("link").unwrap_or(Value::Null);
                let next = links.get_field("rel=\"next\"").unwrap_or(Value::Null);
                return self.go_to(&next);
            }
            Page::Function(function) => function.clone(),
        };
        let given =
            value::object([("body", body.clone()), ("header", header.clone()), ("params", self.asked.params.clone())])?;
        let next = function.call(env, std::slice::from_ref(&given), false).and_then(Val::into_datum);
        next.and_then(|next| self.follow(&next)).map_err(|error| {
            let (method, url) = (self.asked.request.method, &self.asked.url);
            let shown = given.print().unwrap_or_default();
            let message = format!(
                "Error in HTTP {method} of `{url}`: {}.\nError occurred during `page` called with:\n{shown}\n",
                error.message()
            );
            error.with_message(message)
        })
    }

    /// Goes where a function says.
    fn follow(&mut self, next: &Value) -> Result<bool> {
        if !next.is_object() {
            return match next {
                Value::Null | Value::String(_) => self.go_to(next),
                other => {
                    Err(Error::logic(format!("Expected `page` to return an OBJECT, but found {}.", other.type_name())))
                }
            };
        }
        let (url, params) = (next.get_field("url"), next.get_field("params"));
        if url.is_none() && params.is_none() {
            return Err(Error::logic("OBJECT returned by `page` must contain `url` and/or `params` fields."));
        }
        if let Some(params) = params {
            check_params(&params)?;
            self.asked.params = self.asked.params.merge(&params)?;
        }
        url.map_or(Ok(true), |url| self.go_to(&url))
    }

    fn go_to(&mut self, url: &Value) -> Result<bool> {
        match url {
            Value::Null => Ok(false),
            Value::String(url) => {
                self.asked.leave_for(url);
                Ok(true)
            }
            other => Err(Error::logic(format!(
                "Expected `url` in OBJECT returned by `page` to be a STRING or NULL, but found {}.",
                other.type_name()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_put_into_urls() {
        let mut form = String::new();
        add_parameter(&mut form, "a b", "é&=");
        add_parameter(&mut form, "c", "");
        assert_eq!(form, "a%20b=%C3%A9%26%3D&c=");
    }

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

    #[test]
    fn links_and_calls_with_json_are_read() {
        let line = r#"<https://example.org/2>; rel="next", <https://example.org/9>; rel="last""#;
        let links = [("rel=\"next\"", "https://example.org/2"), ("rel=\"last\"", "https://example.org/9")];
        assert_eq!(read_links(line), links.map(|(kind, url)| (kind.to_string(), url.to_string())));
        assert_eq!(read_links("nothing"), []);
        for text in ["f([1])", " f ( [1] ) ; ", "a.b([1]);", "a[\"b-c\"]([1])", "$_é1([1])"] {
            assert_eq!(jsonp(text).unwrap().print().unwrap(), "[\n\t1\n]", "{text}");
        }
        for text in ["[1]", "f([1]", "1f([1])", "f([)"] {
            assert!(jsonp(text).is_none(), "{text}");
        }
    }
}
