//! Which steps are judged: those that use what Tessera has.

use crate::{JSON_DEPTH, Json, parse_json, text};

/// Terms that are not judged: `r.http`, for which the source in memory has no client.
const OUT_OF_SCOPE: &[i32] = &[153];

/// System tables that Tessera does not have yet.
const ABSENT_TABLES: &[&str] = &["_debug_scratch"];

/// Scenarios in which every step rests on something that Tessera does not have.
const ABSENT_SCENARIOS: &[&str] = &[];

/// Whether a scenario has steps that are to be answered as recorded.
pub fn has_scope(scenario: &str) -> bool {
    !ABSENT_SCENARIOS.contains(&scenario)
}

/// Whether the step is to be answered as recorded.
pub fn is_in_scope(scenario: &str, step: &Json) -> bool {
    if !has_scope(scenario) {
        return false;
    }
    let sent = match step.get("send") {
        Some(Json::Array(frames)) if text(step, "op") == Some("frames") => frames.iter().all(|frame| {
            // A text that is no JSON is no query with a term that is missing.
            let query = text(frame, "text").and_then(|text| parse_json(text, JSON_DEPTH).ok());
            query.is_none_or(|query| terms_in_scope(&query))
        }),
        _ => true,
    };
    sent && step.get("q").is_none_or(terms_in_scope)
}

fn terms_in_scope(json: &Json) -> bool {
    match json {
        Json::Array(items) => {
            if let [Json::Number(code), Json::Array(args), ..] = &items[..] {
                let code = *code as i32;
                let is_absent =
                    code == 15 && matches!(&args[..], [_, Json::String(name)] if ABSENT_TABLES.contains(&&**name));
                if OUT_OF_SCOPE.contains(&code) || is_absent {
                    return false;
                }
            }
            items.iter().all(terms_in_scope)
        }
        Json::Object(fields) => fields.iter().all(|(_, value)| terms_in_scope(value)),
        _ => true,
    }
}
