//! App envs: the settings of a table in Pegasus' words. Those that a table of Tessera has anyway are kept there; others are
//! kept beside them.

use super::messages::{PlainResponse, UpdateEnvsRequest};
use super::{kept_envs, outcome, rules};
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use crate::{execute, slow_log};
use std::collections::BTreeMap;
use tessera_store::AlterError;
use tessera_types::{Admission, Denial, Rate, TableSettings, UnixMillis, UsageScenario};

const DEFAULT_TTL: &str = "default_ttl";
const USAGE_SCENARIO: &str = "rocksdb.usage_scenario";
/// Seconds since 1970.
pub(super) const COMPACT_ONCE: &str = "manual_compact.once.trigger_time";
/// Times of day in UTC: `3:00,21:30`.
const COMPACT_DAILY: &str = "manual_compact.periodic.trigger_time";
/// What becomes of records when the table is compacted.
const RULES: &str = "user_specified_compaction";
const WRITES: &str = "replica.write_throttling";
const WRITE_BYTES: &str = "replica.write_throttling_by_size";
const READS: &str = "replica.read_throttling";
const READ_BYTES: &str = "replica.read_throttling_by_size";
const DENY: &str = "replica.deny_client_request";
/// For people; nothing acts on it.
const BUSINESS_INFO: &str = "business.info";

/// Those that have an effect.
const SUPPORTED: [&str; 14] = [
    DEFAULT_TTL,
    USAGE_SCENARIO,
    COMPACT_ONCE,
    COMPACT_DAILY,
    TableSettings::COMPACTION_DISABLED,
    RULES,
    WRITES,
    WRITE_BYTES,
    READS,
    READ_BYTES,
    DENY,
    slow_log::THRESHOLD,
    execute::VALIDATE_HASH,
    BUSINESS_INFO,
];

/// Operations of UPDATE_APP_ENV.
pub(super) const SET: i32 = 1;
const DELETE: i32 = 2;
const CLEAR: i32 = 3;

/// A table's app envs.
pub(super) fn of(settings: &TableSettings) -> BTreeMap<String, String> {
    let mut envs = settings.app_envs.clone();
    if settings.default_ttl_seconds > 0 {
        envs.insert(DEFAULT_TTL.into(), settings.default_ttl_seconds.to_string());
    }
    if settings.usage_scenario != UsageScenario::Normal {
        envs.insert(USAGE_SCENARIO.into(), settings.usage_scenario.to_string());
    }
    if let Some(time) = settings.compact_at {
        envs.insert(COMPACT_ONCE.into(), (time.get() / 1_000).to_string());
    }
    if !settings.compact_daily.is_empty() {
        let times: Vec<String> =
            settings.compact_daily.iter().map(|minute| format!("{}:{:02}", minute / 60, minute % 60)).collect();
        envs.insert(COMPACT_DAILY.into(), times.join(","));
    }
    if !settings.rules.is_empty() {
        envs.insert(RULES.into(), rules::print(&settings.rules));
    }
    for (name, rate) in rates(&mut settings.admission.clone()) {
        if *rate != Rate::default() {
            envs.insert(name.into(), rate.to_string());
        }
    }
    if settings.admission.deny != Denial::default() {
        envs.insert(DENY.into(), settings.admission.deny.to_string());
    }
    envs
}

fn rates(admission: &mut Admission) -> [(&'static str, &mut Rate); 4] {
    [
        (WRITES, &mut admission.write_rate),
        (WRITE_BYTES, &mut admission.write_byte_rate),
        (READS, &mut admission.read_rate),
        (READ_BYTES, &mut admission.read_byte_rate),
    ]
}

fn rate<'a>(settings: &'a mut TableSettings, name: &str) -> Option<&'a mut Rate> {
    rates(&mut settings.admission).into_iter().find(|(its, _)| *its == name).map(|(_, rate)| rate)
}

/// Reads times of day as minutes since midnight.
fn times_of_day(text: &str) -> Result<Vec<u16>, String> {
    let minute = |time: &str| {
        let (hours, minutes) = time.split_once(':')?;
        let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
        (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
    };
    let times: Option<Vec<u16>> = text.split(',').map(|time| minute(time.trim())).collect();
    times.ok_or_else(|| format!("'{text}' is no list of times; an example: 3:00,21:30"))
}

/// Sets app envs. On error some may be set already.
///
/// # Errors
/// What is wrong with one, for a person.
pub(super) fn set(
    settings: &mut TableSettings,
    envs: impl IntoIterator<Item = (String, String)>,
) -> Result<(), String> {
    for (name, value) in envs {
        match name.as_str() {
            DEFAULT_TTL => {
                let seconds = value.parse().ok().filter(|seconds| i32::try_from(*seconds).is_ok());
                settings.default_ttl_seconds =
                    seconds.ok_or_else(|| format!("{DEFAULT_TTL} is a number of seconds, not '{value}'"))?;
            }
            USAGE_SCENARIO => settings.usage_scenario = value.parse()?,
            COMPACT_ONCE => {
                let time = value.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1_000));
                let time =
                    time.ok_or_else(|| format!("{COMPACT_ONCE} is a number of seconds since 1970, not '{value}'"))?;
                settings.compact_at = Some(UnixMillis::new(time));
            }
            COMPACT_DAILY => settings.compact_daily = times_of_day(&value)?,
            RULES => settings.rules = rules::parse(&value)?,
            DENY => settings.admission.deny = value.parse()?,
            slow_log::THRESHOLD | BUSINESS_INFO => {
                if name == slow_log::THRESHOLD {
                    slow_log::parse(&value)?;
                }
                settings.app_envs.insert(name, value);
            }
            TableSettings::COMPACTION_DISABLED | execute::VALIDATE_HASH => {
                kept_envs::bool(&name, &value)?;
                settings.app_envs.insert(name, value);
            }
            _ => match (rate(settings, &name), kept_envs::check(&name, &value)) {
                (Some(rate), _) => *rate = value.parse()?,
                (None, Some(checked)) => {
                    checked?;
                    settings.app_envs.insert(name, value);
                }
                (None, None) => {
                    let supported: Vec<&str> = SUPPORTED.into_iter().chain(kept_envs::names()).collect();
                    return Err(format!("app env '{name}' is not supported; supported: {}", supported.join(", ")));
                }
            },
        }
    }
    Ok(())
}

