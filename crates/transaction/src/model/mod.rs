//! The protocol under a model checker, which tries all orders of what may happen.
//!
//! Partitions, nodes and clients are modelled (`world`, `set_up`); what partitions and coordinators do about transactions are the
//! state machines of this crate. Each test is a set-up that is small enough to be searched completely.

mod history;
mod properties;
mod set_up;
mod world;

use crate::intent::Access::{Exclusive, Shared};
use crate::rules::Rule;
use properties::{ALL_IS_DONE, PROPERTIES};
use set_up::{Faults, Program, SetUp};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::{Duration, Instant};

const X: u8 = 0;
const Y: u8 = 1;
const Z: u8 = 2;

const X_THEN_Y: Program = Program::Transaction(&[(X, Exclusive), (Y, Exclusive)]);
const Y_THEN_X: Program = Program::Transaction(&[(Y, Exclusive), (X, Exclusive)]);
const X_THEN_Z: Program = Program::Transaction(&[(X, Exclusive), (Z, Exclusive)]);
const Y_THEN_Z: Program = Program::Transaction(&[(Y, Exclusive), (Z, Exclusive)]);
const Z_THEN_X: Program = Program::Transaction(&[(Z, Exclusive), (X, Exclusive)]);
const ALL_THREE: Program = Program::Transaction(&[(X, Exclusive), (Y, Exclusive), (Z, Exclusive)]);
const ONLY_X: Program = Program::Transaction(&[(X, Exclusive)]);
const X_AFTER_READING_Y: Program = Program::Transaction(&[(X, Exclusive), (Y, Shared)]);
const Y_AFTER_READING_X: Program = Program::Transaction(&[(Y, Exclusive), (X, Shared)]);

const NONE: Faults = Faults { crashes: 0, leader_changes: 0, give_ups: 0, suspicions: 0 };
const CRASH: Faults = Faults { crashes: 1, ..NONE };

/// Two transactions that want each other's anchor, one of which must give way.
fn crossing() -> SetUp {
    SetUp::new(2, vec![vec![X_THEN_Y], vec![Y_THEN_X]])
}

/// The same with a coordinator that may die between any two messages.
fn crossing_with_a_crash() -> SetUp {
    SetUp { faults: CRASH, attempts: 1, ..crossing() }
}

/// Transactions that write what the other one reads.
fn skewed() -> SetUp {
    SetUp::new(2, vec![vec![X_AFTER_READING_Y], vec![Y_AFTER_READING_X]])
}

/// A transaction whose coordinator may die, a later one of the same node, and somebody who reads both partitions.
fn restarted() -> SetUp {
    SetUp { faults: CRASH, attempts: 1, ..SetUp::new(2, vec![vec![X_THEN_Y, X_THEN_Y], vec![Program::Read(&[X, Y])]]) }
}

/// The same, but the later transaction has another participant, so that it does not meet what the first one has left.
fn restarted_elsewhere() -> SetUp {
    let programs = vec![vec![X_THEN_Y, X_THEN_Z], vec![Program::Read(&[Y])]];
    SetUp { faults: CRASH, attempts: 1, ..SetUp::new(3, programs) }
}

/// Two clients that want the same keys, if these are empty, and may give up.
fn conditional() -> SetUp {
    let programs = vec![vec![Program::IfEmpty(&[X, Y])], vec![Program::IfEmpty(&[Y, X])], vec![Program::Read(&[X, Y])]];
    SetUp { faults: Faults { give_ups: 1, ..NONE }, ..SetUp::new(2, programs) }
}

/// A transaction that has no participants beside two that have.
fn alone() -> SetUp {
    SetUp { faults: Faults { suspicions: 1, ..CRASH }, ..SetUp::new(2, vec![vec![Y_THEN_X], vec![ONLY_X]]) }
}

