#![no_main]
//! Encoded documents, keys and JSON text. Bytes that pass the check are the one encoding of a value; those that do not may be read,
//! compared, edited and written all the same, and what comes of it is nonsense but no panic.

use libfuzzer_sys::fuzz_target;
use std::hash::{BuildHasher, RandomState};
use tessera_document::{EncodedValue, EntryKey, SecondaryKey, Value, decode_key, primary_key};

fn use_up(bytes: &[u8], other: EncodedValue<'_>) {
    let value = EncodedValue::trusted(bytes);
    let _ = (value.cmp(&other), value.compare_as_reql(other), RandomState::new().hash_one(value));
    let _ = (value.to_json(), value.merge(other, &mut Vec::new()), value.get_field("a"));
    if let Some(object) = value.as_object() {
        let _ = object.pluck(&["a", "$reql_type$"], &mut Vec::new());
        let _ = object.without(&["a"], &mut Vec::new());
        let _ = object.with_field("b", other, &mut Vec::new());
    }
    let decoded = value.to_value();
    if EncodedValue::check(bytes).is_ok() {
        let decoded = decoded.expect("bytes that passed the check are a value");
        let mut encoded = Vec::new();
        decoded.encode(&mut encoded);
        assert_eq!(encoded, bytes);
        assert_eq!(decoded.to_json().ok(), value.to_json().ok());
    }
}

/// A key that is read is the one that its value has.
fn use_key(bytes: &[u8]) {
    let _ = EntryKey::decode(bytes);
    let Ok(value) = decode_key(bytes) else { return };
    let mut encoded = Vec::new();
    value.encode(&mut encoded);
    let key = SecondaryKey::of_search(EncodedValue::trusted(&encoded)).expect("it was a key");
    if !key.is_cut() {
        assert_eq!(key.bytes(), bytes);
    }
}

fuzz_target!(|bytes: &[u8]| {
    use_key(bytes);
    let _ = primary_key(EncodedValue::trusted(bytes), &mut Vec::new());
    let (one, other) = bytes.split_at(bytes.len() / 2);
    use_up(bytes, EncodedValue::trusted(one));
    use_up(one, EncodedValue::trusted(other));
    if let Some(value) = std::str::from_utf8(bytes).ok().and_then(|text| Value::from_json(text).ok()) {
        let text = value.to_json().expect("what was JSON is JSON");
        let back = Value::from_json(&text).expect("what was written is read");
        assert_eq!(back, value);
        let mut encoded = Vec::new();
        value.encode(&mut encoded);
        assert_eq!(
            EncodedValue::check(&encoded).expect("what was encoded passes the check").to_json().ok(),
            Some(text)
        );
    }
});
