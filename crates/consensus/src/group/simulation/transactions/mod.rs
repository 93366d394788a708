//! Transactions over several groups, each in a world of its own: a bank whose clients transfer between accounts of all partitions
//! while leaders change, replicas crash and move, messages get lost and coordinators die.
//!
//! The protocol is that of the crate `transaction`. What this adds to its model are groups as they are: their logs, leases,
//! snapshots and proposals whose outcome is not known; a ledger that each leader builds anew from what it has applied; and
//! lives that are long enough for all of it to happen.

mod bank;
mod history;
mod partition;

use super::{Kind, MOVING, STEADY};
use bank::{Bank, Carelessness};
use std::time::Duration;

/// How long clients ask, in steps of the world.
const STEPS: usize = 10_000;

/// For how long an intent may stand while its partition and its anchor have leaders. It is asked about after a second, and then up
/// to three entries must be committed. One of these may have to wait for a member that a snapshot is on its way to; a snapshot
/// that got lost is sent again after five seconds.
const HELD: Duration = Duration::from_secs(16);

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

fn kind(seed: u64) -> Kind {
    [STEADY, MOVING][seed as usize % 2]
}

#[test]
fn transfers_are_done_in_all_partitions_or_in_none() {
    let (mut committed, mut aborted, mut reads, mut deaths, mut recoveries) = (0, 0, 0, 0, 0);
    let mut longest_held = Duration::ZERO;
    let (first, worlds) = (number("TESSERA_SEED", 0), number("TESSERA_SEEDS", 10));
    for seed in first..first + worlds {
        let mut bank = Bank::new(seed, kind(seed), None);
        let lived = bank.live(STEPS).and_then(|()| bank.end());
        lived.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        committed += bank.history.committed();
        aborted += bank.history.aborted();
        reads += bank.history.reads();
        deaths += bank.deaths;
        recoveries += bank.recoveries;
        longest_held = longest_held.max(bank.longest_held);
    }
    eprintln!(
        "{worlds} worlds: {committed} transfers committed, {aborted} not, {reads} reads of all accounts, {deaths} deaths of \
         coordinators, {recoveries} questions about intents, which stood for at most {longest_held:?} while there were leaders"
    );
    assert!(committed > worlds * 50 && aborted > worlds && reads > worlds * 10, "little happens");
    assert!(deaths > worlds && recoveries > worlds, "little goes wrong");
    assert!(longest_held < HELD, "an intent stood for {longest_held:?}");
}

fn is_noticed(carelessness: Carelessness) {
    let fault = (0..20).find_map(|seed| {
        let mut bank = Bank::new(seed, kind(seed), Some(carelessness));
        let lived = bank.live(STEPS).and_then(|()| bank.end());
        lived.err().map(|fault| format!("seed {seed}: {fault}"))
    });
    eprintln!("{carelessness:?}: {}", fault.as_deref().unwrap_or("nothing"));
    assert!(fault.is_some(), "nothing goes wrong with {carelessness:?}");
}

#[test]
fn answers_before_the_commit_are_noticed() {
    is_noticed(Carelessness::AnswersEarly);
}

#[test]
fn a_leader_that_does_not_build_the_ledger_is_noticed() {
    is_noticed(Carelessness::ForgetsTheLedger);
}

#[test]
fn a_leader_that_evaluates_without_what_is_on_its_way_is_noticed() {
    is_noticed(Carelessness::EvaluatesOnTheApplied);
}

#[test]
fn reads_without_locks_are_noticed() {
    is_noticed(Carelessness::ReadsIntents);
}
