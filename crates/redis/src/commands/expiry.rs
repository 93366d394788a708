//! The expiry of a key as a whole, be it a string or a hash.

use super::CommandError;
use super::call::{Call, Outcome};
use super::options::{TimeUnit, is};
use tessera_types::{Expiry, UnixMillis};

/// NX, XX, GT and LT, for keys and for fields.
#[derive(Clone, Copy, Default)]
pub struct Condition {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Condition {
    /// Takes the option if it is one.
    pub fn take(&mut self, word: &[u8]) -> bool {
        let flag = if is(word, "NX") {
            &mut self.nx
        } else if is(word, "XX") {
            &mut self.xx
        } else if is(word, "GT") {
            &mut self.gt
        } else if is(word, "LT") {
            &mut self.lt
        } else {
            return false;
        };
        *flag = true;
        true
    }

    pub fn check(self) -> Outcome {
        if self.nx && (self.xx || self.gt || self.lt) {
            return Err(CommandError::text("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if self.gt && self.lt {
            return Err(CommandError::text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(())
    }

    /// Whether the new time may replace the present one. No expiry counts as infinitely far.
    pub fn allows(self, present: Option<UnixMillis>, new: i64) -> bool {
        let present = present.map(|time| i64::try_from(time.get()).unwrap_or(i64::MAX));
        match present {
            None => !self.xx && !self.gt,
            Some(present) => !self.nx && (!self.gt || new > present) && (!self.lt || new < present),
        }
    }
}

fn expire_in(call: &mut Call<'_, '_>, command: &str, unit: TimeUnit) -> Outcome {
    let key = call.args[1];
    let mut condition = Condition::default();
    for word in &call.args[3..] {
        if !condition.take(word) {
            let word = String::from_utf8_lossy(word);
            return Err(CommandError::Reply(format!("ERR Unsupported option {word}").into()));
        }
    }
    condition.check()?;
    let number = call.integer(2)?;
    let now = call.transaction.now();
    let time = unit.to_unix_millis(number, now).ok_or_else(|| CommandError::expire_time(command))?;
    let records = call.records_to_write(key)?;
    let Some((_, first)) = records.first() else {
        call.reply.integer(0);
        return Ok(());
    };
    if !condition.allows(first.expiry.key, time) {
        call.reply.integer(0);
        return Ok(());
    }
    match u64::try_from(time).ok().filter(|time| *time > now.get()) {
        Some(time) => {
            let time = Some(UnixMillis::new(time));
            // All fields of a hash expire together.
            call.delete_unseen_beside(key, &records);
            for (sort_key, record) in &records {
                let expiry = Expiry { key: time, ..record.expiry };
                call.transaction.put(key, sort_key, &record.value, expiry, record.kind)?;
            }
        }
        None => _ = call.delete(key)?,
    }
    call.reply.integer(1);
    Ok(())
}

pub fn expire(call: &mut Call<'_, '_>) -> Outcome {
    expire_in(call, "expire", TimeUnit::Seconds)
}

pub fn pexpire(call: &mut Call<'_, '_>) -> Outcome {
    expire_in(call, "pexpire", TimeUnit::Millis)
}

pub fn expireat(call: &mut Call<'_, '_>) -> Outcome {
    expire_in(call, "expireat", TimeUnit::UnixSeconds)
}

pub fn pexpireat(call: &mut Call<'_, '_>) -> Outcome {
    expire_in(call, "pexpireat", TimeUnit::UnixMillis)
}

pub fn persist(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args[1];
    let records = call.records_to_write(key)?;
    let had = records.first().is_some_and(|(_, record)| record.expiry.key.is_some());
    if had {
        call.delete_unseen_beside(key, &records);
        for (sort_key, record) in &records {
            let expiry = Expiry { key: None, ..record.expiry };
            call.transaction.put(key, sort_key, &record.value, expiry, record.kind)?;
        }
    }
    call.reply.boolean(had);
    Ok(())
}

fn reply_time(call: &mut Call<'_, '_>, unit: TimeUnit) -> Outcome {
    let expiry = call.first_record(call.args[1])?.map(|(_, record)| record.expiry.key);
    let number = unit.tell(expiry, call.transaction.now());
    call.reply.integer(number);
    Ok(())
}

pub fn ttl(call: &mut Call<'_, '_>) -> Outcome {
    reply_time(call, TimeUnit::Seconds)
}

pub fn pttl(call: &mut Call<'_, '_>) -> Outcome {
    reply_time(call, TimeUnit::Millis)
}

pub fn expiretime(call: &mut Call<'_, '_>) -> Outcome {
    reply_time(call, TimeUnit::UnixSeconds)
}

pub fn pexpiretime(call: &mut Call<'_, '_>) -> Outcome {
    reply_time(call, TimeUnit::UnixMillis)
}
