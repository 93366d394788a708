//! Types: converting between them and telling them.

use std::sync::Arc;

use crate::call::Call;
use crate::env::Env;
use crate::error::{self, Error, Result};
use crate::function::{Body, Function};
use crate::plan::{Definition, Grouping};
use crate::script::ScriptSource;
use crate::size::Size;
use crate::term::code;
use crate::val::{Kind, Val};
use crate::value::{self, ObjectBuilder, Value, ValueExt as _};

pub const TERMS: &[Definition] = &[
    Definition::new(code::COERCE_TO, 2, 2, coerce_to),
    Definition::new(52, 1, 1, type_of).grouping(Grouping::Ignored),
    Definition::new(79, 1, 1, info).grouping(Grouping::Ignored),
];

/// Names of types that `coerce_to` knows.
const NAMES: &[&str] = &[
    "DB",
    "TABLE",
    "TABLE_SLICE",
    "SELECTION<ARRAY>",
    "SELECTION<STREAM>",
    "STREAM",
    "SELECTION<OBJECT>",
    "DATUM",
    "FUNCTION",
    "GROUPED_DATA",
    "GROUPED_STREAM",
    "MINVAL",
    "NULL",
    "BOOL",
    "NUMBER",
    "STRING",
    "OBJECT",
    "ARRAY",
    "BINARY",
    "MAXVAL",
    "PTYPE<BINARY>",
];

/// The type as `type_of` tells it.
fn type_name(value: &Val) -> &'static str {
    match &value.kind {
        Kind::Datum(value) => value.type_name(),
        Kind::Row(_) => "SELECTION<OBJECT>",
        Kind::Stream(stream) if stream.is_grouped() => "GROUPED_STREAM",
        Kind::Stream(stream) if stream.is_array() => "ARRAY",
        Kind::Stream(_) => "STREAM",
        Kind::Selection(_, stream) if stream.is_grouped() => "GROUPED_STREAM",
        Kind::Selection(_, stream) if stream.is_array() => "SELECTION<ARRAY>",
        Kind::Selection(..) => "SELECTION<STREAM>",
        Kind::Slice(_) => "TABLE_SLICE",
        Kind::Table(_) => "TABLE",
        Kind::Database(_) => "DB",
        Kind::Function(_) => "FUNCTION",
        Kind::Grouped(_) => "GROUPED_DATA",
    }
}

fn type_of(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let value = call.arg_unread(env, 0)?;
    call.value(Value::from(type_name(&value)))
}

fn coerce_to(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let from = call.arg(env, 0)?;
    let wanted = call.string(env, 1)?.to_ascii_uppercase();
    if !NAMES.contains(&&*wanted) {
        return Err(Error::logic(format!("Unknown Type: {}", error::until_nul(&wanted))));
    }
    let wanted = match &*wanted {
        "BINARY" => "PTYPE<BINARY>",
        other => other,
    };
    let start = type_name(&from);
    let is_datum = from.peek().is_some();
    let same = match wanted {
        "DATUM" => is_datum,
        "STREAM" => from.is_sequence(),
        "TABLE" => matches!(from.kind, Kind::Table(_)),
        "SELECTION<STREAM>" => from.is_selection(),
        "BOOL" | "OBJECT" | "ARRAY" | "NULL" | "NUMBER" | "STRING" => {
            from.peek().is_some_and(|value| value.type_name() == wanted || value.plain_type_name() == wanted)
        }
        other => other == start,
    };
    if same {
        return Ok(from);
    }
    let name = |text: &str| match text {
        "PTYPE<BINARY>" => "BINARY".to_string(),
        other => other.to_string(),
    };
    let refuse = |from: &Val| {
        let start = match from.peek() {
            Some(Value::Binary(_)) => "BINARY",
            Some(value) => value.plain_type_name(),
            None => type_name(from),
        };
        Err(from.typed_error(format!("Cannot coerce {} to {}.", start, name(wanted))))
    };
    if wanted == "BOOL" && from.peek().is_none() {
        return call.bool(true);
    }
    if let Some(value) = from.peek() {
        match (value, wanted) {
            (value, "BOOL") => {
                let truth = value.to_bool()?;
                return call.bool(truth);
            }
            (Value::Binary(bytes), "STRING") => {
                let text = tessera_document::text_from_utf8(bytes)?;
                return call.value(Value::from(text));
            }
            (Value::String(text), "PTYPE<BINARY>") => {
                return call.value(Value::Binary(Arc::from(text.as_bytes())));
            }
            (value, "STRING") => return call.value(Value::String(env.json_text(value)?)),
            (Value::String(text), "NUMBER") => {
                return match parse_number(text) {
                    Some(number) => call.value(value::number(number)?),
                    None => Err(Error::logic(format!("Could not coerce `{text}` to NUMBER."))),
                };
            }
            (value, "ARRAY") if value.is_object() => {
                let pairs = value.to_fields()?.into_fields();
                let pairs = pairs
                    .into_iter()
                    .map(|(name, value)| Ok(Value::array(vec![Value::String(name), value])?))
                    .collect::<Result<_>>()?;
                return call.value(env.array(pairs)?);
            }
            (Value::Array(_), _) => {}
            (Value::Binary(bytes), "ARRAY") => {
                let _ = bytes;
                return refuse(&from);
            }
            _ => return refuse(&from),
        }
    }
    if !from.is_sequence() {
        return refuse(&from);
    }
    match wanted {
        "ARRAY" | "DATUM" => {
            let stream = from.into_stream(env)?;
            if stream.is_grouped() {
                let groups = stream.into_groups(env)?;
                return Ok(call.result(Kind::Grouped(groups)));
            }
            let items = stream.collect(env)?;
            call.value(env.array(items)?)
        }
        "OBJECT" => {
            let mut stream = from.into_stream(env)?;
            stream.check_finite()?;
            let mut builder = ObjectBuilder::default();
            let mut seen: std::collections::BTreeMap<Arc<str>, Value> = std::collections::BTreeMap::new();
            let mut size = Size::default();
            while let Some(pair) = stream.next(env)? {
                size.add(pair.encoded_len())?;
                let items = pair.to_items()?;
                let [key, item] = &items[..] else {
                    return Err(Error::logic(format!("Expected array of size 2, but got size {}.", items.len())));
                };
                let key = key.to_text()?;
                if let Some(earlier) = seen.insert(key.clone(), item.clone()) {
                    return Err(Error::logic(format!(
                        "Duplicate key \"{key}\" in coerced object.  (got {} and {} as values)",
                        earlier.print_truncated()?,
                        item.print_truncated()?
                    )));
                }
            }
            for (key, item) in seen {
                builder.insert(key, item);
            }
            call.value(builder.finish()?)
        }
        _ => refuse(&from),
    }
}

