//! When two answers are alike: what has no order is sorted, what is accidental is put aside.

use std::sync::Arc;

use tessera_reql::Json;

use crate::text;

pub struct Verdict {
    /// Types, values, messages and notes agree.
    pub passed: bool,
    /// The place of an error agrees.
    pub placed: bool,
    /// What differs first.
    pub difference: String,
}

/// The text of a JSON value.
pub fn write(json: &Json) -> String {
    let mut out = String::new();
    write_into(json, &mut out);
    out
}

fn write_text(text: &str, out: &mut String) {
    let mut bytes = Vec::new();
    tessera_document::write_json_string(text, &mut bytes);
    out.push_str(std::str::from_utf8(&bytes).unwrap());
}

fn write_into(json: &Json, out: &mut String) {
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => {
            let mut bytes = Vec::new();
            tessera_document::Number::new(*number).unwrap().write_json(&mut bytes);
            out.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        Json::String(text) => write_text(text, out),
        Json::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_into(item, out);
            }
            out.push(']');
        }
        Json::Object(fields) => {
            out.push('{');
            for (at, (name, item)) in fields.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_text(name, out);
                out.push(':');
                write_into(item, out);
            }
            out.push('}');
        }
    }
}

/// The length of the UUID at the beginning of a text, if there is one.
fn uuid_at(text: &str) -> Option<usize> {
    let bytes = text.as_bytes().get(..36)?;
    let fits = bytes.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase(),
    });
    fits.then_some(36)
}

fn blank_uuids(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(character) = rest.chars().next() {
        if let Some(length) = uuid_at(rest) {
            out.push_str("<uuid>");
            rest = &rest[length..];
        } else {
            out.push(character);
            rest = &rest[character.len_utf8()..];
        }
    }
    out
}

fn sort(items: &mut [Json]) {
    items.sort_by_cached_key(|item| blank_uuids(&write(item)));
}

fn is_grouped(json: &Json) -> bool {
    let is_pair = matches!(json, Json::Object(fields) if fields.len() == 2)
        && json.get("group").is_some()
        && json.get("reduction").is_some();
    is_pair || text(json, "$reql_type$") == Some("GROUPED_DATA")
}

/// Sorts a list, and lists in groups.
fn unordered(json: &mut Json) {
    if is_grouped(json) {
        if let Json::Object(fields) = json {
            for (name, value) in fields {
                match (&**name, value) {
                    ("data", Json::Array(groups)) => {
                        for group in groups {
                            if let Json::Array(pair) = group
                                && let Some(rows) = pair.get_mut(1)
                            {
                                unordered(rows);
                            }
                        }
                    }
                    ("reduction", value) => unordered(value),
                    _ => {}
                }
            }
        }
    } else if let Json::Array(items) = json {
        for item in items.iter_mut().filter(|item| is_grouped(item)) {
            unordered(item);
        }
        sort(items);
    }
}

/// Replaces the values of some fields, at any depth, by a placeholder.
fn mask(json: &mut Json, names: &[&str]) {
    match json {
        Json::Array(items) => items.iter_mut().for_each(|item| mask(item, names)),
        Json::Object(fields) => {
            for (name, value) in fields {
                if names.contains(&&**name) {
                    *value = Json::String(Arc::from("<any>"));
                } else {
                    mask(value, names);
                }
            }
        }
        _ => {}
    }
}

/// Kinds in the place of values, and of the elements of arrays each kind once.
fn shape(json: &Json) -> Json {
    let placeholder = |text: &str| Json::String(Arc::from(text));
    match json {
        Json::Object(fields) => Json::Object(fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect()),
        Json::Array(items) => {
            let mut shapes: Vec<Json> = items.iter().map(shape).collect();
            shapes.sort_by_cached_key(write);
            shapes.dedup();
            Json::Array(shapes)
        }
        Json::Bool(_) => placeholder("<bool>"),
        Json::String(_) => placeholder("<string>"),
        Json::Number(_) => placeholder("<number>"),
        Json::Null => Json::Null,
    }
}

/// A message that is about the row at which an error struck, so that another row may say something else.
fn is_about_a_row(message: &str) -> bool {
    message.contains('\n')
        || ["No attribute", "Expected ", "Cannot perform", "Cannot convert", "Cannot coerce"]
            .iter()
            .any(|start| message.starts_with(start))
}

fn canonical(step: &Json, reply: &Json) -> Json {
    let Json::Object(mut fields) = reply.clone() else { return reply.clone() };
    let kind = text(reply, "t").unwrap_or_default().to_string();
    let order = text(step, "order");
    let is_random = matches!(step.get("random"), Some(Json::Bool(true))) && kind.starts_with("SUCCESS");
    let mut names = vec!["doc_count_estimates"];
    if let Some(Json::Array(masked)) = step.get("mask") {
        names.extend(masked.iter().filter_map(|name| if let Json::String(name) = name { Some(&**name) } else { None }));
    }
    for (name, rows) in &mut fields {
        if &**name != "r" {
            continue;
        }
        if is_random {
            *rows = Json::String(Arc::from("<any>"));
            continue;
        }
        mask(rows, &names);
        match (order, &*kind, &mut *rows) {
            (Some("unsorted"), "SUCCESS_SEQUENCE", rows) => unordered(rows),
            (Some("unsorted"), "SUCCESS_ATOM", Json::Array(items)) => items.iter_mut().for_each(unordered),
            (Some("unsorted"), "MESSAGES", rows @ Json::Array(_)) => unordered(rows),
            (Some("unsorted"), "MESSAGES", Json::Object(feeds)) => {
                feeds.iter_mut().for_each(|(_, messages)| unordered(messages));
            }
            _ => {}
        }
        if kind == "SUCCESS_ATOM"
            && let Json::Array(items) = rows
            && let Some(first) = items.first_mut()
        {
            write_result(first);
        }
    }
    Json::Object(fields)
}

