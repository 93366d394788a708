//! Places whose contents are set, moved, copied and deleted, one or several at once, and seen together.

use super::models::Model;
use super::records::Held;

pub const PLACES: usize = 4;

/// A call, with what it was answered. What is `None` there is not known.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    See([Held; PLACES]),
    Set(Vec<(usize, u64)>),
    /// Sets all of them if all are empty; whether they were.
    SetAbsent(Vec<(usize, u64)>, Option<bool>),
    /// From one place to another one; whether something was there.
    Move(usize, usize, Option<bool>),
    /// The same, only if the other one is empty; whether something was there, and whether it was moved.
    MoveAbsent(usize, usize, Option<(bool, bool)>),
    /// Whether it was copied.
    Copy(usize, usize, Option<bool>),
    /// The same, only if the other one is empty.
    CopyAbsent(usize, usize, Option<bool>),
    /// How many were not empty.
    Delete(Vec<usize>, Option<usize>),
}

impl Model for Change {
    type State = [Held; PLACES];

    fn step(&self, state: &Self::State) -> Option<Self::State> {
        let mut next = *state;
        let fits = match self {
            Self::See(seen) => seen == state,
            Self::Set(pairs) => {
                pairs.iter().for_each(|(at, value)| next[*at] = Some(*value));
                true
            }
            Self::SetAbsent(pairs, answer) => {
                let are_absent = pairs.iter().all(|(at, _)| state[*at].is_none());
                if are_absent {
                    pairs.iter().for_each(|(at, value)| next[*at] = Some(*value));
                }
                answer.is_none_or(|answer| answer == are_absent)
            }
            Self::Move(from, to, answer) => {
                if state[*from].is_some() {
                    (next[*to], next[*from]) = (state[*from], None);
                }
                answer.is_none_or(|answer| answer == state[*from].is_some())
            }
            Self::MoveAbsent(from, to, answer) => {
                let is_moved = state[*from].is_some() && state[*to].is_none();
                if is_moved {
                    (next[*to], next[*from]) = (state[*from], None);
                }
                answer.is_none_or(|answer| answer == (state[*from].is_some(), is_moved))
            }
            Self::Copy(from, to, answer) | Self::CopyAbsent(from, to, answer) => {
                let may_replace = matches!(self, Self::Copy(..));
                let is_copied = state[*from].is_some() && (may_replace || state[*to].is_none());
                if is_copied {
                    next[*to] = state[*from];
                }
                answer.is_none_or(|answer| answer == is_copied)
            }
            Self::Delete(places, answer) => {
                let there = places.iter().filter(|at| state[**at].is_some()).count();
                places.iter().for_each(|at| next[*at] = None);
                answer.is_none_or(|answer| answer == there)
            }
        };
        fits.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::{Call, check};
    use super::Change::{self, *};

    const NEVER: u64 = u64::MAX;

    fn outcome(calls: &[(Change, u64, u64)]) -> Result<(), String> {
        let call =
            |(call, began, ended): &(Change, u64, u64)| Call { call: call.clone(), began: *began, ended: *ended };
        check(&calls.iter().map(call).collect::<Vec<_>>())
    }

    #[test]
    fn histories_that_can_have_been_are_accepted() {
        let set = || (Set(vec![(0, 1), (1, 2)]), 1, 2);
        let good: &[&[(Change, u64, u64)]] = &[
            &[set(), (Move(0, 1, Some(true)), 3, 4), (See([None, Some(1), None, None]), 5, 6)],
            &[set(), (MoveAbsent(0, 1, Some((true, false))), 3, 4), (MoveAbsent(0, 2, Some((true, true))), 5, 6)],
            &[set(), (MoveAbsent(3, 2, Some((false, false))), 3, 4), (Move(3, 0, Some(false)), 5, 6)],
            &[set(), (Copy(0, 1, Some(true)), 3, 4), (CopyAbsent(0, 1, Some(false)), 5, 6)],
            &[set(), (Copy(0, 3, None), 3, NEVER), (See([Some(1), Some(2), None, Some(1)]), 9, 10)],
            &[set(), (SetAbsent(vec![(1, 3), (2, 3)], Some(false)), 3, 4), (Delete(vec![0, 1, 2], Some(2)), 5, 6)],
        ];
        for calls in good {
            outcome(calls).unwrap();
        }
    }

    #[test]
    fn histories_that_cannot_have_been_are_refused() {
        let set = || (Set(vec![(0, 1), (1, 2)]), 1, 2);
        let bad: &[&[(Change, u64, u64)]] = &[
            // In both places; in none; half set; replaced; of an older time; counted wrongly.
            &[set(), (Move(0, 2, Some(true)), 3, 4), (See([Some(1), Some(2), Some(1), None]), 5, 6)],
            &[set(), (Move(0, 2, Some(true)), 3, 9), (See([None, Some(2), None, None]), 5, 6)],
            &[set(), (See([Some(1), None, None, None]), 3, 4)],
            &[set(), (SetAbsent(vec![(1, 3), (2, 3)], Some(true)), 3, 4)],
            &[
                set(),
                (Set(vec![(0, 3)]), 3, 4),
                (Copy(0, 2, Some(true)), 5, 6),
                (See([Some(3), Some(2), Some(1), None]), 7, 8),
            ],
            &[set(), (Delete(vec![0, 1, 2], Some(3)), 5, 6)],
        ];
        for calls in bad {
            outcome(calls).unwrap_err();
        }
    }
}
