//! A record that can be set, set if it is absent, exchanged, deleted and read; absence is a value like others.
//!
//! It is a key, or several that always change together, or the fields of a hash.

use super::models::Model;

/// What a record holds; `None` if there is none.
pub type Held = Option<u64>;

/// A call, with what it was answered. What is `None` there is not known.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Get(Held),
    Set(u64),
    /// Sets it if it is absent; whether it was.
    SetAbsent(u64, Option<bool>),
    /// Sets it if it is present; whether it was.
    SetPresent(u64, Option<bool>),
    /// Sets it; what was there before.
    Exchange(u64, Option<Held>),
    /// Whether it was there.
    Delete(Option<bool>),
    /// Deletes it; what was there.
    Take(Option<Held>),
    Exists(Option<bool>),
}

impl Model for Record {
    type State = Held;

    fn step(&self, state: &Held) -> Option<Held> {
        let agrees = |answer: &Option<bool>, is_so: bool| answer.is_none_or(|answer| answer == is_so);
        match self {
            Self::Get(seen) => (seen == state).then_some(*state),
            Self::Set(value) => Some(Some(*value)),
            Self::SetAbsent(value, answer) => {
                agrees(answer, state.is_none()).then_some(if state.is_none() { Some(*value) } else { *state })
            }
            Self::SetPresent(value, answer) => {
                agrees(answer, state.is_some()).then_some(if state.is_some() { Some(*value) } else { None })
            }
            Self::Exchange(value, before) => before.is_none_or(|before| before == *state).then_some(Some(*value)),
            Self::Delete(answer) => agrees(answer, state.is_some()).then_some(None),
            Self::Take(before) => before.is_none_or(|before| before == *state).then_some(None),
            Self::Exists(answer) => agrees(answer, state.is_some()).then_some(*state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::{Call, check};
    use super::Record::{self, *};

    const NEVER: u64 = u64::MAX;

    fn outcome(calls: &[(Record, u64, u64)]) -> Result<(), String> {
        let call =
            |(call, began, ended): &(Record, u64, u64)| Call { call: call.clone(), began: *began, ended: *ended };
        check(&calls.iter().map(call).collect::<Vec<_>>())
    }

    #[test]
    fn histories_that_can_have_been_are_accepted() {
        let good: &[&[(Record, u64, u64)]] = &[
            &[],
            &[(Get(None), 1, 2)],
            &[(SetAbsent(1, Some(true)), 1, 2), (SetAbsent(2, Some(false)), 3, 4), (Get(Some(1)), 5, 6)],
            &[(Set(1), 1, 10), (Get(None), 2, 3), (Get(Some(1)), 4, 5), (Delete(Some(true)), 6, 12), (Get(None), 7, 8)],
            // Two delete it at one time, and one of them is told that it was there.
            &[(Set(1), 1, 2), (Delete(Some(true)), 3, 6), (Delete(Some(false)), 3, 6), (Get(None), 7, 8)],
            &[
                (Set(1), 1, 2),
                (Exchange(2, Some(Some(1))), 3, 9),
                (Exchange(3, Some(Some(2))), 3, 9),
                (Get(Some(3)), 10, 11),
            ],
            &[
                (Set(1), 1, 2),
                (Take(Some(Some(1))), 3, 4),
                (SetPresent(2, Some(false)), 5, 6),
                (Exists(Some(false)), 7, 8),
            ],
            // What is unknown may take effect late, or never, or between two others.
            &[(Set(1), 1, 2), (Delete(None), 3, NEVER), (Get(Some(1)), 10, 11), (Get(None), 12, 13)],
            &[(Set(1), 1, 2), (Delete(None), 3, NEVER), (Get(Some(1)), 10, 11)],
            &[(Set(1), 1, NEVER), (Delete(Some(true)), 3, 4), (Get(None), 5, 6)],
            &[
                (Set(1), 1, 2),
                (Delete(None), 3, NEVER),
                (Delete(None), 3, NEVER),
                (Get(None), 4, 5),
                (Set(2), 6, 7),
                (Get(None), 8, 9),
            ],
            // Of several keys that were deleted some were there: which is not known.
            &[(Set(1), 1, 2), (Delete(None), 3, 4), (Get(None), 5, 6), (Delete(None), 7, 8)],
        ];
        for calls in good {
            outcome(calls).unwrap();
        }
    }

    #[test]
    fn histories_that_cannot_have_been_are_refused() {
        let bad: &[&[(Record, u64, u64)]] = &[
            // Lost; back again; from the future; of nowhere.
            &[(Set(1), 1, 2), (Get(None), 3, 4)],
            &[(Set(1), 1, 2), (Delete(Some(true)), 3, 4), (Get(Some(1)), 5, 6)],
            &[(Get(Some(1)), 1, 2), (Set(1), 3, 4)],
            &[(Get(Some(7)), 1, 2)],
            // One key deleted twice; both told that it was absent; neither.
            &[(Set(1), 1, 2), (Delete(Some(true)), 3, 6), (Delete(Some(true)), 3, 6)],
            &[(SetAbsent(1, Some(true)), 1, 9), (SetAbsent(2, Some(true)), 1, 9)],
            &[(SetAbsent(1, Some(false)), 1, 9), (SetAbsent(2, Some(false)), 1, 9)],
            // Two exchanged the same value; one changed it back.
            &[(Set(1), 1, 2), (Exchange(2, Some(Some(1))), 3, 9), (Exchange(3, Some(Some(1))), 3, 9)],
            &[(Set(1), 1, 2), (Set(2), 3, 4), (Exchange(3, Some(Some(1))), 5, 6)],
            // A deletion of unknown outcome takes effect once only, and not before it began.
            &[(Set(1), 1, 2), (Delete(None), 3, NEVER), (Get(None), 4, 5), (Set(2), 6, 7), (Get(None), 8, 9)],
            &[(Set(1), 1, 2), (Get(None), 3, 4), (Delete(None), 5, NEVER)],
            // A write that went back.
            &[(Set(1), 1, 20), (Set(2), 1, 20), (Get(Some(1)), 2, 3), (Get(Some(2)), 4, 5), (Get(Some(1)), 6, 7)],
            &[(Set(1), 1, 2), (Exists(Some(false)), 3, 4)],
        ];
        for calls in bad {
            outcome(calls).unwrap_err();
        }
    }

    /// Many unknown calls must not make it slow.
    #[test]
    fn many_calls_of_unknown_outcome_are_checked_quickly() {
        let mut calls = Vec::new();
        for at in 0..60u64 {
            calls.push((Set(1_000 + at), 10 * at + 1, NEVER));
            calls.push((Delete(None), 10 * at + 2, NEVER));
            calls.push((Set(at + 1), 10 * at + 3, 10 * at + 6));
            calls.push((Exchange(2_000 + at, None), 10 * at + 3, 10 * at + 6));
            calls.push((Get(Some(at + 1)), 10 * at + 4, 10 * at + 8));
        }
        let began = std::time::Instant::now();
        outcome(&calls).unwrap();
        calls.push((Get(Some(3)), 9_000, 9_001));
        outcome(&calls).unwrap_err();
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }
}
