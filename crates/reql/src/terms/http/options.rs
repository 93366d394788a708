//! What the options of `r.http` ask for.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;
use std::time::Duration;

use super::Asked;
use super::answer::Format;
use crate::call::Call;
use crate::env::Env;
use crate::error::{At as _, Error, Result};
use crate::http::HttpRequest;
use crate::value::{self, Value, ValueExt as _};

const TIMEOUT: Duration = Duration::from_secs(30);
const ATTEMPTS: u64 = 5;
const REDIRECTS: u32 = 1;
/// A longer timeout counts as this one: 30 days.
const LONGEST_SECONDS: f64 = 2_592_000.0;

pub(super) fn read(call: &Call<'_>, env: &Env, url: &str) -> Result<Asked> {
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

pub(super) fn parameter(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::String(text) => Some(text.to_string()),
        value => value.as_number().map(tessera_document::reconstructable),
    }
}

pub(super) fn check_params(params: &Value) -> Result<()> {
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

pub(super) fn add_parameter(to: &mut String, name: &str, value: &str) {
    if !to.is_empty() {
        to.push('&');
    }
    encode(to, name);
    to.push('=');
    encode(to, value);
}

fn encode(to: &mut String, text: &str) {
    const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    to.extend(utf8_percent_encode(text, ENCODED));
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
}
