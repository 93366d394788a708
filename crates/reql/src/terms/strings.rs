//! Strings.

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::plan::Definition;
use crate::val::Val;
use crate::value::{self, Value, ValueExt as _};

pub const TERMS: &[Definition] = &[
    Definition::new(97, 2, 2, match_term),
    Definition::new(149, 1, 3, split),
    Definition::new(141, 1, 1, |call, env| change_case(call, env, str::to_ascii_uppercase)),
    Definition::new(142, 1, 1, |call, env| change_case(call, env, str::to_ascii_lowercase)),
    Definition::new(197, 2, 2, format_term),
];

/// The most memory that a regular expression may take.
const PATTERN_BYTES: usize = 1 << 20;

/// The most that the bytes of a text may be, times those of the regular expression that is looked for in it: the search is not
/// interrupted, and takes as long as this product at worst.
const MATCH_BYTES: usize = 1 << 38;

fn change_case(call: &mut Call<'_>, env: &Env, change: fn(&str) -> String) -> Result<Val> {
    let text = call.string(env, 0)?;
    env.work(text.len())?;
    call.value(Value::from(change(&text)))
}

fn group(found: regex::Match<'_>) -> Result<Value> {
    value::object([
        ("str", Value::from(found.as_str())),
        ("start", value::integer(found.start())),
        ("end", value::integer(found.end())),
    ])
}

fn match_term(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let text = call.string(env, 0)?;
    let pattern = call.string(env, 1)?;
    if let Some(repeated) = repeated_operator(&pattern) {
        return Err(Error::logic(format!(
            "Error in regexp `{pattern}` (portion `{repeated}`): bad repetition operator: {repeated}"
        )));
    }
    env.work(text.len())?;
    let size_limit = PATTERN_BYTES.min(MATCH_BYTES / text.len().max(1));
    let compiled = regex::RegexBuilder::new(&translate(&pattern)).size_limit(size_limit).build();
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(error) => {
            let (portion, reason) = complaint(&pattern, &error.to_string());
            return Err(Error::logic(format!(
                "Error in regexp `{pattern}` (portion `{portion}`): {reason}: {portion}"
            )));
        }
    };
    let Some(captures) = compiled.captures(&text) else { return call.value(Value::Null) };
    let mut groups = Vec::new();
    for at in 1..captures.len() {
        groups.push(captures.get(at).map_or(Ok(Value::Null), group)?);
    }
    let whole = captures.get(0).map_or(Ok(Value::Null), group)?;
    let groups = value::object([("groups", Value::array(groups)?)])?;
    call.value(whole.merge(&groups)?)
}

/// Two operators of repetition after each other, which RE2 refuses.
fn repeated_operator(pattern: &str) -> Option<&str> {
    let bytes = pattern.as_bytes();
    let (mut at, mut in_class) = (0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'*' | b'+' | b'?' if !in_class && at > 0 && bytes[at - 1] != b'(' => {
                let lazy = usize::from(bytes.get(at + 1) == Some(&b'?'));
                if matches!(bytes.get(at + lazy + 1), Some(b'*' | b'+')) {
                    return pattern.get(at..at + lazy + 2);
                }
                at += lazy;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// What RE2 says of a pattern that is none: the part that is wrong, and why.
fn complaint(pattern: &str, error: &str) -> (String, String) {
    let says = |text: &str| error.contains(text);
    let from = |start: &str| pattern.find(start).map_or(pattern, |at| &pattern[at..]).to_string();
    if says("unclosed group") {
        (pattern.into(), "missing )".into())
    } else if says("unopened group") {
        (pattern.into(), "unexpected )".into())
    } else if says("unclosed character class") {
        (from("["), "missing ]".into())
    } else if says("repetition operator missing") {
        (pattern.chars().next().map(String::from).unwrap_or_default(), "no argument for repetition operator".into())
    } else if says("look-around") {
        let portion = from("(?");
        let length = if portion.starts_with("(?<") { 4 } else { 3 };
        (portion.chars().take(length).collect(), "invalid perl operator".into())
    } else if says("backreferences") || says("escape sequence") {
        (from("\\").chars().take(2).collect(), "invalid escape sequence".into())
    } else if says("character class range") {
        (from("-"), "invalid character class range".into())
    } else {
        (pattern.into(), error.lines().last().unwrap_or("invalid").trim().to_string())
    }
}

/// Classes of characters mean ASCII, as in RE2; the library here would take all of Unicode.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars().peekable();
    let mut class_depth = 0;
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(class @ ('w' | 'W' | 'd' | 'D' | 's' | 'S' | 'b' | 'B')) => {
                    if class_depth == 0 && !matches!(class, 'W' | 'D' | 'S') {
                        out.push_str(&format!("(?-u:\\{class})"));
                    } else {
                        out.push_str(match class {
                            'w' => "0-9A-Za-z_",
                            'd' => "0-9",
                            's' => "\\t\\n\\x0C\\r ",
                            'W' if class_depth == 0 => "[^0-9A-Za-z_]",
                            'D' if class_depth == 0 => "[^0-9]",
                            'S' if class_depth == 0 => "[^\\t\\n\\x0C\\r ]",
                            'W' => "[^0-9A-Za-z_]",
                            'D' => "[^0-9]",
                            'S' => "[^\\t\\n\\x0C\\r ]",
                            _ => "\\x08",
                        });
                    }
                }
                Some('Q') => {
                    let rest: String = characters.by_ref().collect();
                    let (quoted, after) = rest.split_once("\\E").unwrap_or((&rest, ""));
                    out.push_str(&regex::escape(quoted));
                    out.push_str(&translate(after));
                    return out;
                }
                Some(class @ ('p' | 'P' | 'x')) if characters.peek() == Some(&'{') => {
                    out.push('\\');
                    out.push(class);
                    for inner in characters.by_ref() {
                        out.push(inner);
                        if inner == '}' {
                            break;
                        }
                    }
                }
                Some('C') => out.push_str("(?s:.)"),
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
                None => out.push('\\'),
            },
            '[' if class_depth == 0 => {
                class_depth = 1;
                out.push('[');
                if characters.peek() == Some(&'^') {
                    characters.next();
                    out.push('^');
                }
                if characters.peek() == Some(&']') {
                    characters.next();
                    out.push_str("\\]");
                }
            }
            '[' if characters.peek() != Some(&':') => out.push_str("\\["),
            '[' => {
                // A named class such as [:alpha:] is taken over whole.
                out.push('[');
                for inner in characters.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            ']' if class_depth > 0 => {
                class_depth = 0;
                out.push(']');
            }
            '&' | '~' if class_depth > 0 => {
                out.push('\\');
                out.push(character);
            }
            '{' if class_depth == 0 && !starts_repetition(&mut characters.clone()) => out.push_str("\\{"),
            other => out.push(other),
        }
    }
    out
}

