//! What a command has at hand while it runs, and what commands share.

use super::CommandError;
use crate::number::parse_integer;
use crate::resp::{LONGEST_REPLY_BYTES, Reply};
use bytes::Bytes;
use std::ops::Bound;
use tessera_engine::Order;
use tessera_store::{Record, Transaction};
use tessera_types::{Expiry, ValueKind};

/// One run of a command.
pub struct Call<'a, 't> {
    /// The command's name and arguments.
    pub args: &'a [&'a [u8]],
    /// The transaction on the partition of the command's keys.
    pub transaction: &'a mut Transaction<'t>,
    /// Where the reply is written.
    pub reply: Reply<'a>,
}

/// So many records under a key are deleted one by one, more as a whole. A deletion as a whole makes RocksDB look at it in later
/// reads nearby, and the record cache forget its partition.
const FEW_FIELDS: usize = 128;

pub type Outcome = Result<(), CommandError>;

/// What is under a key.
pub enum Value {
    /// A string, which is the record under the empty sort key.
    String(Record),
    /// A hash, whose fields are records under their names as sort keys.
    Hash,
}

impl Call<'_, '_> {
    /// The first argument, which is the key.
    pub fn key(&self) -> &[u8] {
        self.args[1]
    }

    /// The argument at this position as an integer; position 0 is the command's name.
    pub fn integer(&self, position: usize) -> Result<i64, CommandError> {
        parse_integer(self.args[position]).ok_or(CommandError::NOT_INTEGER)
    }

    /// Refuses to make a reply longer than any may be. `more` bytes are to come.
    pub fn check_reply(&self, more: usize) -> Outcome {
        if self.reply.len() + more > LONGEST_REPLY_BYTES { Err(CommandError::REPLY_TOO_LONG) } else { Ok(()) }
    }

    /// What is under `key`, if anything is.
    pub fn value(&self, key: &[u8]) -> Result<Option<Value>, CommandError> {
        match self.transaction.get(key, b"")? {
            Some(record) if record.kind == ValueKind::UnnamedField => Ok(Some(Value::Hash)),
            Some(record) => Ok(Some(Value::String(record))),
            None if key.is_empty() || !self.transaction.may_hold_sort_keys() => Ok(None),
            // A string may have come since the look before.
            None => Ok(self.first_record(key)?.map(|(sort_key, record)| {
                let is_string = sort_key.is_empty() && record.kind == ValueKind::Plain;
                if is_string { Value::String(record) } else { Value::Hash }
            })),
        }
    }

    /// The string under `key`.
    pub fn string(&self, key: &[u8]) -> Result<Option<Record>, CommandError> {
        match self.value(key)? {
            None => Ok(None),
            Some(Value::String(record)) => Ok(Some(record)),
            Some(Value::Hash) => Err(CommandError::WRONG_TYPE),
        }
    }

    /// The first of the records under `key`, if there are any; a string is before all fields.
    pub fn first_record(&self, key: &[u8]) -> Result<Option<(Bytes, Record)>, CommandError> {
        if key.is_empty() || !self.transaction.may_hold_sort_keys() {
            return Ok(self.transaction.get(key, b"")?.map(|record| (Bytes::new(), record)));
        }
        let all = (Bound::Unbounded, Bound::Unbounded);
        Ok(self.transaction.scan(key, all, Order::Ascending, 1)?.pop())
    }

    /// The fields of the hash under `key` in order; none if there is nothing.
    pub fn fields(&self, key: &[u8]) -> Result<Vec<(Bytes, Record)>, CommandError> {
        if key.is_empty() {
            return self.refuse_string(key);
        }
        let records = self.transaction.scan_all(key)?;
        match records.first() {
            Some((field, record)) if field.is_empty() && record.kind == ValueKind::Plain => {
                Err(CommandError::WRONG_TYPE)
            }
            _ => Ok(records),
        }
    }

    /// How many fields the hash under `key` has.
    pub fn count_fields(&self, key: &[u8]) -> Result<usize, CommandError> {
        self.field(key, b"")?; // a string is the wrong type
        if key.is_empty() { Ok(0) } else { Ok(self.transaction.count(key)?) }
    }

    fn refuse_string(&self, key: &[u8]) -> Result<Vec<(Bytes, Record)>, CommandError> {
        match self.transaction.get(key, b"")? {
            Some(_) => Err(CommandError::WRONG_TYPE),
            None => Ok(Vec::new()),
        }
    }

