//! Keys against values.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod common;

use common::{keyable, value};
use proptest::collection::vec;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::ops::Bound;
use tessera_document::{
    Document, EncodedValue, EntryKey, ErrorClass, KeyError, MAX_SECONDARY_KEY_BYTES, SecondaryKey, Value, decode_key,
    entry_key, primary_key, primary_range, reconstructable, secondary_range,
};

fn document(value: &Value) -> Document {
    Document::encode(value)
}

fn json(text: &str) -> Document {
    document(&Value::from_json(text).unwrap())
}

fn primary(value: &Value) -> Result<Vec<u8>, KeyError> {
    let mut key = Vec::new();
    primary_key(document(value).value(), &mut key).map(|()| key)
}

fn primary_of(text: &str) -> Result<Vec<u8>, KeyError> {
    primary(&Value::from_json(text).unwrap())
}

fn secondary(value: &Value) -> Result<SecondaryKey, KeyError> {
    SecondaryKey::of_entry(document(value).value())
}

/// A key as RethinkDB writes it, with nothing cut.
fn reql_key(value: &Value, key: &mut String) {
    match value {
        Value::Number(number) => {
            let number = number.get() + 0.0;
            let bits = number.to_bits();
            let ordered = if bits >> 63 == 1 { !bits } else { bits ^ 1 << 63 };
            key.push_str(&format!("N{ordered:016x}#{}", reconstructable(number)));
        }
        Value::Bool(bool) => key.push_str(if *bool { "Bt" } else { "Bf" }),
        Value::String(text) => {
            key.push('S');
            key.push_str(text);
        }
        Value::Binary(bytes) => {
            key.push_str("PBINARY:");
            bytes.iter().for_each(|byte| key.push_str(if *byte < 2 { "\u{1}x" } else { "x" }));
        }
        Value::Time(time) => {
            key.push_str("PTIME:");
            reql_key(&Value::number(time.epoch_seconds()).unwrap(), key);
        }
        Value::Array(array) => {
            key.push('A');
            for element in array.iter() {
                reql_key(element, key);
                key.push('\0');
            }
        }
        _ => panic!("{value:?} is no key"),
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(array) => array.iter().any(has_nul),
        _ => false,
    }
}

