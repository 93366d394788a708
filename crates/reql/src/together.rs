//! Queries whose writes take effect together or not at all.
//!
//! Such a query is evaluated without writing anything. What it makes of documents is gathered, and so is what it got by primary keys. At
//! the end the source compares all of these documents with what the query has found, and writes, at one instant. If one of them is
//! another by then, the query is evaluated again, with what was found. If a document refuses its write, nothing is written. A query
//! that only reads documents by their keys sees all of them at one instant, and so does one that fails.

use std::collections::{BTreeMap, BTreeSet};

use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::gathered::{Gathered, Name, Replacement, Together, name_of};
use crate::scan::{Durability, ReadMode, TableInfo};
use crate::source::{Change, Source, Write, Written};
use crate::val::{Kind, Val};
use crate::value::{self, ObjectBuilder, Value, ValueExt as _};

/// The option that asks for it: of a write, of an array of writes, of `r.do`, or of the whole query.
pub const OPTARG: &str = "atomic";

/// How often a query is evaluated because others were faster. One of all atomic queries that try succeeds each time.
const TRIES: usize = 1000;

impl Env {
    /// Whether what is written is gathered.
    pub(crate) fn is_together(&self) -> bool {
        self.gathered.borrow().is_some()
    }

    /// The tables, for what is done at once, and would be done again in each evaluation.
    ///
    /// # Errors
    /// If writes are gathered.
    pub(crate) fn source_alone(&self) -> Result<&dyn Source> {
        match self.is_together() {
            true => Err(Error::logic(
                "An atomic query writes documents, and does nothing to databases, tables and indexes.",
            )),
            false => self.source(),
        }
    }

    /// Asks the tables for something about one of them, which the query's profile tells.
    ///
    /// # Errors
    /// As [`Env::source`], and what `ask` complains about.
    pub(crate) fn ask<T>(
        &self,
        what: &str,
        table: &TableInfo,
        ask: impl FnOnce(&dyn Source) -> Result<T>,
    ) -> Result<T> {
        let source = self.source()?;
        let profile = self.profile.as_ref();
        let _measured = profile.map(|profile| profile.begin(0, format!("{what} `{}`.", table.full_name())));
        ask(source)
    }

    /// Changes databases, tables, indexes or users at once, and notes that the query has done something.
    ///
    /// # Errors
    /// If writes are gathered, and as those of the source.
    pub(crate) fn alter<T>(&self, change: impl FnOnce(&dyn Source) -> Result<T>) -> Result<T> {
        let changed = change(self.source_alone()?)?;
        self.has_written.set(true);
        Ok(changed)
    }

    /// The document with a primary key.
    ///
    /// # Errors
    /// As those of the source.
    pub(crate) fn get(&self, table: &TableInfo, key: &Value, reads: ReadMode) -> Result<Option<Value>> {
        if !self.is_together() || table.is_system() || reads == ReadMode::Outdated {
            return self.ask("Getting a document of table", table, |source| source.get(table, key, reads));
        }
        let name = name_of(table, key)?;
        self.learn(table, std::slice::from_ref(key), reads)?;
        let gathered = self.gathered.borrow();
        Ok(gathered.as_ref().and_then(|gathered| gathered.known(&name)).filter(|value| !value.is_null()).cloned())
    }

