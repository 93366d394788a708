//! Is every token that was appended and acknowledged there exactly once, every other one at most once, and do all who looked see
//! the same growing row of them, in an order that agrees with time?

use super::counting::{self, Count};
use std::collections::HashMap;

#[derive(Clone, Debug)]
pub struct Append {
    /// Unique.
    pub token: u64,
    /// How many tokens there were with it, as it was answered; `None` if it was not.
    pub place: Option<u64>,
    pub began: u64,
    pub ended: u64,
}

/// What somebody saw.
#[derive(Clone, Debug)]
pub struct Sight {
    pub tokens: Vec<u64>,
    pub began: u64,
    pub ended: u64,
}

/// One of the sights is of after all that was acknowledged.
///
/// # Errors
/// What contradicts itself.
pub fn check(appends: &[Append], sights: &[Sight]) -> Result<(), String> {
    let whole: &[u64] =
        sights.iter().map(|sight| sight.tokens.as_slice()).max_by_key(|tokens| tokens.len()).unwrap_or(&[]);
    for sight in sights {
        let differs = sight.tokens.iter().zip(whole).position(|(one, other)| one != other);
        if let Some(at) = differs {
            return Err(format!("token {} was seen at place {at}, and {} as well", sight.tokens[at], whole[at]));
        }
    }
    let mut places: HashMap<u64, u64> = HashMap::new();
    for (token, place) in whole.iter().zip(1..) {
        if let Some(before) = places.insert(*token, place) {
            return Err(format!("token {token} is there twice, at places {before} and {place}"));
        }
    }
    // Appends count tokens, and whoever looks reads that count.
    let mut counts = Vec::new();
    for append in appends {
        let place = places.remove(&append.token);
        if append.place.is_some() && append.place != place {
            return Err(format!("{append:?} was acknowledged, and is at {place:?}"));
        }
        counts.extend(place.map(|_| Count {
            is_increment: true,
            value: place,
            began: append.began,
            ended: append.ended,
        }));
    }
    if let Some((token, place)) = places.into_iter().next() {
        return Err(format!("nobody appended token {token}, which is at place {place}"));
    }
    let seen = |sight: &Sight| Count {
        is_increment: false,
        value: Some(sight.tokens.len() as u64),
        began: sight.began,
        ended: sight.ended,
    };
    counts.extend(sights.iter().map(seen));
    counting::check(&counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Appends<'a> = &'a [(u64, Option<u64>, u64, u64)];
    type Sights<'a> = &'a [(&'a [u64], u64, u64)];

    fn outcome((appends, sights): &(Appends, Sights)) -> Result<(), String> {
        let append = |&(token, place, began, ended): &_| Append { token, place, began, ended };
        let sight = |&(tokens, began, ended): &(&[u64], u64, u64)| Sight { tokens: tokens.to_vec(), began, ended };
        check(&appends.iter().map(append).collect::<Vec<_>>(), &sights.iter().map(sight).collect::<Vec<_>>())
    }

    const NEVER: u64 = u64::MAX;

    #[test]
    fn rows_that_can_have_been_are_accepted() {
        let good: &[(Appends, Sights)] = &[
            (&[], &[(&[], 1, 2)]),
            (&[(7, Some(1), 1, 2), (8, Some(2), 1, 5)], &[(&[7], 3, 4), (&[7, 8], 6, 7)]),
            (&[(7, None, 1, NEVER), (8, Some(1), 3, 4)], &[(&[8], 5, 6), (&[8, 7], 7, 8)]),
            (&[(7, None, 1, NEVER), (8, Some(1), 3, 4)], &[(&[8], 5, 6)]),
        ];
        for row in good {
            outcome(row).unwrap();
        }
    }

    #[test]
    fn rows_that_cannot_have_been_are_refused() {
        let bad: &[(Appends, Sights)] = &[
            // Lost; there twice; moved; of nowhere; unseen by one who came later; in another order; against time; too early.
            (&[(7, Some(1), 1, 2)], &[(&[], 3, 4)]),
            (&[(7, Some(1), 1, 2)], &[(&[7, 7], 3, 4)]),
            (&[(7, Some(1), 1, 2), (8, None, 1, NEVER)], &[(&[8, 7], 3, 4)]),
            (&[], &[(&[7], 3, 4)]),
            (&[(7, Some(1), 1, 2)], &[(&[], 3, 4), (&[7], 5, 6)]),
            (&[(7, None, 1, NEVER), (8, None, 1, NEVER)], &[(&[7, 8], 3, 4), (&[8], 3, 4)]),
            (&[(7, Some(2), 1, 2), (8, Some(1), 3, 4)], &[(&[8, 7], 5, 6)]),
            (&[(7, None, 5, NEVER)], &[(&[7], 3, 4)]),
        ];
        for row in bad {
            outcome(row).unwrap_err();
        }
    }
}