/// Whether a brace begins a repetition such as {2}, {2,} or {2,5}; otherwise it means itself.
fn starts_repetition(rest: &mut dyn Iterator<Item = char>) -> bool {
    let inner: String = rest.take_while(|character| *character != '}').take(12).collect();
    let (least, most) = inner.split_once(',').unwrap_or((&inner, ""));
    !least.is_empty()
        && least.bytes().all(|digit| digit.is_ascii_digit())
        && most.bytes().all(|digit| digit.is_ascii_digit())
}

/// Characters that RethinkDB takes for white space when it splits without a separator.
fn is_space(character: char) -> bool {
    character.is_whitespace()
}

/// Whether a character belongs to the one before it when a string is split into characters.
fn is_combining(character: char) -> bool {
    matches!(u32::from(character),
        0x0300..=0x036F | 0x0483..=0x0489 | 0x0591..=0x05BD | 0x05BF | 0x05C1..=0x05C2 | 0x05C4..=0x05C5 | 0x05C7
        | 0x0610..=0x061A | 0x064B..=0x065F | 0x0670 | 0x06D6..=0x06DC | 0x06DF..=0x06E4 | 0x06E7..=0x06E8
        | 0x06EA..=0x06ED | 0x0711 | 0x0730..=0x074A | 0x07A6..=0x07B0 | 0x07EB..=0x07F3 | 0x0816..=0x0819
        | 0x0900..=0x0903 | 0x093A..=0x093C | 0x093E..=0x094F | 0x0951..=0x0957 | 0x0E31 | 0x0E34..=0x0E3A
        | 0x0E47..=0x0E4E | 0x1DC0..=0x1DFF | 0x20D0..=0x20F0 | 0x302A..=0x302F | 0x3099..=0x309A | 0xFE00..=0xFE0F
        | 0xFE20..=0xFE2F | 0xE0100..=0xE01EF)
}

fn split(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let text = call.string(env, 0)?;
    let mut separator = None;
    if call.count() > 1 {
        let given = call.datum(env, 1)?;
        if !given.is_null() {
            separator = Some(given.to_text()?.clone());
        }
    }
    let mut most = None;
    if call.count() > 2 {
        let given = call.integer(env, 2)?;
        let limit = env.array_limit as i64 - 1;
        if given < -1 || given > limit {
            return Err(Error::logic(format!("Error: `split` size argument must be in range [-1, {limit}].")));
        }
        most = usize::try_from(given).ok();
    }
    env.work(text.len())?;
    // One part more than an array may have is refused as well as all of them.
    let most = most.unwrap_or(env.array_limit);
    let parts: Vec<&str> = match separator.as_deref() {
        None => split_at_space(&text, most),
        Some("") => split_characters(&text, most),
        Some(separator) => text.splitn(most + 1, separator).collect(),
    };
    call.value(env.array(parts.into_iter().map(Value::from).collect())?)
}

fn split_at_space(text: &str, most: usize) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), text.trim_start_matches(is_space));
    while !rest.is_empty() {
        if most == parts.len() {
            parts.push(rest);
            break;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    parts
}

fn split_characters(text: &str, most: usize) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    for (at, character) in text.char_indices().skip(1) {
        if most == parts.len() {
            break;
        }
        if !is_combining(character) {
            parts.push(&text[start..at]);
            start = at;
        }
    }
    if start < text.len() {
        parts.push(&text[start..]);
    }
    parts
}

fn format_term(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let template = call.string(env, 0)?;
    let fields = call.datum(env, 1)?;
    let (mut out, mut name): (String, Option<String>) = (String::new(), None);
    for character in template.chars() {
        match (character, &mut name) {
            ('{', Some(_)) => return Err(Error::logic("Nested template parameters are not allowed")),
            ('{', None) => name = Some(String::new()),
            ('}', None) => return Err(Error::logic("No parameter tags to close")),
            ('}', Some(field)) => {
                let value = fields.field(field)?;
                let shown = match &value {
                    Value::String(text) => text.clone(),
                    other => env.pretty_text(other)?,
                };
                env.check_text(out.len() + shown.len())?;
                env.work(shown.len())?;
                out.push_str(&shown);
                name = None;
            }
            (other, Some(field)) => field.push(other),
            (other, None) => out.push(other),
        }
    }
    if name.is_some() {
        return Err(Error::logic("Parameter tag must be closed"));
    }
    call.value(Value::from(out))
}
