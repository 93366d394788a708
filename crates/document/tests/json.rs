//! JSON text, read and written.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod common;

use common::value;
use proptest::prelude::*;
use tessera_document::{ErrorClass, MAX_DEPTH, Value, ValueError};

fn reread(text: &str) -> String {
    Value::from_json(text).unwrap().to_json().unwrap()
}

fn refusal(text: &str) -> String {
    Value::from_json(text).unwrap_err().to_string()
}

#[test]
fn what_rethinkdb_reads_is_read() {
    for (text, written) in [
        ("1e-400", "0"),
        (" 7", "7"),
        ("7 ", "7"),
        ("1E5", "100000"),
        ("9007199254740993", "9007199254740992"),
        ("123456789012345678901234567890", "1.2345678901234568e29"),
        ("-0", "0"),
        ("-0.0", "-0.0"),
        ("0.1e1", "1"),
        ("-1.5e3", "-1500"),
        ("\n[1, 2,[3] ]\n", "[1,2,[3]]"),
        ("{ \"b\" : 1 , \"a\":2}", r#"{"a":2,"b":1}"#),
        (r#""\u00e9\n\ud83d\ude00\/""#, "\"é\\n😀/\""),
        (r#""\u0000\u001f\b\f\r\t\"\\""#, r#""\u0000\u001F\b\f\r\t\"\\""#),
        ("\"\u{7f}\u{2028}\"", "\"\u{7f}\u{2028}\""),
        (
            r#"{"$reql_type$":"TIME","epoch_time":1.0004,"timezone":"Z"}"#,
            r#"{"$reql_type$":"TIME","epoch_time":1,"timezone":"+00:00"}"#,
        ),
        (r#"{"$reql_type$":"BINARY","data":"A A E"}"#, r#"{"$reql_type$":"BINARY","data":"AAE="}"#),
        (
            r#"{"type":"Point","coordinates":[1,2],"$reql_type$":"GEOMETRY"}"#,
            r#"{"$reql_type$":"GEOMETRY","coordinates":[1,2],"type":"Point"}"#,
        ),
        (
            r#"{"$reql_type$":"GEOMETRY","type":"Point","coordinates":[1,2],"crs":null}"#,
            r#"{"$reql_type$":"GEOMETRY","coordinates":[1,2],"crs":null,"type":"Point"}"#,
        ),
        (r#"{"$reql_type$":"LITERAL","value":1}"#, r#"{"$reql_type$":"LITERAL","value":1}"#),
    ] {
        assert_eq!(reread(text), written);
    }
}

#[test]
fn what_rethinkdb_refuses_is_refused_in_its_words() {
    for (text, message) in [
        ("", "The document is empty."),
        (" ", "The document is empty."),
        ("\"", "Missing a closing quotation mark in string."),
        ("\"a", "Missing a closing quotation mark in string."),
        (r#""\ud83d""#, "The surrogate pair in string is invalid."),
        (r#""\udc00\udc00""#, "The surrogate pair in string is invalid."),
        (r#""\x41""#, "Invalid escape character in string."),
        (r#""\u12g4""#, "Incorrect hex digit after \\u escape in string."),
        ("\"\t\"", "Invalid escape character in string."),
        ("+7", "Invalid value."),
        ("-", "Invalid value."),
        ("-inf", "Invalid value."),
        (".5", "Invalid value."),
        ("1.", "Miss fraction part in number."),
        ("1e", "Miss exponent in number."),
        ("1e400", "Number too big to be stored in double."),
        ("-1e400", "Number too big to be stored in double."),
        ("00012", "The document root must not follow by other values."),
        ("1 2", "The document root must not follow by other values."),
        ("NaN", "Invalid value."),
        ("nul", "Invalid value."),
        ("[", "Invalid value."),
        ("]", "Invalid value."),
        ("[1,]", "Invalid value."),
        ("[1 2]", "Missing a comma or ']' after an array element."),
        ("{", "Missing a name for object member."),
        ("{1:2}", "Missing a name for object member."),
        ("{'a':1}", "Missing a name for object member."),
        (r#"{"a" 1}"#, "Missing a colon after a name of object member."),
        (r#"{"a":}"#, "Invalid value."),
        (r#"{"a":1 "b":2}"#, "Missing a comma or '}' after an object member."),
        (r#"{"a":1}x"#, "The document root must not follow by other values."),
        ("\u{feff}1", "Invalid value."),
        (r#"{"a":1,"b":2,"a":2}"#, "Duplicate key \"a\" in JSON."),
        (r#"{"$reql_type$":"x"}"#, "Unknown $reql_type$ `PTYPE<x>`."),
        (
            r#"{"$reql_type$":1}"#,
            "Error: Field `$reql_type$` must be a string (got `1` of type NUMBER):\n{\n\t\"$reql_type$\":\t1\n}",
        ),
        (r#"{"$reql_type$":"BINARY","data":"?"}"#, "Invalid base64 character found: '?'."),
        (r#"{"$reql_type$":"BINARY","data":"AA==","x":1}"#, "Invalid binary pseudotype: illegal `x` key."),
        (r#"{"$reql_type$":"BINARY"}"#, "Invalid binary pseudotype: lacking `data` key."),
        (
            r#"{"$reql_type$":"TIME","epoch_time":5,"timezone":"z"}"#,
            "Invalid time object constructed (invalid timezone string `\"z\"`):\n{\n\t\"$reql_type$\":\t\"TIME\",\n\t\
             \"epoch_time\":\t5,\n\t\"timezone\":\t\"z\"\n}",
        ),
        (
            r#"{"$reql_type$":"TIME"}"#,
            "Invalid time object constructed (no field `epoch_time`):\n{\n\t\"$reql_type$\":\t\"TIME\"\n}",
        ),
        (
            r#"{"$reql_type$":"TIME","epoch_time":"1","timezone":"Z"}"#,
            "Invalid time object constructed (field `epoch_time` must be a number (got `\"1\"` of type STRING)):\n{\n\t\
             \"$reql_type$\":\t\"TIME\",\n\t\"epoch_time\":\t\"1\",\n\t\"timezone\":\t\"Z\"\n}",
        ),
        (r#"{"$reql_type$":"GEOMETRY","type":"Point"}"#, "Field `coordinates` not found in geometry object."),
        (r#"{"$reql_type$":"GEOMETRY"}"#, "Field `type` not found in geometry object."),
        (
            r#"{"$reql_type$":"GEOMETRY","type":"Point","coordinates":[1,2],"bbox":[]}"#,
            "Unrecognized field `bbox` found in geometry object.",
        ),
        (r#"{"$reql_type$":"GEOMETRY","type":1,"coordinates":[1,2]}"#, "Expected type STRING but found NUMBER."),
        (r#"{"$reql_type$":"GEOMETRY","type":"Point","coordinates":"x"}"#, "Expected type ARRAY but found STRING."),
    ] {
        assert_eq!(refusal(text), message, "{text}");
    }
    let error = Value::from_json(r#"{"$reql_type$":"GEOMETRY"}"#).unwrap_err();
    assert_eq!(error.class(), ErrorClass::NonExistence);
}

#[test]
fn a_text_nested_too_deeply_is_refused_however_deep_it_is() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(reread(&nested(MAX_DEPTH)), nested(MAX_DEPTH));
    for depth in [MAX_DEPTH + 1, 1_000_000] {
        assert_eq!(Value::from_json(&nested(depth)).unwrap_err(), ValueError::TooDeep { limit: MAX_DEPTH });
    }
    assert_eq!(Value::from_json(&"{\"a\":".repeat(1_000_000)).unwrap_err(), ValueError::TooDeep { limit: MAX_DEPTH });
}

#[test]
fn walking_the_deepest_value_needs_little_stack() {
    let walk = || {
        let text = "{\"a\":[".repeat(MAX_DEPTH / 2) + &"]}".repeat(MAX_DEPTH / 2);
        let (value, other) = (Value::from_json(&text).unwrap(), Value::from_json(&text).unwrap());
        assert_eq!(value, other);
        assert_eq!(value.to_json().unwrap(), text);
        assert!(value.to_pretty_json().unwrap().len() > text.len());
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(walk).unwrap().join().unwrap();
}

#[test]
fn error_messages_print_a_line_for_each_part() {
    let value = Value::from_json(
        r#"{"a":1,"b":[],"c":[1,{}],"n":{"m":5},"t":{"$reql_type$":"TIME","epoch_time":1,"timezone":"Z"}}"#,
    );
    assert_eq!(
        value.unwrap().to_pretty_json().unwrap(),
        "{\n\t\"a\":\t1,\n\t\"b\":\t[],\n\t\"c\":\t[\n\t\t1,\n\t\t{}\n\t],\n\t\"n\":\t{\n\t\t\"m\":\t5\n\t},\n\t\"t\":\t{\n\t\t\
         \"$reql_type$\":\t\"TIME\",\n\t\t\"epoch_time\":\t1,\n\t\t\"timezone\":\t\"+00:00\"\n\t}\n}"
    );
    let binary = Value::binary(vec![b'x'; 60]);
    let text = "{\"$reql_type$\":\"BINARY\",\"data\":\"".to_string() + &"eHh4".repeat(19) + "\\r\\neHh4\"}";
    assert_eq!(binary.to_pretty_json().unwrap(), text);
    let long = Value::from("é".repeat(200)).to_truncated_json().unwrap();
    assert_eq!(long, format!("\"{}...", "é".repeat(148)));
}

#[test]
fn what_is_in_queries_only_has_no_json() {
    let array = Value::array(vec![Value::MinVal]).unwrap();
    assert_eq!(array.to_json().unwrap_err().to_string(), "Cannot convert `r.minval` to JSON.");
    assert_eq!(Value::MaxVal.to_pretty_json().unwrap_err().to_string(), "Cannot convert `r.maxval` to JSON.");
}

proptest! {
    #[test]
    fn what_was_written_is_read_back(value in value()) {
        let text = value.to_json().unwrap();
        let back = Value::from_json(&text).unwrap();
        prop_assert_eq!(&back, &value);
        prop_assert_eq!(back.to_json().unwrap(), text);
        let from_pretty = Value::from_json(&value.to_pretty_json().unwrap()).unwrap();
        prop_assert_eq!(&from_pretty, &value);
    }

    #[test]
    fn no_text_ends_the_process(text in "[\\[\\]{}\":,0-9.eE+\\-\\\\untrfalse$ _\0é]{0,40}") {
        if let Ok(value) = Value::from_json(&text) {
            value.to_json().unwrap();
        }
    }
}
