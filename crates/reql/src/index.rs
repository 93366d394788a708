//! What an index derives from a document.

use std::collections::BTreeMap;

use tessera_geo::{coarser, covering, index_number};

use crate::env::Env;
use crate::error::{ErrorKind, Result};
use crate::geometry;
use crate::key;
use crate::scan::IndexDefinition;
use crate::value::Value;

/// The most cells of one document, so that the longest key of an entry is no longer than that of another index. A document that has
/// more, because a multi index takes many shapes from it, is indexed by larger cells.
const MAX_CELLS: usize = 28;

/// The values by which an index knows a document; none if its function fails or gives nothing that can be a key.
pub fn keys(env: &Env, definition: &IndexDefinition, document: &Value) -> Vec<Value> {
    let Ok(value) = definition.function.value_of(env, document) else { return Vec::new() };
    let can_be_key = |value: &Value| key::secondary_key(value).is_ok();
    match value {
        Value::Array(items) if definition.multi => items.iter().filter(|item| can_be_key(item)).cloned().collect(),
        value if can_be_key(&value) => vec![value],
        _ => Vec::new(),
    }
}

/// The encoded keys by which an index knows a document, with how often each occurs before it.
pub fn entries(env: &Env, definition: &IndexDefinition, document: &Value) -> Vec<(Vec<u8>, u32)> {
    let mut counts = BTreeMap::<Vec<u8>, u32>::new();
    let mut out = Vec::new();
    for value in keys(env, definition, document) {
        let Ok(encoded) = key::secondary_key(&value) else { continue };
        let tag = counts.entry(encoded.clone()).or_default();
        out.push((encoded, *tag));
        *tag += 1;
    }
    out
}

/// The keys of the entries that a geospatial index has of a document.
///
/// # Errors
/// If the query was stopped. A document for which the function fails is not in the index.
pub fn cell_keys(env: &Env, definition: &IndexDefinition, document: &Value) -> Result<Vec<Vec<u8>>> {
    let value = match definition.function.value_of(env, document) {
        Ok(value) => value,
        Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
        Err(_) => return Ok(Vec::new()),
    };
    let mut cells = Vec::new();
    for shape in geometry::shapes(env, definition.multi, &value)? {
        cells.extend(geometry::paced(env, |pace| covering(&shape, pace))?);
    }
    let mut cells: Vec<u64> = coarser(cells, MAX_CELLS).into_iter().map(index_number).collect();
    cells.sort_unstable();
    let key = |at: usize| {
        let others = cells[..at].iter();
        std::iter::once(&cells[at]).chain(others).flat_map(|cell| cell.to_be_bytes()).collect()
    };
    Ok((0..cells.len()).map(key).collect())
}