/// Three transactions, each of which wants the next one's anchor. `make model` has them tried twice.
fn ring() -> SetUp {
    let attempts = u8::try_from(number("TESSERA_MODEL_ATTEMPTS", 1)).expect("a small number");
    SetUp { attempts, ..SetUp::new(3, vec![vec![X_THEN_Y], vec![Y_THEN_Z], vec![Z_THEN_X]]) }
}

/// Much of what there is at once.
fn all_at_once() -> SetUp {
    let programs = vec![
        vec![X_THEN_Y, Program::Write(Z), ALL_THREE],
        vec![Y_THEN_Z, Y_AFTER_READING_X],
        vec![Program::Read(&[X, Y, Z]), Program::IfEmpty(&[Z, X])],
        vec![Program::Write(Y), Program::Read(&[Z, Y])],
    ];
    let faults = Faults { crashes: 1, leader_changes: 2, give_ups: 1, suspicions: 2 };
    SetUp { faults, ..SetUp::new(3, programs) }
}

/// Three partitions, of which one changes its leader, a coordinator that may die, and a reader.
fn three_partitions() -> SetUp {
    SetUp {
        faults: Faults { leader_changes: 1, ..CRASH },
        ..SetUp::new(3, vec![vec![ALL_THREE], vec![Program::Read(&[Z])]])
    }
}

/// Readers of one and of both partitions beside a transaction, with changes of leaders.
fn read() -> SetUp {
    let programs = vec![vec![X_THEN_Y], vec![Program::Read(&[X, Y])], vec![Program::Read(&[Y])]];
    SetUp { faults: Faults { leader_changes: 1, ..NONE }, ..SetUp::new(2, programs) }
}

/// Plain writes beside a transaction whose coordinator may die.
fn written() -> SetUp {
    let programs = vec![vec![X_THEN_Y], vec![Program::Write(Y), Program::Write(X)]];
    SetUp { faults: Faults { leader_changes: 1, ..CRASH }, ..SetUp::new(2, programs) }
}

/// Somebody takes coordinators for gone that are not.
fn suspected() -> SetUp {
    SetUp {
        faults: Faults { suspicions: 2, ..NONE },
        ..SetUp::new(2, vec![vec![X_THEN_Y], vec![Program::Read(&[X, Y])]])
    }
}

fn check(set_up: SetUp) -> impl Checker<SetUp> {
    set_up.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join()
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().expect("a number"))
}

/// A way through a world that follows from a seed. Returns whether everything that was asked for is done in the end.
fn walk(set_up: &SetUp, seed: u64) -> bool {
    let mut world = set_up.init_states().remove(0);
    let mut way = Vec::new();
    let mut random = seed;
    loop {
        for property in set_up.properties().iter().filter(|property| property.name != ALL_IS_DONE) {
            let holds = (property.condition)(set_up, &world);
            assert!(holds, "TESSERA_SEED={seed}: not true that {}: {way:#?} {world:#?}", property.name);
        }
        let mut steps = set_up.next_steps(&world);
        if steps.is_empty() {
            let is_done = set_up.property(ALL_IS_DONE).condition;
            return is_done(set_up, &world);
        }
        let mut below = |limit: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            usize::try_from((random >> 33) % limit as u64).expect("below a limit")
        };
        // What goes wrong does so in the middle of something else, not as soon as it can.
        if below(16) > 0 && steps.iter().any(|(event, _)| !event.is_fault()) {
            steps.retain(|(event, _)| !event.is_fault());
        }
        let (event, next) = steps.swap_remove(below(steps.len()));
        way.push(event);
        world = next;
    }
}

/// About one way in a hundred leaves nothing undone: on the others a fault takes something away.
const MAX_WAYS_WITHOUT_AN_END: u64 = 10_000;

