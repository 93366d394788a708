//! App envs: the settings of a table in Pegasus' words. Those that a table of Tessera has anyway are kept there; others are
//! kept beside them.

use super::messages::{PlainResponse, UpdateEnvsRequest};
use super::tables::change;
use crate::admission::{self, DENY, Denial, READ_BYTES, READS, Rate, SLOW, WRITE_BYTES, WRITES};
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use std::collections::BTreeMap;
use tessera_store::CatalogCommand;
use tessera_types::{TableSettings, UsageScenario};

const DEFAULT_TTL: &str = "default_ttl";
const USAGE_SCENARIO: &str = "rocksdb.usage_scenario";
/// For people; nothing acts on it.
const BUSINESS_INFO: &str = "business.info";

const SUPPORTED: [&str; 9] =
    [DEFAULT_TTL, USAGE_SCENARIO, WRITES, WRITE_BYTES, READS, READ_BYTES, DENY, SLOW, BUSINESS_INFO];

/// Operations of UPDATE_APP_ENV.
const SET: i32 = 1;
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
    envs
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
            _ => {
                let checked = match name.as_str() {
                    WRITES | WRITE_BYTES | READS | READ_BYTES => Rate::parse(&value).map(drop),
                    DENY => Denial::parse(&value).map(drop),
                    SLOW => admission::parse_slow(&value).map(drop),
                    BUSINESS_INFO => Ok(()),
                    _ => Err(format!("app env '{name}' is not supported; supported: {}", SUPPORTED.join(", "))),
                };
                checked?;
                settings.app_envs.insert(name, value);
            }
        }
    }
    Ok(())
}

fn delete(settings: &mut TableSettings, name: &str) {
    match name {
        DEFAULT_TTL => settings.default_ttl_seconds = 0,
        USAGE_SCENARIO => settings.usage_scenario = UsageScenario::Normal,
        name => _ = settings.app_envs.remove(name),
    }
}

pub(super) async fn update(server: &PegasusServer, request: UpdateEnvsRequest) -> PlainResponse {
    let failed = |error: &str, hint: String| PlainResponse { error: ErrorCode(error.into()), hint };
    let Some(table) = server.store.table_named(&request.table) else {
        return failed("ERR_APP_NOT_EXIST", format!("there is no table named '{}'", request.table));
    };
    let mut settings = (*table.settings()).clone();
    let outcome = match request.operation {
        SET if request.keys.len() != request.values.len() => Err("as many values as keys are needed".into()),
        SET => set(&mut settings, request.keys.into_iter().zip(request.values)),
        DELETE => {
            request.keys.iter().for_each(|name| delete(&mut settings, name));
            Ok(())
        }
        CLEAR => {
            // Pegasus' names have a prefix before a dot; an empty one stands for all.
            let prefix = request.prefix.unwrap_or_default();
            let is_meant = |name: &&String| {
                prefix.is_empty() || name.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.starts_with('.'))
            };
            of(&settings).keys().filter(is_meant).for_each(|name| delete(&mut settings, name));
            Ok(())
        }
        _ => Err("the operation is none of set, del and clear".into()),
    };
    if let Err(hint) = outcome {
        return failed("ERR_INVALID_PARAMETERS", hint);
    }
    match change(server, CatalogCommand::Alter { name: request.table, settings }).await {
        Ok(_) => failed("ERR_OK", String::new()),
        Err((error, hint)) => failed(error, hint),
    }
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
            (WRITES, "5*reject*0"),
            (DENY, "timeout*read"),
            (SLOW, "50"),
        ];
        let envs: BTreeMap<String, String> = envs.map(|(name, value)| (name.into(), value.into())).into();
        set(&mut settings, envs.clone()).unwrap();
        assert_eq!((settings.default_ttl_seconds, settings.usage_scenario), (86_400, UsageScenario::PreferWrite));
        assert_eq!(of(&settings), envs);
        for (name, value) in
            [(DEFAULT_TTL, "-1"), (DEFAULT_TTL, "soon"), (USAGE_SCENARIO, "x"), (READS, "5"), ("no.such", "1")]
        {
            assert!(set(&mut settings, [(name.into(), value.into())]).is_err(), "{name}={value}");
        }
        envs.keys().for_each(|name| delete(&mut settings, name));
        assert_eq!(settings, TableSettings::default());
    }
}
