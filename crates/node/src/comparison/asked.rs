//! Which partitions somebody asked this node to compare, and what came of it.

use super::outcome::PartitionComparison;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use tessera_types::TableId;

/// How long an outcome is kept for the client that asked, and how long a comparison that nobody asks about stays in the queue.
const KEPT: Duration = Duration::from_secs(60);

/// A partition to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) table: TableId,
    pub(super) partition: u32,
    /// `None` for the rate that is configured; zero is none.
    pub(super) bytes_per_second: Option<u64>,
    /// Who asked; zero is nobody.
    pub(super) request: u64,
}

/// What was asked of this node.
#[derive(Default)]
pub(super) struct Asked {
    queue: VecDeque<Job>,
    /// By request and partition.
    states: BTreeMap<(u64, TableId, u32), State>,
}

struct State {
    /// `None` as long as it is not done.
    found: Option<PartitionComparison>,
    /// When it was last asked for.
    asked: Instant,
}

impl Asked {
    /// Takes what somebody asks, unless the same request has asked for it before. Returns what came of it, if it is done.
    pub(super) fn ask(&mut self, job: Job) -> Option<PartitionComparison> {
        let key = (job.request, job.table, job.partition);
        let state = self.states.entry(key).or_insert_with(|| {
            self.queue.push_back(job);
            State { found: None, asked: Instant::now() }
        });
        state.asked = Instant::now();
        let found = state.found.clone();
        if found.as_ref().is_some_and(|found| found.leads_no_longer) {
            // This node may be asked again when it leads again.
            self.states.remove(&key);
        }
        found
    }

    /// The next partition that somebody still wants to be compared.
    pub(super) fn next(&mut self) -> Option<Job> {
        self.states.retain(|_, state| state.asked.elapsed() < KEPT);
        let states = &self.states;
        self.queue.retain(|job| states.contains_key(&(job.request, job.table, job.partition)));
        self.queue.pop_front()
    }

    pub(super) fn note_found(&mut self, job: &Job, found: PartitionComparison) {
        if let Some(state) = self.states.get_mut(&(job.request, job.table, job.partition)) {
            state.found = Some(found);
        }
    }
}