#[test]
fn keys_are_refused_as_rethinkdb_refuses_them() {
    let refused = |text: &str| primary_of(text).unwrap_err();
    assert_eq!(primary_of(&format!("\"{}\"", "k".repeat(127))).unwrap().len(), 129);
    assert_eq!(
        refused(&format!("\"{}\"", "k".repeat(128))).to_string(),
        format!("Primary key too long (max 127 characters): \"{}\"", "k".repeat(128))
    );
    assert!(primary_of(&format!("\"{}\"", "é".repeat(63))).is_ok());
    assert!(refused(&format!("\"{}\"", "é".repeat(64))).to_string().starts_with("Primary key too long"));
    assert_eq!(
        refused(&format!("[\"{}\"]", "k".repeat(126))).to_string(),
        format!("Primary key too long (max 127 characters): [\n\t\"{}\"\n]", "k".repeat(126))
    );
    // Six numbers of one digit take 121 bytes there, seven 141.
    assert!(primary_of("[1,2,3,4,5,6]").is_ok());
    assert!(refused("[1,2,3,4,5,6,7]").to_string().starts_with("Primary key too long"));
    assert_eq!(
        refused("\"a\\u0000b\"").to_string(),
        "String \"a\\x00b\" (truncated) contains NULL byte at offset 1 in index key."
    );
    assert_eq!(
        refused("[\"\\u00e9\\\"\\n0123456789012345678901234567890\\u0000\"]").to_string(),
        "String \"\\xc3\\xa9\\\"\\n0123456789012345\" (truncated) contains NULL byte at offset 35 in index key."
    );
    let null = refused("null");
    assert_eq!(
        null.to_string(),
        "Primary keys must be either a number, string, bool, pseudotype or array (got type NULL):\nnull"
    );
    assert_eq!(null.class(), ErrorClass::NonExistence);
    let object = refused(r#"{"a":1}"#);
    assert_eq!(
        object.to_string(),
        "Primary keys must be either a number, string, bool, pseudotype or array (got type OBJECT):\n{\n\t\"a\":\t1\n}"
    );
    assert_eq!(object.class(), ErrorClass::Logic);
    assert_eq!(
        refused(r#"[1,{"a":1}]"#).to_string(),
        "Array keys can only contain numbers, strings, bools,  pseudotypes, or arrays (got {\n\t\"a\":\t1\n} of type OBJECT)."
    );
    assert_eq!(refused("[[],null]").class(), ErrorClass::NonExistence);
    assert_eq!(
        refused(r#"{"$reql_type$":"GEOMETRY","type":"Point","coordinates":[0,0]}"#).to_string(),
        "Cannot use a geometry value as a key value in a primary or non-geospatial secondary index."
    );
    let array = Value::array(vec![1.into(), Value::MinVal]).unwrap();
    assert_eq!(secondary(&array).unwrap_err(), KeyError::Extremum);
    assert!(SecondaryKey::of_search(document(&array).value()).is_ok());
    assert!(primary(&Value::MaxVal).is_ok());
    assert_eq!(
        SecondaryKey::of_search(json(r#"{"k":1}"#).value()).unwrap_err().to_string(),
        "Secondary keys must be a number, string, bool, pseudotype, or array (got {\n\t\"k\":\t1\n} of type OBJECT)."
    );
    // Once a key is too long, what follows is not looked at.
    assert!(refused(&format!("[\"{}\",null]", "k".repeat(250))).to_string().starts_with("Primary key too long"));
}

/// Kept from the first version on: what was stored must be found.
#[test]
fn the_keys_are_what_they_were() {
    let hex = |key: &[u8]| key.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    for (text, key) in [
        ("[]", "2000"),
        ("[[],1]", "20200040bff000000000000000"),
        ("false", "30"),
        ("true", "31"),
        ("-1", "40400fffffffffffff"),
        ("0", "408000000000000000"),
        ("-0.0", "408000000000000000"),
        ("1.5", "40bff8000000000000"),
        (r#"{"$reql_type$":"BINARY","data":"AAECYQ=="}"#, "5001010102026100"),
        (r#"{"$reql_type$":"TIME","epoch_time":1.5,"timezone":"-07:00"}"#, "60bff8000000000000"),
        ("\"\"", "7000"),
        ("\"a\\u0001é\"", "70610102c3a900"),
    ] {
        assert_eq!(hex(&primary_of(text).unwrap()), key, "{text}");
    }
    let secondary = secondary(&Value::from("s")).unwrap();
    let primary = primary_of("true").unwrap();
    assert_eq!(hex(&entry_key(&secondary, &primary, None)), "707300310300");
    assert_eq!(hex(&entry_key(&secondary, &primary, Some(258))), "70730031000001020302");
}

#[test]
fn long_secondary_keys_are_cut_and_say_so() {
    let key = |length: usize| secondary(&Value::from("x".repeat(length))).unwrap();
    assert!(!key(MAX_SECONDARY_KEY_BYTES - 2).is_cut());
    assert!(key(MAX_SECONDARY_KEY_BYTES - 1).is_cut());
    assert_eq!(key(1_000_000).bytes().len(), MAX_SECONDARY_KEY_BYTES);
    assert_eq!(key(300), key(400));
    let (one, other) = (entry_key(&key(300), b"\x30", None), entry_key(&key(400), b"\x31", Some(7)));
    assert!(one < other);
    assert!(EntryKey::decode(&one).unwrap().is_cut);
    assert_eq!(EntryKey::decode(&other).unwrap().primary, b"\x31");
}

#[test]
fn damaged_keys_are_refused() {
    for key in
        [&b""[..], b"\x00", b"\x20", b"\x20\x30", b"\x40\0", b"\x70a", b"\x70\x01\x03\0", b"\x30\x30", b"\x70\xff\0"]
    {
        assert!(decode_key(key).is_err(), "{key:02x?}");
    }
    assert!(decode_key(&[0x20; 1_000_000]).is_err());
    assert!(decode_key(b"\x40\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
    assert!(decode_key(b"\x40\x7f\xff\xff\xff\xff\xff\xff\xff").is_err());
    for key in [&b""[..], b"\0", b"\x01\0", b"\0\x04", b"\0\0\0\0\x02"] {
        assert!(EntryKey::decode(key).is_err(), "{key:02x?}");
    }
}

/// Whether `value` lies between the bounds.
fn is_between(value: &Value, left: &Bound<Value>, right: &Bound<Value>) -> bool {
    (left.as_ref(), right.as_ref()).contains_value(value)
}

trait ContainsValue {
    fn contains_value(&self, value: &Value) -> bool;
}

impl ContainsValue for (Bound<&Value>, Bound<&Value>) {
    fn contains_value(&self, value: &Value) -> bool {
        std::ops::RangeBounds::contains(self, value)
    }
}

fn bound() -> impl Strategy<Value = Bound<Value>> {
    prop_oneof![
        Just(Bound::Unbounded),
        Just(Bound::Included(Value::MinVal)),
        Just(Bound::Excluded(Value::MaxVal)),
        keyable().prop_map(Bound::Included),
        keyable().prop_map(Bound::Excluded),
        (keyable(), any::<bool>()).prop_map(|(first, is_max)| {
            let last = if is_max { Value::MaxVal } else { Value::MinVal };
            Bound::Included(Value::array(vec![first, last]).unwrap())
        }),
    ]
}

fn encoded(bound: &Bound<Value>) -> Bound<Document> {
    bound.as_ref().map(document)
}

fn view(bound: &Bound<Document>) -> Bound<EncodedValue<'_>> {
    bound.as_ref().map(Document::value)
}

proptest! {
    #[test]
    fn primary_keys_sort_as_values_do_and_come_back(one in keyable(), other in keyable()) {
        for value in [&one, &other] {
            let mut reql = String::new();
            reql_key(value, &mut reql);
            match primary(value) {
                Ok(key) => {
                    prop_assert!(reql.len() <= 128 && !has_nul(value));
                    prop_assert_eq!(&decode_key(&key).unwrap(), value);
                }
                Err(KeyError::NullByte { .. }) => prop_assert!(has_nul(value)),
                Err(KeyError::PrimaryKeyTooLong { .. }) => prop_assert!(reql.len() > 128),
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
        if let (Ok(one_key), Ok(other_key)) = (primary(&one), primary(&other)) {
            prop_assert_eq!(one_key.cmp(&other_key), one.cmp(&other));
            prop_assert_eq!(one_key.starts_with(&other_key), one == other);
        }
    }

    #[test]
    fn secondary_keys_sort_as_values_do_unless_they_are_cut(one in keyable(), other in keyable()) {
        let (one_key, other_key) = (secondary(&one).unwrap(), secondary(&other).unwrap());
        let ordering = one_key.bytes().cmp(other_key.bytes());
        match ordering {
            Ordering::Equal if one_key.is_cut() => prop_assert!(other_key.is_cut()),
            _ => prop_assert_eq!(ordering, one.cmp(&other)),
        }
        if !one_key.is_cut() {
            prop_assert_eq!(&decode_key(one_key.bytes()).unwrap(), &one);
            prop_assert_eq!(other_key.bytes().starts_with(one_key.bytes()), one == other);
        }
    }

    #[test]
    fn entries_sort_by_value_and_primary_key(values in vec((keyable(), 0..9i32, prop::option::of(0..9u32)), 2)) {
        let entry = |(value, id, place): &(Value, i32, Option<u32>)| {
            let secondary = secondary(value).unwrap();
            let key = entry_key(&secondary, &primary(&Value::from(*id)).unwrap(), *place);
            let parts = EntryKey::decode(&key).unwrap();
            assert_eq!((parts.secondary, parts.place, parts.is_cut), (secondary.bytes(), *place, secondary.is_cut()));
            assert_eq!(decode_key(parts.primary).unwrap(), Value::from(*id));
            (key.clone(), secondary.is_cut())
        };
        let ((one, one_is_cut), (other, other_is_cut)) = (entry(&values[0]), entry(&values[1]));
        let by_id = values[0].1.cmp(&values[1].1);
        if !(one_is_cut && other_is_cut) && values[0].0.cmp(&values[1].0).then(by_id).is_ne() {
            prop_assert_eq!(one.cmp(&other), values[0].0.cmp(&values[1].0).then(by_id));
        }
    }

    #[test]
    fn ranges_hold_what_lies_between_the_bounds(values in vec(keyable(), 0..12), left in bound(), right in bound()) {
        let (left_bytes, right_bytes) = (encoded(&left), encoded(&right));
        let range = secondary_range(view(&left_bytes), view(&right_bytes)).unwrap();
        for (id, value) in values.iter().enumerate() {
            let id = Value::from(u32::try_from(id).unwrap());
            let key = entry_key(&secondary(value).unwrap(), &primary(&id).unwrap(), None);
            let is_in = range.keys.contains(&key);
            let is_doubtful = is_in && range.is_doubtful(&EntryKey::decode(&key).unwrap());
            if is_between(value, &left, &right) {
                prop_assert!(is_in);
            } else {
                prop_assert!(!is_in || is_doubtful);
            }
        }
        let Ok(range) = primary_range(view(&left_bytes), view(&right_bytes)) else { return Ok(()) };
        for value in &values {
            if let Ok(key) = primary(value) {
                prop_assert_eq!(range.contains(&key), is_between(value, &left, &right));
            }
        }
    }

    #[test]
    fn what_is_no_key_is_refused_and_no_bytes_do_harm(value in value(), bytes in vec(any::<u8>(), 0..40)) {
        let is_key = primary(&value).is_ok();
        let refused = matches!(value, Value::Null | Value::Object(_) | Value::Geometry(_));
        prop_assert!(!(is_key && refused));
        if let Ok(value) = decode_key(&bytes) {
            let again = SecondaryKey::of_search(document(&value).value()).unwrap();
            prop_assert_eq!(again.bytes(), &bytes[..], "a value has two keys");
        }
        let _ = EntryKey::decode(&bytes);
        let _ = primary_key(EncodedValue::trusted(&bytes), &mut Vec::new());
    }
}
