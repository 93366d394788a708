//! Encoded values against values.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod common;

use bytes::Bytes;
use common::value;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use tessera_document::{
    Document, EncodedText, EncodedValue, MAX_DEPTH, Number, Timezone, Value, ValueError, View, assemble_array,
    assemble_object,
};

fn encoded(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

/// Whether two values are the same, not only equal.
fn same(one: &Value, other: &Value) -> bool {
    one.to_json().unwrap() == other.to_json().unwrap()
}

/// What one calls on bytes that may be anything.
fn use_up(bytes: &[u8], other: &[u8]) {
    let (value, other) = (EncodedValue::trusted(bytes), EncodedValue::trusted(other));
    let _ = value.cmp(&other);
    let _ = value == other;
    let _ = RandomState::new().hash_one(value);
    let _ = value.to_json();
    let _ = value.to_value();
    let _ = value.merge(other, &mut Vec::new());
    let _ = value.get_field("a");
    if let Some(object) = value.as_object() {
        let _ = object.pluck(&["a"], &mut Vec::new());
        let _ = object.without(&["a"], &mut Vec::new());
        let _ = object.with_field("b", other, &mut Vec::new());
    }
    if let Some(array) = value.as_array() {
        let _ = (array.get(0), array.get(array.len()), array.iter().count());
    }
    if EncodedValue::check(bytes).is_ok() {
        assert_eq!(encoded(&value.to_value().unwrap()), bytes, "a value has two encodings");
    }
}

/// Kept from the first version on: what was stored must be read.
#[test]
fn the_format_is_what_it_was() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/encoding.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut written = String::new();
    for line in text.lines() {
        if line.starts_with('#') {
            writeln!(written, "{line}").unwrap();
            continue;
        }
        let (json, _) = line.split_once('\t').unwrap_or((line, ""));
        let bytes = encoded(&Value::from_json(json).unwrap());
        let hex = bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        writeln!(written, "{json}\t{hex}").unwrap();
        assert_eq!(EncodedValue::check(&bytes).unwrap().to_json().unwrap(), json);
    }
    if std::env::var_os("TESSERA_RECORD").is_some() {
        std::fs::write(path, &written).unwrap();
    }
    assert_eq!(written, text, "to write new lines, run this with TESSERA_RECORD=1; old ones must not change");
}

#[test]
fn numbers_have_one_form() {
    let powers = (0..=53).flat_map(|power| [(1i64 << power) - 1, 1 << power, -(1 << power), -(1 << power) - 1]);
    for integer in powers.filter(|integer| integer.abs() <= 1 << 53) {
        let value = Value::number(integer as f64).unwrap();
        let bytes = encoded(&value);
        assert!(bytes.len() <= 8, "{integer} takes {}", bytes.len());
        assert_eq!(EncodedValue::check(&bytes).unwrap().as_number(), Some(integer as f64));
        let mut long = vec![7];
        long.extend_from_slice(&(integer as f64).to_le_bytes());
        assert!(EncodedValue::check(&long).is_err());
    }
    assert_eq!(encoded(&Value::number(-0.0).unwrap()).len(), 9);
}

#[test]
fn containers_are_as_wide_as_they_must_be() {
    for (length, table) in [(0, 5), (250, 5), (251, 5), (252, 10), (65_531, 10), (65_532, 20), (200_000, 20)] {
        // Tag, count, two ends for each of two fields; two keys, a number, and a string with its tag.
        let value = Value::object([("a", Value::from(1)), ("b", Value::from("x".repeat(length)))]).unwrap();
        let bytes = encoded(&value);
        assert_eq!(bytes.len(), 1 + table + 2 + 1 + 1 + length, "{length}");
        let checked = EncodedValue::check(&bytes).unwrap();
        assert_eq!(checked.get_field("b").unwrap().as_text().unwrap().as_str().len(), length);
        assert!(same(&checked.to_value().unwrap(), &value));
    }
    // Numbers are longer than they must be at least, so that the table grows while it is written.
    for count in [20, 60, 300, 10_000, 70_000] {
        let numbers = (0..count).map(|number| Value::number(f64::from(number) + 0.5).unwrap()).collect();
        let value = Value::array(vec![Value::array(numbers).unwrap(), Value::from("end")]).unwrap();
        let bytes = encoded(&value);
        assert!(same(&EncodedValue::check(&bytes).unwrap().to_value().unwrap(), &value));
    }
}