/// Random ways through a world that is too large to be searched.
#[test]
fn all_at_once_goes_well() {
    let (seconds, seed) = (number("TESSERA_MODEL_SECONDS", 5), number("TESSERA_SEED", 1));
    let (set_up, began) = (all_at_once(), Instant::now());
    let (mut ways, mut done) = (0, 0);
    while began.elapsed() < Duration::from_secs(seconds) || (done == 0 && ways < MAX_WAYS_WITHOUT_AN_END) {
        done += u64::from(walk(&set_up, seed + ways));
        ways += 1;
    }
    println!("all_at_once: {ways} ways from seed {seed} on, {done} of them without anything left undone");
    assert!(done > 0, "something is always left undone");
}

fn holds(name: &str, set_up: SetUp) {
    let began = Instant::now();
    let checked = check(set_up);
    println!("{name}: {} states, depth {}, {:?}", checked.unique_state_count(), checked.max_depth(), began.elapsed());
    checked.assert_properties();
}

/// Leaves out a rule, and expects that this is noticed.
fn fails_without(rule: Rule, set_up: SetUp) {
    let checked = check(SetUp { left_out: Some(rule), ..set_up });
    let found: Vec<_> = checked.discoveries().into_keys().filter(|name| PROPERTIES.contains(name)).collect();
    println!("without {rule:?}: {found:?} after {} states", checked.unique_state_count());
    assert!(!found.is_empty(), "nothing goes wrong without {rule:?}");
}

macro_rules! holding {
    ($($name:ident => $set_up:ident;)*) => {
        $(#[test] fn $name() { holds(stringify!($set_up), $set_up()); })*
    };
}

holding! {
    transactions_that_cross_end => crossing;
    transactions_that_cross_end_without_one_of_their_coordinators => crossing_with_a_crash;
    what_is_read_in_a_transaction_holds => skewed;
    a_node_that_was_restarted_goes_on => restarted;
    a_node_that_was_restarted_goes_on_elsewhere => restarted_elsewhere;
    conditions_hold_in_all_partitions => conditional;
    a_transaction_without_participants_is_done_once => alone;
    transactions_in_a_ring_end => ring;
    three_partitions_agree => three_partitions;
    reads_see_one_instant => read;
    plain_writes_wait => written;
    a_coordinator_that_lives_may_be_taken_for_gone => suspected;
}

macro_rules! failing {
    ($($name:ident => $rule:ident, $set_up:ident;)*) => {
        $(#[test] fn $name() { fails_without(Rule::$rule, $set_up()); })*
    };
}

failing! {
    without_answers_that_wait_for_the_commit => AnswersWaitForCommit, read;
    without_waiting_for_all_that_prepare => DecideWhenAllArePrepared, three_partitions;
    without_aborts_at_the_anchor => AbortAtTheAnchor, crossing;
    without_keeping_intents => KeepIntents, read;
    without_preparing_once => PrepareOnce, restarted;
    without_deciding_once => DecideOnce, read;
    without_logged_aborts => LogAborts, crossing_with_a_crash;
    without_recovery => RecoverIntents, crossing_with_a_crash;
    without_settling_when_all_have_resolved => SettleWhenAllHaveResolved, restarted_elsewhere;
    without_forgetting_when_all_have_resolved => ForgetWhenAllHaveResolved, restarted_elsewhere;
    without_refusing_what_is_settled => RefuseWhatIsSettled, restarted;
    without_keeping_decisions_of_earlier_starts => KeepDecisionsOfEarlierStarts, restarted_elsewhere;
    without_writes_that_wait => WritesWaitForLocks, written;
    without_reads_that_wait => ReadsWaitForLocks, read;
    without_decisions_that_wait => DecisionsWaitForLocks, crossing;
    without_locks_on_what_is_read => LockWhatIsRead, skewed;
    without_the_younger_giving_way => YoungerGivesWay, crossing;
    without_confirmed_reads => ConfirmReads, read;
    without_confirming_that_nothing_changed => ConfirmNoChange, read;
    without_confirming_that_nothing_is_locked => ConfirmNoLock, read;
}