fn delete(settings: &mut TableSettings, name: &str) {
    match name {
        DEFAULT_TTL => settings.default_ttl_seconds = 0,
        USAGE_SCENARIO => settings.usage_scenario = UsageScenario::Normal,
        COMPACT_ONCE => settings.compact_at = None,
        COMPACT_DAILY => settings.compact_daily.clear(),
        RULES => settings.rules.clear(),
        DENY => settings.admission.deny = Denial::default(),
        name => match rate(settings, name) {
            Some(rate) => *rate = Rate::default(),
            None => _ = settings.app_envs.remove(name),
        },
    }
}

/// Carries out what an update asks.
///
/// # Errors
/// What is wrong with it, for a person.
fn apply(request: &UpdateEnvsRequest, settings: &mut TableSettings) -> Result<(), String> {
    let UpdateEnvsRequest { operation, keys, values, prefix, .. } = request;
    match *operation {
        SET if keys.len() != values.len() => return Err("as many values as keys are needed".into()),
        SET => set(settings, keys.iter().cloned().zip(values.iter().cloned()))?,
        DELETE => keys.iter().for_each(|name| delete(settings, name)),
        CLEAR => {
            // Pegasus' names have a prefix before a dot; an empty one stands for all.
            let prefix = prefix.as_deref().unwrap_or_default();
            let is_meant = |name: &&String| {
                prefix.is_empty() || name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'))
            };
            of(settings).keys().filter(is_meant).for_each(|name| delete(settings, name));
        }
        _ => return Err("the operation is none of set, del and clear".into()),
    }
    Ok(())
}

pub(super) async fn update(server: &PegasusServer, request: UpdateEnvsRequest) -> PlainResponse {
    let (error, hint) = match server.store.alter_table(&request.table, |settings| apply(&request, settings)).await {
        Ok(()) => (outcome::OK, hint(&request)),
        Err(AlterError::Change(hint)) => ("ERR_INVALID_PARAMETERS", hint),
        Err(AlterError::Catalog(error)) => outcome::refused(&error),
        Err(AlterError::Request(error)) => outcome::failed(&error),
    };
    PlainResponse { error: ErrorCode(error.into()), hint }
}

/// What there is to say about an update that was made.
fn hint(request: &UpdateEnvsRequest) -> String {
    let without_effect = request.keys.iter().filter(|name| request.operation == SET && kept_envs::is_one(name));
    let names: Vec<&str> = without_effect.map(String::as_str).collect();
    if names.is_empty() { String::new() } else { format!("{}{}", kept_envs::HINT, names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envs_are_settings_in_other_words() {
        let mut settings = TableSettings::default();
        assert_eq!(of(&settings), BTreeMap::new());
        let envs = [
            (DEFAULT_TTL, "86400"),
            (USAGE_SCENARIO, "prefer_write"),
            (BUSINESS_INFO, "feeds"),
            (COMPACT_ONCE, "1700000000"),
            (COMPACT_DAILY, "3:00,21:30"),
            (WRITES, "5*reject*0"),
            (DENY, "timeout*read"),
            (
                RULES,
                r#"{"ops":[{"type":"COT_DELETE","params":"","rules":[{"type":"FRT_TTL_RANGE","params":"{\"start_ttl\":1,\"stop_ttl\":2}"}]}]}"#,
            ),
            (slow_log::THRESHOLD, "50"),
            (TableSettings::COMPACTION_DISABLED, "true"),
            ("rocksdb.write_buffer_size", "67108864"),
        ];
        let envs: BTreeMap<String, String> = envs.map(|(name, value)| (name.into(), value.into())).into();
        set(&mut settings, envs.clone()).unwrap();
        assert_eq!((settings.default_ttl_seconds, settings.usage_scenario), (86_400, UsageScenario::PreferWrite));
        assert_eq!(of(&settings), envs);
        for (name, value) in [
            (DEFAULT_TTL, "-1"),
            (DEFAULT_TTL, "soon"),
            (USAGE_SCENARIO, "x"),
            (READS, "5"),
            ("no.such", "1"),
            (COMPACT_DAILY, "25:00"),
            (RULES, "x"),
            (TableSettings::COMPACTION_DISABLED, "yes"),
            (execute::VALIDATE_HASH, "1"),
            ("rocksdb.write_buffer_size", "1"),
        ] {
            assert!(set(&mut settings, [(name.into(), value.into())]).is_err(), "{name}={value}");
        }
        envs.keys().for_each(|name| delete(&mut settings, name));
        assert_eq!(settings, TableSettings::default());
    }
}
