//! Calendar arithmetic of times: days to dates and back, and ISO 8601.

use crate::error::{Error, ErrorKind, FrameId, Result, until_nul};
use crate::value::{Time, Timezone};

/// A moment moved by seconds.
///
/// # Errors
/// If the result is not finite.
pub fn add(time: Time, seconds: f64) -> Result<Time> {
    Ok(Time::new(time.epoch_seconds() + seconds, time.timezone())?)
}

/// Years that dates may have, as RethinkDB's library has them.
const YEARS: std::ops::RangeInclusive<i64> = 1400..=9999;

const MILLISECONDS_PER_DAY: i64 = 86_400_000;

/// A moment's date and time of day in its time zone.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    /// Days since the beginning of 1970.
    pub days: i64,
    pub millisecond_of_day: i64,
}

fn out_of_range() -> Error {
    Error::logic("Error in time logic: Year is out of valid range: 1400..9999.")
}

/// RethinkDB's library knows time zones from 12 hours behind to 14 hours ahead.
///
/// # Errors
/// If the zone is further away.
pub fn check_offset(zone: Timezone) -> Result<()> {
    let minutes = zone.offset_minutes();
    if (-720..=840).contains(&minutes) {
        return Ok(());
    }
    let sign = if minutes < 0 { "-" } else { "" };
    let minutes = minutes.abs();
    Err(Error::logic(format!(
        "Error in time logic: Offset out of range: {sign}{:02}:{:02}:00.",
        minutes / 60,
        minutes % 60
    )))
}

/// Reads a time zone.
///
/// # Errors
/// If the text is none.
pub fn zone(text: &str) -> Result<Timezone> {
    let text = until_nul(text);
    Timezone::parse(text).map_err(|error| {
        let error = Error::from(error);
        if error.message().starts_with("Truncated") { truncated(text) } else { error }
    })
}

fn truncated(text: &str) -> Error {
    Error::logic(format!(
        "Invalid time zone string `{text}`. Valid time zones are `+hh:mm`, `-hh:mm`, `+hhmm`, `-hhmm`, `+hh`, `-hh` \
         and `Z`."
    ))
}

/// Days from 1970 to a date (the algorithm is Howard Hinnant's `days_from_civil`).
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date that is so many days after the beginning of 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let next = if month == 12 { days_of(year + 1, 1, 1) } else { days_of(year, month + 1, 1) };
    next - days_of(year, month, 1)
}

/// # Errors
/// If the year is none that dates may have.
pub fn parts(time: &Time) -> Result<Parts> {
    check_offset(time.timezone())?;
    let local = (time.epoch_seconds() * 1000.0).round() + f64::from(time.timezone().offset_minutes()) * 60_000.0;
    if local.abs() > 9.2e15 {
        return Err(Error::new(ErrorKind::Internal, "The time is too far away for a calendar."));
    }
    let local = local as i64;
    let days = local.div_euclid(MILLISECONDS_PER_DAY);
    let (year, month, day) = date_of(days);
    Ok(Parts { year, month, day, days, millisecond_of_day: local.rem_euclid(MILLISECONDS_PER_DAY) })
}

impl Parts {
    /// # Errors
    /// If the year is none that dates may have. Times of day have none, so they are known for other years, too.
    pub fn check_year(&self) -> Result<()> {
        if YEARS.contains(&self.year) { Ok(()) } else { Err(out_of_range()) }
    }

    /// Monday is 1, Sunday 7.
    pub fn day_of_week(&self) -> i64 {
        (self.days + 3).rem_euclid(7) + 1
    }

    pub fn day_of_year(&self) -> i64 {
        self.days - days_of(self.year, 1, 1) + 1
    }

    /// The beginning of the day, in seconds since 1970 by local time.
    pub fn midnight(&self) -> f64 {
        self.days as f64 * 86_400.0
    }
}

/// A moment of a date and a time of day in a time zone.
///
/// # Errors
/// If there is no such date.
pub fn of_date(date: (i64, i64, i64), seconds: f64, zone: Timezone) -> Result<Time> {
    let (year, month, day) = date;
    if !(1..=31).contains(&day) {
        return Err(Error::logic("Error in time logic: Day of month value is out of range 1..31."));
    }
    if !(1..=12).contains(&month) {
        return Err(Error::logic("Error in time logic: Month number is out of range 1..12."));
    }
    if !YEARS.contains(&year) {
        return Err(out_of_range());
    }
    if day > days_in_month(year, month) {
        return Err(Error::logic("Error in time logic: Day of month is not valid for year."));
    }
    check_offset(zone)?;
    let epoch = days_of(year, month, day) as f64 * 86_400.0 + seconds - f64::from(zone.offset_minutes()) * 60.0;
    Ok(Time::new(epoch, zone)?)
}

/// The time as ISO 8601 text.
///
/// # Errors
/// If the year is none that dates may have.
pub fn to_iso8601(time: &Time) -> Result<String> {
    let parts = parts(time)?;
    parts.check_year()?;
    let milliseconds = parts.millisecond_of_day;
    let (hours, minutes) = (milliseconds / 3_600_000, milliseconds / 60_000 % 60);
    let (seconds, fraction) = (milliseconds / 1000 % 60, milliseconds % 1000);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:03}") };
    Ok(format!(
        "{:04}-{:02}-{:02}T{hours:02}:{minutes:02}:{seconds:02}{fraction}{}",
        parts.year,
        parts.month,
        parts.day,
        time.timezone().as_str()
    ))
}

