//! Commands on keys whatever they hold.

use super::CommandError;
use super::call::{Call, Outcome, Value};
use super::options::is;
use super::stored_records::{self, digest_of};
use crate::number::parse_integer;
use crate::resp::Reply;
use tessera_types::{Expiry, RequestError, TableNumber};

pub fn del(call: &mut Call<'_, '_>) -> Outcome {
    let mut deleted = 0;
    for key in &call.args[1..] {
        deleted += usize::from(call.delete(key)?);
    }
    call.reply.count(deleted);
    Ok(())
}

pub fn exists(call: &mut Call<'_, '_>) -> Outcome {
    let mut existing = 0;
    for key in &call.args[1..] {
        existing += usize::from(call.value(key)?.is_some());
    }
    call.reply.count(existing);
    Ok(())
}

pub fn type_of(call: &mut Call<'_, '_>) -> Outcome {
    let name = match call.value(call.args[1])? {
        None => "none",
        Some(Value::String(_)) => "string",
        Some(Value::Hash) => "hash",
    };
    call.reply.simple(name);
    Ok(())
}

/// Moves or copies all records from one key to another, over whatever is there.
fn copy_records(call: &mut Call<'_, '_>, from: &[u8], to: &[u8]) -> Outcome {
    let records = call.records_to_write(from)?;
    call.put_records(to, &records)
}

fn check_partition(call: &Call<'_, '_>, key: &[u8]) -> Outcome {
    if call.transaction.covers(key) { Ok(()) } else { Err(RequestError::CrossPartition.into()) }
}

pub fn rename(call: &mut Call<'_, '_>) -> Outcome {
    let (from, to) = (call.args[1], call.args[2]);
    check_partition(call, to)?;
    if call.value(from)?.is_none() {
        return Err(CommandError::NO_SUCH_KEY);
    }
    if from != to {
        copy_records(call, from, to)?;
        call.delete(from)?;
    }
    call.reply.ok();
    Ok(())
}

pub fn renamenx(call: &mut Call<'_, '_>) -> Outcome {
    let (from, to) = (call.args[1], call.args[2]);
    check_partition(call, to)?;
    if call.value(from)?.is_none() {
        return Err(CommandError::NO_SUCH_KEY);
    }
    let free = call.value(to)?.is_none();
    if free {
        copy_records(call, from, to)?;
        call.delete(from)?;
    }
    call.reply.boolean(free);
    Ok(())
}

/// What stands behind the keys of COPY.
pub struct CopyOptions {
    /// Whether the copy may take the place of what is there.
    pub replaces: bool,
}

impl CopyOptions {
    /// The options of a command with these arguments on a table.
    ///
    /// # Errors
    /// If there is no such option, or DB names another table.
    pub fn parse(args: &[&[u8]], table: TableNumber) -> Result<Self, CommandError> {
        let mut replaces = false;
        let mut words = args[3..].iter();
        while let Some(word) = words.next() {
            if is(word, "REPLACE") {
                replaces = true;
            } else if is(word, "DB") {
                let number =
                    parse_integer(words.next().ok_or(CommandError::SYNTAX)?).ok_or(CommandError::NOT_INTEGER)?;
                // Some clients always name the table.
                if number != i64::from(table.0) {
                    return Err(CommandError::text(
                        "ERR COPY between tables is not supported: no table's records can be changed together with another's",
                    ));
                }
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(Self { replaces })
    }
}

pub fn copy(call: &mut Call<'_, '_>) -> Outcome {
    let (from, to) = (call.args[1], call.args[2]);
    let CopyOptions { replaces } = CopyOptions::parse(call.args, call.transaction.table().number())?;
    check_partition(call, to)?;
    if from == to {
        return Err(CommandError::text("ERR source and destination objects are the same"));
    }
    let copies = call.value(from)?.is_some() && (replaces || call.value(to)?.is_none());
    if copies {
        copy_records(call, from, to)?;
    }
    call.reply.boolean(copies);
    Ok(())
}

/// MEMORY USAGE key [SAMPLES n]: bytes that the records under the key take as they are stored.
pub fn memory_usage(call: &mut Call<'_, '_>) -> Outcome {
    let records = call.records(call.args[2])?;
    if records.is_empty() {
        call.reply.null();
        return Ok(());
    }
    // What the memory engine needs per record besides its bytes; see docs/decisions/0003.
    const OVERHEAD: usize = 30;
    let key = call.args[2].len();
    let bytes = |record: &tessera_store::Record, sort_key: usize| {
        key + sort_key + record.value.len() + OVERHEAD + expiry_bytes(record.expiry)
    };
    let total: usize = records.iter().map(|(sort_key, record)| bytes(record, sort_key.len())).sum();
    call.reply.count(total);
    Ok(())
}

fn expiry_bytes(expiry: Expiry) -> usize {
    8 * (usize::from(expiry.key.is_some()) + usize::from(expiry.record.is_some()))
}

/// OBJECT DIGEST key: tells whether what is under the key has changed, expiry included.
pub fn object_digest(call: &mut Call<'_, '_>) -> Outcome {
    let digest = digest(call, call.args[2])?;
    call.reply.bulk(digest.as_bytes());
    Ok(())
}

/// OBJECT RECORDS key, between nodes: all that is under the key, in the form of [`stored_records`].
pub fn object_records(call: &mut Call<'_, '_>) -> Outcome {
    let encoded = stored_records::encode(&call.records_to_write(call.args[2])?);
    call.check_reply(encoded.len())?;
    call.reply.bulk(&encoded);
    Ok(())
}

/// SHA-256 of all that is under a key, in hexadecimal digits.
pub fn digest(call: &Call<'_, '_>, key: &[u8]) -> Result<String, CommandError> {
    Ok(digest_of(&call.records(key)?))
}

/// OBJECT ENCODING key: one of the names that clients know.
pub fn object_encoding(call: &mut Call<'_, '_>) -> Outcome {
    match call.value(call.args[2])? {
        None => call.reply.null(),
        Some(Value::Hash) => {
            let fields = call.fields(call.args[2])?;
            let is_short = |bytes: &[u8]| bytes.len() <= 64;
            let is_small =
                fields.len() <= 128 && fields.iter().all(|(field, record)| is_short(field) && is_short(&record.value));
            call.reply.bulk(if is_small { b"listpack" } else { b"hashtable" });
        }
        Some(Value::String(record)) if parse_integer(&record.value).is_some() => call.reply.bulk(b"int"),
        Some(Value::String(record)) if record.value.len() <= 44 => call.reply.bulk(b"embstr"),
        Some(Value::String(_)) => call.reply.bulk(b"raw"),
    }
    Ok(())
}

pub fn ping(args: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
    match args {
        [_] => reply.simple("PONG"),
        [_, text] => reply.bulk(text),
        _ => return Err(CommandError::arity("ping")),
    }
    Ok(())
}

pub fn echo(args: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
    reply.bulk(args[1]);
    Ok(())
}

pub fn time(_: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    reply.array(2);
    reply.bulk(since.as_secs().to_string().as_bytes());
    reply.bulk(since.subsec_micros().to_string().as_bytes());
    Ok(())
}
