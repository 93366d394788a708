//! What an index derives from a document.

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
    keys_with_places(env, definition, document).into_iter().map(|(key, _)| key).collect()
}

/// The values by which an index knows a document, and where each stands in the array of which a multi index has all elements.
pub fn keys_with_places(env: &Env, definition: &IndexDefinition, document: &Value) -> Vec<(Value, u32)> {
    let Ok(value) = definition.function.value_of(env, document) else { return Vec::new() };
    let can_be_key = |value: &Value| key::secondary_key(value).is_ok();
    match value {
        Value::Array(items) if definition.multi => {
            let items = items.iter().zip(0..=u32::MAX).filter(|(item, _)| can_be_key(item));
            items.map(|(item, place)| (item.clone(), place)).collect()
        }
        value if can_be_key(&value) => vec![(value, 0)],
        _ => Vec::new(),
    }
}

/// The encoded keys by which an index knows a document, with their places.
pub fn entries(env: &Env, definition: &IndexDefinition, document: &Value) -> Vec<(Vec<u8>, u32)> {
    let keys = keys_with_places(env, definition, document).into_iter();
    keys.filter_map(|(value, place)| Some((key::secondary_key(&value).ok()?, place))).collect()
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
