//! Writing documents.

use super::counts::{Changes, Counts, Total};
use crate::account::{Place, unexpected};
use crate::call::Call;
use crate::env::Env;
use crate::error::{At as _, Error, ErrorKind, Result};
use crate::plan::Definition;
use crate::selection::Table;
use crate::size::Size;
use crate::source::{Change, Conflict, Durability, Lifetime, Write, Written};
use crate::stream::BATCH_ROWS;
use crate::system;
use crate::term::code;
use crate::together::OPTARG;
use crate::uuid;
use crate::val::{Kind, Shortcut, Val};
use crate::value::{Array, ObjectBuilder, Value, ValueExt as _};
use crate::write_hook::WriteHook;
use std::sync::Arc;
use tessera_types::Right;

pub const REPLACE_OPTARGS: &[&str] =
    &["non_atomic", "durability", "return_vals", "return_changes", "ignore_write_hook", "ttl", OPTARG];
pub const DELETE_OPTARGS: &[&str] = &["durability", "return_vals", "return_changes", "ignore_write_hook", OPTARG];

pub const TERMS: &[Definition] = &[
    Definition::new(code::INSERT, 2, 2, insert).nondeterministic().optargs(&[
        "conflict",
        "durability",
        "return_vals",
        "return_changes",
        "ignore_write_hook",
        "ttl",
        OPTARG,
    ]),
    Definition::new(code::REPLACE, 2, 2, replace).nondeterministic().optargs(REPLACE_OPTARGS),
    Definition::new(68, 2, 2, for_each).nondeterministic().optargs(&[OPTARG]),
];

/// What is answered to a query that has written one document and is to list no changes.
///
/// # Errors
/// None that is known of.
pub fn answer_of_one(written: Written) -> Result<Value> {
    let mut counts = Counts::new(0);
    counts.take(written, Changes::None)?;
    counts.finish(Changes::None)
}

fn return_changes(call: &Call<'_>, env: &Env) -> Result<Changes> {
    if call.optarg(env, "return_vals")?.is_some() {
        return Err(Error::logic("Error: encountered obsolete optarg `return_vals`.  Use `return_changes` instead."));
    }
    let Some(value) = call.optarg(env, "return_changes")? else { return Ok(Changes::None) };
    match value.as_datum()? {
        Value::String(text) if &**text == "always" => Ok(Changes::Always),
        Value::String(other) => Err(Error::logic(format!(
            "Invalid return_changes value `{other}` (options are `true`, `false`, and `'always'`.)"
        ))),
        _ => Ok(if value.as_bool()? { Changes::Made } else { Changes::None }),
    }
}

fn durability(call: &Call<'_>, env: &Env) -> Result<Durability> {
    Ok(match super::tables::durability(call, env)? {
        None => Durability::Default,
        Some(true) => Durability::Hard,
        Some(false) => Durability::Soft,
    })
}

fn lifetime(call: &Call<'_>, env: &Env) -> Result<Lifetime> {
    let Some(value) = call.optarg(env, "ttl")? else { return Ok(Lifetime::Kept) };
    let frame = value.frame;
    Ok(super::tables::time_to_live(value.as_datum()?).at(frame)?.map_or(Lifetime::Endless, Lifetime::Millis))
}

fn conflict(call: &Call<'_>, env: &Env) -> Result<Conflict> {
    let Some(value) = call.optarg(env, "conflict")? else { return Ok(Conflict::Error) };
    let frame = value.frame;
    if let Kind::Function(function) = value.kind {
        if let Some(count) = function.parameters()
            && count != 3
            && count != 0
        {
            return Err(Error::logic("The conflict function passed to `insert` should expect 3 arguments."));
        }
        if !function.is_deterministic() {
            return Err(Error::logic("The conflict function passed to `insert` must be deterministic."));
        }
        return Ok(Conflict::Function(function));
    }
    match &*value.as_string()? {
        "error" => Ok(Conflict::Error),
        "replace" => Ok(Conflict::Replace),
        "update" => Ok(Conflict::Update),
        other => {
            let message =
                format!("Conflict option `{other}` unrecognized (options are \"error\", \"replace\" and \"update\").");
            Err(Error::logic(message).at(frame))
        }
    }
}

