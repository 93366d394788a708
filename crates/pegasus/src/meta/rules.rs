//! The app env `user_specified_compaction`: a table's rules in Pegasus' words, which are JSON with JSON inside.

use serde::{Deserialize, Serialize};
use tessera_types::{KeyPattern, Rule, RuleAction, RuleCondition};

#[derive(Serialize, Deserialize)]
struct Operations {
    ops: Vec<Operation>,
}

#[derive(Serialize, Deserialize)]
struct Operation {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    params: String,
    #[serde(default)]
    rules: Vec<Filter>,
}

#[derive(Serialize, Deserialize)]
struct Filter {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    params: String,
}

#[derive(Serialize, Deserialize)]
struct UpdateTtl {
    #[serde(rename = "type")]
    kind: String,
    value: u64,
}

#[derive(Serialize, Deserialize)]
struct Pattern {
    pattern: String,
    match_type: String,
}

#[derive(Serialize, Deserialize)]
struct TtlRange {
    start_ttl: u64,
    stop_ttl: u64,
}

fn params<'a, T: Deserialize<'a>>(kind: &str, params: &'a str) -> Result<T, String> {
    serde_json::from_str(params).map_err(|error| format!("the params of {kind}, '{params}': {error}"))
}

/// Reads the app env.
///
/// # Errors
/// What is wrong with it, for a person.
pub(super) fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let Operations { ops } =
        serde_json::from_str(text).map_err(|error| format!("'{text}' is no list of operations: {error}"))?;
    ops.iter().map(rule).collect()
}

fn rule(operation: &Operation) -> Result<Rule, String> {
    let action = match operation.kind.as_str() {
        "COT_DELETE" => RuleAction::Delete,
        "COT_UPDATE_TTL" => {
            let UpdateTtl { kind, value } = params(&operation.kind, &operation.params)?;
            match kind.as_str() {
                "UTOT_FROM_NOW" => RuleAction::ExpireInSeconds(value),
                "UTOT_FROM_CURRENT" => RuleAction::ExtendBySeconds(value),
                "UTOT_TIMESTAMP" => RuleAction::ExpireAtUnixSeconds(value),
                _ => return Err(format!("'{kind}' is none of UTOT_FROM_NOW, UTOT_FROM_CURRENT and UTOT_TIMESTAMP")),
            }
        }
        kind => return Err(format!("'{kind}' is none of COT_DELETE and COT_UPDATE_TTL")),
    };
    if operation.rules.is_empty() {
        return Err("an operation without rules would be one on nothing: name at least one".into());
    }
    let conditions = operation.rules.iter().map(condition).collect::<Result<_, _>>()?;
    Ok(Rule { conditions, action })
}

