//! The highest rate of an open loop that is still good enough.

/// Rates that are tried.
pub const ATTEMPTS: usize = 6;

/// Halves the range between a rate that was good enough and one that was not, so many times. An attempt says whether it was, and
/// what came of it. One that was not is made once more, since on a machine that is shared a short run may have had a hiccup that
/// says nothing about its rate. Returns what came of the highest rate that was good enough.
///
/// # Errors
/// Those of `attempt`.
pub fn highest<T>(
    most: f64,
    times: usize,
    mut attempt: impl FnMut(f64) -> anyhow::Result<(bool, T)>,
) -> anyhow::Result<Option<T>> {
    let (mut low, mut high, mut best) = (0.0, most, None);
    for _ in 0..times {
        let rate = (low + high) / 2.0;
        let (mut is_good, mut result) = attempt(rate)?;
        if !is_good {
            (is_good, result) = attempt(rate)?;
        }
        if is_good {
            (low, best) = (rate, Some(result));
        } else {
            high = rate;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_close_below_what_is_too_much() {
        let mut tried = Vec::new();
        let best = highest(90_000.0, 10, |rate| {
            tried.push(rate);
            Ok((rate < 60_000.0, rate))
        });
        let best = best.unwrap().unwrap();
        assert!((59_000.0..=60_000.0).contains(&best), "{best}");
        let failed = tried.iter().filter(|rate| **rate >= 60_000.0).count();
        assert_eq!(tried.len() - failed / 2, 10, "those that failed were made twice");
        assert_eq!(highest(90_000.0, 3, |_| Ok((false, ()))).unwrap(), None);
    }

    #[test]
    fn one_hiccup_does_not_end_a_search_low() {
        let mut made = 0;
        let best = highest(100_000.0, 10, |rate| {
            made += 1;
            Ok((made != 1 && rate < 90_000.0, rate))
        });
        assert!((89_000.0..90_000.0).contains(&best.unwrap().unwrap()));
    }
}