/// The result of a write: its changes sorted, and the first of several errors left open.
fn write_result(result: &mut Json) {
    let errors = match result.get("errors") {
        Some(Json::Number(errors)) => *errors,
        _ => return,
    };
    let Json::Object(fields) = result else { return };
    for (name, value) in fields {
        match (&**name, &mut *value) {
            ("changes", Json::Array(changes)) => sort(changes),
            ("first_error", Json::String(message)) if errors > 1.0 && is_about_a_row(message) => {
                *value = Json::String(Arc::from("<string>"));
            }
            _ => {}
        }
    }
}

/// Whether a reply to a step is like the one that was recorded.
pub fn judge(step: &Json, expected: &Json, actual: &Json) -> Verdict {
    let mut actual = actual.clone();
    if matches!(step.get("shape"), Some(Json::Bool(true)))
        && actual.get("e").is_none()
        && let Json::Object(fields) = &mut actual
    {
        // The recorded one was made so when it was recorded.
        fields.iter_mut().filter(|(name, _)| &**name == "r").for_each(|(_, rows)| *rows = shape(rows));
    }
    let (expected, actual) = (canonical(step, expected), canonical(step, &actual));
    let tolerance = if let Some(Json::Number(number)) = step.get("approx") { *number } else { 0.0 };
    let mut found = None;
    for name in ["t", "e", "n", "p", "closed", "end"] {
        found = found.or_else(|| optional(expected.get(name), actual.get(name), 0.0, name));
    }
    if !matches!(expected.get("any_row"), Some(Json::Bool(true))) {
        found = found.or_else(|| optional(expected.get("r"), actual.get("r"), tolerance, "r"));
    }
    let place = optional(expected.get("b"), actual.get("b"), 0.0, "b");
    Verdict { passed: found.is_none(), placed: place.is_none(), difference: found.or(place).unwrap_or_default() }
}

fn told(path: &str, expected: Option<&Json>, actual: Option<&Json>) -> Option<String> {
    let short = |json: Option<&Json>| {
        let mut text = json.map_or("nothing".into(), write);
        text.truncate(text.floor_char_boundary(300));
        text
    };
    Some(format!("{path}: expected {}, got {}", short(expected), short(actual)))
}

fn optional(expected: Option<&Json>, actual: Option<&Json>, tolerance: f64, path: &str) -> Option<String> {
    match (expected, actual) {
        (None, None) => None,
        (Some(expected), Some(actual)) => difference(expected, actual, tolerance, path),
        _ => told(path, expected, actual),
    }
}

fn is_instance(placeholder: &str, actual: &Json) -> bool {
    match placeholder {
        "<any>" => true,
        "<number>" => matches!(actual, Json::Number(_)),
        "<string>" => matches!(actual, Json::String(_)),
        "<bool>" => matches!(actual, Json::Bool(_)),
        _ => false,
    }
}

/// Whether the text is the pattern with UUIDs for its placeholders.
fn has_uuids(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split("<uuid>");
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    for part in parts {
        let Some(after) = uuid_at(rest).and_then(|length| rest[length..].strip_prefix(part)) else { return false };
        rest = after;
    }
    rest.is_empty()
}

fn difference(expected: &Json, actual: &Json, tolerance: f64, path: &str) -> Option<String> {
    let differs = || told(path, Some(expected), Some(actual));
    match (expected, actual) {
        (Json::String(pattern), actual) if is_instance(pattern, actual) => None,
        (Json::Number(left), Json::Number(right)) => {
            let is_near = left == right || (left - right).abs() <= tolerance * left.abs().max(right.abs()).max(1.0);
            if is_near { None } else { differs() }
        }
        (Json::String(left), Json::String(right)) => {
            let is_equal = left == right || (left.contains("<uuid>") && has_uuids(left, right));
            if is_equal { None } else { differs() }
        }
        (Json::Array(left), Json::Array(right)) => {
            if left.len() != right.len() {
                return differs();
            }
            let mut pairs = left.iter().zip(right).enumerate();
            pairs.find_map(|(at, (left, right))| difference(left, right, tolerance, &format!("{path}[{at}]")))
        }
        (Json::Object(left), Json::Object(right)) => {
            if left.len() != right.len() {
                return differs();
            }
            left.iter().find_map(|(name, left)| {
                let right = actual.get(name);
                optional(Some(left), right, tolerance, &format!("{path}.{name}"))
            })
        }
        (left, right) if left == right => None,
        _ => differs(),
    }
}
