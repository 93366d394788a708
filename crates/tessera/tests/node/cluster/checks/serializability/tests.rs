use super::*;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// One transaction a line: when it began and ended, then `x+1` where it appended 1 to list x, or `x=1,2` where it read it.
/// `?` in the place of the end stands for an unknown outcome, and `!` for an abort. `x+1@3` was told that it is the third one.
fn history(lines: &[&str]) -> Vec<Transaction> {
    lines.iter().map(|line| transaction(line)).collect()
}

fn transaction(line: &str) -> Transaction {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let mut words = line.split(' ');
    let (began, end) = words.next().unwrap().split_once('-').unwrap();
    let (outcome, ended) = match end {
        "?" => (Outcome::Unknown, u64::MAX),
        "!" => (Outcome::Aborted, u64::MAX),
        end => (Outcome::Committed, number(end)),
    };
    let operation = |word: &str| {
        let list = u64::from(word.as_bytes()[0]);
        if let Some(elements) = word[1..].strip_prefix('=') {
            let elements = elements.split(',').filter(|element| !element.is_empty()).map(number).collect();
            return Operation::Read { list, elements };
        }
        let (element, place) =
            word[2..].split_once('@').map_or((&word[2..], None), |(element, place)| (element, Some(place)));
        Operation::Append { list, element: number(element), place: place.map(|place| place.parse().unwrap()) }
    };
    Transaction { operations: words.map(operation).collect(), outcome, began: number(began), ended }
}

#[track_caller]
fn is_sound(lines: &[&str]) {
    check(&history(lines)).unwrap();
}

#[track_caller]
fn is_refused(anomaly: &str, lines: &[&str]) {
    let error = check(&history(lines)).unwrap_err();
    assert!(error.starts_with(&format!("{anomaly}:")), "{anomaly} is called {error}");
}

#[test]
fn histories_that_can_have_been_are_accepted() {
    is_sound(&[]);
    is_sound(&["1-2 x+1 y+2", "3-4 x=1 y=2 x+3@2 x=1,3", "5-6 x=1,3 y=2"]);
    // At the same time, in either order.
    is_sound(&["1-9 x+1 y+2", "2-8 x= y=", "3-7 x=1 y=2"]);
    is_sound(&["1-9 x= y+1", "1-9 x+2 y=1", "10-11 x=2 y=1"]);
    // Several appends to one list.
    is_sound(&["1-2 x+1 x=1 x+2 x=1,2 y+3", "3-4 x=1,2"]);
    // Nobody looked.
    is_sound(&["1-2 x+1", "3-4 x+2", "5-6 x+3 y+4"]);
}

#[test]
fn what_is_unknown_may_have_been_or_not() {
    is_sound(&["1-? x+1 y+2", "3-4 x= y="]);
    is_sound(&["1-? x+1 y+2", "3-4 x=1 y=2"]);
    is_sound(&["1-? x+1 y+2", "3-4 x= y=", "5-6 x=1 y=2"]);
    is_sound(&["1-! x+1", "3-4 x="]);
    is_refused("G-single", &["1-? x+1 y+2", "3-4 x=1 y="]);
    is_refused("G-single-realtime", &["1-? x+1", "3-4 x=1", "5-6 x="]);
    is_refused("G1c-realtime", &["3-4 x=1", "5-? x+1"]);
}

#[test]
fn what_no_list_can_hold_is_refused() {
    let error = check(&history(&["1-2 x+1", "3-4 x=1,1"])).unwrap_err();
    assert!(error.contains("twice"), "{error}");
}

#[test]
fn g0_appends_in_different_orders() {
    is_refused("G0", &["1-9 x+1 y+2", "1-9 x+3 y+4", "10-11 x=1,3 y=4,2"]);
    // Another one is in the middle.
    is_refused("G0", &["1-9 x+1 x+2", "1-9 x+3", "10-11 x=1,3,2"]);
    is_refused("G0-realtime", &["1-2 x+1", "3-4 x+2", "5-6 x=2,1"]);
}

#[test]
fn g1a_a_read_of_what_was_aborted() {
    is_refused("G1a", &["1-! x+1", "3-4 x=1"]);
}

#[test]
fn g1b_a_read_in_the_middle() {
    is_refused("G1b", &["1-9 x+1 x+2", "1-9 x=1", "10-11 x=1,2"]);
}

#[test]
fn g1c_two_that_see_each_other() {
    is_refused("G1c", &["1-9 x+1 y=2", "1-9 y+2 x=1"]);
    // One sees what began after it had ended.
    is_refused("G1c-realtime", &["1-2 x=1", "3-4 x+1"]);
}

#[test]
fn g_single_a_read_of_a_half() {
    is_refused("G-single", &["1-9 x+1 y+2", "1-9 x=1 y=", "10-11 y=2"]);
    is_refused("G-single", &["1-9 x+1 y+2", "1-9 x=1 y="]);
    is_refused("G-single", &["1-9 x+1", "1-9 x=1 y+2", "1-9 y=2 x="]);
}

