//! Keys become values again.

use super::write::number_of;
use super::{ARRAY, BINARY, END, ESCAPE, FALSE, MAX_VAL, MIN_VAL, NUMBER, STRING, TIME, TRUE};
use crate::{Damage, MAX_DEPTH, Number, Time, Timezone, Value};

/// The value whose primary key (or secondary key, if it was not cut) these bytes are. What a key does not hold is lost: a
/// time comes back in UTC, and -0 as 0.
///
/// # Errors
/// [`Damage`], if the bytes are no key.
pub fn decode_key(key: &[u8]) -> Result<Value, Damage> {
    let mut rest = key;
    let value = take(&mut rest, 0)?;
    if rest.is_empty() { Ok(value) } else { Err(Damage("a key is longer than its value")) }
}

fn take(rest: &mut &[u8], depth: usize) -> Result<Value, Damage> {
    let (&tag, body) = rest.split_first().ok_or(Damage("a key is cut off"))?;
    *rest = body;
    Ok(match tag {
        MIN_VAL => Value::MinVal,
        MAX_VAL => Value::MaxVal,
        FALSE | TRUE => Value::Bool(tag == TRUE),
        NUMBER => Value::Number(take_number(rest)?),
        TIME => Value::Time(Time::from_number(take_number(rest)?, Timezone::UTC)),
        BINARY => Value::binary(take_escaped(rest)?),
        STRING => {
            let text = String::from_utf8(take_escaped(rest)?).map_err(|_| Damage("a key's text is not UTF-8"))?;
            Value::from(text)
        }
        ARRAY if depth < MAX_DEPTH => {
            let mut elements = Vec::new();
            while rest.first() != Some(&END) {
                elements.push(take(rest, depth + 1)?);
            }
            *rest = &rest[1..];
            Value::array(elements).map_err(|_| Damage("a key is nested too deeply"))?
        }
        _ => return Err(Damage("a key's tag is unknown")),
    })
}

fn take_number(rest: &mut &[u8]) -> Result<Number, Damage> {
    let (bits, after) = rest.split_first_chunk::<8>().ok_or(Damage("a key is cut off"))?;
    *rest = after;
    let number = number_of(u64::from_be_bytes(*bits));
    if number == 0.0 && number.is_sign_negative() {
        return Err(Damage("a key's number is negative zero"));
    }
    Number::new(number).map_err(|_| Damage("a key's number is not finite"))
}

fn take_escaped(rest: &mut &[u8]) -> Result<Vec<u8>, Damage> {
    let length = memchr::memchr(END, rest).ok_or(Damage("a key is cut off"))?;
    let (escaped, after) = (&rest[..length], &rest[length + 1..]);
    *rest = after;
    let mut bytes = Vec::with_capacity(length);
    let mut left = escaped;
    while let Some(at) = memchr::memchr(ESCAPE, left) {
        bytes.extend_from_slice(&left[..at]);
        match left.get(at + 1) {
            Some(&escaped @ 1..=2) => bytes.push(escaped - 1),
            _ => return Err(Damage("a key has an unknown escape")),
        }
        left = &left[at + 2..];
    }
    bytes.extend_from_slice(left);
    Ok(bytes)
}
