//! Keys: values as bytes that sort as the values do, in RethinkDB's encoding, whose lengths users meet as limits.

use std::fmt::Write;

use tessera_document::reconstructable;

use crate::error::{Error, Result};
use crate::value::{Value, ValueExt as _};

/// The longest encoded primary key: 127 characters of a string, and one byte that says that it is a string.
pub const MAX_PRIMARY_KEY_BYTES: usize = 128;

/// The bytes of a primary key.
///
/// # Errors
/// If the value cannot be a key, or is too long for one.
pub fn primary_key(value: &Value) -> Result<Vec<u8>> {
    let out = primary_bound(value)?;
    if out.len() > MAX_PRIMARY_KEY_BYTES {
        let shown = value.print()?;
        return Err(Error::logic(format!(
            "Primary key too long (max {} characters): {shown}",
            MAX_PRIMARY_KEY_BYTES - 1
        )));
    }
    Ok(out)
}

/// The bytes of the end of a range of primary keys, which may be longer than a key.
///
/// # Errors
/// If the value cannot be a key.
pub fn primary_bound(value: &Value) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    if !scalar(value, &mut out, false)? {
        match value {
            Value::Array(items) => array(items, &mut out, false)?,
            Value::Geometry(_) => return Err(geometry_key()),
            _ => {
                let message = format!(
                    "Primary keys must be either a number, string, bool, pseudotype or array (got type {}):\n{}",
                    value.type_name(),
                    value.print_truncated()?
                );
                return Err(Error::typed(value, message));
            }
        }
    }
    Ok(out)
}

/// The bytes of a key of a secondary index, whole; the bounds of ranges may be `MINVAL` and `MAXVAL`.
///
/// # Errors
/// If the value cannot be a key.
pub fn secondary_key(value: &Value) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    if !scalar(value, &mut out, true)? {
        match value {
            Value::Array(items) => array(items, &mut out, true)?,
            Value::Null => return Err(Error::non_existence("Keys cannot be NULL.")),
            Value::Geometry(_) => return Err(geometry_key()),
            _ => {
                let message = format!(
                    "Secondary keys must be a number, string, bool, pseudotype, or array (got {} of type {}).",
                    value.print_truncated()?,
                    value.type_name(),
                );
                return Err(Error::typed(value, message));
            }
        }
    }
    Ok(out)
}

fn geometry_key() -> Error {
    Error::logic("Cannot use a geometry value as a key value in a primary or non-geospatial secondary index.")
}

fn array(items: &[Value], out: &mut Vec<u8>, escapes: bool) -> Result<()> {
    out.push(b'A');
    for item in items {
        if !scalar(item, out, escapes)? {
            match item {
                Value::Array(inner) => array(inner, out, escapes)?,
                Value::Geometry(_) => return Err(geometry_key()),
                _ => {
                    let message = format!(
                        "Array keys can only contain numbers, strings, bools,  pseudotypes, or arrays (got {} of type {}).",
                        item.print()?,
                        item.type_name(),
                    );
                    return Err(Error::typed(item, message));
                }
            }
        }
        out.push(0);
    }
    Ok(())
}

/// Appends the key of a value that is not an array; false if it can be no key.
fn scalar(value: &Value, out: &mut Vec<u8>, escapes: bool) -> Result<bool> {
    match value {
        Value::MinVal => out.push(b'@'),
        Value::MaxVal => out.push(b'['),
        Value::Bool(value) => out.extend_from_slice(if *value { b"Bt" } else { b"Bf" }),
        Value::Number(number) => push_number(number.get(), out),
        Value::String(text) => {
            out.push(b'S');
            if let Some(offset) = text.bytes().position(|byte| byte == 0).filter(|_| !escapes) {
                return Err(Error::logic(format!(
                    "String \"{}\" (truncated) contains NULL byte at offset {offset} in index key.",
                    text.replace('\0', "\\x00")
                )));
            }
            push_escaped(text.as_bytes(), out, escapes);
        }
        Value::Binary(bytes) => {
            out.extend_from_slice(b"PBINARY:");
            push_escaped(bytes, out, true);
        }
        Value::Time(time) => {
            out.extend_from_slice(b"PTIME:");
            push_number(time.epoch_seconds(), out);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Bytes 0 and 1 are written as two, so that a zero byte ends what stands before it.
fn push_escaped(bytes: &[u8], out: &mut Vec<u8>, escapes: bool) {
    for byte in bytes {
        match byte {
            0 | 1 if escapes => out.extend_from_slice(&[1, byte + 1]),
            other => out.push(*other),
        }
    }
}

fn push_number(number: f64, out: &mut Vec<u8>) {
    let number = if number == 0.0 { 0.0 } else { number };
    let bits = number.to_bits();
    let sorted = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    let mut text = String::new();
    let _ = write!(text, "N{sorted:016x}#");
    text.push_str(&reconstructable(number));
    out.extend_from_slice(text.as_bytes());
}
