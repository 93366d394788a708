//! Hashes: fields are sort keys.

use super::CommandError;
use super::call::{Call, Outcome};
use super::options::is;
use crate::number::{Extended, parse_integer};
use bytes::Bytes;
use rand::Rng;
use rand::seq::SliceRandom;
use tessera_store::Record;
use tessera_types::Expiry;

pub fn hget(call: &mut Call<'_, '_>) -> Outcome {
    match call.field(call.args[1], call.args[2])? {
        Some(record) => call.reply.bulk(&record.value),
        None => call.reply.null(),
    }
    Ok(())
}

pub fn hmget(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let (mut values, mut bytes) = (Vec::with_capacity(call.args.len() - 2), 0);
    for field in &call.args[2..] {
        let record = call.field(key, field)?;
        bytes += record.as_ref().map_or(0, |record| record.value.len());
        call.check_reply(bytes)?;
        values.push(record);
    }
    call.reply.array(values.len());
    for value in values {
        match value {
            Some(record) => call.reply.bulk(&record.value),
            None => call.reply.null(),
        }
    }
    Ok(())
}

pub fn hexists(call: &mut Call<'_, '_>) -> Outcome {
    let exists = call.field(call.args[1], call.args[2])?.is_some();
    call.reply.boolean(exists);
    Ok(())
}

pub fn hstrlen(call: &mut Call<'_, '_>) -> Outcome {
    let length = call.field(call.args[1], call.args[2])?.map_or(0, |record| record.value.len());
    call.reply.count(length);
    Ok(())
}

pub fn hlen(call: &mut Call<'_, '_>) -> Outcome {
    let length = call.count_fields(call.args[1])?;
    call.reply.count(length);
    Ok(())
}

pub fn hgetall(call: &mut Call<'_, '_>) -> Outcome {
    let fields = call.fields(call.args[1])?;
    call.reply.map(fields.len());
    for (field, record) in fields {
        call.reply.bulk(&field);
        call.reply.bulk(&record.value);
    }
    Ok(())
}

pub fn hkeys(call: &mut Call<'_, '_>) -> Outcome {
    let fields = call.fields(call.args[1])?;
    call.reply.array(fields.len());
    for (field, _) in fields {
        call.reply.bulk(&field);
    }
    Ok(())
}

pub fn hvals(call: &mut Call<'_, '_>) -> Outcome {
    let fields = call.fields(call.args[1])?;
    call.reply.array(fields.len());
    for (_, record) in fields {
        call.reply.bulk(&record.value);
    }
    Ok(())
}

/// Puts the pairs that follow the key. Returns how many fields are new.
fn put_pairs(call: &mut Call<'_, '_>, command: &str) -> Result<usize, CommandError> {
    let (key, pairs) = (call.args[1], &call.args[2..]);
    if pairs.len() % 2 != 0 {
        return Err(CommandError::arity(command));
    }
    let (mut shared, mut new) = (None, 0);
    for pair in pairs.chunks_exact(2) {
        let before = call.field_of_hash(key, pair[0])?;
        new += usize::from(before.is_none());
        let expiry = match (shared, before) {
            (Some(expiry), _) => expiry,
            // A field of its own time to live loses that.
            (None, Some(before)) => Expiry::at_key(before.expiry.key),
            (None, None) => call.hash_expiry(key)?,
        };
        shared = Some(expiry);
        call.put_field(key, pair[0], pair[1], expiry)?;
    }
    Ok(new)
}

pub fn hset(call: &mut Call<'_, '_>) -> Outcome {
    let new = put_pairs(call, "hset")?;
    call.reply.count(new);
    Ok(())
}

pub fn hmset(call: &mut Call<'_, '_>) -> Outcome {
    put_pairs(call, "hmset")?;
    call.reply.ok();
    Ok(())
}

pub fn hsetnx(call: &mut Call<'_, '_>) -> Outcome {
    let (key, field) = (call.args[1], call.args[2]);
    let (before, expiry) = existing(call, key, field)?;
    let free = before.is_none();
    if free {
        call.put_field(key, field, call.args[3], expiry)?;
    }
    call.reply.boolean(free);
    Ok(())
}