#[test]
fn extrema_are_encoded_for_queries() {
    let array = Value::array(vec![Value::MinVal, Value::MaxVal]).unwrap();
    let bytes = encoded(&array);
    assert_eq!(EncodedValue::check(&bytes).unwrap().to_value().unwrap(), array);
    assert!(EncodedValue::trusted(&bytes).to_json().is_err());
}

#[test]
fn damage_is_found() {
    for bytes in [
        &b""[..],
        b"\x0d",
        b"\x06\x00",
        b"\x07\0\0\0\0\0\0\xf0\x7f",
        b"\x07\0\0\0\0\0\0\0",
        b"\x08",
        b"\x08\x05",
        b"\x08\xff\xff",
        b"\x08\0\0\0\0\0\0\x40",
        b"\x09\"",
        b"\x0a ",
        b"\x09\xff",
        b"\x0c\0\0\0\0\0\0\0\0",
        b"\x0c\0\0\0\0\0\0\0\0\xff\x0f",
        b"\x01",
        b"\x01\x01",
        b"\x01\x01\x01",
        b"\x01\x01\x01\x80\x80",
        b"\x01\x02\x01\x00\x80",
        b"\x02\0\0",
        b"\x10\x01\x01\x02b",
        b"\x10\x02\x01\x02\x03\x04ba\x80\x80",
        b"\x10\x02\x01\x02\x03\x04aa\x80\x80",
        b"\x14\x01\x01\x02a\x80",
        b"\x13\0\0\0\0\0\0\0\0",
        b"\x18\0",
        b"\x10\x01\x0b\x0d$reql_type$\x09x",
    ] {
        assert!(EncodedValue::check(bytes).is_err(), "{bytes:02x?}");
        use_up(bytes, b"\x80");
    }
}

