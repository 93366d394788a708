//! The highest rate within limits, as nubase's report has it: not how fast a server goes at all, but how fast with room to
//! spare.

use serde::{Deserialize, Serialize};

/// What a rate must keep within.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Of the machine's cores, by the servers alone, 0 to 1.
    pub cpu_share: f64,
    /// Of what crosses the network, both ways and replication included.
    pub network_bits_per_second: f64,
    /// Of requests over the limit of the run, 0 to 1.
    pub slow_share: f64,
}

/// As in nubase's report: CPU under 60 %, network under 70 % of 10 Gbit/s, under 0.1 % of requests over 10 ms.
pub const PUBLISHED: Limits = Limits { cpu_share: 0.6, network_bits_per_second: 0.7 * 10e9, slow_share: 0.001 };

/// What came of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Operations per second that were due.
    pub rate: f64,
    pub cpu_share: f64,
    pub network_bits_per_second: f64,
    pub slow_share: f64,
    /// Whether all that was due was done.
    pub kept_up: bool,
}

impl Attempt {
    pub fn is_within(&self, limits: &Limits) -> bool {
        self.kept_up
            && self.cpu_share <= limits.cpu_share
            && self.network_bits_per_second <= limits.network_bits_per_second
            && self.slow_share <= limits.slow_share
    }
}

/// Halves the range between a rate that was kept and one that was not, so many times. Returns the best attempt within the
/// limits with whatever came with it, and all attempts: one that failed is made once more, since on a machine that is shared a
/// short run may have had a hiccup that says nothing about its rate.
///
/// # Errors
/// Those of `attempt`.
pub fn highest<T>(
    highest_rate: f64,
    times: usize,
    limits: &Limits,
    mut attempt: impl FnMut(f64) -> anyhow::Result<(Attempt, T)>,
) -> anyhow::Result<(Option<T>, Vec<Attempt>)> {
    let (mut low, mut high) = (0.0, highest_rate);
    let (mut best, mut attempts) = (None, Vec::new());
    for _ in 0..times {
        let rate = (low + high) / 2.0;
        let (mut attempted, mut result) = attempt(rate)?;
        attempts.push(attempted);
        if !attempted.is_within(limits) {
            (attempted, result) = attempt(rate)?;
            attempts.push(attempted);
        }
        if attempted.is_within(limits) {
            low = attempted.rate;
            best = Some(result);
        } else {
            high = attempted.rate;
        }
    }
    Ok((best, attempts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_close_below_what_is_too_much() {
        let attempt = |rate: f64| {
            let cpu_share = rate / 100_000.0;
            let attempted =
                Attempt { rate, cpu_share, network_bits_per_second: 0.0, slow_share: 0.0, kept_up: rate < 90_000.0 };
            Ok((attempted, rate))
        };
        let (best, attempts) = highest(90_000.0, 10, &PUBLISHED, attempt).unwrap();
        let best = best.unwrap();
        assert!((59_000.0..=60_000.0).contains(&best), "{best}");
        let failed = attempts.iter().filter(|attempt| !attempt.is_within(&PUBLISHED)).count();
        assert_eq!(attempts.len() - failed / 2, 10, "those that failed were made twice");
        let (none, _) = highest(90_000.0, 3, &Limits { cpu_share: 0.0, ..PUBLISHED }, attempt).unwrap();
        assert_eq!(none, None);
    }

    #[test]
    fn one_hiccup_does_not_end_a_search_low() {
        let mut made = 0;
        let attempt = |rate: f64| {
            made += 1;
            let kept_up = made != 1 && rate < 90_000.0;
            Ok((Attempt { rate, cpu_share: 0.0, network_bits_per_second: 0.0, slow_share: 0.0, kept_up }, rate))
        };
        let (best, _) = highest(100_000.0, 10, &PUBLISHED, attempt).unwrap();
        assert!((89_000.0..90_000.0).contains(&best.unwrap()));
    }
}
