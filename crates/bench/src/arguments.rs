//! Numbers as they are said on the command line.

use std::ops::RangeInclusive;
use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(86_400);
/// The shortest time in which anything is measured.
const SHORTEST: Duration = Duration::from_millis(100);
/// Operations per second. More cannot be sent.
const RATES: RangeInclusive<f64> = 0.001..=1e9;
pub(crate) const MOST_RECORDS: u64 = 10_000_000_000;

/// # Errors
/// What is wrong with it.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "seconds are a number, such as 10 or 0.5".to_string())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(seconds) if seconds <= LONGEST => Ok(seconds),
        _ => Err(format!("seconds are 0 to {}, which is a day", LONGEST.as_secs())),
    }
}

/// The time for which something is measured.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_measured_seconds(text: &str) -> Result<Duration, String> {
    let seconds = parse_seconds(text)?;
    if seconds < SHORTEST { Err("nothing can be measured in less than 0.1 seconds".into()) } else { Ok(seconds) }
}

/// A limit of latencies.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_millis(text: &str) -> Result<f64, String> {
    let millis: f64 = text.parse().map_err(|_| "milliseconds are a number, such as 10 or 0.5".to_string())?;
    let is_sensible = millis > 0.0 && millis / 1e3 <= LONGEST.as_secs_f64();
    if is_sensible {
        Ok(millis)
    } else {
        Err(format!("milliseconds are more than 0 and at most {}", LONGEST.as_millis()))
    }
}

/// Operations per second.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "a rate is a number of operations per second".to_string())?;
    let is_sensible = RATES.contains(&rate);
    if is_sensible {
        Ok(rate)
    } else {
        Err(format!("a rate is {} to {} operations per second", RATES.start(), RATES.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_of_seconds_that_make_sense() {
        assert_eq!(parse_seconds("0"), Ok(Duration::ZERO));
        assert_eq!(parse_measured_seconds("0.5"), Ok(Duration::from_millis(500)));
        for nonsense in ["-1", "inf", "NaN", "1e300", "86401", "1m", ""] {
            assert!(parse_seconds(nonsense).is_err(), "{nonsense}");
        }
        assert!(parse_measured_seconds("0").is_err());
    }

    #[test]
    fn rates_and_limits_of_latencies_are_numbers_that_make_sense() {
        assert_eq!((parse_rate("2000"), parse_millis("0.5")), (Ok(2000.0), Ok(0.5)));
        for nonsense in ["0", "-5", "inf", "NaN", "1e18", "fast"] {
            assert!(parse_rate(nonsense).is_err() && parse_millis(nonsense).is_err(), "{nonsense}");
        }
    }
}
