//! What an index holds of a document, and what a write changes in it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod common;

use common::{keyable, value};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;
use tessera_document::{
    Document, EncodedValue, EntryChanges, EntryKey, IndexShape, SecondaryKey, Value, decode_key, primary_key,
};

fn document(value: &Value) -> Document {
    Document::encode(value)
}

fn entries(shape: IndexShape, indexed: Option<&Value>) -> Vec<Vec<u8>> {
    let indexed = indexed.map(document);
    let mut primary = Vec::new();
    primary_key(document(&7.into()).value(), &mut primary).unwrap();
    let mut entries = Vec::new();
    shape.entries(indexed.as_ref().map(Document::value), &primary, &mut entries);
    entries
}

/// The values of the entries, with their places.
fn values(shape: IndexShape, text: &str) -> String {
    let entries = entries(shape, Some(&Value::from_json(text).unwrap()));
    let parts = entries.iter().map(|entry| EntryKey::decode(entry).unwrap());
    let texts: Vec<_> = parts
        .map(|entry| {
            assert_eq!(decode_key(entry.primary).unwrap(), Value::from(7));
            let value = decode_key(entry.secondary).unwrap().to_json().unwrap();
            entry.place.map_or(value.clone(), |place| format!("{place}:{value}"))
        })
        .collect();
    texts.join(" ")
}

#[test]
fn entries_are_those_that_rethinkdb_makes() {
    use IndexShape::{Multi, Single};
    for (shape, indexed, expected) in [
        (Single, "1", "1"),
        (Single, "[1,\"a\"]", "[1,\"a\"]"),
        (Single, "[]", "[]"),
        (Single, "null", ""),
        (Single, "{}", ""),
        (Single, "[1,null]", ""),
        (Single, "[1,{\"a\":1}]", ""),
        (Single, r#"{"$reql_type$":"GEOMETRY","type":"Point","coordinates":[1,2]}"#, ""),
        (Multi, "\"x\"", "\"x\""),
        (Multi, "null", ""),
        (Multi, "[]", ""),
        (Multi, "[3,\"a\",3]", "0:3 1:\"a\" 2:3"),
        (Multi, "[1,null,{},[2,null],[2,3]]", "0:1 4:[2,3]"),
    ] {
        assert_eq!(values(shape, indexed), expected, "{shape:?} {indexed}");
    }
    assert!(entries(Single, None).is_empty());
    let with_extremum = Value::array(vec![Value::array(vec![Value::MinVal]).unwrap(), 1.into()]).unwrap();
    assert_eq!(entries(Multi, Some(&with_extremum)).len(), 1);
}

#[test]
fn a_write_that_does_not_touch_the_index_changes_nothing_in_it() {
    let array = Value::from_json("[1,2,3]").unwrap();
    let entries = entries(IndexShape::Multi, Some(&array));
    assert!(EntryChanges::between(entries.clone(), entries.clone()).is_empty());
    let changes = EntryChanges::between(entries.clone(), entries[1..].to_vec());
    assert_eq!(changes, EntryChanges { removed: entries[..1].to_vec(), added: Vec::new() });
}

fn indexed() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        value().prop_map(Some),
        vec(prop_oneof![3 => keyable(), 1 => value(), 2 => (0..3i32).prop_map(Value::from)], 0..6)
            .prop_map(|values| Some(Value::array(values).unwrap())),
    ]
}

proptest! {
    #[test]
    fn changes_make_the_old_entries_into_the_new_ones(
        old in indexed(),
        new in indexed(),
        shape in prop_oneof![Just(IndexShape::Single), Just(IndexShape::Multi)],
    ) {
        let (old, new) = (entries(shape, old.as_ref()), entries(shape, new.as_ref()));
        let changes = EntryChanges::between(old.clone(), new.clone());
        let mut index: BTreeSet<_> = old.iter().cloned().collect();
        prop_assert_eq!(index.len(), old.len(), "an entry is there twice");
        for key in &changes.removed {
            prop_assert!(index.remove(key));
        }
        for key in &changes.added {
            prop_assert!(index.insert(key.clone()));
        }
        prop_assert_eq!(index, new.into_iter().collect());
    }

    #[test]
    fn the_value_of_an_entry_is_found_again(
        indexed in indexed(),
        shape in prop_oneof![Just(IndexShape::Single), Just(IndexShape::Multi)],
    ) {
        let Some(indexed) = indexed else { return Ok(()) };
        let bytes = document(&indexed);
        for key in entries(shape, Some(&indexed)) {
            let entry = EntryKey::decode(&key).unwrap();
            let value: EncodedValue<'_> = shape.value_at(bytes.value(), entry.place).unwrap();
            let again = SecondaryKey::of_entry(value).unwrap();
            prop_assert_eq!(again.bytes(), entry.secondary);
        }
        prop_assert!(shape.value_at(bytes.value(), Some(u32::MAX)).is_none());
    }
}
