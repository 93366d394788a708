//! How long something is to take, as it is said on the command line.

use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(86_400);
/// The shortest time in which anything is measured.
const SHORTEST: Duration = Duration::from_millis(100);

/// # Errors
/// What is wrong with it.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "seconds are a number, such as 10 or 0.5".to_string())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(seconds) if seconds <= LONGEST => Ok(seconds),
        _ => Err(format!("seconds are 0 to {}, which is a day", LONGEST.as_secs())),
    }
}

/// For how long to measure.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_measured_seconds(text: &str) -> Result<Duration, String> {
    let seconds = parse_seconds(text)?;
    if seconds < SHORTEST { Err("nothing can be measured in less than 0.1 seconds".into()) } else { Ok(seconds) }
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
}
