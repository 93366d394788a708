//! Is every increment by one that was acknowledged counted exactly once, and every other one at most once, in an order that
//! agrees with time?
//!
//! An increment is answered with the new count, so the answers give the order. It is sound exactly if no two got the same
//! number, nothing with a greater number ended before something with a smaller one began, and the numbers that nobody got
//! can be those of increments of unknown outcome that had begun early enough.

/// An increment or a read.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    pub is_increment: bool,
    /// What it was answered: the new number, or the one that was read. `None` for an increment of which it is not known.
    pub value: Option<u64>,
    pub began: u64,
    /// `u64::MAX` for an increment of which nobody knows whether, or when, it took effect.
    pub ended: u64,
}

/// # Errors
/// What contradicts itself.
pub fn check(counts: &[Count]) -> Result<(), String> {
    // An increment comes before those who read its number.
    let mut known: Vec<(u64, bool, Count)> =
        counts.iter().filter_map(|count| Some((count.value?, !count.is_increment, *count))).collect();
    known.sort_by_key(|(value, is_read, _)| (*value, *is_read));
    let mut latest: Option<Count> = None;
    for group in known.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
        if let [(value, false, one), (_, _, other), ..] = group {
            return Err(format!("{value} was counted twice: {one:?} and {other:?}"));
        }
        if let Some((0, false, one)) = group.first() {
            return Err(format!("{one:?} counted to nothing"));
        }
        for (_, _, later) in group {
            if let Some(earlier) = latest.filter(|earlier| later.ended < earlier.began) {
                return Err(format!("{later:?} had ended before {earlier:?} began, which counts less"));
            }
        }
        let last = group.iter().map(|(_, _, count)| *count).max_by_key(|count| count.began);
        latest = latest.into_iter().chain(last).max_by_key(|count| count.began);
    }
    check_gaps(counts, &known)
}

/// Numbers that nobody was answered are those of increments of unknown outcome.
fn check_gaps(counts: &[Count], known: &[(u64, bool, Count)]) -> Result<(), String> {
    let mut unknown: Vec<u64> =
        counts.iter().filter(|count| count.is_increment && count.value.is_none()).map(|count| count.began).collect();
    unknown.sort_unstable();
    let mut unknown = unknown.into_iter();
    // When the first one ended that saw this number or a greater one.
    let mut first_ends: Vec<u64> = known.iter().map(|(_, _, count)| count.ended).collect();
    for at in (1..first_ends.len()).rev() {
        first_ends[at - 1] = first_ends[at - 1].min(first_ends[at]);
    }
    let mut next = 1;
    for ((value, is_read, count), first_end) in known.iter().zip(first_ends) {
        let until = if *is_read { *value + 1 } else { *value };
        for gap in next..until {
            let began = unknown.next().ok_or_else(|| format!("nobody counted {gap}, below {count:?}"))?;
            if began > first_end {
                return Err(format!("nobody had begun to count {gap} when {count:?} was answered"));
            }
        }
        next = next.max(*value + 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: u64 = u64::MAX;

    /// `i` for increments, `r` for reads; 0 for an increment that was not answered.
    fn outcome(counts: &[(char, u64, u64, u64)]) -> Result<(), String> {
        let count = |&(kind, value, began, ended): &(char, u64, u64, u64)| {
            let value = (kind == 'r' || value != 0).then_some(value);
            Count { is_increment: kind == 'i', value, began, ended }
        };
        check(&counts.iter().map(count).collect::<Vec<_>>())
    }

    #[test]
    fn counts_that_can_have_been_are_accepted() {
        let good: &[&[(char, u64, u64, u64)]] = &[
            &[],
            &[('r', 0, 1, 2), ('i', 1, 3, 4), ('i', 2, 5, 6), ('r', 2, 7, 8)],
            &[('i', 2, 1, 10), ('i', 1, 2, 9), ('r', 0, 3, 4), ('r', 2, 5, 6)],
            // An unknown one counts, late or never.
            &[('i', 0, 1, NEVER), ('i', 2, 3, 4), ('r', 2, 5, 6)],
            &[('i', 0, 1, NEVER), ('i', 1, 3, 4), ('r', 1, 5, 6), ('r', 2, 7, 8)],
            &[('i', 0, 1, NEVER), ('i', 0, 1, NEVER), ('i', 1, 3, 4), ('r', 1, 5, 6)],
            &[('i', 0, 7, NEVER), ('i', 1, 3, 4), ('i', 3, 5, 9)],
        ];
        for counts in good {
            outcome(counts).unwrap();
        }
    }

    #[test]
    fn counts_that_cannot_have_been_are_refused() {
        let bad: &[&[(char, u64, u64, u64)]] = &[
            // Lost; counted twice; done twice; not counted at all.
            &[('i', 1, 1, 2), ('i', 1, 3, 4)],
            &[('i', 1, 1, 2), ('r', 2, 3, 4)],
            &[('i', 1, 1, 2), ('i', 3, 3, 4)],
            &[('i', 1, 1, 2), ('r', 0, 3, 4)],
            // Against time.
            &[('i', 2, 1, 2), ('i', 1, 3, 4)],
            &[('i', 1, 1, 9), ('r', 1, 2, 3), ('r', 0, 4, 5)],
            // An unknown one counts once only, and not before it began.
            &[('i', 0, 1, NEVER), ('i', 3, 3, 4)],
            &[('i', 1, 1, 2), ('r', 2, 3, 4), ('i', 0, 5, NEVER)],
            &[('i', 0, 9, NEVER), ('i', 2, 3, 4)],
        ];
        for counts in bad {
            outcome(counts).unwrap_err();
        }
    }
}
