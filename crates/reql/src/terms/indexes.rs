//! Secondary indexes: making, dropping, renaming and waiting for them.

use std::sync::Arc;

use crate::account::Place;
use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::function::{Body, Function};
use crate::plan::Definition;
use crate::selection::Table;
use crate::source::{IndexDefinition, IndexInfo};
use crate::term::code;
use crate::val::{Kind, Shortcut, Val};
use crate::value::{self, Value, ValueExt as _};
use tessera_types::Right;

pub const TERMS: &[Definition] = &[
    Definition::new(75, 2, 3, index_create).nondeterministic().optargs(&["multi", "geo", "unique"]),
    Definition::new(76, 2, 2, index_drop).nondeterministic(),
    Definition::new(77, 1, 1, index_list).nondeterministic(),
    Definition::variadic(139, 1, index_status).nondeterministic(),
    Definition::variadic(140, 1, index_wait).nondeterministic(),
    Definition::new(156, 3, 3, index_rename).nondeterministic().optargs(&["overwrite"]),
];

fn is_primary_key(table: &Table, name: &str) -> Result<()> {
    if name == table.primary_key() {
        return Err(Error::logic(format!("Index name conflict: `{name}` is the name of the primary key.")));
    }
    Ok(())
}

/// What stands before the bytes of an index's function.
const SOURCE_PREFIX: &[u8] = b"$reql_index_function$";
/// The same for unique indexes: nodes that know none must not take one for something else.
const UNIQUE_PREFIX: &[u8] = b"$reql_unique_index_function$";

/// What an index does with what its function gives.
#[derive(Clone, Copy, Default)]
struct IndexKind {
    multi: bool,
    geo: bool,
    unique: bool,
}

/// What `index_status` tells of a function: it makes the same index again.
fn source(function: &Function, kind: IndexKind) -> Result<Arc<[u8]>> {
    let prefix = if kind.unique { UNIQUE_PREFIX } else { SOURCE_PREFIX };
    let flags = u8::from(kind.multi) | u8::from(kind.geo) << 1;
    Ok([prefix, &[flags], &function.to_bytes()?].concat().into())
}

fn read_source(bytes: &[u8]) -> Option<(Function, IndexKind)> {
    let of_unique = bytes.strip_prefix(UNIQUE_PREFIX);
    let (flags, function) = of_unique.or_else(|| bytes.strip_prefix(SOURCE_PREFIX))?.split_first()?;
    let kind = IndexKind { multi: flags & 1 != 0, geo: flags & 2 != 0, unique: of_unique.is_some() };
    Some((Function::from_bytes(function).ok()?, kind))
}

impl IndexDefinition {
    /// Whether a [`source`](Self::source) is that of a geospatial index.
    pub fn is_geospatial(source: &[u8]) -> bool {
        source.strip_prefix(SOURCE_PREFIX).and_then(<[u8]>::first).is_some_and(|kind| kind & 2 != 0)
    }

    /// The definition that has this [`source`](Self::source); `None` if the bytes are none.
    pub fn from_source(source: Arc<[u8]>, query: String) -> Option<Self> {
        let (function, IndexKind { multi, geo, unique }) = read_source(&source)?;
        Some(Self { function: Arc::new(function), source, query, multi, geo, unique })
    }
}

fn index_create(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    let name = call.datum(env, 1)?;
    let name = name.to_text()?.clone();
    is_primary_key(&table, &name)?;
    let mut stored = IndexKind::default();
    let function = if call.count() == 3 {
        let argument = call.arg(env, 2)?;
        let frame = argument.frame;
        match argument.kind {
            Kind::Datum(Value::Binary(bytes)) => {
                let (function, kind) = read_source(&bytes).ok_or_else(|| {
                    Error::logic(
                        "Cannot create an sindex except from a reql_index_function returned from `index_status` in the \
                         field `function`.",
                    )
                    .at(frame)
                })?;
                stored = kind;
                Arc::new(function)
            }
            kind => Val { frame, kind }.into_function(Shortcut::None)?,
        }
    } else {
        Arc::new(Function { frame: call.frame(), body: Body::GetField(Value::String(name.clone())) })
    };
    let rests_on_roundings = super::geometry::INEXACT.iter().any(|code| function.mentions(*code));
    if !function.is_deterministic() || function.mentions(code::NOW) || rests_on_roundings {
        return Err(Error::logic("Could not prove function deterministic.  Index functions must be deterministic.")
            .at(function.frame));
    }
    let multi = call.optarg_bool(env, "multi")?.unwrap_or(stored.multi);
    let geo = call.optarg_bool(env, "geo")?.unwrap_or(stored.geo);
    let unique = call.optarg_bool(env, "unique")?.unwrap_or(stored.unique);
    if unique && geo {
        return Err(Error::logic("A geospatial index cannot be unique."));
    }
    let definition = IndexDefinition {
        source: source(&function, IndexKind { multi, geo, unique })?,
        function,
        query: format!("indexCreate('{name}')"),
        multi,
        geo,
        unique,
    };
    env.alter(|source| source.create_index(env, &table.info, &name, definition))?;
    call.value(value::object([("created", Value::from(1))])?)
}

