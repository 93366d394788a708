//! The definition of an index as the catalog has it.

use base64::Engine as _;
use bytes::Bytes;
use tessera_reql::IndexDefinition;

/// A definition for the catalog, from what `tessera_reql` writes.
pub(crate) fn definition_of(source: &[u8], query: &str) -> String {
    let source = base64::engine::general_purpose::STANDARD.encode(source);
    serde_json::json!({ "function": source, "query": query }).to_string()
}

/// The function in a definition, as bytes.
pub(super) fn source_of(definition: &str) -> Option<Bytes> {
    let definition: serde_json::Value = serde_json::from_str(definition).ok()?;
    let source = definition.get("function")?.as_str()?;
    Some(base64::engine::general_purpose::STANDARD.decode(source).ok()?.into())
}

/// Whether a definition is that of a geospatial index, which is known without reading the function.
pub(crate) fn is_geospatial(definition: &str) -> Option<bool> {
    source_of(definition).map(|source| IndexDefinition::is_geospatial(&source))
}

/// What [`definition_of`] has written down.
pub(crate) fn read_definition(definition: &str) -> Option<IndexDefinition> {
    let source = source_of(definition)?;
    let json: serde_json::Value = serde_json::from_str(definition).ok()?;
    let query = json.get("query").and_then(serde_json::Value::as_str).unwrap_or_default();
    IndexDefinition::from_source(source.to_vec().into(), query.into())
}