#[test]
fn bytes_that_are_nested_for_ever_are_refused_and_do_no_harm() {
    let run = || {
        let mut bytes = vec![0x80];
        for depth in 1..=4 * MAX_DEPTH {
            let (mut array, mut object) = (Vec::new(), Vec::new());
            assemble_array(&[EncodedValue::trusted(&bytes)], &mut array).unwrap();
            assemble_object([(EncodedText::new("a"), EncodedValue::trusted(&bytes))], &mut object).unwrap();
            assert_eq!(EncodedValue::check(&array).is_ok(), depth <= MAX_DEPTH);
            assert_eq!(EncodedValue::check(&object).is_ok(), depth <= MAX_DEPTH);
            bytes = if depth % 2 == 0 { array } else { object };
            if depth >= MAX_DEPTH - 1 && depth % 97 == 0 || depth == MAX_DEPTH {
                use_up(&bytes, &bytes);
            }
        }
        assert_eq!(EncodedValue::trusted(&bytes).to_json().unwrap_err(), ValueError::TooDeep { limit: MAX_DEPTH });
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn parts_that_overlap_are_not_walked_again_and_again() {
    // Each array seems to hold the one before it twice, so that there would be two to the power of 45 numbers.
    let mut bytes = vec![0x80];
    for _ in 0..45 {
        let length = u8::try_from(bytes.len()).unwrap();
        bytes.splice(0..0, [0x01, 3, length, 0, length]);
    }
    assert!(EncodedValue::check(&bytes).is_err());
    use_up(&bytes, &bytes);
    let other: Vec<u8> = bytes.iter().map(|&byte| if byte == 0x80 { 0x81 } else { byte }).collect();
    use_up(&bytes, &other);
}

#[test]
fn a_field_of_a_document_shares_its_bytes() {
    let document = Document::encode(&Value::from_json(r#"{"a":{"b":"text"},"c":[1,2]}"#).unwrap());
    let field = document.get_field("a").unwrap().get_field("b").unwrap();
    assert_eq!(format!("{field:?}"), "\"text\"");
    assert!(document.bytes().as_ptr_range().contains(&field.bytes().as_ptr()));
    assert_eq!(document.get_field("d"), None);
    assert_eq!(Document::check(document.bytes().clone()).unwrap(), document);
    assert!(Document::check(Bytes::from_static(b"\x0d")).is_err());
}

proptest! {
    #[test]
    fn an_encoding_is_the_value(value in value()) {
        let bytes = encoded(&value);
        let checked = EncodedValue::check(&bytes).unwrap();
        let back = checked.to_value().unwrap();
        prop_assert!(same(&back, &value));
        prop_assert_eq!(&encoded(&back), &bytes);
        prop_assert_eq!(checked.to_json().unwrap(), value.to_json().unwrap());
        use_up(&bytes, &bytes);
    }

    #[test]
    fn encodings_are_the_same_if_values_are_and_are_ordered_as_they_are(one in value(), other in value()) {
        let (one_bytes, other_bytes) = (encoded(&one), encoded(&other));
        let (one_encoded, other_encoded) = (EncodedValue::trusted(&one_bytes), EncodedValue::trusted(&other_bytes));
        prop_assert_eq!(one_bytes == other_bytes, same(&one, &other));
        prop_assert_eq!(one_encoded.cmp(&other_encoded), one.cmp(&other));
        prop_assert_eq!(one_encoded == other_encoded, one == other);
        prop_assert_eq!(one_encoded.compare_as_reql(other_encoded), one.compare_as_reql(&other));
        if one == other {
            let state = RandomState::new();
            prop_assert_eq!(state.hash_one(one_encoded), state.hash_one(other_encoded));
        }
    }

    #[test]
    fn parts_are_found_in_place(value in value(), missing in "[a-e]{0,3}") {
        let bytes = encoded(&value);
        match (&value, EncodedValue::trusted(&bytes).view()) {
            (Value::Array(array), View::Array(found)) => {
                prop_assert_eq!(found.len(), array.len());
                for (place, element) in array.iter().enumerate() {
                    let encoding = encoded(element);
                    prop_assert_eq!(found.get(place).unwrap().as_bytes(), &encoding[..]);
                }
                prop_assert!(found.get(array.len()).is_none());
            }
            (Value::Object(object) | Value::Geometry(object), View::Object(found) | View::Geometry(found)) => {
                prop_assert_eq!(found.len(), object.len());
                for (key, field) in object {
                    let encoding = encoded(field);
                    prop_assert_eq!(found.get(key).unwrap().as_bytes(), &encoding[..]);
                }
                prop_assert_eq!(found.get(&missing).is_some(), object.contains_key(&missing));
                prop_assert!(found.keys().map(EncodedText::as_str).eq(object.keys().map(|key| &**key)));
            }
            (Value::Number(number), View::Number(found)) => {
                prop_assert_eq!(number.get().to_bits(), Number::get(found).to_bits());
            }
            (Value::Time(time), View::Time(found)) => {
                let zones: (Timezone, Timezone) = (time.timezone(), found.timezone());
                prop_assert_eq!(zones.0, zones.1);
            }
            _ => {}
        }
    }

    #[test]
    fn editing_in_place_is_editing_the_value(one in value(), other in value(), keys in vec("[a-d]{1,2}", 0..4)) {
        let (one_bytes, other_bytes) = (encoded(&one), encoded(&other));
        let (one_encoded, other_encoded) = (EncodedValue::trusted(&one_bytes), EncodedValue::trusted(&other_bytes));

        let mut merged = Vec::new();
        match (one_encoded.merge(other_encoded, &mut merged), one.merge(&other)) {
            (Ok(()), Ok(expected)) => prop_assert_eq!(&merged, &encoded(&expected)),
            (Err(error), Err(expected)) => prop_assert_eq!(error, expected),
            (result, expected) => prop_assert!(false, "{:?} {:?}", result, expected),
        }

        if let (Some(object), Value::Object(fields)) = (one_encoded.as_object(), &one) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let kept = |wanted: bool| {
                let fields = fields.into_iter().filter(|(key, _)| keys.contains(&&**key) == wanted);
                encoded(&Value::object(fields.cloned()).unwrap())
            };
            let (mut plucked, mut left) = (Vec::new(), Vec::new());
            object.pluck(&keys, &mut plucked).unwrap();
            object.without(&keys, &mut left).unwrap();
            prop_assert_eq!(plucked, kept(true));
            prop_assert_eq!(left, kept(false));
            let mut with = Vec::new();
            object.with_field("b", other_encoded, &mut with).unwrap();
            let all = fields.into_iter().cloned().chain([("b".into(), other.clone())]);
            prop_assert_eq!(with, encoded(&Value::object(all).unwrap()));
        }

        let mut array = Vec::new();
        assemble_array(&[one_encoded, other_encoded], &mut array).unwrap();
        prop_assert_eq!(array, encoded(&Value::array(vec![one, other]).unwrap()));
    }

    #[test]
    fn hostile_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..60), other in vec(any::<u8>(), 0..60)) {
        use_up(&bytes, &other);
    }

    #[test]
    fn a_changed_byte_does_no_harm(value in value(), other in value(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = encoded(&value);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        use_up(&bytes, &encoded(&other));
        bytes.truncate(at);
        use_up(&bytes, &encoded(&other));
    }
}
