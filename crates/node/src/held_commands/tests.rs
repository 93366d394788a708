use super::HeldCommands;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tessera_store::hosting::{PendingReply, WriteCommand};
use tessera_store::{Operation, PATIENCE, Transaction, Verdict};
use tessera_transaction::{Age, TransactionId};
use tessera_types::{NodeId, RequestError};

/// Part of a transaction that began at this time, or of none; until when it waits, if it says so.
struct Waits(Option<u64>, Option<Instant>);

impl Operation for Waits {
    fn evaluate(&self, _part: usize, _transaction: &mut Transaction<'_>) -> Verdict {
        Verdict::Abandon
    }

    fn age(&self) -> Option<Age> {
        self.0.map(|began_millis| Age { began_millis, first: transaction(began_millis) })
    }

    fn until(&self) -> Option<Instant> {
        self.1
    }

    fn answer(&self, _part: usize, _outcome: Result<(), RequestError>) {}
}

fn transaction(sequence: u64) -> TransactionId {
    TransactionId { node: NodeId(1), generation: 1, sequence }
}

fn command_of(operation: &Arc<Waits>) -> WriteCommand {
    WriteCommand::new(PendingReply::new(operation.clone(), 0))
}

fn plain() -> WriteCommand {
    command_of(&Arc::new(Waits(None, None)))
}

fn part(began: u64) -> WriteCommand {
    command_of(&Arc::new(Waits(Some(began), None)))
}

/// A time that is after all that has happened.
fn later() -> Instant {
    let began = Instant::now();
    loop {
        let now = Instant::now();
        if now > began {
            return now;
        }
    }
}

fn next_age(held: &mut HeldCommands) -> Option<u64> {
    held.next().expect("a command that may go on").pending_reply.age().map(|age| age.began_millis)
}

/// A part of a transaction once went first, and held the key again, so that a plain command came to nothing as long as older
/// transactions arrived.
#[test]
fn plain_commands_go_before_parts_of_transactions_and_of_these_the_oldest_first() {
    let mut held = HeldCommands::default();
    let holder = transaction(0);
    for command in [part(30), plain(), part(10), part(20)] {
        held.wait_for(holder, command);
    }
    assert!(!held.release(|_| true), "the transaction stands");
    assert!(held.next().is_none());
    assert!(held.release(|_| false));
    assert_eq!([(); 4].map(|()| next_age(&mut held)), [None, Some(10), Some(20), Some(30)]);
}

/// The time once began anew with each transaction.
#[test]
fn the_time_of_waiting_counts_from_the_first_transaction() {
    let mut held = HeldCommands::default();
    held.wait_for(transaction(1), plain());
    let first = later();
    let second = later();
    assert!(held.release(|_| false));
    let command = held.next().unwrap();
    held.wait_for(transaction(2), command);
    held.wait_for(transaction(2), plain());
    assert!(held.take_late(first + PATIENCE - Duration::from_secs(1)).is_empty());
    assert!(second > first);
    assert_eq!(held.take_late(first + PATIENCE).len(), 1, "the one that has met both");
    assert_eq!(held.take_late(later() + PATIENCE).len(), 1, "the other one");
}

/// Each command of a pipeline once had ten seconds of its own.
#[test]
fn who_says_how_long_he_waits_is_refused_then() {
    let mut held = HeldCommands::default();
    let until = later();
    held.wait_for(transaction(1), command_of(&Arc::new(Waits(None, Some(until)))));
    held.wait_for(transaction(1), plain());
    assert!(held.take_late(until - Duration::from_nanos(1)).is_empty());
    assert_eq!(held.take_late(until).len(), 1);
    assert_eq!(held.take_late(later() + PATIENCE).len(), 1, "the other one");
}

#[test]
fn who_has_waited_longest_goes_first_whatever_it_has_waited_for() {
    let mut held = HeldCommands::default();
    let operations = [(); 8].map(|()| Arc::new(Waits(None, None)));
    for (number, operation) in (0..).zip(&operations) {
        held.wait_for(transaction(number), command_of(operation));
        later();
    }
    assert!(held.release(|_| false));
    for operation in operations {
        assert_eq!(held.next().unwrap().pending_reply.address(), command_of(&operation).pending_reply.address());
    }
}