pub fn hdel(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let mut deleted = 0;
    for field in &call.args[2..] {
        deleted += usize::from(call.delete_field(key, field)?.is_some());
    }
    call.reply.count(deleted);
    Ok(())
}

/// The field that a command is going to change, with the expiry that it keeps.
fn existing(call: &mut Call<'_, '_>, key: &[u8], field: &[u8]) -> Result<(Option<Record>, Expiry), CommandError> {
    let record = call.field_of_hash(key, field)?;
    let expiry = match &record {
        Some(record) => record.expiry,
        None => call.hash_expiry(key)?,
    };
    Ok((record, expiry))
}

pub fn hincrby(call: &mut Call<'_, '_>) -> Outcome {
    let (key, field, by) = (call.args[1], call.args[2], call.integer(3)?);
    let (record, expiry) = existing(call, key, field)?;
    let number = match &record {
        Some(record) => parse_integer(&record.value).ok_or(CommandError::text("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = number.checked_add(by).ok_or(CommandError::OVERFLOW)?;
    call.put_field(key, field, itoa::Buffer::new().format(sum).as_bytes(), expiry)?;
    call.reply.integer(sum);
    Ok(())
}

pub fn hincrbyfloat(call: &mut Call<'_, '_>) -> Outcome {
    let (key, field) = (call.args[1], call.args[2]);
    let by = Extended::parse(call.args[3]).ok_or(CommandError::NOT_FLOAT)?;
    if by.is_infinite() {
        return Err(CommandError::text("ERR value is NaN or Infinity"));
    }
    let (record, expiry) = existing(call, key, field)?;
    let number = record.as_ref().map_or(&b"0"[..], |record| &record.value[..]);
    let number = Extended::parse(number).ok_or(CommandError::text("ERR hash value is not a float"))?;
    let sum = number.checked_add(&by).ok_or(CommandError::NAN_OR_INFINITY)?.to_text();
    call.put_field(key, field, sum.as_bytes(), expiry)?;
    call.reply.bulk(sum.as_bytes());
    Ok(())
}

pub fn hrandfield(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let mut random = rand::rng();
    if call.args.len() == 2 {
        let fields = call.fields(key)?;
        match fields.get(random.random_range(0..fields.len().max(1))) {
            Some((field, _)) => call.reply.bulk(field),
            None => call.reply.null(),
        }
        return Ok(());
    }
    let count = call.integer(2)?;
    if count == i64::MIN {
        return Err(CommandError::text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let with_values = match call.args.get(3) {
        None => false,
        Some(word) if is(word, "WITHVALUES") && call.args.len() == 4 => true,
        Some(_) => return Err(CommandError::SYNTAX),
    };
    let bound = if with_values { i64::MAX / 2 } else { i64::MAX };
    if !(-bound..=bound).contains(&count) {
        return Err(CommandError::OUT_OF_RANGE);
    }
    let fields = call.fields(key)?;
    let chosen: Vec<&(Bytes, Record)> = if count >= 0 {
        let mut all: Vec<_> = fields.iter().collect();
        let (chosen, _) =
            all.partial_shuffle(&mut random, usize::try_from(count).unwrap_or(usize::MAX).min(fields.len()));
        chosen.to_vec()
    } else {
        let count = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        // Repetitions are allowed, so nothing but this bounds the reply.
        if count > 1 << 20 {
            return Err(CommandError::OUT_OF_RANGE);
        }
        let count = if fields.is_empty() { 0 } else { count };
        (0..count).map(|_| &fields[random.random_range(0..fields.len())]).collect()
    };
    let nested = with_values && call.reply.protocol() == crate::resp::Protocol::Resp3;
    call.reply.array(if with_values && !nested { chosen.len() * 2 } else { chosen.len() });
    for (field, record) in chosen {
        if nested {
            call.reply.array(2);
        }
        call.reply.bulk(field);
        if with_values {
            call.reply.bulk(&record.value);
        }
    }
    Ok(())
}