/// A number as `strtod` of C reads it, if the whole text is one.
fn parse_number(text: &str) -> Option<f64> {
    let trimmed = text.trim_start_matches(|space: char| space.is_ascii_whitespace() || space == '\u{b}');
    let (negative, digits) = match trimmed.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let lower = digits.to_ascii_lowercase();
    let number = if let Some(hex) = lower.strip_prefix("0x") {
        if hex.is_empty() || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        hex.chars().fold(0.0, |number, digit| number * 16.0 + f64::from(digit.to_digit(16).unwrap_or(0)))
    } else {
        if lower.starts_with(['+', '-']) {
            return None;
        }
        lower.parse::<f64>().ok()?
    };
    Some(if negative { -number } else { number })
}

fn info(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let value = call.arg_unread(env, 0)?;
    let info = describe(env, &value)?;
    call.value(info)
}

fn describe(env: &Env, value: &Val) -> Result<Value> {
    let name = type_name(value);
    let mut builder = ObjectBuilder::default();
    builder.insert("type", Value::from(name));
    match &value.kind {
        Kind::Datum(Value::Null) => {}
        Kind::Datum(binary @ Value::Binary(bytes)) => {
            builder.insert("count", value::integer(bytes.len()));
            builder.insert("value", Value::String(env.pretty_text(binary)?));
        }
        Kind::Datum(inner) => builder.insert("value", Value::String(env.pretty_text(inner)?)),
        Kind::Row(row) => {
            builder.insert("table", describe_table(env, &row.table)?);
            // RethinkDB has none, so it stands only where it says something.
            if let Some(millis) = env.source()?.time_left(&row.table.info, &row.key)? {
                builder.insert("ttl", value::number(millis as f64 / 1_000.0)?);
            }
        }
        Kind::Database(database) => {
            builder.insert("id", Value::from(database.id.clone()));
            builder.insert("name", Value::from(database.name.clone()));
        }
        Kind::Table(table) => return describe_table(env, table),
        Kind::Selection(table, _) => builder.insert("table", describe_table(env, table)?),
        Kind::Slice(slice) => {
            use std::ops::Bound;
            let index = slice.index.clone().unwrap_or_else(|| slice.table.info.primary_key.clone());
            builder.insert("index", Value::String(index));
            builder.insert("table", describe_table(env, &slice.table)?);
            let range = slice.range.clone().unwrap_or(crate::source::KeyRange::ALL);
            let sides = [
                ("left_bound", "left_bound_type", range.lower, "unbounded", "closed"),
                ("right_bound", "right_bound_type", range.upper, "unbounded", "open"),
            ];
            for (bound, kind, end, unbounded, default) in sides {
                let (value, name) = match end {
                    Bound::Included(value) => (value, "closed"),
                    Bound::Excluded(value) => (value, "open"),
                    Bound::Unbounded => (Value::Null, if slice.range.is_none() { unbounded } else { default }),
                };
                match value {
                    Value::MinVal | Value::MaxVal => builder.insert(kind, Value::from("unbounded")),
                    Value::Null => builder.insert(kind, Value::from(name)),
                    other => {
                        builder.insert(bound, other);
                        builder.insert(kind, Value::from(name));
                    }
                }
            }
        }
        Kind::Function(function) => builder.insert("source_code", Value::from(source_code(function))),
        Kind::Stream(_) | Kind::Grouped(_) => {}
    }
    Ok(builder.finish()?)
}

fn source_code(function: &Function) -> String {
    match &function.body {
        Body::Script(ScriptSource { text, timeout }) => {
            format!("javascript timeout={}ms, source={text}", timeout.as_millis())
        }
        _ => "function".into(),
    }
}

fn describe_table(env: &Env, table: &crate::selection::Table) -> Result<Value> {
    let mut names = env.source()?.index_names(&table.info)?;
    names.sort();
    let counts = env.source()?.document_counts(&table.info)?;
    let counts = counts.into_iter().map(|count| value::number(count as f64)).collect::<Result<_>>()?;
    let database = &table.info.database;
    value::object([
        ("type", Value::from("TABLE")),
        ("id", Value::from(table.info.id.clone())),
        ("name", Value::from(table.info.name.clone())),
        ("primary_key", Value::String(table.info.primary_key.clone())),
        ("indexes", Value::array(names.into_iter().map(Value::from).collect())?),
        (
            "db",
            value::object([
                ("type", Value::from("DB")),
                ("id", Value::from(database.id.clone())),
                ("name", Value::from(database.name.clone())),
            ])?,
        ),
        ("doc_count_estimates", Value::array(counts)?),
    ])
}