fn condition(filter: &Filter) -> Result<RuleCondition, String> {
    let pattern = || {
        let Pattern { pattern, match_type } = params(&filter.kind, &filter.params)?;
        match match_type.as_str() {
            "SMT_MATCH_ANYWHERE" => Ok(KeyPattern::Contains(pattern)),
            "SMT_MATCH_PREFIX" => Ok(KeyPattern::StartsWith(pattern)),
            "SMT_MATCH_POSTFIX" => Ok(KeyPattern::EndsWith(pattern)),
            _ => Err(format!("'{match_type}' is none of SMT_MATCH_ANYWHERE, SMT_MATCH_PREFIX and SMT_MATCH_POSTFIX")),
        }
    };
    match filter.kind.as_str() {
        "FRT_HASHKEY_PATTERN" => Ok(RuleCondition::HashKey(pattern()?)),
        "FRT_SORTKEY_PATTERN" => Ok(RuleCondition::SortKey(pattern()?)),
        "FRT_TTL_RANGE" => match params(&filter.kind, &filter.params)? {
            TtlRange { start_ttl: 0, stop_ttl: 0 } => Ok(RuleCondition::NeverExpires),
            TtlRange { start_ttl, stop_ttl } => Ok(RuleCondition::ExpiresInSeconds(start_ttl, stop_ttl)),
        },
        kind => Err(format!("'{kind}' is none of FRT_HASHKEY_PATTERN, FRT_SORTKEY_PATTERN and FRT_TTL_RANGE")),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it has a JSON form")
}

/// The inverse of [`parse`].
pub(super) fn print(rules: &[Rule]) -> String {
    let operation = |rule: &Rule| {
        let (kind, params) = match rule.action {
            RuleAction::Delete => ("COT_DELETE", String::new()),
            RuleAction::ExpireInSeconds(value) => ("COT_UPDATE_TTL", update_ttl("UTOT_FROM_NOW", value)),
            RuleAction::ExtendBySeconds(value) => ("COT_UPDATE_TTL", update_ttl("UTOT_FROM_CURRENT", value)),
            RuleAction::ExpireAtUnixSeconds(value) => ("COT_UPDATE_TTL", update_ttl("UTOT_TIMESTAMP", value)),
        };
        Operation { kind: kind.into(), params, rules: rule.conditions.iter().map(filter).collect() }
    };
    json(&Operations { ops: rules.iter().map(operation).collect() })
}

fn update_ttl(kind: &str, value: u64) -> String {
    json(&UpdateTtl { kind: kind.into(), value })
}

fn filter(condition: &RuleCondition) -> Filter {
    let pattern = |pattern: &KeyPattern| {
        let (pattern, match_type) = match pattern {
            KeyPattern::Contains(part) => (part, "SMT_MATCH_ANYWHERE"),
            KeyPattern::StartsWith(part) => (part, "SMT_MATCH_PREFIX"),
            KeyPattern::EndsWith(part) => (part, "SMT_MATCH_POSTFIX"),
        };
        json(&Pattern { pattern: pattern.clone(), match_type: match_type.into() })
    };
    let (kind, params) = match condition {
        RuleCondition::HashKey(key) => ("FRT_HASHKEY_PATTERN", pattern(key)),
        RuleCondition::SortKey(key) => ("FRT_SORTKEY_PATTERN", pattern(key)),
        RuleCondition::ExpiresInSeconds(from, to) => {
            ("FRT_TTL_RANGE", json(&TtlRange { start_ttl: *from, stop_ttl: *to }))
        }
        RuleCondition::NeverExpires => ("FRT_TTL_RANGE", json(&TtlRange { start_ttl: 0, stop_ttl: 0 })),
    };
    Filter { kind: kind.into(), params }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_rules_in_other_words() {
        let text = r#"{"ops":[{"type":"COT_DELETE","params":"","rules":[{"type":"FRT_HASHKEY_PATTERN","params":"{\"pattern\":\"tmp\",\"match_type\":\"SMT_MATCH_PREFIX\"}"},{"type":"FRT_TTL_RANGE","params":"{\"start_ttl\":0,\"stop_ttl\":0}"}]},{"type":"COT_UPDATE_TTL","params":"{\"type\":\"UTOT_FROM_NOW\",\"value\":60}","rules":[{"type":"FRT_SORTKEY_PATTERN","params":"{\"pattern\":\"x\",\"match_type\":\"SMT_MATCH_ANYWHERE\"}"},{"type":"FRT_TTL_RANGE","params":"{\"start_ttl\":1,\"stop_ttl\":9}"}]}]}"#;
        let rules = parse(text).unwrap();
        assert_eq!(
            rules,
            [
                Rule {
                    conditions: vec![
                        RuleCondition::HashKey(KeyPattern::StartsWith("tmp".into())),
                        RuleCondition::NeverExpires
                    ],
                    action: RuleAction::Delete,
                },
                Rule {
                    conditions: vec![
                        RuleCondition::SortKey(KeyPattern::Contains("x".into())),
                        RuleCondition::ExpiresInSeconds(1, 9)
                    ],
                    action: RuleAction::ExpireInSeconds(60),
                },
            ]
        );
        assert_eq!(print(&rules), text);
        for (wrong, why) in [
            ("{", "no list of operations"),
            (r#"{"ops":[{"type":"COT_DELETE"}]}"#, "without rules"),
            (r#"{"ops":[{"type":"COT_X"}]}"#, "COT_X"),
            (r#"{"ops":[{"type":"COT_DELETE","rules":[{"type":"FRT_TTL_RANGE","params":"{}"}]}]}"#, "start_ttl"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