#[test]
fn commands_of_a_pipeline_stay_in_their_order() {
    let mut held = HeldCommands::default();
    let pipeline = Arc::new(Waits(None, None));
    held.wait_for(transaction(1), command_of(&pipeline));
    assert_eq!(held.holder_before(&command_of(&pipeline)), Some(transaction(1)));
    assert_eq!(held.holder_before(&plain()), None, "it belongs to another pipeline");
    assert!(held.release(|_| false));
    assert_eq!(held.holder_before(&command_of(&pipeline)), None);
}

#[test]
fn a_pipeline_is_held_up_until_the_last_of_its_commands_has_left() {
    let mut held = HeldCommands::default();
    let due = later();
    let (early, late) = (Arc::new(Waits(None, Some(due))), Arc::new(Waits(None, None)));
    for pipeline in [&early, &late, &early, &late] {
        held.wait_for(transaction(1), command_of(pipeline));
    }
    assert_eq!(held.take_late(due).len(), 2);
    assert_eq!(held.holder_before(&command_of(&early)), None);
    assert_eq!(held.holder_before(&command_of(&late)), Some(transaction(1)));
    assert!(held.release(|_| false));
    // One of them meets another transaction, and the other one follows.
    let (one, other) = (held.next().unwrap(), held.next().unwrap());
    held.wait_for(transaction(2), one);
    assert_eq!(held.holder_before(&other), Some(transaction(2)));
    held.wait_for(transaction(2), other);
    assert_eq!(held.take_late(later() + PATIENCE).len(), 2);
    assert_eq!(held.holder_before(&command_of(&late)), None);
    assert!(held.take_late(later() + 2 * PATIENCE).is_empty());
}

/// Counts how often it is asked something while it waits.
struct Asked(AtomicUsize);

impl Operation for Asked {
    fn evaluate(&self, _part: usize, _transaction: &mut Transaction<'_>) -> Verdict {
        Verdict::Abandon
    }

    fn age(&self) -> Option<Age> {
        self.0.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn until(&self) -> Option<Instant> {
        self.0.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn answer(&self, _part: usize, _outcome: Result<(), RequestError>) {}
}

/// Each command of a partition once looked at all that waited there.
#[test]
fn commands_on_other_keys_look_at_none_that_wait() {
    let (mut held, waiting) = (HeldCommands::default(), Arc::new(Asked(AtomicUsize::new(0))));
    for number in 0..1_000 {
        held.wait_for(transaction(number % 10), WriteCommand::new(PendingReply::new(waiting.clone(), 0)));
    }
    let before = waiting.0.load(Ordering::Relaxed);
    for _ in 0..100 {
        assert_eq!(held.holder_before(&plain()), None);
        assert!(held.take_late(later()).is_empty());
        assert!(!held.release(|_| true));
    }
    assert_eq!(waiting.0.load(Ordering::Relaxed), before);
}

#[test]
fn what_comes_waits_behind_those_that_may_go_on() {
    let mut held = HeldCommands::default();
    assert!(!held.hold_up(), "nobody waits");
    held.wait_for(transaction(1), part(10));
    assert!(!held.hold_up(), "other keys are not concerned");
    assert!(held.release(|_| false));
    assert!(held.hold_up());
    held.push(plain());
    held.note_again(true);
    assert!(!held.hold_up(), "it has waited already");
    assert_eq!((next_age(&mut held), next_age(&mut held)), (Some(10), None));
    assert!(!held.hold_up());
}

#[test]
fn all_are_taken_out_when_the_partition_leads_no_more() {
    let mut held = HeldCommands::default();
    held.wait_for(transaction(1), plain());
    assert!(held.release(|_| false));
    held.wait_for(transaction(2), part(10));
    assert_eq!(held.take().count(), 2);
    assert!(held.next().is_none() && !held.release(|_| false));
}