    /// Writes documents, or gathers what is to be written.
    ///
    /// # Errors
    /// As those of the source.
    pub(crate) fn write(&self, table: &TableInfo, writes: Vec<Write>, durability: Durability) -> Result<Vec<Written>> {
        if !self.is_together() {
            let written =
                self.ask("Writing to table", table, |source| source.write(self, table, writes, durability))?;
            self.note_written(&written);
            return Ok(written);
        }
        if table.is_system() {
            return Err(Error::logic("An atomic query cannot write to system tables."));
        }
        // What is inserted is mostly not there; the comparison tells what is.
        let is_read = |write: &&Write| !matches!(write.change, Change::Insert { .. });
        let read: Vec<Value> = writes.iter().filter(is_read).map(|write| write.key.clone()).collect();
        self.learn(table, &read, ReadMode::Single)?;
        let mut written = Vec::with_capacity(writes.len());
        for write in writes {
            let name = name_of(table, &write.key)?;
            let old = self.gathered.borrow().as_ref().and_then(|gathered| gathered.known(&name).cloned());
            if old.is_none()
                && let Some(gathered) = &mut *self.gathered.borrow_mut()
            {
                gathered.assumed.insert(name.clone());
                gathered.note(name.clone(), table, &write.key, Value::Null, Value::Null)?;
            }
            let old = old.unwrap_or(Value::Null);
            match write.apply(self, &table.primary_key, &old) {
                Ok(new) => {
                    if let Some(gathered) = &mut *self.gathered.borrow_mut() {
                        gathered.note(name.clone(), table, &write.key, old.clone(), new.clone())?;
                        gathered.note_lifetime(&name, !old.is_null(), write.lifetime);
                        gathered.note_durability(durability);
                    }
                    written.push(Written { old, new, error: None });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                Err(error) => {
                    self.note_refused(&error);
                    written.push(Written { old, new: Value::Null, error: Some(error) });
                }
            }
        }
        Ok(written)
    }

    /// Notes what became of writes.
    fn note_written(&self, written: &[Written]) {
        let is_written = |written: &Written| written.error.is_none() && written.old != written.new;
        if !self.has_written.get() && written.iter().any(is_written) {
            self.has_written.set(true);
        }
    }

    /// The error with which the query ends: once the query has written or changed something, it must not say that nothing was done.
    #[must_use]
    pub(crate) fn unless_written(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::OpFailed || !self.has_written.get() {
            return error;
        }
        let mut reason = error.message();
        if let Some((before, _)) = reason.split_once("nothing was done") {
            let before = before.trim_end();
            let before = before.strip_suffix(" so").or(before.strip_suffix(" and")).unwrap_or(before);
            reason = before.trim_end_matches([';', ',']);
        }
        let message = format!(
            "The operation may or may not have been performed: a part of the query was carried out, and the rest was not: {}.",
            reason.trim_end_matches('.')
        );
        error.with_message(message).with_kind(ErrorKind::OpIndeterminate)
    }

    /// Notes that a document refuses its write.
    pub(crate) fn note_refused(&self, error: &Error) {
        if let Some(gathered) = &mut *self.gathered.borrow_mut() {
            gathered.first_error.get_or_insert_with(|| error.message().into());
        }
    }

    /// Reads documents that are not known yet.
    fn learn(&self, table: &TableInfo, keys: &[Value], reads: ReadMode) -> Result<()> {
        let mut unknown = BTreeMap::new();
        for key in keys {
            unknown.insert(name_of(table, key)?, key.clone());
        }
        if let Some(gathered) = &mut *self.gathered.borrow_mut() {
            unknown.retain(|name, _| !gathered.documents.contains_key(name));
            let found: Vec<Name> = unknown.keys().filter(|name| gathered.found.contains_key(name)).cloned().collect();
            for name in found {
                if let (Some(key), Some(found)) = (unknown.remove(&name), gathered.found.get(&name).cloned()) {
                    gathered.note(name, table, &key, found.clone(), found)?;
                }
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let keys: Vec<Value> = unknown.values().cloned().collect();
        let values = self.ask("Getting documents of table", table, |source| source.get_all(table, &keys, reads))?;
        if let Some(gathered) = &mut *self.gathered.borrow_mut() {
            for ((name, key), value) in unknown.into_iter().zip(values) {
                let value = value.unwrap_or(Value::Null);
                gathered.note(name, table, &key, value.clone(), value)?;
            }
        }
        Ok(())
    }
}

/// Evaluates a query, or a part of one, so that all of its writes take effect together or not at all.
///
/// # Errors
/// What the evaluation complains about; nothing was written then. Also what the source reports.
pub(crate) fn evaluate(env: &Env, evaluate: impl Fn() -> Result<Val>) -> Result<Val> {
    let (mut found, mut has_looked) = (BTreeMap::new(), false);
    // The documents of which `found` has what they were at one instant.
    let mut seen_together = BTreeSet::new();
    for _ in 0..TRIES {
        *env.gathered.borrow_mut() = Some(Gathered::with(found));
        let result = evaluate().and_then(|result| collected(env, result));
        let mut gathered = env.gathered.borrow_mut().take().unwrap_or_default();
        // These are not about what documents are.
        let is_final = |error: &Error| matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ResourceLimit);
        if result.as_ref().is_err_and(is_final) {
            return result;
        }
        if result.is_ok() && gathered.first_error.is_some() && !gathered.assumed.is_empty() && !has_looked {
            // The answer is to tell of all documents that refuse their writes. Those whose keys are made anew each time refuse none.
            has_looked = true;
            found = look(gathered, env)?;
            continue;
        }
        let fails = result.is_err() || gathered.first_error.is_some();
        if fails {
            // It writes nothing, and complains of documents only if they were like this at one instant.
            let Gathered { documents, assumed, .. } = &mut gathered;
            documents.retain(|name, _| !assumed.contains(name));
            documents.values_mut().for_each(|document| document.new = document.old.clone());
        }
        let only_reads = gathered.only_reads();
        let is_seen = only_reads && gathered.documents.keys().all(|name| seen_together.contains(name));
        match if is_seen { None } else { carry_out(env, &gathered)? } {
            Some(changed) => {
                found = gathered.found;
                if only_reads {
                    seen_together = gathered.documents.keys().cloned().collect();
                    found.extend(gathered.documents.into_iter().map(|(name, document)| (name, document.old)));
                }
                found.extend(changed);
            }
            None => {
                return match &gathered.first_error {
                    Some(message) => undone(result?, message),
                    None => result,
                };
            }
        }
        env.check()?;
    }
    Err(Error::failed(format!(
        "Nothing was written, since the query is atomic: others have changed its documents in each of {TRIES} evaluations."
    )))
}

/// A stream that goes on would be read when the query has taken effect; so all that it has is read now.
fn collected(env: &Env, result: Val) -> Result<Val> {
    let frame = result.frame;
    match result.kind {
        Kind::Stream(stream) if !stream.is_grouped() => Ok(Val::datum(frame, env.array(stream.collect(env)?)?)),
        kind => Ok(Val { frame, kind }),
    }
}

/// Has all documents compared and written, or tells what those are that are others by now.
fn carry_out(env: &Env, gathered: &Gathered) -> Result<Option<BTreeMap<Name, Value>>> {
    let durability = gathered.durability.unwrap_or(Durability::Default);
    let documents: Vec<Replacement> = gathered.documents.values().cloned().collect();
    // One document that is only looked at was so at one instant.
    if documents.len() < 2 && gathered.only_reads() {
        return Ok(None);
    }
    let Together::Changed(changed) = env.source()?.write_together(env, &documents, durability)? else {
        return Ok(None);
    };
    let names: Vec<&Name> = gathered.documents.keys().collect();
    Ok(Some(changed.into_iter().filter_map(|(at, now)| Some(((*names.get(at)?).clone(), now))).collect()))
}

/// Looks at the documents of which nobody has. Returns what is known then.
fn look(gathered: Gathered, env: &Env) -> Result<BTreeMap<Name, Value>> {
    let mut by_table: BTreeMap<String, (TableInfo, Vec<Name>, Vec<Value>)> = BTreeMap::new();
    for name in gathered.assumed {
        if let Some(Replacement { table, key, .. }) = gathered.documents.get(&name) {
            let (_, names, keys) =
                by_table.entry(name.0.clone()).or_insert_with(|| (table.clone(), Vec::new(), Vec::new()));
            keys.push(key.clone());
            names.push(name);
        }
    }
    let mut found = gathered.found;
    for (table, names, keys) in by_table.into_values() {
        let values = env.source()?.get_all(&table, &keys, ReadMode::Single)?;
        found.extend(names.into_iter().zip(values.into_iter().map(|value| value.unwrap_or(Value::Null))));
    }
    Ok(found)
}

/// What is answered if a document has refused its write, so that none was carried out.
fn undone(result: Val, message: &str) -> Result<Val> {
    const DONE: [&str; 4] = ["deleted", "inserted", "replaced", "unchanged"];
    let frame = result.frame;
    let answer = result.peek().filter(|answer| answer.get_field("first_error").is_some()).cloned();
    let Some(answer) = answer else {
        let message = format!("Nothing was written, since the query is atomic: {message}");
        return Err(Error::failed(message).at(frame));
    };
    let count = |name: &&str| match answer.get_field(name) {
        Some(Value::Number(count)) => count.get(),
        _ => 0.0,
    };
    let mut builder = ObjectBuilder::default();
    for (name, value) in &answer.to_fields()? {
        match &**name {
            name if DONE.contains(&name) => builder.insert(name, value::integer(0)),
            "generated_keys" => {}
            "changes" => {
                let refused = value.to_items()?.iter().filter(|change| change.get_field("error").is_some()).cloned();
                builder.insert(name.clone(), Value::array(refused.collect())?);
            }
            _ => builder.insert(name.clone(), value.clone()),
        }
    }
    builder.insert("undone", value::number(DONE.iter().map(count).sum())?);
    Ok(Val::datum(frame, builder.finish()?))
}
