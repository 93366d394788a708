//! Functions of indexes and of write hooks as the catalog has them.

use crate::tables::damaged;
use base64::Engine as _;
use bytes::Bytes;
use std::sync::Arc;
use tessera_reql::{IndexDefinition, Result, WriteHook};
use tessera_store::Table;

/// A definition for the catalog, from the bytes of the function and the query that made it.
pub(crate) fn definition_of(source: &[u8], query: &str) -> String {
    let source = base64::engine::general_purpose::STANDARD.encode(source);
    serde_json::json!({ "function": source, "query": query }).to_string()
}

/// The function in a definition, as bytes.
pub(crate) fn source_of(definition: &str) -> Option<Bytes> {
    read(definition).map(|(source, _)| source)
}

/// Whether a definition is that of a geospatial index, which is known without reading the function.
pub(crate) fn is_geospatial(definition: &str) -> Option<bool> {
    source_of(definition).map(|source| IndexDefinition::is_geospatial(&source))
}

/// The index that [`definition_of`] has written down.
pub(crate) fn read_definition(definition: &str) -> Option<IndexDefinition> {
    let (source, query) = read(definition)?;
    IndexDefinition::from_source(source.to_vec().into(), query)
}

/// The write hook of a table.
///
/// # Errors
/// If what the catalog has of it cannot be read.
pub(crate) fn write_hook_of(table: &Table) -> Result<Option<Arc<WriteHook>>> {
    let settings = table.settings();
    let Some(definition) = &settings.write_hook else { return Ok(None) };
    let hook = read(definition).and_then(|(source, query)| WriteHook::from_source(source.to_vec().into(), query));
    hook.map(|hook| Some(Arc::new(hook))).ok_or_else(damaged)
}

/// The bytes of the function in a definition, and the query that made it.
fn read(definition: &str) -> Option<(Bytes, String)> {
    let definition: serde_json::Value = serde_json::from_str(definition).ok()?;
    let source = definition.get("function")?.as_str()?;
    let query = definition.get("query").and_then(serde_json::Value::as_str).unwrap_or_default();
    Some((base64::engine::general_purpose::STANDARD.decode(source).ok()?.into(), query.into()))
}