/// The document with a primary key, and that key, if the document had none.
fn with_key(table: &Table, document: Value) -> Result<(Value, Option<Value>)> {
    let is_plain = document.is_object() && !document.is_pseudotype();
    if !is_plain || document.get_field(table.primary_key()).is_some() {
        return Ok((document, None));
    }
    let key = Value::from(uuid::random());
    let mut builder = ObjectBuilder::from(document.to_fields()?);
    builder.insert(table.primary_key(), key.clone());
    Ok((builder.finish()?, Some(key)))
}

/// An insert of a document, or why it cannot be one.
fn write_of(
    table: &Table,
    document: Value,
    conflict: &Conflict,
    (hook, lifetime): (Option<&Arc<WriteHook>>, Lifetime),
) -> Result<Write> {
    if !document.is_object() {
        return Err(Error::typed(&document, format!("Expected type OBJECT but found {}.", document.type_name())));
    }
    let Some(key) = document.get_field(table.primary_key()) else {
        return Err(Error::logic(format!(
            "Inserted object must have primary key `{}`:\n{}",
            table.primary_key(),
            document.print()?
        )));
    };
    crate::key::primary_key(&key)?;
    let change = Change::Insert { document, conflict: conflict.clone() };
    Ok(Write { key, change, hook: hook.cloned(), lifetime })
}

/// The write hook of a table, unless the write is to pass by it, which is for those who may change the table.
fn hook_of(call: &Call<'_>, env: &Env, table: &Table) -> Result<Option<Arc<WriteHook>>> {
    let source = env.source()?;
    match call.optarg_bool(env, "ignore_write_hook")? {
        Some(true) => {
            source.require(Right::Config, Place::Table(&table.info)).map_err(unexpected)?;
            Ok(None)
        }
        _ => source.write_hook(&table.info),
    }
}

fn insert(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    let changes = return_changes(call, env)?;
    let conflict = conflict(call, env)?;
    let (durability, lifetime) = (durability(call, env)?, lifetime(call, env)?);
    let hook = hook_of(call, env, &table)?;
    let documents = call.arg(env, 1)?;
    let mut stream = match documents.peek() {
        Some(object) if object.is_object() => {
            let one = Array::new(vec![documents.into_datum()?])?;
            crate::stream::Stream::of_array(call.frame(), one)
        }
        _ => documents.into_stream(env)?,
    };
    let mut counts = Counts::new(env.array_limit);
    loop {
        let batch = stream.next_batch(env, BATCH_ROWS)?;
        if batch.is_empty() {
            break;
        }
        let mut writes = Vec::with_capacity(batch.len());
        for document in batch {
            let (document, generated) = with_key(&table, document)?;
            if let Some(key) = &generated {
                counts.generated(key.clone());
            }
            if let Some(key) = &generated
                && let Some(error) = system::without_key(&table.info, key)
            {
                counts.take(Written { old: Value::Null, new: Value::Null, error: Some(error?) }, changes)?;
                continue;
            }
            if table.info.is_system()
                && generated.is_none()
                && let Some(error) = system::with_key(env.source()?, &table.info, &document)?
            {
                counts.take(Written { old: Value::Null, new: Value::Null, error: Some(error) }, changes)?;
                continue;
            }
            match write_of(&table, document, &conflict, (hook.as_ref(), lifetime)) {
                Ok(write) => writes.push(write),
                // What cannot be inserted at all is listed with any changes, unlike what is refused later.
                Err(error) => {
                    env.note_refused(&error);
                    let wanted = if changes == Changes::None { changes } else { Changes::Always };
                    counts.take(Written { old: Value::Null, new: Value::Null, error: Some(error) }, wanted)?;
                }
            }
        }
        let keys: Vec<Value> = match table.info.is_system() {
            true => writes.iter().map(|write| write.key.clone()).collect(),
            false => Vec::new(),
        };
        for (at, written) in env.write(&table.info, writes, durability)?.into_iter().enumerate() {
            if let Some(key) = keys.get(at) {
                counts.note_key(&table, key, &written.new);
            }
            counts.take(written, changes)?;
        }
    }
    call.value(counts.finish(changes)?)
}