fn index_drop(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    let name = call.datum(env, 1)?;
    let name = name.to_text()?;
    env.alter(|source| source.drop_index(&table.info, name))?;
    call.value(value::object([("dropped", Value::from(1))])?)
}

fn index_list(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    let mut names = env.source()?.index_names(&table.info)?;
    names.sort();
    call.value(Value::array(names.into_iter().map(Value::from).collect())?)
}

/// `progress` is that of an index which is not ready, and `tells_keys` says whether whoever asks may know keys of documents.
fn status(index: &IndexInfo, progress: Option<f64>, tells_keys: bool) -> Result<Value> {
    let progress = progress.map(value::number).transpose()?.map(|progress| ("progress", progress));
    // What RethinkDB does not have stands only where it says something.
    let unique = index.definition.unique.then_some(("unique", Value::TRUE));
    let hindrance = index.hindrance.as_deref().map(|reason| ("error", Value::from(told(reason, tells_keys))));
    let fields = [
        ("function", Value::Binary(index.definition.source.clone())),
        ("geo", Value::Bool(index.definition.geo)),
        ("index", Value::from(index.name.clone())),
        ("multi", Value::Bool(index.definition.multi)),
        ("outdated", Value::FALSE),
        ("query", Value::from(index.definition.query.clone())),
        ("ready", Value::Bool(index.is_ready)),
    ];
    Ok(Value::object(fields.into_iter().chain(progress).chain(unique).chain(hindrance))?)
}

/// Why an index cannot be built, to whom the keys of documents may be told or not.
fn told(reason: &str, tells_keys: bool) -> String {
    if tells_keys { reason.into() } else { "several documents have the same key".into() }
}

fn index_status(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    statuses(call, env, false)
}

fn index_wait(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    statuses(call, env, true)
}

fn statuses(call: &mut Call<'_>, env: &Env, waits: bool) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    let mut names = Vec::new();
    for at in 1..call.count() {
        names.push(call.string(env, at)?);
    }
    let tells_keys = env.source()?.require(Right::Read, Place::Table(&table.info)).is_ok();
    env.source()?.learn();
    let wanted = |index: &&IndexInfo| names.is_empty() || names.iter().any(|name| **name == *index.name);
    loop {
        let mut indexes = env.source()?.indexes(&table.info)?;
        indexes.sort_by(|left, right| left.name.cmp(&right.name));
        for name in &names {
            if !indexes.iter().any(|index| *index.name == **name) {
                return Err(super::selection::no_index(&table, name));
            }
        }
        if !waits || indexes.iter().filter(wanted).all(|index| index.is_ready) {
            let row = |index: &IndexInfo| {
                let progress = (!index.is_ready).then(|| env.source()?.index_progress(&table.info, &index.name));
                status(index, progress.transpose()?, tells_keys)
            };
            return call.value(env.array(indexes.iter().filter(wanted).map(row).collect::<Result<_>>()?)?);
        }
        let hindered = indexes.iter().filter(wanted).find_map(|index| Some((index, index.hindrance.as_ref()?)));
        if let Some((index, reason)) = hindered {
            return Err(Error::failed(format!(
                "Index `{}` on table `{}` cannot be built: {}",
                index.name,
                table.info.full_name(),
                told(reason, tells_keys)
            )));
        }
        env.source()?.pause();
        env.check()?;
    }
}

fn index_rename(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let table = call.arg(env, 0)?.into_table()?;
    let from = call.string(env, 1)?;
    let to = call.string(env, 2)?;
    is_primary_key(&table, &from)?;
    is_primary_key(&table, &to)?;
    let overwrite = call.optarg_bool(env, "overwrite")?.unwrap_or(false);
    env.alter(|source| source.rename_index(&table.info, &from, &to, overwrite))?;
    call.value(value::object([("renamed", Value::from(i32::from(from != to)))])?)
}
