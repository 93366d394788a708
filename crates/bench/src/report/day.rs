//! The calendar day on which something is measured.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;

/// The day in universal time, as in 2026-11-27.
pub(super) fn today() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    day((now.as_secs() / DAY_SECONDS) as i64)
}

/// The day that is so many days after the first of 1970, by Howard Hinnant's `civil_from_days`: years begin in March, so that a leap
/// day is the last of its year, and 400 of them, an era, have 146,097 days.
fn day(days: i64) -> String {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, is_next_year) = (of_year - (153 * month + 2) / 5 + 1, month >= 10);
    let (month, year) = (if is_next_year { month - 9 } else { month + 3 }, era * 400 + year + i64::from(is_next_year));
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::day;

    #[test]
    fn days_are_those_of_the_calendar() {
        let days = [0, 59, 11_016, 19_782, 20_784].map(day);
        assert_eq!(days, ["1970-01-01", "1970-03-01", "2000-02-29", "2024-02-29", "2026-11-27"]);
    }
}