#[test]
fn a_lost_update() {
    is_refused("lost update", &["1-9 x= x+1", "1-9 x= x+2", "10-11 x=1,2"]);
    is_refused("lost update", &["1-2 x+1", "3-9 x=1 x+2", "3-9 x=1 x+3", "10-11 x=1,2,3"]);
    // It is not there at all.
    is_refused("G-single-realtime", &["1-2 x+1", "3-4 x="]);
    is_refused("G0-realtime", &["1-2 x+1", "3-4 x+2", "5-6 x=2"]);
}

#[test]
fn g2_two_that_do_not_see_each_other() {
    is_refused("G2-item", &["1-9 x= y+1", "1-9 y= x+2", "10-11 x=2 y=1"]);
    is_refused("G2-item", &["1-9 x= y+1", "1-9 y= x+2"]);
    // Two who look see two appends in different orders.
    is_refused("G2-item", &["1-9 x+1", "1-9 y+2", "1-9 x=1 y=", "1-9 x= y=2"]);
}

#[test]
fn time_that_goes_backwards() {
    is_refused("G-single-realtime", &["1-9 x+1", "2-3 x=1", "4-5 x="]);
    is_refused("G-single-realtime", &["1-9 x+1 y+2", "2-3 x=1", "4-5 y="]);
    // Those at the same time do not say so.
    is_sound(&["1-9 x+1", "2-4 x=1", "4-5 x="]);
}

#[test]
fn what_one_transaction_says_must_fit_together() {
    is_refused("internal", &["1-2 x+1 x="]);
    is_refused("internal", &["1-2 x+1", "1-9 x= x=1"]);
    is_refused("internal", &["1-2 x+1", "3-4 x=1 x+2@1"]);
    let error = check(&history(&["1-9 x+1@1", "1-9 x+2@1", "10-11 x=1,2"])).unwrap_err();
    assert!(error.contains("place 1"), "{error}");
    let error = check(&history(&["1-9 x+1", "1-9 x+2", "10-11 x=1", "10-11 x=2"])).unwrap_err();
    assert!(error.contains("was seen with"), "{error}");
    let error = check(&history(&["1-2 x=1"])).unwrap_err();
    assert!(error.contains("nobody"), "{error}");
}

/// Lists that are used at one time, by so many transactions.
const LISTS: u64 = 3;
const IN_USE: u64 = 60;

/// Transactions one after the other on real lists, each of which takes effect at a moment between its beginning and its end. Other
/// lists are used after a while.
fn made(seed: u64, count: u64) -> Vec<Transaction> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut lists: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut next = 0;
    let mut made = Vec::new();
    for at in 0..count {
        let is_unknown = random.random_bool(0.1);
        let takes_effect = !is_unknown || random.random_bool(0.5);
        let mut operations = Vec::new();
        for _ in 0..random.random_range(1..5) {
            let list = at / IN_USE * LISTS + random.random_range(0..LISTS);
            if random.random_bool(0.5) {
                next += 1;
                let there = lists.entry(list).or_default();
                if takes_effect {
                    there.push(next);
                }
                let place = (!is_unknown).then_some(there.len());
                operations.push(Operation::Append { list, element: next, place });
            } else if !is_unknown {
                let elements = lists.get(&list).cloned().unwrap_or_default();
                operations.push(Operation::Read { list, elements });
            }
        }
        let (began, ended) =
            (100 * at - random.random_range(0..=100 * at.min(3)), 100 * at + random.random_range(1..300));
        let (outcome, ended) = if is_unknown { (Outcome::Unknown, u64::MAX) } else { (Outcome::Committed, ended) };
        made.push(Transaction { operations, outcome, began, ended });
    }
    let elements = |list: u64| lists.get(&list).cloned().unwrap_or_default();
    let first = (count - 1) / IN_USE * LISTS;
    let operations = (first..first + LISTS).map(|list| Operation::Read { list, elements: elements(list) }).collect();
    made.push(Transaction {
        operations,
        outcome: Outcome::Committed,
        began: 100 * count + 300,
        ended: 100 * count + 301,
    });
    made
}

#[test]
fn long_histories_are_checked_quickly() {
    let mut history = made(1, 30_000);
    check(&history).unwrap();
    // The first one saw what the last one did.
    let last = history.pop().unwrap();
    history[0].operations.extend(last.operations);
    assert!(check(&history).is_err());
}

proptest! {
    #[test]
    fn what_was_carried_out_one_after_the_other_is_accepted(seed: u64) {
        prop_assert_eq!(check(&made(seed, 40)), Ok(()));
    }

    /// An acknowledged append that the last one does not see.
    #[test]
    fn a_list_that_lacks_an_element_is_refused(seed: u64) {
        let mut history = made(seed, 40);
        let committed: HashSet<u64> = history.iter().filter(|one| one.outcome == Outcome::Committed).flat_map(|one| {
            one.operations.iter().filter_map(|operation| match operation {
                Operation::Append { element, .. } => Some(*element),
                Operation::Read { .. } => None,
            })
        }).collect();
        let last = history.last_mut().unwrap();
        let lists = last.operations.iter_mut().filter_map(|operation| match operation {
            Operation::Read { elements, .. } => Some(elements),
            Operation::Append { .. } => None,
        });
        for elements in lists {
            if elements.last().is_some_and(|element| committed.contains(element)) {
                elements.pop();
                prop_assert!(check(&history).is_err());
                return Ok(());
            }
        }
    }
}
