//! Moments with a time zone.

use crate::ValueError;
use crate::number::Number;
use std::fmt;

/// A moment, in milliseconds' precision, and the time zone in which its parts are to be read. The zone does not matter
/// for its order: two times are equal if they are the same moment.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    epoch_seconds: Number,
    timezone: Timezone,
}

impl Time {
    /// A moment in seconds since the Unix epoch, rounded to milliseconds.
    ///
    /// # Errors
    /// [`ValueError::NonFinite`] if `epoch_seconds` is not finite, or too large to be rounded.
    pub fn new(epoch_seconds: f64, timezone: Timezone) -> Result<Self, ValueError> {
        Ok(Self { epoch_seconds: Number::new((epoch_seconds * 1000.0).round() / 1000.0)?, timezone })
    }

    /// Seconds since the Unix epoch.
    pub fn epoch_seconds(&self) -> f64 {
        self.epoch_seconds.get()
    }

    /// The time zone with which the time is shown.
    pub fn timezone(&self) -> Timezone {
        self.timezone
    }

    /// The same moment in another time zone.
    pub fn in_timezone(self, timezone: Timezone) -> Self {
        Self { timezone, ..self }
    }

    /// `epoch_seconds` were rounded before.
    pub(crate) fn from_number(epoch_seconds: Number, timezone: Timezone) -> Self {
        Self { epoch_seconds, timezone }
    }

    pub(crate) fn number(&self) -> Number {
        self.epoch_seconds
    }
}

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        self.epoch_seconds == other.epoch_seconds
    }
}

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.epoch_seconds.cmp(&other.epoch_seconds)
    }
}

impl std::hash::Hash for Time {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.epoch_seconds.hash(state);
    }
}

/// An offset from UTC, as text of the form `+hh:mm` or `-hh:mm`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timezone([u8; 6]);

impl Timezone {
    /// The time zone of UTC, `+00:00`.
    pub const UTC: Self = Self(*b"+00:00");

    /// Reads `Z`, `+hh:mm`, `+hhmm` and `+hh`, and the same with a minus; `-00` and `-00:00` are refused, as ISO 8601
    /// wants it. Hours go up to 24, minutes to 59.
    ///
    /// # Errors
    /// [`ValueError::InvalidTimezone`].
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let invalid = |message: String| Err(ValueError::InvalidTimezone(message));
        if text == "Z" {
            return Ok(Self::UTC);
        }
        if text == "-00" || text == "-00:00" {
            return invalid(format!("`{text}` is not a valid time offset."));
        }
        let bytes = text.as_bytes();
        let Some(&sign @ (b'-' | b'+')) = bytes.first() else {
            return invalid(format!("Timezone `{text}` does not start with `-` or `+`."));
        };
        let [tens_of_hours, hours] = two_digits(text, 1)?;
        let mut zone = [sign, tens_of_hours, hours, b':', b'0', b'0'];
        if bytes.len() > 3 {
            let start = if bytes[3] == b':' { 4 } else { 3 };
            let [tens_of_minutes, minutes] = two_digits(text, start)?;
            if bytes.len() > start + 2 {
                let rest = String::from_utf8_lossy(&bytes[start + 2..]);
                return invalid(format!("Garbage characters `{rest}` at end of timezone string `{text}`."));
            }
            zone[4] = tens_of_minutes;
            zone[5] = minutes;
        }
        if !matches!((tens_of_hours, hours), (b'0' | b'1', _) | (b'2', b'0'..=b'4')) {
            return invalid(format!("Hours out of range in `{text}`."));
        }
        if zone[4] > b'5' {
            return invalid(format!("Minutes out of range in `{text}`."));
        }
        Ok(Self(zone))
    }

    /// The time zone in the form `+hh:mm`.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a time zone is ASCII text")
    }

    /// Whether there is a minus, and the minutes without it. (`-00:00` is not `+00:00`.)
    pub(crate) fn offset(self) -> (bool, u16) {
        let minutes = self.offset_minutes().unsigned_abs();
        (self.0[0] == b'-', u16::try_from(minutes).expect("hours go up to 24"))
    }

    /// The inverse of [`Timezone::offset`]; `None` if there are too many minutes.
    pub(crate) fn from_offset(is_minus: bool, minutes: u16) -> Option<Self> {
        let (hours, minutes) = (u8::try_from(minutes / 60).ok()?, (minutes % 60) as u8);
        let sign = if is_minus { b'-' } else { b'+' };
        let digits = |number: u8| [b'0' + number / 10, b'0' + number % 10];
        let ([tens_of_hours, hours_left], [tens_of_minutes, minutes_left]) = (digits(hours), digits(minutes));
        (hours <= 24).then_some(Self([sign, tens_of_hours, hours_left, b':', tens_of_minutes, minutes_left]))
    }

    /// How far local time is ahead of UTC.
    pub fn offset_minutes(&self) -> i32 {
        let digit = |at: usize| i32::from(self.0[at] - b'0');
        let minutes = (digit(1) * 10 + digit(2)) * 60 + digit(4) * 10 + digit(5);
        if self.0[0] == b'-' { -minutes } else { minutes }
    }
}

fn two_digits(text: &str, at: usize) -> Result<[u8; 2], ValueError> {
    let bytes = text.as_bytes();
    for place in at..at + 2 {
        match bytes.get(place) {
            None => return Err(ValueError::InvalidTimezone(format!("Truncated date string `{text}`."))),
            Some(digit) if digit.is_ascii_digit() => {}
            Some(_) => {
                let found = text[place..].chars().next().unwrap_or(char::REPLACEMENT_CHARACTER);
                let message = format!("Invalid date string `{text}` (got `{found}` but expected a digit).");
                return Err(ValueError::InvalidTimezone(message));
            }
        }
    }
    Ok([bytes[at], bytes[at + 1]])
}

impl fmt::Debug for Timezone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_zones_are_read_as_rethinkdb_reads_them() {
        for (text, zone, minutes) in [
            ("Z", "+00:00", 0),
            ("+05", "+05:00", 300),
            ("-0730", "-07:30", -450),
            ("+24:59", "+24:59", 1499),
            ("-0000", "-00:00", 0),
        ] {
            let parsed = Timezone::parse(text).unwrap();
            assert_eq!((parsed.as_str(), parsed.offset_minutes()), (zone, minutes));
        }
        for (text, message) in [
            ("z", "Timezone `z` does not start with `-` or `+`."),
            ("", "Timezone `` does not start with `-` or `+`."),
            ("-00:00", "`-00:00` is not a valid time offset."),
            ("+00:00:00", "Garbage characters `:00` at end of timezone string `+00:00:00`."),
            ("+1", "Truncated date string `+1`."),
            ("+é", "Invalid date string `+é` (got `é` but expected a digit)."),
            ("+25:00", "Hours out of range in `+25:00`."),
            ("+23:60", "Minutes out of range in `+23:60`."),
        ] {
            assert_eq!(Timezone::parse(text).unwrap_err().to_string(), message);
        }
    }
}
