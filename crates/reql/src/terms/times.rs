//! Dates and times.

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Definition;
use crate::time::{self, Parts};
use crate::val::Val;
use crate::value::{self, Time, Timezone, Value, ValueExt as _};

pub const TERMS: &[Definition] = &[
    Definition::new(99, 1, 1, iso8601).optargs(&["default_timezone"]),
    Definition::new(100, 1, 1, to_iso8601),
    Definition::new(101, 1, 1, epoch_time),
    Definition::new(102, 1, 1, to_epoch_time),
    Definition::new(104, 2, 2, in_timezone),
    Definition::new(105, 3, 3, during).optargs(&["left_bound", "right_bound"]),
    Definition::new(106, 1, 1, date),
    Definition::new(126, 1, 1, time_of_day),
    Definition::new(127, 1, 1, timezone),
    Definition::new(128, 1, 1, |call, env| date_part(call, env, |parts| parts.year)),
    Definition::new(129, 1, 1, |call, env| date_part(call, env, |parts| parts.month)),
    Definition::new(130, 1, 1, |call, env| date_part(call, env, |parts| parts.day)),
    Definition::new(131, 1, 1, |call, env| date_part(call, env, Parts::day_of_week)),
    Definition::new(132, 1, 1, |call, env| date_part(call, env, Parts::day_of_year)),
    Definition::new(133, 1, 1, |call, env| part(call, env, |parts| parts.millisecond_of_day / 3_600_000)),
    Definition::new(134, 1, 1, |call, env| part(call, env, |parts| parts.millisecond_of_day / 60_000 % 60)),
    Definition::new(135, 1, 1, seconds),
    Definition::new(136, 4, 7, make_time),
];

fn time_value(call: &Call<'_>, time: Time) -> Result<Val> {
    call.value(Value::Time(time))
}

fn iso8601(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let text = call.arg(env, 0)?;
    let zone = match call.optarg(env, "default_timezone")? {
        Some(zone) => zone.as_string()?.to_string(),
        None => String::new(),
    };
    let time = time::from_iso8601(&text.as_string()?, &zone).map_err(|error| error.at(text.frame))?;
    time_value(call, time)
}

fn to_iso8601(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let time = call.arg(env, 0)?.as_time()?;
    call.value(Value::from(time::to_iso8601(&time)?))
}

fn epoch_time(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let seconds = call.number(env, 0)?;
    time_value(call, Time::new(seconds, Timezone::UTC)?)
}

fn to_epoch_time(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let time = call.arg(env, 0)?.as_time()?;
    call.value(value::number(time.epoch_seconds())?)
}

fn in_timezone(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let time = call.arg(env, 0)?;
    let zone = call.datum(env, 1)?;
    if matches!(time.peek(), Some(Value::Binary(_))) {
        return Err(Error::new(ErrorKind::Internal, "A binary string has no time zone."));
    }
    let time = time.as_time()?;
    let zone = time::zone(zone.to_text()?)?;
    time_value(call, time.in_timezone(zone))
}

fn during(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let mut times = Vec::with_capacity(3);
    for at in 0..3 {
        let argument = call.arg(env, at)?;
        if !matches!(argument.peek(), Some(Value::Binary(_))) {
            times.push(argument.as_time()?);
        }
    }
    let [time, left, right] = times[..] else {
        return Err(Error::new(ErrorKind::Internal, "A binary string is no time."));
    };
    // Whether an end belongs to the period is asked only where it matters.
    let after = left < time || (left == time && call.bound(env, "left_bound", true)?);
    let before = time < right || (time == right && call.bound(env, "right_bound", false)?);
    call.bool(after && before)
}

fn date(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let time = call.arg(env, 0)?.as_time()?;
    let offset = f64::from(time.timezone().offset_minutes()) * 60.0;
    let parts = time::parts(&time)?;
    parts.check_year()?;
    let midnight = parts.midnight() - offset;
    time_value(call, Time::new(midnight, time.timezone())?)
}

fn time_of_day(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let time = call.arg(env, 0)?.as_time()?;
    let parts = time::parts(&time)?;
    parts.check_year()?;
    call.value(value::number(parts.millisecond_of_day as f64 / 1000.0)?)
}

fn timezone(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let time = call.arg(env, 0)?.as_time()?;
    call.value(Value::from(time.timezone().as_str()))
}

/// A part of the date, which only some years have.
fn date_part(call: &mut Call<'_>, env: &Env, which: fn(&Parts) -> i64) -> Result<Val> {
    let time = call.arg(env, 0)?.as_time()?;
    let parts = time::parts(&time)?;
    parts.check_year()?;
    call.value(value::number(which(&parts) as f64)?)
}

fn part(call: &mut Call<'_>, env: &Env, which: fn(&Parts) -> i64) -> Result<Val> {
    let time = call.arg(env, 0)?.as_time()?;
    let parts = time::parts(&time)?;
    call.value(value::number(which(&parts) as f64)?)
}

fn seconds(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let time = call.arg(env, 0)?.as_time()?;
    let parts = time::parts(&time)?;
    // Before 1970 the fraction counts backwards from the whole second, as RethinkDB has it.
    let fraction = (time.epoch_seconds().fract() * 1000.0).round() / 1000.0;
    call.value(value::number((parts.millisecond_of_day / 1000 % 60) as f64 + fraction)?)
}

fn make_time(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let count = call.count();
    if count != 4 && count != 7 {
        return Err(Error::logic(format!("Got {count} arguments to TIME (expected 4 or 7).")));
    }
    let year = i64::from(call.small_integer(env, 0)?);
    let month = i64::from(call.small_integer(env, 1)?);
    let day = i64::from(call.small_integer(env, 2)?);
    let (mut hours, mut minutes, mut seconds) = (0, 0, 0.0);
    if count == 7 {
        hours = i64::from(call.small_integer(env, 3)?);
        minutes = i64::from(call.small_integer(env, 4)?);
        seconds = call.number(env, 5)?;
    }
    let zone = call.string(env, count - 1)?;
    // If one of both is negative, the library that RethinkDB uses takes both for it.
    let sign = if hours < 0 || minutes < 0 { -1 } else { 1 };
    let of_day = (sign * (hours.abs() * 3600 + minutes.abs() * 60)) as f64 + seconds;
    let time = time::of_date((year, month, day), of_day, Timezone::UTC)?;
    let zone = time::zone(&zone)?;
    time::check_offset(zone)?;
    let epoch = time.epoch_seconds() - f64::from(zone.offset_minutes()) * 60.0;
    time_value(call, Time::new(epoch, zone)?)
}
