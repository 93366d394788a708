//! Compactions at the times that tables ask for.

use crate::store::Store;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use tessera_types::{TableId, TableSettings, UnixMillis};

const MINUTE: u64 = 60_000;
const DAY: u64 = 1_440 * MINUTE;

/// What is under way, and up to when it was looked at what is due. Times before this process began have passed.
pub(crate) struct Compactions {
    looked_at: UnixMillis,
    running: Arc<Mutex<HashSet<TableId>>>,
}

impl Default for Compactions {
    fn default() -> Self {
        Self { looked_at: UnixMillis::now(), running: Arc::default() }
    }
}

impl Compactions {
    /// Begins those whose time has come since this was last called.
    pub(crate) fn begin_due(&mut self, store: &Store, now: UnixMillis) {
        let before = std::mem::replace(&mut self.looked_at, now);
        for table in store.host.registry.open_tables() {
            if !is_due(&table.settings(), before, now) || !self.running.lock().insert(table.id()) {
                continue; // or the last one is still at it
            }
            let (store, running) = (store.clone(), self.running.clone());
            tokio::spawn(async move {
                let name = table.name();
                tracing::info!(table = %name, "compacting");
                match store.compact(&table).await {
                    Ok(rules) => tracing::info!(table = %name, ?rules, "compacted"),
                    Err(error) => tracing::warn!(table = %name, %error, "a table could not be compacted"),
                }
                running.lock().remove(&table.id());
            });
        }
    }
}

/// Whether one of the times lies after `before`, and not after `now`.
fn is_due(settings: &TableSettings, before: UnixMillis, now: UnixMillis) -> bool {
    let is_between = |time: u64| time > before.get() && time <= now.get();
    let today = now.get() - now.get() % DAY;
    settings.compact_at.is_some_and(|time| is_between(time.get()))
        || settings.compact_daily.iter().any(|minute| is_between(today + u64::from(*minute) * MINUTE))
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
            is_due(settings, UnixMillis::new(before), UnixMillis::new(now))
        };
        let once = settings(Some(5_000), &[]);
        assert!(!due(&once, 3_000, 4_000) && due(&once, 4_000, 5_000) && !due(&once, 5_000, 6_000));
        let noon = 7 * DAY + 720 * MINUTE;
        let daily = settings(None, &[60, 720]);
        assert!(due(&daily, noon - 1, noon) && !due(&daily, noon, noon + 1_000));
        assert!(due(&daily, noon - DAY - 1, noon - DAY), "the day before, too");
        assert!(!due(&settings(None, &[]), 0, u64::MAX / 2));
    }
}