fn replace(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let non_atomic = call.optarg_bool(env, "non_atomic")?.unwrap_or(false);
    let changes = return_changes(call, env)?;
    let (durability, lifetime) = (durability(call, env)?, lifetime(call, env)?);
    let unproven = "Could not prove argument deterministic.  Maybe you want to use the non_atomic flag?";
    if !non_atomic && !call.is_deterministic(1) {
        return Err(Error::logic(unproven));
    }
    let function = call.function(env, 1, Shortcut::Constant)?;
    if !non_atomic && !function.is_deterministic() {
        return Err(Error::logic(unproven));
    }
    let mut selection = call.arg_unread(env, 0)?;
    // Who may not read a document may not write it either, which is to be told of a write.
    if let Kind::Row(row) = &mut selection.kind
        && let Some(error) = row.error.take_if(|error| error.kind() != ErrorKind::Permission)
    {
        return Err(error);
    }
    let mut counts = Counts::new(env.array_limit);
    let change_of = |row: &Value| -> Result<Change> {
        if function.is_deterministic() {
            return Ok(Change::Replace { function: function.clone() });
        }
        let document = function.call(env, std::slice::from_ref(row), true)?.into_datum()?;
        Ok(Change::Set { document })
    };
    let frame = selection.frame;
    if let Kind::Row(row) = selection.kind {
        let hook = hook_of(call, env, &row.table)?;
        match change_of(&row.value) {
            Ok(change) => {
                let write = Write { key: row.key, change, hook, lifetime };
                for written in env.write(&row.table.info, vec![write], durability)? {
                    counts.take(written, changes)?;
                }
            }
            Err(error) => {
                env.note_refused(&error);
                counts.take(Written { old: row.value, new: Value::Null, error: Some(error) }, changes)?;
            }
        }
        return call.value(counts.finish(changes)?);
    }
    let (table, mut stream) = Val { frame, kind: selection.kind }.into_selection(env)?;
    let hook = hook_of(call, env, &table)?;
    loop {
        let batch = stream.next_batch(env, BATCH_ROWS)?;
        if batch.is_empty() {
            break;
        }
        let (mut writes, mut size) = (Vec::with_capacity(batch.len()), Size::default());
        for row in batch {
            let key = row.field(table.primary_key())?;
            match change_of(&row) {
                Ok(change) => {
                    if let Change::Set { document } = &change {
                        size.add(document.encoded_len())?;
                    }
                    writes.push(Write { key, change, hook: hook.clone(), lifetime });
                }
                Err(error) => {
                    env.note_refused(&error);
                    counts.take(Written { old: row, new: Value::Null, error: Some(error) }, changes)?;
                }
            }
            if size.is_batch() {
                size = Size::default();
                for written in env.write(&table.info, std::mem::take(&mut writes), durability)? {
                    counts.take(written, changes)?;
                }
            }
        }
        for written in env.write(&table.info, writes, durability)? {
            counts.take(written, changes)?;
        }
    }
    call.value(counts.finish(changes)?)
}

fn for_each(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    const EXPECTED: &str = "FOR_EACH expects one or more basic write queries.";
    let mut stream = call.stream(env, 0)?;
    let function = call.function(env, 1, Shortcut::Constant)?;
    stream.check_finite()?;
    let mut total = Total::new(env.array_limit);
    while let Some(row) = stream.next(env).at(stream.frame)? {
        let result = function.call(env, &[row], false)?;
        let frame = result.frame;
        let added = result.into_datum().and_then(|result| match &result {
            object if object.is_object() => total.add(object),
            other => other.to_items()?.iter().try_for_each(|one| total.add(one)),
        });
        added.map_err(|error| {
            let message = match error.frame() {
                Some(_) => EXPECTED.to_string(),
                None => format!("{EXPECTED}  {}", error.message()),
            };
            error.with_message(message).at(frame)
        })?;
    }
    call.value(total.finish()?)
}
