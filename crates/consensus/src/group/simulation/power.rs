//! Power fails on all machines at one time. Logs lose their ends, and states may be ahead of what is left of them:
//! RocksDB writes to its files by itself, and does not wait for the log of a `soft` table.

use super::world::{Answers, ID, Kind, Log, World};
use super::*;
use crate::group::origin::last_entry;
use rand::Rng;
use rand::seq::SliceRandom;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl World {
    /// What a replica's disk has of what was written.
    fn on_disk(&self, at: usize) -> BTreeSet<u64> {
        let disk = &self.replicas[at].disk;
        let later = disk.log.entries.iter().filter(|entry| entry.index > disk.checkpoint.applied);
        let of_log = later.flat_map(|entry| world::numbers(&entry.payload));
        disk.checkpoint.numbers.iter().copied().chain(of_log).collect()
    }

    /// All machines lose power, and with it a part of what they had not fsynced. Returns what was acknowledged and is
    /// on the disks of a majority, and whether the state of any is ahead of its log.
    fn lose_power(&mut self) -> (BTreeSet<u64>, bool) {
        let mut is_ahead = false;
        for at in 0..self.replicas.len() {
            if self.random.random_bool(0.5) {
                self.write_checkpoint(at);
            }
            let replica = &mut self.replicas[at];
            replica.group = None;
            let unsynced = std::mem::take(&mut replica.disk.unsynced);
            let survives = self.random.random_range(0..=unsynced.len());
            unsynced.into_iter().take(survives).for_each(|(records, _)| {
                records.into_iter().for_each(|record| replica.disk.write(record));
            });
            let log = &replica.disk.log;
            is_ahead |= replica.disk.checkpoint.applied > log.entries.back().map_or(log.truncated.0, |last| last.index);
        }
        let disks: Vec<_> = (0..self.replicas.len()).map(|at| self.on_disk(at)).collect();
        let is_kept = |number: &u64| disks.iter().filter(|disk| disk.contains(number)).count() > disks.len() / 2;
        let kept = self.answers.acknowledged.iter().copied().filter(is_kept).collect();
        self.network.clear();
        self.forget_what_was_agreed();
        self.answers = Answers::default();
        self.heal_links();
        (kept, is_ahead)
    }

    /// A replica that was cut off for a while catches up with a leader of a later term, which does not know yet that
    /// what it has is committed.
    fn catch_up_behind_another_leader(&mut self) {
        let Some(leading) = self.readers.first().copied() else { return };
        let mut others: Vec<usize> = (0..self.replicas.len()).filter(|at| *at != leading).collect();
        others.shuffle(&mut self.random);
        let own = others[0] as u32 + 1;
        let all = (1..=self.replicas.len() as u32).filter(|other| *other != own);
        self.cut = all.map(|other| (own.min(other), own.max(other))).collect();
        for _ in 0..self.random.random_range(1..60) {
            self.write();
            self.step();
        }
        let heir = self.replicas[others[1]].id;
        if let Some(leader) = &mut self.replicas[leading].group
            && leader.transfer_leadership(heir)
        {
            self.replicas[leading].lease = Some(Duration::ZERO);
            self.pass(leading);
        }
        // It hears of the other one only.
        let leader = leading as u32 + 1;
        self.cut = BTreeSet::from([(own.min(leader), own.max(leader))]);
        let (steps, stops_at) = (self.random.random_range(0..150), self.random.random_range(0..30));
        for step in 0..steps {
            if step == stops_at {
                self.replicas[leading].stopped_until = self.now + Duration::from_secs(60);
            }
            if self.random.random_bool(0.2) {
                self.write();
            }
            self.step();
        }
    }

    /// As many go on as are a majority, those with the longest logs, as the catalog has it.
    fn go_on(&mut self) {
        let end = |at: usize| {
            let replica = &self.replicas[at];
            let settings = GroupSettings { applied: replica.disk.checkpoint.applied, ..self.settings(at) };
            last_entry(ID, &settings, replica.disk.log.clone())
        };
        let mut all: Vec<usize> = (0..self.replicas.len()).collect();
        all.sort_by_key(|at| std::cmp::Reverse(end(*at)));
        all.into_iter().take(self.replicas.len() / 2 + 1).for_each(|at| self.start(at));
    }
}

/// A life with elections that leave different ends of logs behind, up to a power failure; and what must be so
/// afterwards. Returns whether the state of any replica was ahead of its log.
fn live_through_a_power_failure(seed: u64, remembers_terms: bool) -> bool {
    let mut world = World::new(seed, Kind { nodes: 3, initial_members: 3, has_witnesses: false, log: Log::Relaxed });
    (world.remembers_terms, world.syncs_writes, world.sync_chance) = (remembers_terms, false, 0.04);
    for _ in 0..world.random.random_range(400..1_500) {
        world.step();
        if world.random.random_bool(0.3) {
            world.write();
        }
        let at = world.random.random_range(0..3);
        match world.random.random_range(0..1_000) {
            0..6 => world.strand_a_leader(),
            6..20 => world.write_checkpoint(at),
            _ => {}
        }
    }
    if world.random.random_bool(0.8) {
        world.catch_up_behind_another_leader();
    }
    let (kept, is_ahead) = world.lose_power();
    world.go_on();
    for step in 0..3_000 {
        world.step();
        if step > 1_000 && world.random.random_bool(0.1) {
            world.write();
        }
    }
    (0..200).for_each(|_| world.step());
    let up: Vec<usize> = (0..3).filter(|at| world.replicas[*at].group.is_some()).collect();
    assert!(!world.answers.acknowledged.is_empty(), "seed {seed}: nobody leads: {}", world.describe());
    for at in up {
        let state = &world.replicas[at].state.numbers;
        assert_eq!(*state, world.agreed, "seed {seed}: {} differs, {}", at + 1, world.describe());
        let has: BTreeSet<_> = state.iter().copied().collect();
        let lost: Vec<_> = kept.difference(&has).collect();
        assert!(lost.is_empty(), "seed {seed}: a majority had {lost:?} on disk: {}", world.describe());
    }
    is_ahead
}

/// `TESSERA_SEEDS` sets how many worlds there are.
#[test]
fn what_a_majority_has_on_disk_outlasts_a_power_failure_of_all() {
    let worlds = std::env::var("TESSERA_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100);
    let ahead = (0..worlds).filter(|seed| live_through_a_power_failure(*seed, true)).count() as u64;
    assert!(ahead > worlds / 10, "{ahead} of {worlds} with a state that is ahead of its log");
}

/// A guess of the term loses what a majority has, or has replicas take the same entry for different ones.
#[test]
fn a_state_that_does_not_remember_its_term_is_missed() {
    let fails = |seed| catch_unwind(AssertUnwindSafe(|| live_through_a_power_failure(seed, false))).is_err();
    assert!((0..400).any(fails), "nobody misses it");
}
