//! Writing JSON as RethinkDB does: compact in answers, and in error messages with tabs.

use crate::value::Object;
use crate::{PSEUDO_TYPE_KEY, Time, Value, ValueError, base64};

/// How long a value's text may be in error messages that cut it, the three dots at its end included.
pub const JSON_TRUNCATED_BYTES: usize = 300;

/// How long a value's text may be in error messages that do not cut it to [`JSON_TRUNCATED_BYTES`], without the three dots that stand
/// for the rest. A value can have far more text than it takes itself: parts that it shares count each time, and so do tabs.
pub const JSON_SHOWN_BYTES: usize = 1 << 20;

/// Why a text ends before its value does.
enum Unwritten {
    /// The value has no JSON.
    Value(ValueError),
    /// The text is as long as it may be, or longer by less than one part.
    Full,
}

impl Value {
    /// Appends the value as compact JSON.
    ///
    /// # Errors
    /// [`ValueError::ExtremumToJson`]; the text is then incomplete.
    pub fn write_json(&self, out: &mut Vec<u8>) -> Result<(), ValueError> {
        match write(self, None, out, usize::MAX) {
            Err(Unwritten::Value(error)) => Err(error),
            Err(Unwritten::Full) | Ok(()) => Ok(()),
        }
    }

    /// The value as compact JSON.
    ///
    /// # Errors
    /// [`ValueError::ExtremumToJson`].
    pub fn to_json(&self) -> Result<String, ValueError> {
        let mut out = Vec::new();
        self.write_json(&mut out)?;
        Ok(into_text(out))
    }

    /// The value as compact JSON, unless that is longer than `limit`.
    ///
    /// # Errors
    /// [`ValueError::ExtremumToJson`], unless the text is too long before that.
    pub fn json_within(&self, limit: usize) -> Result<Option<String>, ValueError> {
        self.text_within(None, limit).map(|(text, is_whole)| is_whole.then_some(text))
    }

    /// As [`Value::to_pretty_json`], whole, unless that is longer than `limit`.
    ///
    /// # Errors
    /// As [`Value::json_within`].
    pub fn pretty_json_within(&self, limit: usize) -> Result<Option<String>, ValueError> {
        self.text_within(Some(0), limit).map(|(text, is_whole)| is_whole.then_some(text))
    }

    /// The value as RethinkDB prints it in error messages: a line for each element and field, indented by tabs. It is cut after
    /// [`JSON_SHOWN_BYTES`].
    ///
    /// # Errors
    /// [`ValueError::ExtremumToJson`], unless the text is cut before that. RethinkDB then answers this error in place of the one it was
    /// about to.
    pub fn to_pretty_json(&self) -> Result<String, ValueError> {
        let (mut text, is_whole) = self.text_within(Some(0), JSON_SHOWN_BYTES)?;
        if !is_whole {
            cut(&mut text, JSON_SHOWN_BYTES);
        }
        Ok(text)
    }

    /// As [`Value::to_pretty_json`], cut to [`JSON_TRUNCATED_BYTES`].
    ///
    /// # Errors
    /// As [`Value::to_pretty_json`].
    pub fn to_truncated_json(&self) -> Result<String, ValueError> {
        let mut text = self.to_pretty_json()?;
        if text.len() > JSON_TRUNCATED_BYTES {
            cut(&mut text, JSON_TRUNCATED_BYTES - 3);
        }
        Ok(text)
    }

    /// The text and whether it is all of it; if it is not, its end is anywhere behind `limit`.
    fn text_within(&self, indent: Option<usize>, limit: usize) -> Result<(String, bool), ValueError> {
        let mut out = Vec::new();
        let is_whole = match write(self, indent, &mut out, limit) {
            Ok(()) => out.len() <= limit,
            Err(Unwritten::Full) => false,
            Err(Unwritten::Value(error)) => return Err(error),
        };
        Ok((into_text(out), is_whole))
    }
}

fn cut(text: &mut String, limit: usize) {
    text.truncate(text.floor_char_boundary(limit));
    text.push_str("...");
}

fn into_text(out: Vec<u8>) -> String {
    String::from_utf8(out).expect("JSON is written as whole characters")
}

