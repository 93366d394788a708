//! Compactions: when somebody asks for one, at the times that tables ask for, and how far they are. Tables with rules have
//! those applied once a day besides.

use crate::node_context::NodeContext;
use crate::rules::{self, RulesApplied};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use tessera_store::hosting::request_error;
use tessera_store::{Store, Table};
use tessera_types::{RequestError, TableId, TableSettings, UnixMillis};

const MINUTE: u64 = 60_000;
const DAY: u64 = 1_440 * MINUTE;

/// Applies a table's rules to what this node leads of it, and has its engine merge what can be merged here.
///
/// # Errors
/// What stood in the way of the rules, or what the engine reports.
pub(crate) async fn compact(store: &Store, table: &Arc<Table>) -> Result<RulesApplied, RequestError> {
    let running = Running::begin(table.clone());
    // What rules cannot do now, since a partition is just handed over, must not keep files from being merged.
    let applied = rules::apply(store, table).await;
    let merge = move || running.0.engine().compact(&|done| running.0.compaction().done = done);
    let outcome = tokio::task::spawn_blocking(merge).await;
    outcome.map_err(|_| RequestError::Interrupted)?.map_err(request_error)?;
    applied
}

/// A compaction that is under way until this is dropped.
struct Running(Arc<Table>);

impl Running {
    fn begin(table: Arc<Table>) -> Self {
        let mut state = table.compaction();
        state.running += 1;
        state.done = 0.0;
        drop(state);
        Self(table)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.compaction();
        state.running -= 1;
        state.ended = Some(UnixMillis::now());
    }
}

/// What is under way, and up to when it was looked at what is due. Times before this process began have passed.
pub(crate) struct Compactions {
    began_at: UnixMillis,
    checked_at: UnixMillis,
    /// For which of the times that were asked for tables were compacted last. This node may have heard of one after it.
    done_for: BTreeMap<TableId, UnixMillis>,
    running: Arc<Mutex<HashSet<TableId>>>,
}

impl Default for Compactions {
    fn default() -> Self {
        let now = UnixMillis::now();
        Self { began_at: now, checked_at: now, done_for: BTreeMap::new(), running: Arc::default() }
    }
}

impl Compactions {
    /// Begins those whose time has come since this was last called.
    pub(crate) fn begin_due(&mut self, context: &NodeContext, now: UnixMillis) {
        let before = std::mem::replace(&mut self.checked_at, now);
        let tables = context.registry.open_tables();
        self.done_for.retain(|id, _| tables.iter().any(|table| table.id() == *id));
        for table in tables {
            let (id, settings) = (table.id(), table.settings());
            let done_for = self.done_for.get(&id).copied().unwrap_or(self.began_at);
            let due = due(id, &settings, done_for, before, now);
            if due.is_some() && !self.running.lock().insert(id) {
                continue; // the last one is still at it
            }
            // Also of a table whose compactions are disabled: the time has passed when they are enabled.
            if let Some(time) = settings.compact_at.filter(|time| *time <= now) {
                self.done_for.insert(id, time.max(done_for));
            }
            let Some(due) = due else { continue };
            let (store, running) = (context.store.clone(), self.running.clone());
            tokio::spawn(async move {
                let name = table.name();
                tracing::info!(table = %name, "{due} begins");
                let outcome = match due {
                    Due::Compaction => compact(&store, &table).await,
                    Due::Rules => rules::apply(&store, &table).await,
                };
                match outcome {
                    Ok(RulesApplied { deleted, changed }) => {
                        tracing::info!(table = %name, deleted, changed, "{due} is done");
                    }
                    Err(error) => tracing::warn!(table = %name, %error, "{due} could not be done whole"),
                }
                running.lock().remove(&table.id());
            });
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Compaction,
    Rules,
}

impl fmt::Display for Due {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Compaction => "a compaction",
            Self::Rules => "applying the rules",
        })
    }
}

