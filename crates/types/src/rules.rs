//! Rules that end records or change when they end, by their keys and their time to live.

use crate::{Expiry, RecordKey, UnixMillis};
use serde::{Deserialize, Serialize};

/// What is to become of records for which all conditions hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// At least one.
    #[serde(rename = "if")]
    pub conditions: Vec<RuleCondition>,
    /// What happens to a record for which all conditions hold.
    #[serde(rename = "then")]
    pub action: RuleAction,
}

/// What a rule asks of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RuleCondition {
    /// The hash key matches.
    HashKey(KeyPattern),
    /// The sort key matches.
    SortKey(KeyPattern),
    /// The record expires within this range of seconds from now, both numbers included.
    ExpiresInSeconds(u64, u64),
    /// The record has no expiry.
    NeverExpires,
}

/// Compared byte by byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyPattern {
    /// The key has this text in it.
    Contains(String),
    /// The key begins with this text.
    StartsWith(String),
    /// The key ends with this text.
    EndsWith(String),
}

/// What a rule does with the records that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RuleAction {
    /// The record is deleted.
    Delete,
    /// From when the rule is applied.
    ExpireInSeconds(u64),
    /// The record expires at this time, in seconds since the Unix epoch.
    ExpireAtUnixSeconds(u64),
    /// Nothing happens to records that never expire.
    ExtendBySeconds(u64),
}

/// What rules make of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOutcome {
    /// The record stays as it is.
    Keep,
    /// The record is deleted.
    Delete,
    /// The record stays and expires at this time.
    ExpireAt(UnixMillis),
}

impl Rule {
    /// Applies rules one after the other; a later one sees the expiry that an earlier one gave.
    pub fn apply_all(rules: &[Self], key: &RecordKey<'_>, expiry: Expiry, now: UnixMillis) -> RuleOutcome {
        let (mut ends, mut outcome) = (expiry.earliest(), RuleOutcome::Keep);
        for rule in rules {
            let holds = |condition: &RuleCondition| condition.holds(key, ends, now);
            if rule.conditions.is_empty() || !rule.conditions.iter().all(holds) {
                continue;
            }
            let after = |time: UnixMillis, seconds: u64| time.checked_add_millis(seconds.saturating_mul(1_000));
            let new = match rule.action {
                RuleAction::Delete => return RuleOutcome::Delete,
                RuleAction::ExpireInSeconds(seconds) => after(now, seconds),
                RuleAction::ExpireAtUnixSeconds(seconds) => Some(UnixMillis::new(seconds.saturating_mul(1_000))),
                RuleAction::ExtendBySeconds(seconds) => ends.and_then(|ends| after(ends, seconds)),
            };
            if let Some(new) = new.filter(|new| Some(*new) != ends) {
                (ends, outcome) = (Some(new), RuleOutcome::ExpireAt(new));
            }
        }
        outcome
    }
}

impl RuleCondition {
    fn holds(&self, key: &RecordKey<'_>, ends: Option<UnixMillis>, now: UnixMillis) -> bool {
        match self {
            Self::HashKey(pattern) => pattern.matches(key.hash_key),
            Self::SortKey(pattern) => pattern.matches(key.sort_key),
            Self::ExpiresInSeconds(from, to) => ends.is_some_and(|ends| {
                let left = ends.get().saturating_sub(now.get()) / 1_000;
                (*from..=*to).contains(&left)
            }),
            Self::NeverExpires => ends.is_none(),
        }
    }
}

impl KeyPattern {
    fn matches(&self, key: &[u8]) -> bool {
        match self {
            Self::Contains(part) => part.is_empty() || key.windows(part.len()).any(|window| window == part.as_bytes()),
            Self::StartsWith(part) => key.starts_with(part.as_bytes()),
            Self::EndsWith(part) => key.ends_with(part.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> UnixMillis {
        UnixMillis::new(1_000_000)
    }

    fn outcome(rules: &str, hash_key: &str, sort_key: &str, seconds_left: Option<u64>) -> RuleOutcome {
        let rules: Vec<Rule> = serde_json::from_str(rules).unwrap();
        let expiry = Expiry::at_key(seconds_left.and_then(|seconds| now().checked_add_millis(seconds * 1_000)));
        Rule::apply_all(&rules, &RecordKey::new(hash_key.as_bytes(), sort_key.as_bytes()), expiry, now())
    }

    #[test]
    fn all_conditions_of_a_rule_must_hold() {
        let rules = r#"[{"if": [{"hash_key": {"starts_with": "tmp:"}}, {"sort_key": {"ends_with": "!"}}], "then": "delete"},
                        {"if": [{"hash_key": {"contains": "old"}}, "never_expires"], "then": {"expire_in_seconds": 5}}]"#;
        assert_eq!(outcome(rules, "tmp:1", "a!", None), RuleOutcome::Delete);
        assert_eq!(outcome(rules, "tmp:1", "a", None), RuleOutcome::Keep);
        assert_eq!(outcome(rules, "a tmp:1", "a!", None), RuleOutcome::Keep);
        assert_eq!(outcome(rules, "an old one", "", None), RuleOutcome::ExpireAt(UnixMillis::new(1_005_000)));
        assert_eq!(outcome(rules, "an old one", "", Some(7)), RuleOutcome::Keep);
        assert_eq!(outcome(r#"[{"if": [], "then": "delete"}]"#, "a", "", None), RuleOutcome::Keep);
    }

    #[test]
    fn a_later_rule_sees_what_an_earlier_one_did() {
        let rules = r#"[{"if": [{"expires_in_seconds": [0, 10]}], "then": {"extend_by_seconds": 100}},
                        {"if": [{"expires_in_seconds": [100, 200]}], "then": {"expire_at_unix_seconds": 5000}}]"#;
        assert_eq!(outcome(rules, "a", "", Some(10)), RuleOutcome::ExpireAt(UnixMillis::new(5_000_000)));
        assert_eq!(outcome(rules, "a", "", Some(11)), RuleOutcome::Keep);
        assert_eq!(outcome(rules, "a", "", None), RuleOutcome::Keep);
    }
}