    /// One field of the hash under `key`.
    pub fn field(&self, key: &[u8], field: &[u8]) -> Result<Option<Record>, CommandError> {
        if !field.is_empty()
            && !key.is_empty()
            && let Some(record) = self.transaction.get(key, field)?
        {
            return Ok(Some(record));
        }
        // Only now does it matter whether the key holds a string.
        match self.transaction.get(key, b"")? {
            Some(record) if record.kind == ValueKind::Plain => Err(CommandError::WRONG_TYPE),
            Some(record) if field.is_empty() => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    /// One field of a hash that is going to be written to.
    pub fn field_of_hash(&self, key: &[u8], field: &[u8]) -> Result<Option<Record>, CommandError> {
        check_hash_key(key)?;
        self.field(key, field)
    }

    /// The expiry that a new field of `key` gets: the hash's own, or a new hash's, of which nothing older may be left.
    pub fn hash_expiry(&mut self, key: &[u8]) -> Result<Expiry, CommandError> {
        check_hash_key(key)?;
        match self.first_record(key)? {
            None => {
                self.transaction.delete_unseen(key);
                Ok(self.transaction.default_expiry())
            }
            Some((sort_key, record)) if sort_key.is_empty() && record.kind == ValueKind::Plain => {
                Err(CommandError::WRONG_TYPE)
            }
            Some((_, record)) => Ok(Expiry::at_key(record.expiry.key)),
        }
    }

    /// Writes one field of a hash.
    pub fn put_field(&mut self, key: &[u8], field: &[u8], value: &[u8], expiry: Expiry) -> Outcome {
        let kind = if field.is_empty() { ValueKind::UnnamedField } else { ValueKind::Plain };
        Ok(self.transaction.put(key, field, value, expiry, kind)?)
    }

    /// Makes `value` the only thing under `key`.
    pub fn set_string(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Outcome {
        if !key.is_empty() && self.transaction.may_hold_sort_keys() {
            let records = self.first_records(key)?;
            if records.len() > FEW_FIELDS {
                self.transaction.delete_hash_key(key);
            } else {
                for (field, _) in records.iter().filter(|(field, _)| !field.is_empty()) {
                    self.transaction.delete(key, field)?;
                }
                self.delete_unseen_beside(key, &records);
            }
        }
        Ok(self.transaction.put(key, b"", value, expiry, ValueKind::Plain)?)
    }

    /// On a table that evicts, deletes what only other replicas have of what is under `key`: `records` are those seen here,
    /// and are going to be put anew or to be replaced. Where a string is seen, there is nothing else anywhere.
    pub fn delete_unseen_beside(&mut self, key: &[u8], records: &[(Bytes, Record)]) {
        let is_string =
            records.first().is_some_and(|(sort_key, record)| sort_key.is_empty() && record.kind == ValueKind::Plain);
        if !is_string {
            self.transaction.delete_unseen(key);
        }
    }

    /// Removes whatever is under `key`. Returns whether there was something.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, CommandError> {
        if key.is_empty() || !self.transaction.may_hold_sort_keys() {
            let exists = self.transaction.get(key, b"")?.is_some();
            if exists || self.transaction.evicts() {
                self.transaction.delete(key, b"")?;
            }
            return Ok(exists);
        }
        let records = self.first_records(key)?;
        if records.len() > FEW_FIELDS || self.transaction.evicts() {
            self.transaction.delete_hash_key(key);
        } else {
            for (sort_key, _) in &records {
                self.transaction.delete(key, sort_key)?;
            }
        }
        Ok(!records.is_empty())
    }

    /// One record under `key` more than are deleted one by one, if there are so many.
    fn first_records(&self, key: &[u8]) -> Result<Vec<(Bytes, Record)>, CommandError> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        Ok(self.transaction.scan(key, all, Order::Ascending, FEW_FIELDS + 1)?)
    }

    /// Removes a field of the hash under `key`. Returns what was there.
    pub fn delete_field(&mut self, key: &[u8], field: &[u8]) -> Result<Option<Record>, CommandError> {
        let record = self.field(key, field)?;
        if record.is_some() || self.transaction.evicts() {
            self.transaction.delete(key, field)?;
        }
        Ok(record)
    }

    /// All records under `key`, whatever they are.
    pub fn records(&self, key: &[u8]) -> Result<Vec<(Bytes, Record)>, CommandError> {
        if key.is_empty() || !self.transaction.may_hold_sort_keys() {
            return Ok(self.transaction.get(key, b"")?.map(|record| (Bytes::new(), record)).into_iter().collect());
        }
        Ok(self.transaction.scan_all(key)?)
    }

    /// Puts records under `key`, over whatever is there.
    pub fn put_records(&mut self, key: &[u8], records: &[(Bytes, Record)]) -> Outcome {
        let is_field =
            |(sort_key, record): &(Bytes, Record)| record.kind == ValueKind::UnnamedField || !sort_key.is_empty();
        if records.iter().any(is_field) {
            check_hash_key(key)?;
        }
        self.delete(key)?;
        for (sort_key, record) in records {
            self.transaction.put(key, sort_key, &record.value, record.expiry, record.kind)?;
        }
        Ok(())
    }

    /// All records under `key`, to be written again.
    pub fn records_to_write(&self, key: &[u8]) -> Result<Vec<(Bytes, Record)>, CommandError> {
        if key.is_empty() || !self.transaction.may_hold_sort_keys() {
            return self.records(key);
        }
        let (all, limit) = ((Bound::Unbounded, Bound::Unbounded), self.transaction.table().limits().write_records);
        let records = self.transaction.scan(key, all, Order::Ascending, limit.saturating_add(1))?;
        self.transaction.check_records(records.len())?;
        Ok(records)
    }
}

fn check_hash_key(key: &[u8]) -> Outcome {
    if key.is_empty() { Err(CommandError::text("ERR a hash cannot be under the empty key")) } else { Ok(()) }
}
