//! Strings: a record under the empty sort key.

use super::CommandError;
use super::call::{Call, Outcome};
use super::options::{TimeUnit, expiry_option, is};
use crate::number::{Extended, parse_integer};
use tessera_types::{Expiry, ValueKind};

pub fn get(call: &mut Call<'_, '_>) -> Outcome {
    match call.string(call.args[1])? {
        Some(record) => call.reply.bulk(&record.value),
        None => call.reply.null(),
    }
    Ok(())
}

/// Inside transactions, and where all keys share a partition.
pub fn mget(call: &mut Call<'_, '_>) -> Outcome {
    call.reply.array(call.args.len() - 1);
    for key in &call.args[1..] {
        match call.transaction.get(key, b"")?.filter(|record| record.kind == ValueKind::Plain) {
            Some(record) => call.reply.bulk(&record.value),
            None => call.reply.null(),
        }
        call.check_reply(0)?;
    }
    Ok(())
}

pub fn strlen(call: &mut Call<'_, '_>) -> Outcome {
    let length = call.string(call.args[1])?.map_or(0, |record| record.value.len());
    call.reply.count(length);
    Ok(())
}

/// Options of SET and GETEX. As in Redis an option may be repeated, and the last time given counts, but options that
/// contradict each other are refused.
#[derive(Default)]
struct StringOptions {
    only_if: Option<bool>,
    get: bool,
    keep_ttl: bool,
    persist: bool,
    /// The unit, and where the number stands.
    expires: Option<(TimeUnit, usize)>,
}

