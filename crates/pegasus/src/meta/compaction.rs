//! Compactions that somebody asks for, and how far they are.

use super::envs::{self, COMPACT_ONCE, SET};
use super::messages::{
    CompactRequest, PlainResponse, QueryCompactionRequest, QueryCompactionResponse, UpdateEnvsRequest,
};
use super::outcome::OK;
use crate::server::PegasusServer;
use crate::wire::ErrorCode;
use tessera_store::CompactionState;
use tessera_types::{TableSettings, UnixMillis};

/// Has every node compact a table, now or at a time in seconds since 1970.
pub(super) async fn start(server: &PegasusServer, request: CompactRequest) -> PlainResponse {
    // They may just have been disabled through another node.
    server.store.learn_of_changes().await;
    let table = server.store.table_named(&request.table);
    if table.is_some_and(|table| table.settings().is_compaction_disabled()) {
        let hint = format!("the app env {} of the table is true", TableSettings::COMPACTION_DISABLED);
        return PlainResponse { error: ErrorCode("ERR_OPERATION_DISABLED".into()), hint };
    }
    if let Some(hint) = mistake(&request) {
        return PlainResponse { error: ErrorCode("ERR_INVALID_PARAMETERS".into()), hint };
    }
    let now = UnixMillis::now().get() / 1_000;
    // A moment later, so that no node has looked beyond it when it hears of it.
    let at = request.at.and_then(|at| u64::try_from(at).ok()).filter(|at| *at > now).unwrap_or(now + 3);
    let (keys, values) = (vec![COMPACT_ONCE.to_string()], vec![at.to_string()]);
    envs::update(server, UpdateEnvsRequest { table: request.table, operation: SET, keys, values, prefix: None }).await
}

/// What is wrong with a request, for a person, as Pegasus has it.
fn mistake(request: &CompactRequest) -> Option<String> {
    if let Some(level) = request.target_level.filter(|level| *level < -1) {
        return Some(format!("the target level is -1 or more, not {level}"));
    }
    let number = request.running_at_a_time.filter(|number| *number < 0)?;
    Some(format!("the number of compactions that run at a time is 0 or more, not {number}"))
}

/// How long after its time a compaction may take to begin on a node.
const BEGINS_WITHIN_MILLIS: u64 = 60_000;

/// How much of it is done, on all nodes that could be asked.
pub(super) async fn query(server: &PegasusServer, request: QueryCompactionRequest) -> QueryCompactionResponse {
    let failed = |error: &str, hint: &str| QueryCompactionResponse {
        error: ErrorCode(error.into()),
        hint: hint.into(),
        progress: None,
    };
    // It may have been asked for through another node.
    server.store.learn_of_changes().await;
    let Some(table) = server.store.table_named(&request.table) else {
        return failed("ERR_APP_NOT_EXIST", "there is no such table");
    };
    let states: Vec<_> = server.store.compactions(&table).await.into_iter().filter_map(|(_, state)| state).collect();
    let Some(share) = share_done(&states, table.settings().compact_at, UnixMillis::now()) else {
        return failed("ERR_INVALID_STATE", "no node has compacted the table since it started");
    };
    QueryCompactionResponse {
        error: ErrorCode(OK.into()),
        hint: String::new(),
        // Nothing else than all of it is a hundred.
        progress: Some((100.0 * share) as i32),
    }
}

/// The share, 0 to 1, that nodes have done of the compaction that was asked for last; `None` if there was none.
fn share_done(states: &[CompactionState], asked_for: Option<UnixMillis>, now: UnixMillis) -> Option<f64> {
    // Nodes begin at that time, but not all at once.
    let to_begin = asked_for.filter(|time| now.get() < time.get().saturating_add(BEGINS_WITHIN_MILLIS));
    let done = |state: &CompactionState| match to_begin {
        _ if state.running > 0 => state.done,
        Some(time) if state.ended.is_none_or(|ended| ended < time) => 0.0,
        // It has not heard of it yet.
        None if asked_for.is_some_and(|time| time <= now && state.ended.is_some_and(|ended| ended < time)) => 0.0,
        _ => 1.0,
    };
    let is_known = to_begin.is_some() || states.iter().any(|state| state.running > 0 || state.ended.is_some());
    (is_known && !states.is_empty()).then(|| states.iter().map(done).sum::<f64>() / states.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_pegasus_refuses_are_refused() {
        let request = |target_level: Option<i32>, running_at_a_time: Option<i32>| {
            mistake(&CompactRequest { target_level, running_at_a_time, ..Default::default() })
        };
        for (level, number) in [(None, None), (Some(-1), Some(0)), (Some(0), None), (Some(6), Some(3))] {
            assert_eq!(request(level, number), None);
        }
        assert!(request(Some(-2), None).unwrap().ends_with("not -2"));
        assert!(request(Some(1), Some(-1)).unwrap().ends_with("not -1"));
    }

    #[test]
    fn a_compaction_that_is_still_to_begin_is_not_done() {
        let time = |seconds: u64| UnixMillis::new(seconds * 1_000);
        let state =
            |running: u32, done: f64, ended: Option<u64>| CompactionState { running, done, ended: ended.map(time) };
        let share = |states: &[CompactionState], asked_for: Option<u64>, now: u64| {
            share_done(states, asked_for.map(time), time(now))
        };
        let (idle, earlier, ended) = (state(0, 0.0, None), state(0, 1.0, Some(50)), state(0, 1.0, Some(104)));
        assert_eq!(share(&[idle; 3], None, 100), None);
        assert_eq!(share(&[], Some(103), 100), None);
        assert_eq!(share(&[idle; 3], Some(103), 100), Some(0.0), "the first one");
        assert_eq!(share(&[earlier; 3], Some(103), 100), Some(0.0), "an earlier one has ended");
        assert_eq!(share(&[ended, state(1, 0.5, Some(50)), earlier, idle], Some(103), 105), Some(0.375));
        assert_eq!(share(&[ended; 3], Some(103), 105), Some(1.0));
        assert_eq!(share(&[ended, idle], Some(103), 200), Some(1.0), "a node that was not there at that time");
        assert_eq!(share(&[ended, earlier], Some(103), 200), Some(0.5), "a node that has not heard of it");
        assert_eq!(share(&[idle; 3], Some(103), 200), None, "all have started again since");
        assert_eq!(share(&[earlier; 3], None, 100), Some(1.0), "one of every day");
    }
}
