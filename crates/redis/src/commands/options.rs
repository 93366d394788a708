//! Options that several commands take.

use super::CommandError;
use crate::number::parse_integer;
use tessera_types::UnixMillis;

/// How a command wants a time given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// `EX`, `EXPIRE`: seconds from now.
    Seconds,
    /// `PX`, `PEXPIRE`: milliseconds from now.
    Millis,
    /// `EXAT`: seconds since 1970.
    UnixSeconds,
    /// `PXAT`: milliseconds since 1970.
    UnixMillis,
}

impl TimeUnit {
    /// The unit of an option of SET and its like.
    pub fn of_option(option: &[u8]) -> Option<Self> {
        [(&b"EX"[..], Self::Seconds), (b"PX", Self::Millis), (b"EXAT", Self::UnixSeconds), (b"PXAT", Self::UnixMillis)]
            .into_iter()
            .find_map(|(name, unit)| option.eq_ignore_ascii_case(name).then_some(unit))
    }

    /// A record's expiry as commands tell it: -1 for none, -2 if there is no record. Seconds are rounded to the nearest.
    pub fn tell(self, expiry: Option<Option<UnixMillis>>, now: UnixMillis) -> i64 {
        let time = match expiry {
            None => return -2,
            Some(None) => return -1,
            Some(Some(time)) => time,
        };
        let number = match self {
            Self::Seconds => (time.saturating_millis_since(now) + 500) / 1_000,
            Self::Millis => time.saturating_millis_since(now),
            Self::UnixSeconds => (time.get() + 500) / 1_000,
            Self::UnixMillis => time.get(),
        };
        i64::try_from(number).unwrap_or(i64::MAX)
    }

    /// Milliseconds since 1970, negative for times before; `None` if that overflows.
    pub fn to_unix_millis(self, number: i64, now: UnixMillis) -> Option<i64> {
        let millis = match self {
            Self::Seconds | Self::UnixSeconds => number.checked_mul(1_000)?,
            Self::Millis | Self::UnixMillis => number,
        };
        match self {
            Self::Seconds | Self::Millis => millis.checked_add(i64::try_from(now.get()).ok()?),
            Self::UnixSeconds | Self::UnixMillis => Some(millis),
        }
    }
}

/// The time of an option like `EX 10`, which must be positive.
///
/// # Errors
/// Redis' errors for text that is no integer, and for times that cannot be.
pub fn expiry_option(command: &str, unit: TimeUnit, text: &[u8], now: UnixMillis) -> Result<UnixMillis, CommandError> {
    let number = parse_integer(text).ok_or(CommandError::NOT_INTEGER)?;
    let time = (number > 0).then(|| unit.to_unix_millis(number, now)).flatten();
    let time = time.and_then(|time| u64::try_from(time).ok()).ok_or_else(|| CommandError::expire_time(command))?;
    Ok(UnixMillis::new(time))
}

pub fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}