/// `indent` is the number of tabs before the line on which the value stands; `None` for compact JSON. Ends soon after `out` is longer
/// than `limit`.
fn write(value: &Value, indent: Option<usize>, out: &mut Vec<u8>, limit: usize) -> Result<(), Unwritten> {
    let Some(left) = limit.checked_sub(out.len()) else { return Err(Unwritten::Full) };
    let extremum = |is_max| Err(Unwritten::Value(ValueError::ExtremumToJson { is_max }));
    match value {
        Value::MinVal => return extremum(false),
        Value::MaxVal => return extremum(true),
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => number.write_json(out),
        Value::String(text) if text.len() > left => {
            write_json_string(&text[..text.floor_char_boundary(left)], out);
            return Err(Unwritten::Full);
        }
        Value::String(text) => write_json_string(text, out),
        Value::Binary(bytes) => write_binary(bytes, out),
        Value::Array(array) => {
            out.push(b'[');
            for (place, element) in array.iter().enumerate() {
                begin_line(place, indent.filter(|_| is_indented(element)), out);
                write(element, indent.map(|tabs| tabs + 1), out, limit)?;
            }
            end_lines(array.len(), indent, out);
            out.push(b']');
        }
        Value::Object(object) | Value::Geometry(object) => write_object(object, indent, out, limit)?,
        Value::Time(time) => match indent {
            None => write_time(time, out),
            Some(_) => write_object(&time.to_object(), indent, out, limit)?,
        },
    }
    Ok(())
}

fn write_object(object: &Object, indent: Option<usize>, out: &mut Vec<u8>, limit: usize) -> Result<(), Unwritten> {
    out.push(b'{');
    for (place, (key, value)) in object.into_iter().enumerate() {
        begin_line(place, indent, out);
        write_json_string(key, out);
        out.push(b':');
        if indent.is_some() && is_indented(value) {
            out.push(b'\t');
        }
        write(value, indent.map(|tabs| tabs + 1), out, limit)?;
    }
    end_lines(object.len(), indent, out);
    out.push(b'}');
    Ok(())
}

/// RethinkDB writes binaries without any space before or in them, also where all else is indented.
fn is_indented(value: &Value) -> bool {
    !matches!(value, Value::Binary(_))
}

fn begin_line(place: usize, indent: Option<usize>, out: &mut Vec<u8>) {
    if place > 0 {
        out.push(b',');
    }
    if let Some(tabs) = indent {
        out.push(b'\n');
        out.resize(out.len() + tabs + 1, b'\t');
    }
}

fn end_lines(count: usize, indent: Option<usize>, out: &mut Vec<u8>) {
    if let Some(tabs) = indent.filter(|_| count > 0) {
        out.push(b'\n');
        out.resize(out.len() + tabs, b'\t');
    }
}

/// Appends the object that a binary is in JSON. RethinkDB does not indent it in error messages.
pub(crate) fn write_binary(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"");
    out.extend_from_slice(PSEUDO_TYPE_KEY.as_bytes());
    out.extend_from_slice(b"\":\"BINARY\",\"data\":\"");
    base64::encode(bytes, b"\\r\\n", out);
    out.extend_from_slice(b"\"}");
}

/// Appends the object that a time is in JSON.
pub(crate) fn write_time(time: &Time, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"");
    out.extend_from_slice(PSEUDO_TYPE_KEY.as_bytes());
    out.extend_from_slice(b"\":\"TIME\",\"epoch_time\":");
    time.number().write_json(out);
    out.extend_from_slice(b",\"timezone\":\"");
    out.extend_from_slice(time.timezone().as_str().as_bytes());
    out.extend_from_slice(b"\"}");
}

/// Whether a byte cannot stand in JSON text as it is. RethinkDB escapes nothing else: neither `/` nor what is above
/// ASCII.
fn needs_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..0x20)
}

/// Whether a text stands in JSON as it is.
pub(crate) fn is_plain(text: &[u8]) -> bool {
    // Without a branch for each byte, the compiler looks at many at once.
    !text.iter().fold(false, |found, &byte| found | needs_escape(byte))
}

/// Appends a text as a JSON string, in quotes.
pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    write_bytes(text.as_bytes(), out);
}

/// Appends a text, given as its bytes, as a JSON string.
pub(crate) fn write_bytes(text: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.reserve(text.len() + 2);
    out.push(b'"');
    if is_plain(text) {
        out.extend_from_slice(text);
        out.push(b'"');
        return;
    }
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| needs_escape(byte)) {
        out.extend_from_slice(&rest[..at]);
        let byte = rest[at];
        out.push(b'\\');
        match byte {
            b'"' | b'\\' => out.push(byte),
            0x08 => out.push(b'b'),
            0x0C => out.push(b'f'),
            b'\n' => out.push(b'n'),
            b'\r' => out.push(b'r'),
            b'\t' => out.push(b't'),
            _ => out.extend_from_slice(&[b'u', b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}
