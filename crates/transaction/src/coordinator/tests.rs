use super::*;
use crate::id::TransactionIds;
use crate::intent::{Access, Holder};
use tessera_types::NodeId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Letters;

impl Data for Letters {
    type Partition = char;
    type Key = char;
    type Operation = &'static str;
    type Writes = &'static str;
    type Reply = &'static str;
    type Stamp = u8;
}

const ANCHOR: char = 'a';

/// A transaction that begins, of the anchor and `b` and `c`, and the age of that.
fn coordinator() -> (Coordinator<Letters>, Age) {
    let id = TransactionIds::new(NodeId(1), 1).begin().unwrap();
    let age = Age { began_millis: 10, first: id };
    let part = |partition| (partition, vec![(partition, Access::Exclusive)], "an operation");
    (Coordinator::new((id, age, 0), ANCHOR, [ANCHOR, 'b', 'c'].map(part)), age)
}

fn settles(effects: &[Effect<Letters>]) -> bool {
    effects.contains(&Effect::Settle)
}

fn has_work(coordinator: &Coordinator<Letters>) -> bool {
    coordinator.parts.values().any(|part| part.work.is_some())
}

/// It once was unsettled until all participants had been told, for ever where one of them had no leader.
#[test]
fn an_abort_is_settled_before_the_participants_know_of_it() {
    let (mut coordinator, _) = coordinator();
    coordinator.receive('b', Answer::Prepared("b"));
    let effects = coordinator.give_up();
    assert!(settles(&effects) && coordinator.is_settled() && !has_work(&coordinator));
    // They are told nevertheless.
    assert_eq!(coordinator.requests().len(), 2);
    assert!(!settles(&coordinator.receive('b', Answer::Resolved)));
    assert!(!settles(&coordinator.receive('c', Answer::Resolved)));
    assert!(coordinator.requests().is_empty() && coordinator.is_settled());
}

#[test]
fn a_commit_is_settled_when_all_participants_have_resolved_it_and_keeps_no_values_until_then() {
    let (mut coordinator, _) = coordinator();
    coordinator.receive('b', Answer::Prepared("b"));
    assert!(has_work(&coordinator));
    coordinator.receive('c', Answer::Prepared("c"));
    let effects = coordinator.receive(ANCHOR, Answer::Committed(Some("a")));
    assert!(matches!(&effects[0], Effect::Answer(End::Committed(replies)) if replies.len() == 3));
    assert!(!settles(&effects) && !coordinator.is_settled());
    assert!(coordinator.parts.values().all(|part| part.work.is_none() && part.reply.is_none()));
    assert!(!settles(&coordinator.receive('b', Answer::Resolved)));
    assert!(settles(&coordinator.receive('c', Answer::Resolved)) && coordinator.is_settled());
}

#[test]
fn who_asks_the_anchor_whether_it_has_committed_keeps_no_values() {
    let (mut coordinator, _) = coordinator();
    coordinator.receive('b', Answer::Prepared("b"));
    coordinator.receive('c', Answer::Prepared("c"));
    assert!(!settles(&coordinator.give_up()), "the anchor may have committed");
    assert!(!coordinator.is_settled() && !has_work(&coordinator));
    coordinator.forget_replies();
    assert!(coordinator.parts.values().all(|part| part.reply.is_none()));
    let id = coordinator.id();
    assert_eq!(coordinator.requests(), [(ANCHOR, Request::Recover(id))]);
    // It has: the participants are told so.
    assert!(!settles(&coordinator.receive(ANCHOR, Answer::Committed(None))));
    let resolve = Request::Resolve(id, Outcome::Committed);
    assert_eq!(coordinator.requests(), [('b', resolve.clone()), ('c', resolve)]);
}

/// An attempt is made while the participants of the one before are told of its end.
#[test]
fn an_attempt_waits_for_the_one_before() {
    let (mut coordinator, age) = coordinator();
    let before = TransactionId { sequence: 7, ..coordinator.id() };
    let busy = |age| Answer::Busy(Holder { id: before, age, anchor: ANCHOR });
    assert!(coordinator.receive('b', busy(age)).is_empty() && coordinator.is_preparing());
    let older = Age { began_millis: 9, ..age };
    assert!(settles(&coordinator.receive('b', busy(older))));
}