/// A date of ISO 8601, in the form in which it was written.
enum Date {
    Calendar(i64, i64, i64),
    Ordinal(i64, i64),
    Week,
}

/// Reads parts of a date or time from the left.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn digits(&mut self, count: usize) -> Result<i64> {
        let mut number = 0;
        for _ in 0..count {
            match self.text.as_bytes().get(self.at) {
                None => return Err(truncated(self.text)),
                Some(digit @ b'0'..=b'9') => number = number * 10 + i64::from(digit - b'0'),
                Some(_) => {
                    let found = self.text[self.at..].chars().next().unwrap_or(char::REPLACEMENT_CHARACTER);
                    return Err(Error::logic(format!(
                        "Invalid date string `{}` (got `{}` but expected a digit).",
                        until_nul(self.text),
                        if found == '\0' { String::new() } else { found.to_string() }
                    )));
                }
            }
            self.at += 1;
        }
        Ok(number)
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    fn check_end(&self, what: &str) -> Result<()> {
        if self.is_at_end() {
            return Ok(());
        }
        let rest = self.text.get(self.at..).unwrap_or_default();
        Err(Error::logic(format!("Garbage characters `{rest}` at end of {what} string `{}`.", self.text)))
    }
}

fn date(text: &str) -> Result<Date> {
    let mut reader = Reader::new(text);
    let year = reader.digits(4)?;
    if reader.is_at_end() {
        return Ok(Date::Calendar(year, 1, 1));
    }
    let first_hyphen = reader.take(b'-');
    let date = if reader.take(b'W') {
        reader.digits(2)?;
        if !reader.is_at_end() {
            reader.take(b'-');
            reader.digits(1)?;
        }
        Date::Week
    } else if text.len() - reader.at == 3 {
        Date::Ordinal(year, reader.digits(3)?)
    } else {
        let month = reader.digits(2)?;
        if first_hyphen && reader.is_at_end() {
            return Ok(Date::Calendar(year, month, 1));
        }
        if first_hyphen != reader.take(b'-') {
            return Err(Error::logic(format!("Date string `{text}` must have 0 or 2 hyphens.")));
        }
        Date::Calendar(year, month, reader.digits(2)?)
    };
    reader.check_end("date")?;
    Ok(date)
}

/// Seconds of a time of day, in milliseconds' precision.
fn time_of_day(text: &str) -> Result<f64> {
    let mut reader = Reader::new(text);
    let hours = reader.digits(2)?;
    let (mut minutes, mut seconds, mut milliseconds) = (0, 0, 0);
    if !reader.is_at_end() {
        let first_colon = reader.take(b':');
        minutes = reader.digits(2)?;
        if !reader.is_at_end() {
            if first_colon != reader.take(b':') {
                return Err(Error::logic(format!("Time string `{text}` must have 0 or 2 colons.")));
            }
            seconds = reader.digits(2)?;
            if reader.take(b'.') {
                let (mut fraction, mut scale) = (0.0, 1000.0);
                while !reader.is_at_end() {
                    scale /= 10.0;
                    fraction += reader.digits(1)? as f64 * scale;
                }
                milliseconds = fraction.round() as i64;
            }
        }
    }
    reader.check_end("time")?;
    Ok((hours * 3600 + minutes * 60 + seconds) as f64 + milliseconds as f64 / 1000.0)
}

/// Reads a time of ISO 8601; `default_zone` is for those that name none.
///
/// # Errors
/// If the text is no such time.
pub fn from_iso8601(text: &str, default_zone: &str) -> Result<Time> {
    let (date_text, time_text) = match text.split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let date = date(date_text)?;
    let (seconds, zone) = match time_text {
        None => (0.0, None),
        Some(text) => {
            let sign = text.find('-').or_else(|| text.find('+')).or_else(|| text.find('Z'));
            let (time, zone) = sign.map_or((text, None), |at| (&text[..at], Some(&text[at..])));
            let seconds = time_of_day(time)?;
            (seconds, zone.map(self::zone).transpose()?)
        }
    };
    if matches!(date, Date::Week) {
        return Err(Error::logic(
            "Due to limitations in the boost time library we use for parsing, we cannot support ISO week dates right \
             now.  Sorry about that!  Please use years, calendar dates, or ordinal dates instead.",
        ));
    }
    let moment_in = |zone| match date {
        Date::Ordinal(year, day) => of_ordinal(year, day, seconds, zone),
        Date::Calendar(year, month, day) => of_date((year, month, day), seconds, zone),
        Date::Week => Err(out_of_range()),
    };
    // A wrong date is complained about before a missing zone.
    moment_in(Timezone::UTC)?;
    let zone = match zone {
        Some(zone) => zone,
        None if default_zone.is_empty() => {
            return Err(Error::logic("ISO 8601 string has no time zone, and no default time zone was provided."));
        }
        None => Timezone::parse(default_zone)
            .map_err(|_| Error::logic(format!("Invalid ISO 8601 timezone: `{default_zone}`.")))?,
    };
    moment_in(zone)
}

fn of_ordinal(year: i64, day: i64, seconds: f64, zone: Timezone) -> Result<Time> {
    if !YEARS.contains(&year) {
        return Err(out_of_range());
    }
    if !(1..=366).contains(&day) {
        let message = "Unexpected exception: Day of year value is out of range 1..366";
        return Err(Error::new(ErrorKind::Internal, message).at(FrameId::ROOT));
    }
    of_date(date_of(days_of(year, 1, 1) + day - 1), seconds, zone)
}
