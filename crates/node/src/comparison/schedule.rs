//! When partitions are compared: one after the other, what somebody asks for first.

use super::asked::Job;
use super::mending::mend;
use super::outcome::{ComparisonOutcome, PartitionComparison};
use super::walk::walk;
use crate::node_context::NodeContext;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_consensus::GroupId;
use tessera_store::hosting::group_of;
use tessera_types::UnixMillis;

/// How often it is looked at what is due.
const ROUND: Duration = Duration::from_secs(1);
/// Time after which a partition is compared again whose replicas differed, and one of which was replaced.
const AGAIN: Duration = Duration::from_secs(10);

/// Runs until it is dropped.
pub(crate) async fn run(context: Arc<NodeContext>) {
    let mut schedule = Schedule { checked_at: UnixMillis::now(), due: VecDeque::new(), again: HashMap::new() };
    loop {
        schedule.look(&context);
        while let Some(job) = next_asked(&context).or_else(|| schedule.due.pop_front()) {
            let found = schedule.compare(&context, &job).await;
            context.comparisons.asked.lock().note_found(&job, found);
            schedule.look(&context);
        }
        let _ = tokio::time::timeout(ROUND, context.comparisons.wake.notified()).await;
    }
}

fn next_asked(context: &NodeContext) -> Option<Job> {
    context.comparisons.asked.lock().next()
}

struct Schedule {
    checked_at: UnixMillis,
    due: VecDeque<Job>,
    /// Partitions that were found to differ: when they are compared again; `None` when it is their turn as that of others.
    again: HashMap<GroupId, Option<Instant>>,
}

impl Schedule {
    /// Adds what has become due.
    fn look(&mut self, context: &NodeContext) {
        let now = UnixMillis::now();
        let before = std::mem::replace(&mut self.checked_at, now);
        let interval = context.config.compare_interval;
        let differences = context.comparisons.differences.lock().clone();
        self.again.retain(|group, _| differences.contains_key(group));
        for table in context.store.tables() {
            for (partition, state) in (0..).zip(table.partitions()) {
                if !state.is_serving() {
                    continue;
                }
                let group = group_of(table.id(), partition);
                let is_again = differences.contains_key(&group) && self.is_again(group);
                let job = Job { table: table.id(), partition, bytes_per_second: None, request: 0 };
                if (is_again || is_due(group, interval, before, now)) && !self.due.contains(&job) {
                    self.due.push_back(job);
                }
            }
        }
    }

    /// Whether a partition that is known to differ is to be compared again. One that another node found to differ is soon.
    fn is_again(&mut self, group: GroupId) -> bool {
        let at = self.again.entry(group).or_insert_with(|| Some(Instant::now() + AGAIN));
        let is_again = at.is_some_and(|at| at <= Instant::now());
        if is_again {
            *at = None;
        }
        is_again
    }

    async fn compare(&mut self, context: &NodeContext, job: &Job) -> PartitionComparison {
        let group = group_of(job.table, job.partition);
        let Some(table) = context.registry.any(job.table) else {
            return PartitionComparison::begun(job.partition).lacks("there is no such table any more".into());
        };
        let rate = job.bytes_per_second.unwrap_or(context.config.compare_bytes_per_second);
        let walked = walk(context, &table, job.partition, rate).await;
        let mut found = walked.found.clone();
        found.ended = UnixMillis::now();
        match found.outcome {
            ComparisonOutcome::Equal => {
                tracing::debug!(table = %table.name(), partition = job.partition, records = found.records, "replicas are equal");
                context.tell_compared(group, None);
            }
            ComparisonOutcome::NotComparable => {
                let reason = found.reason.as_deref().unwrap_or_default();
                tracing::debug!(table = %table.name(), partition = job.partition, reason, "replicas were not compared");
                // One that was known to differ may have been replaced in part, and is looked at again.
                if let Some(at) = self.again.get_mut(&group) {
                    *at = Some(Instant::now() + AGAIN);
                }
            }
            ComparisonOutcome::Differ => {
                found.mended = mend(context, &table, job.partition, &walked).await;
                let words = format!(
                    "table {}: the replicas of partition {} differ; {}",
                    table.name(),
                    job.partition,
                    found
                        .mended
                        .as_deref()
                        .unwrap_or("it is not known which of them are right: the guide to operations says what to do")
                );
                context.tell_compared(group, Some(words));
                self.again.insert(group, found.mended.is_some().then(|| Instant::now() + AGAIN));
            }
        }
        found
    }
}

/// Whether a partition's time came after `before`, and not after `now`. Partitions take turns; a time at which nobody led it
/// is passed over.
fn is_due(group: GroupId, interval: Duration, before: UnixMillis, now: UnixMillis) -> bool {
    let interval = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    if interval == 0 {
        return false;
    }
    // Spread by the number that all nodes know: half of the bits of a product with an odd constant.
    let turn = (group.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % interval;
    let count = |time: UnixMillis| time.get().saturating_add(turn) / interval;
    count(now) > count(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_is_due_once_in_an_interval() {
        let interval = Duration::from_secs(60);
        let at = |second: u64| UnixMillis::new(1_000_000_000 + second * 1_000);
        let mut turns = Vec::new();
        for group in (0..20).map(|partition| GroupId(1 << 32 | partition)) {
            let due: Vec<_> = (0..180).filter(|second| is_due(group, interval, at(*second), at(second + 1))).collect();
            assert_eq!(due.len(), 3);
            assert_eq!(due[1] - due[0], 60);
            assert!(!is_due(group, Duration::ZERO, at(0), at(1_000)));
            turns.push(due[0]);
        }
        turns.sort_unstable();
        turns.dedup();
        assert!(turns.len() > 10, "they take turns");
    }
}
