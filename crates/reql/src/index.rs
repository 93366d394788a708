//! What an index derives from a document.

use std::collections::BTreeMap;

use crate::env::Env;
use crate::key;
use crate::scan::IndexDefinition;
use crate::value::Value;

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
