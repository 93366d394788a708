//! What clients were told, and whether one order explains it.

use super::set_up::Program;
use crate::intent::Access;
use std::collections::BTreeMap;

/// The values of all keys. A value is the list of those who have appended to it, as digits.
pub(super) type Values = Vec<u32>;

/// A value with one more digit.
pub(super) fn appended(value: u32, client: u32) -> u32 {
    value * 8 + client + 1
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum State {
    Asked,
    /// The client was told that it is done.
    Done,
    /// The client was told that nothing was done since a key is not empty, and what is there.
    Refused,
    /// The client was told that nothing was done.
    NotDone,
}

impl State {
    /// Whether the client was told something that a place in the order must explain.
    fn has_been_seen(self) -> bool {
        matches!(self, Self::Done | Self::Refused)
    }
}

/// One client's request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Operation {
    /// The requests that were done before this one was made, as bits.
    after: u32,
    state: State,
    reads: BTreeMap<u8, u32>,
}

/// All requests. Clients are numbered through, node by node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct History {
    operations: BTreeMap<u32, Operation>,
}

impl History {
    pub(super) fn ask(&mut self, client: u32) {
        let done = self.operations.iter().filter(|(_, operation)| operation.state.has_been_seen());
        let after = done.fold(0, |after, (client, _)| after | 1 << client);
        self.operations.insert(client, Operation { after, state: State::Asked, reads: BTreeMap::new() });
    }

    pub(super) fn done(&mut self, client: u32, reads: BTreeMap<u8, u32>) {
        let operation = self.operations.get_mut(&client).expect("it was asked");
        (operation.state, operation.reads) = (State::Done, reads);
    }

    pub(super) fn refused(&mut self, client: u32, key: u8, value: u32) {
        let operation = self.operations.get_mut(&client).expect("it was asked");
        (operation.state, operation.reads) = (State::Refused, BTreeMap::from([(key, value)]));
    }

    pub(super) fn not_done(&mut self, client: u32) {
        self.operations.get_mut(&client).expect("it was asked").state = State::NotDone;
    }

    pub(super) fn is_all_done(&self, clients: usize) -> bool {
        self.operations.len() == clients && self.operations.values().all(|operation| operation.state.has_been_seen())
    }

    /// Whether what clients were told is explained by some order of all requests that were done, and of some of those that
    /// nobody was told about: an order in which a request comes after those that were done before it was made. `last` are
    /// the values that the order must end with.
    pub(super) fn is_strictly_serializable(&self, programs: &[Program], keys: usize, last: Option<&Values>) -> bool {
        Search { history: self, programs, last }.goes_on(0, vec![0; keys])
    }
}

struct Search<'a> {
    history: &'a History,
    programs: &'a [Program],
    last: Option<&'a Values>,
}

impl Search<'_> {
    /// Whether the requests of `placed` can be followed by the others.
    fn goes_on(&self, placed: u32, values: Values) -> bool {
        let is_placed = |client: u32| placed & 1 << client != 0;
        let others = || self.history.operations.iter().filter(|(client, _)| !is_placed(**client));
        let is_complete = others().all(|(_, operation)| !operation.state.has_been_seen());
        if is_complete && self.last.is_none_or(|last| *last == values) {
            return true;
        }
        let mut next =
            others().filter(|(_, operation)| operation.state != State::NotDone && operation.after & !placed == 0);
        next.any(|(client, operation)| {
            if operation.reads.iter().any(|(key, value)| values[usize::from(*key)] != *value) {
                return false;
            }
            let program = self.programs[*client as usize];
            let accesses = program.accesses();
            let is_refused = matches!(program, Program::IfEmpty(_))
                && accesses.iter().any(|(key, _)| values[usize::from(*key)] != 0);
            if is_refused != (operation.state == State::Refused) {
                return false;
            }
            let mut values = values.clone();
            let written = accesses.iter().filter(|(_, access)| *access == Access::Exclusive && !is_refused);
            for (key, _) in written {
                values[usize::from(*key)] = appended(values[usize::from(*key)], *client);
            }
            self.goes_on(placed | 1 << client, values)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Program = Program::Write(0);
    const READ: Program = Program::Read(&[0]);

    #[test]
    fn a_read_that_misses_what_was_done_before_it_is_noticed() {
        let mut history = History::default();
        history.ask(0);
        history.done(0, BTreeMap::from([(0, 0)]));
        history.ask(1);
        history.done(1, BTreeMap::from([(0, 0)]));
        assert!(!history.is_strictly_serializable(&[WRITE, READ], 1, None));
        let mut history = History::default();
        history.ask(0);
        history.ask(1);
        history.done(0, BTreeMap::from([(0, 0)]));
        history.done(1, BTreeMap::from([(0, 0)]));
        assert!(history.is_strictly_serializable(&[WRITE, READ], 1, None), "they overlap");
        assert!(history.is_strictly_serializable(&[WRITE, READ], 1, Some(&vec![1])));
        assert!(!history.is_strictly_serializable(&[WRITE, READ], 1, Some(&vec![0])), "a write that was done is lost");
        assert!(!history.is_strictly_serializable(&[WRITE, READ], 1, Some(&vec![9])), "a write was done twice");
    }

    #[test]
    fn what_nobody_was_told_about_may_have_been_done() {
        let mut history = History::default();
        history.ask(0);
        for (value, is_fine) in [(0, true), (1, true), (9, false)] {
            assert_eq!(history.is_strictly_serializable(&[WRITE], 1, Some(&vec![value])), is_fine);
        }
        history.not_done(0);
        assert!(!history.is_strictly_serializable(&[WRITE], 1, Some(&vec![1])));
    }
}
