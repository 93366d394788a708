//! What an answer to `r.http` is as a value.

use std::sync::LazyLock;

use regex::Regex;

use super::Asked;
use crate::env::Env;
use crate::error::Result;
use crate::http::HttpAnswer;
use crate::value::Value;

/// What an answer is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Its content type says what it is.
    Auto,
    Json,
    Jsonp,
    Text,
    Binary,
}

/// The header and the body of an answer as values, if it is one that says that all is well.
pub(super) fn read(env: &Env, asked: &Asked, answer: HttpAnswer) -> Result<(Value, Value)> {
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
            env.check_arrays(&value)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::ValueExt as _;

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