/// What is due at a time that lies after `before`, and not after `now`. The time that somebody has asked for may lie before that, but
/// after `done_for`.
fn due(
    table: TableId,
    settings: &TableSettings,
    done_for: UnixMillis,
    before: UnixMillis,
    now: UnixMillis,
) -> Option<Due> {
    let is_between = |time: u64| time > before.get() && time <= now.get();
    let today = now.get() - now.get() % DAY;
    let yesterday = today.saturating_sub(DAY);
    let is_daily = |minute: u64| is_between(today + minute * MINUTE) || is_between(yesterday + minute * MINUTE);
    let is_its_time = settings.compact_at.is_some_and(|time| time > done_for && time <= now)
        || settings.compact_daily.iter().any(|minute| is_daily(u64::from(*minute)));
    let is_compaction = is_its_time && !settings.is_compaction_disabled();
    // Tables take turns.
    let of_rules = u64::from(table.0) * 617 % 1_440;
    let is_rules = || !settings.rules.is_empty() && is_daily(of_rules);
    is_compaction.then_some(Due::Compaction).or_else(|| is_rules().then_some(Due::Rules))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_comes_once() {
        let settings = |at: Option<u64>, daily: &[u16]| TableSettings {
            compact_at: at.map(UnixMillis::new),
            compact_daily: daily.to_vec(),
            ..TableSettings::default()
        };
        let due = |settings: &TableSettings, before: u64, now: u64| {
            due(TableId(1), settings, UnixMillis::new(before), UnixMillis::new(before), UnixMillis::new(now)).is_some()
        };
        let once = settings(Some(5_000), &[]);
        assert!(!due(&once, 3_000, 4_000) && due(&once, 4_000, 5_000) && !due(&once, 5_000, 6_000));
        let noon = 7 * DAY + 720 * MINUTE;
        let daily = settings(None, &[60, 720]);
        assert!(due(&daily, noon - 1, noon) && !due(&daily, noon, noon + 1_000));
        assert!(due(&daily, noon - DAY - 1, noon - DAY), "the day before, too");
        let late = settings(None, &[1_439]);
        assert!(due(&late, 8 * DAY - 2 * MINUTE, 8 * DAY + MINUTE), "before midnight, looked at after that");
        assert!(!due(&settings(None, &[]), 0, u64::MAX / 2));
    }

    /// A node that was cut off for longer than the call was ahead of its time once never compacted.
    #[test]
    fn a_time_that_is_heard_of_late_is_not_missed() {
        let at = |seconds: u64| UnixMillis::new(9 * DAY + seconds * 1_000);
        let settings = TableSettings { compact_at: Some(at(10)), ..TableSettings::default() };
        let due = |done_for, now| due(TableId(1), &settings, at(done_for), at(now - 1), at(now));
        assert_eq!([due(0, 9), due(0, 20)], [None, Some(Due::Compaction)]);
        assert_eq!([due(10, 20), due(15, 20)], [None, None], "it was carried out, or this process began later");
    }

    #[test]
    fn a_table_whose_compactions_are_disabled_has_its_rules_applied_only() {
        let rule = r#"[{"if": ["never_expires"], "then": "delete"}]"#;
        let disabled = TableSettings {
            rules: serde_json::from_str(rule).unwrap(),
            compact_at: Some(UnixMillis::new(9 * DAY)),
            compact_daily: vec![60, 720],
            app_envs: [(TableSettings::COMPACTION_DISABLED.to_string(), "true".to_string())].into(),
            ..TableSettings::default()
        };
        let due_in_that_day = |settings: &TableSettings| -> Vec<Due> {
            let at = |minute: u64| UnixMillis::new(9 * DAY - 1 + minute * MINUTE);
            (0..1_440).filter_map(|minute| due(TableId(1), settings, at(minute), at(minute), at(minute + 1))).collect()
        };
        assert_eq!(due_in_that_day(&disabled), [Due::Rules]);
        let enabled = TableSettings { app_envs: Default::default(), ..disabled };
        assert_eq!(due_in_that_day(&enabled).iter().filter(|due| **due == Due::Compaction).count(), 3);
    }

    #[test]
    fn rules_are_due_once_a_day_and_when_a_table_is_compacted() {
        let rule = r#"[{"if": ["never_expires"], "then": "delete"}]"#;
        let rules = TableSettings { rules: serde_json::from_str(rule).unwrap(), ..TableSettings::default() };
        let minutes = |table: u32, settings: &TableSettings| -> Vec<(u64, Due)> {
            let at = |minute: u64| UnixMillis::new(9 * DAY + minute * MINUTE);
            let due =
                |minute| due(TableId(table), settings, at(minute), at(minute), at(minute + 1)).map(|due| (minute, due));
            (0..1_440).filter_map(due).collect()
        };
        let [(one, Due::Rules)] = minutes(1, &rules)[..] else { panic!("once") };
        let [(two, Due::Rules)] = minutes(2, &rules)[..] else { panic!("once") };
        assert_ne!(one, two);
        let noon = TableSettings { compact_daily: vec![720], ..rules };
        assert_eq!(minutes(1, &noon).len(), 2);
        assert!(minutes(1, &noon).contains(&(719, Due::Compaction)));
    }
}