impl StringOptions {
    fn parse(args: &[&[u8]], from: usize, is_set: bool) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut at = from;
        while at < args.len() {
            let word = args[at];
            if is_set && is(word, "NX") && options.only_if != Some(true) {
                options.only_if = Some(false);
            } else if is_set && is(word, "XX") && options.only_if != Some(false) {
                options.only_if = Some(true);
            } else if is_set && is(word, "GET") {
                options.get = true;
            } else if is_set && is(word, "KEEPTTL") && options.expires.is_none() {
                options.keep_ttl = true;
            } else if !is_set && is(word, "PERSIST") && options.expires.is_none() {
                options.persist = true;
            } else if let Some(unit) = TimeUnit::of_option(word)
                && !options.keep_ttl
                && !options.persist
                && options.expires.is_none_or(|(known, _)| known == unit)
                && at + 1 < args.len()
            {
                options.expires = Some((unit, at + 1));
                at += 1;
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

pub fn set(call: &mut Call<'_, '_>) -> Outcome {
    let (key, value) = (call.args[1], call.args[2]);
    if call.args.len() == 3 {
        let expiry = call.transaction.default_expiry();
        call.set_string(key, value, expiry)?;
        call.reply.ok();
        return Ok(());
    }
    let options = StringOptions::parse(call.args, 3, true)?;
    let now = call.transaction.now();
    let asked = options.expires.map(|(unit, at)| expiry_option("set", unit, call.args[at], now)).transpose()?;
    let old = if options.get { call.string(key)? } else { None };
    let exists = match options.only_if {
        Some(_) => call.value(key)?.is_some(),
        None => false,
    };
    let expiry = if options.keep_ttl {
        key_expiry(call, key)?
    } else {
        asked.map_or(call.transaction.default_expiry(), |time| Expiry::at_key(Some(time)))
    };
    let does = options.only_if.is_none_or(|wanted| wanted == exists);
    if does {
        call.set_string(key, value, expiry)?;
    }
    match (options.get, old, does) {
        (true, Some(record), _) => call.reply.bulk(&record.value),
        (true, None, _) | (false, _, false) => call.reply.null(),
        (false, _, true) => call.reply.ok(),
    }
    Ok(())
}

/// The expiry that the key as a whole has now.
fn key_expiry(call: &Call<'_, '_>, key: &[u8]) -> Result<Expiry, CommandError> {
    let first = call.first_record(key)?;
    Ok(first.map_or(call.transaction.default_expiry(), |(_, record)| Expiry::at_key(record.expiry.key)))
}

pub fn setnx(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let free = call.value(key)?.is_none();
    if free {
        let expiry = call.transaction.default_expiry();
        call.set_string(key, call.args[2], expiry)?;
    }
    call.reply.boolean(free);
    Ok(())
}

fn set_with_expiry(call: &mut Call<'_, '_>, command: &str, unit: TimeUnit) -> Outcome {
    let time = expiry_option(command, unit, call.args[2], call.transaction.now())?;
    call.set_string(call.args[1], call.args[3], Expiry::at_key(Some(time)))?;
    call.reply.ok();
    Ok(())
}

pub fn setex(call: &mut Call<'_, '_>) -> Outcome {
    set_with_expiry(call, "setex", TimeUnit::Seconds)
}

pub fn psetex(call: &mut Call<'_, '_>) -> Outcome {
    set_with_expiry(call, "psetex", TimeUnit::Millis)
}

pub fn getset(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let old = call.string(key)?;
    let expiry = call.transaction.default_expiry();
    call.set_string(key, call.args[2], expiry)?;
    match old {
        Some(record) => call.reply.bulk(&record.value),
        None => call.reply.null(),
    }
    Ok(())
}

pub fn getdel(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let record = call.string(key)?;
    call.delete(key)?;
    match record {
        Some(record) => call.reply.bulk(&record.value),
        None => call.reply.null(),
    }
    Ok(())
}

pub fn getex(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let now = call.transaction.now();
    let options = StringOptions::parse(call.args, 2, false)?;
    let Some(record) = call.string(key)? else {
        call.reply.null();
        return Ok(());
    };
    if let Some((unit, at)) = options.expires {
        let time = expiry_option("getex", unit, call.args[at], now)?;
        if time <= now {
            call.transaction.delete(key, b"")?;
        } else {
            call.set_string(key, &record.value, Expiry::at_key(Some(time)))?;
        }
    } else if options.persist && record.expiry.key.is_some() {
        call.set_string(key, &record.value, Expiry::NEVER)?;
    }
    call.reply.bulk(&record.value);
    Ok(())
}

pub fn append(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let (mut value, expiry) = existing(call, key)?;
    check_length(call, value.len() + call.args[2].len())?;
    value.extend_from_slice(call.args[2]);
    call.set_string(key, &value, expiry)?;
    call.reply.count(value.len());
    Ok(())
}

/// The bytes under a key that a command is going to change, with the expiry that stays.
fn existing(call: &Call<'_, '_>, key: &[u8]) -> Result<(Vec<u8>, Expiry), CommandError> {
    Ok(match call.string(key)? {
        Some(record) => (record.value.to_vec(), record.expiry),
        None => (Vec::new(), call.transaction.default_expiry()),
    })
}

fn check_length(call: &Call<'_, '_>, length: usize) -> Outcome {
    if length > call.transaction.table().limits().value_bytes {
        return Err(CommandError::text("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    Ok(())
}

pub fn setrange(call: &mut Call<'_, '_>) -> Outcome {
    let (key, patch) = (call.args[1], call.args[3]);
    let offset = usize::try_from(call.integer(2)?).map_err(|_| CommandError::text("ERR offset is out of range"))?;
    let (mut value, expiry) = existing(call, key)?;
    if !patch.is_empty() {
        let end = offset.saturating_add(patch.len());
        check_length(call, end)?;
        if value.len() < end {
            value.resize(end, 0);
        }
        value[offset..end].copy_from_slice(patch);
        call.set_string(key, &value, expiry)?;
    }
    call.reply.count(value.len());
    Ok(())
}

pub fn getrange(call: &mut Call<'_, '_>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let value = call.string(call.args[1])?.map(|record| record.value).unwrap_or_default();
    let length = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let from_end = |position: i64| if position < 0 { position.saturating_add(length) } else { position };
    // Two negative positions in the wrong order name nothing, even where both would be cut to the first byte.
    let nothing = start < 0 && end < 0 && start > end;
    let (start, end) = (from_end(start).max(0), from_end(end).max(0).min(length - 1));
    if nothing || start > end || length == 0 {
        call.reply.bulk(b"");
    } else {
        // Both are within the value now.
        call.reply.bulk(&value[start as usize..=end as usize]);
    }
    Ok(())
}

fn increment(call: &mut Call<'_, '_>, by: i64) -> Outcome {
    let key = call.args[1];
    let (old, expiry) = existing(call, key)?;
    let number = if old.is_empty() && call.string(key)?.is_none() {
        0
    } else {
        parse_integer(&old).ok_or(CommandError::NOT_INTEGER)?
    };
    let sum = number.checked_add(by).ok_or(CommandError::OVERFLOW)?;
    call.set_string(key, itoa::Buffer::new().format(sum).as_bytes(), expiry)?;
    call.reply.integer(sum);
    Ok(())
}

pub fn incr(call: &mut Call<'_, '_>) -> Outcome {
    increment(call, 1)
}

pub fn decr(call: &mut Call<'_, '_>) -> Outcome {
    increment(call, -1)
}

pub fn incrby(call: &mut Call<'_, '_>) -> Outcome {
    increment(call, call.integer(2)?)
}

pub fn decrby(call: &mut Call<'_, '_>) -> Outcome {
    let by = call.integer(2)?.checked_neg().ok_or(CommandError::text("ERR decrement would overflow"))?;
    increment(call, by)
}

pub fn incrbyfloat(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let old = call.string(key)?;
    let expiry = old.as_ref().map_or(call.transaction.default_expiry(), |record| record.expiry);
    let number = old.as_ref().map_or(&b"0"[..], |record| &record.value[..]);
    let number = Extended::parse(number).ok_or(CommandError::NOT_FLOAT)?;
    let by = Extended::parse(call.args[2]).ok_or(CommandError::NOT_FLOAT)?;
    let sum = number.checked_add(&by).ok_or(CommandError::NAN_OR_INFINITY)?.to_text();
    call.set_string(key, sum.as_bytes(), expiry)?;
    call.reply.bulk(sum.as_bytes());
    Ok(())
}

/// The pairs that follow the command's name.
fn pairs<'a>(
    args: &'a [&'a [u8]],
    command: &str,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a>, CommandError> {
    let rest = &args[1..];
    if !rest.len().is_multiple_of(2) {
        return Err(CommandError::arity(command));
    }
    Ok(rest.chunks_exact(2).map(|pair| (pair[0], pair[1])))
}

pub fn mset(call: &mut Call<'_, '_>) -> Outcome {
    let expiry = call.transaction.default_expiry();
    for (key, value) in pairs(call.args, "mset")? {
        call.set_string(key, value, expiry)?;
    }
    call.reply.ok();
    Ok(())
}

pub fn msetnx(call: &mut Call<'_, '_>) -> Outcome {
    let expiry = call.transaction.default_expiry();
    for (key, _) in pairs(call.args, "msetnx")? {
        if call.value(key)?.is_some() {
            call.reply.integer(0);
            return Ok(());
        }
    }
    for (key, value) in pairs(call.args, "msetnx")? {
        call.set_string(key, value, expiry)?;
    }
    call.reply.integer(1);
    Ok(())
}
