//! The expiry of single fields of a hash, as in Redis 7.4 and 8.0.

use super::CommandError;
use super::call::{Call, Outcome};
use super::expiry::Condition;
use super::options::{TimeUnit, expiry_option, is};
use tessera_types::{Expiry, UnixMillis};

/// Reads `FIELDS n field ...` at `at`, where `per_field` arguments belong to each field, and checks that it ends the
/// command. Returns the position of the first field.
fn fields_at(call: &Call<'_, '_>, at: usize, per_field: usize) -> Result<usize, CommandError> {
    if !call.args.get(at).is_some_and(|word| is(word, "FIELDS")) {
        return Err(CommandError::text("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    let count = call.args.get(at + 1).and_then(|text| crate::number::parse_integer(text)).unwrap_or(0);
    let given = call.args.len().saturating_sub(at + 2);
    match usize::try_from(count) {
        Ok(count) if count > 0 && count.checked_mul(per_field) == Some(given) => Ok(at + 2),
        Ok(count) if count > 0 => {
            Err(CommandError::text("ERR The `numfields` parameter must match the number of arguments"))
        }
        _ => Err(CommandError::text("ERR Parameter `numFields` should be greater than 0")),
    }
}

fn hexpire_in(call: &mut Call<'_, '_>, command: &str, unit: TimeUnit) -> Outcome {
    let key = call.args[1];
    let number = call.integer(2)?;
    let mut condition = Condition::default();
    let mut at = 3;
    while call.args.get(at).is_some_and(|word| condition.take(word)) {
        at += 1;
    }
    condition.check()?;
    let first = fields_at(call, at, 1)?;
    let now = call.transaction.now();
    let time = unit.to_unix_millis(number, now).filter(|time| number >= 0 && *time >= 0);
    let time = time.ok_or_else(|| CommandError::expire_time(command))?;
    call.field(key, b"")?; // a string is the wrong type
    let fields = &call.args[first..];
    let mut outcomes = Vec::with_capacity(fields.len());
    for field in fields {
        outcomes.push(match call.field(key, field)? {
            None => -2,
            Some(record) if !condition.allows(record.expiry.record, time) => 0,
            Some(_) if time <= i64::try_from(now.get()).unwrap_or(i64::MAX) => {
                call.transaction.delete(key, field)?;
                2
            }
            Some(record) => {
                let end = Some(UnixMillis::new(time.unsigned_abs()));
                call.put_field(key, field, &record.value, Expiry { record: end, ..record.expiry })?;
                1
            }
        });
    }
    reply_integers(call, &outcomes);
    Ok(())
}

fn reply_integers(call: &mut Call<'_, '_>, numbers: &[i64]) {
    call.reply.array(numbers.len());
    for number in numbers {
        call.reply.integer(*number);
    }
}

pub fn hexpire(call: &mut Call<'_, '_>) -> Outcome {
    hexpire_in(call, "hexpire", TimeUnit::Seconds)
}

pub fn hpexpire(call: &mut Call<'_, '_>) -> Outcome {
    hexpire_in(call, "hpexpire", TimeUnit::Millis)
}

pub fn hexpireat(call: &mut Call<'_, '_>) -> Outcome {
    hexpire_in(call, "hexpireat", TimeUnit::UnixSeconds)
}

pub fn hpexpireat(call: &mut Call<'_, '_>) -> Outcome {
    hexpire_in(call, "hpexpireat", TimeUnit::UnixMillis)
}

pub fn hpersist(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let first = fields_at(call, 2, 1)?;
    call.field(key, b"")?;
    let mut outcomes = Vec::new();
    for field in &call.args[first..] {
        outcomes.push(match call.field(key, field)? {
            None => -2,
            Some(record) if record.expiry.record.is_none() => -1,
            Some(record) => {
                call.put_field(key, field, &record.value, Expiry { record: None, ..record.expiry })?;
                1
            }
        });
    }
    reply_integers(call, &outcomes);
    Ok(())
}

fn reply_times(call: &mut Call<'_, '_>, unit: TimeUnit) -> Outcome {
    let key = call.args[1];
    let first = fields_at(call, 2, 1)?;
    call.field(key, b"")?;
    let now = call.transaction.now();
    let mut outcomes = Vec::new();
    for field in &call.args[first..] {
        outcomes.push(unit.tell(call.field(key, field)?.map(|record| record.expiry.record), now));
    }
    reply_integers(call, &outcomes);
    Ok(())
}

pub fn httl(call: &mut Call<'_, '_>) -> Outcome {
    reply_times(call, TimeUnit::Seconds)
}

pub fn hpttl(call: &mut Call<'_, '_>) -> Outcome {
    reply_times(call, TimeUnit::Millis)
}

pub fn hexpiretime(call: &mut Call<'_, '_>) -> Outcome {
    reply_times(call, TimeUnit::UnixSeconds)
}

pub fn hpexpiretime(call: &mut Call<'_, '_>) -> Outcome {
    reply_times(call, TimeUnit::UnixMillis)
}

pub fn hgetdel(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let first = fields_at(call, 2, 1)?;
    call.reply.array(call.args.len() - first);
    for field in &call.args[first..] {
        match call.delete_field(key, field)? {
            Some(record) => call.reply.bulk(&record.value),
            None => call.reply.null(),
        }
    }
    Ok(())
}

/// What happens to the expiry of the fields that HGETEX reads and HSETEX writes.
enum Change {
    Keep,
    Persist,
    At(UnixMillis),
}

/// Reads `EX n`, `PX n`, `EXAT n`, `PXAT n` or `alone` at `at` if one stands there.
fn expiry_change(
    call: &Call<'_, '_>,
    command: &str,
    at: &mut usize,
    alone: &str,
    meaning: Change,
) -> Result<Option<Change>, CommandError> {
    let Some(word) = call.args.get(*at) else { return Ok(None) };
    if is(word, alone) {
        *at += 1;
        return Ok(Some(meaning));
    }
    let Some(unit) = TimeUnit::of_option(word) else { return Ok(None) };
    let text = call.args.get(*at + 1).ok_or(CommandError::SYNTAX)?;
    *at += 2;
    expiry_option(command, unit, text, call.transaction.now()).map(|time| Some(Change::At(time)))
}

pub fn hgetex(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let mut at = 2;
    let change = expiry_change(call, "hgetex", &mut at, "PERSIST", Change::Persist)?.unwrap_or(Change::Keep);
    let first = fields_at(call, at, 1)?;
    let now = call.transaction.now();
    call.reply.array(call.args.len() - first);
    for field in &call.args[first..] {
        let Some(record) = call.field(key, field)? else {
            call.reply.null();
            continue;
        };
        call.reply.bulk(&record.value);
        match change {
            Change::Keep => {}
            Change::At(time) if time <= now => call.transaction.delete(key, field)?,
            Change::At(time) => {
                call.put_field(key, field, &record.value, Expiry { record: Some(time), ..record.expiry })?;
            }
            Change::Persist => call.put_field(key, field, &record.value, Expiry { record: None, ..record.expiry })?,
        }
    }
    Ok(())
}

pub fn hsetex(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let (mut at, mut wanted, mut change) = (2, None, Change::Persist);
    loop {
        if let Some(found) = expiry_change(call, "hsetex", &mut at, "KEEPTTL", Change::Keep)? {
            change = found;
        } else if call.args.get(at).is_some_and(|word| is(word, "FNX")) {
            (wanted, at) = (Some(false), at + 1);
        } else if call.args.get(at).is_some_and(|word| is(word, "FXX")) {
            (wanted, at) = (Some(true), at + 1);
        } else {
            break;
        }
    }
    let first = fields_at(call, at, 2)?;
    let pairs = &call.args[first..];
    let expiry = call.hash_expiry(key)?;
    if let Some(wanted) = wanted {
        for pair in pairs.chunks_exact(2) {
            if call.field(key, pair[0])?.is_some() != wanted {
                call.reply.integer(0);
                return Ok(());
            }
        }
    }
    for pair in pairs.chunks_exact(2) {
        let record = match change {
            Change::At(time) => Some(time),
            Change::Persist => None,
            Change::Keep => call.field(key, pair[0])?.and_then(|record| record.expiry.record),
        };
        call.put_field(key, pair[0], pair[1], Expiry { record, ..expiry })?;
    }
    call.reply.integer(1);
    Ok(())
}
