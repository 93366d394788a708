//! Reading JSON as RethinkDB does: objects with a `$reql_type$` are what they stand for, keys must not be equal, numbers
//! too large for a double are refused, and `-0` is 0 while `-0.0` is not. The errors have the words of its parser.

use crate::error::JsonFault;
use crate::json::is_plain;
use crate::number::Number;
use crate::object_builder::ObjectBuilder;
use crate::value::MAX_DEPTH;
use crate::{Value, ValueError};
use std::sync::Arc;

impl Value {
    /// Reads a JSON text; a `LITERAL` stays an object.
    ///
    /// # Errors
    /// [`ValueError::InvalidJson`]; the errors of [`ObjectBuilder::finish`]; [`ValueError::DuplicateKey`] and
    /// [`ValueError::TooDeep`].
    pub fn from_json(text: &str) -> Result<Self, ValueError> {
        let mut reader = Reader { text, at: 0 };
        reader.skip_white_space();
        if reader.at == text.len() {
            return Err(ValueError::InvalidJson(JsonFault::Empty));
        }
        let value = reader.value(0)?;
        reader.skip_white_space();
        if reader.at < text.len() {
            return Err(ValueError::InvalidJson(JsonFault::TrailingText));
        }
        Ok(value)
    }
}

/// How many bytes of a text stand before the first quotation mark, backslash or control character.
pub fn plain_length(text: &str) -> usize {
    let length = memchr::memchr2(b'"', b'\\', text.as_bytes()).unwrap_or(text.len());
    if is_plain(&text.as_bytes()[..length]) {
        return length;
    }
    text.bytes().position(|byte| byte < 0x20).unwrap_or(length)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn skip_white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// Reads a value inside `depth` arrays and objects.
    fn value(&mut self, depth: usize) -> Result<Value, ValueError> {
        match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => Err(ValueError::TooDeep { limit: MAX_DEPTH }),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(Value::String),
            Some(b'n') => self.word("null", Value::Null),
            Some(b't') => self.word("true", Value::TRUE),
            Some(b'f') => self.word("false", Value::FALSE),
            _ => self.number().map(Value::Number),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, ValueError> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(ValueError::InvalidJson(JsonFault::InvalidValue));
        }
        self.at += word.len();
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> Result<Value, ValueError> {
        self.at += 1;
        let mut elements = Vec::new();
        self.skip_white_space();
        if self.take(b']') {
            return Ok(Value::empty_array());
        }
        loop {
            elements.push(self.value(depth)?);
            self.skip_white_space();
            if self.take(b']') {
                return Value::array(elements);
            }
            if !self.take(b',') {
                return Err(ValueError::InvalidJson(JsonFault::NoCommaInArray));
            }
            self.skip_white_space();
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, ValueError> {
        self.at += 1;
        let mut builder = ObjectBuilder::default();
        self.skip_white_space();
        if self.take(b'}') {
            return Ok(Value::empty_object());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(ValueError::InvalidJson(JsonFault::NoName));
            }
            let key = self.string()?;
            self.skip_white_space();
            if !self.take(b':') {
                return Err(ValueError::InvalidJson(JsonFault::NoColon));
            }
            self.skip_white_space();
            builder.insert(key, self.value(depth)?);
            self.skip_white_space();
            if self.take(b'}') {
                return builder.finish_unique();
            }
            if !self.take(b',') {
                return Err(ValueError::InvalidJson(JsonFault::NoCommaInObject));
            }
            self.skip_white_space();
        }
    }

    fn string(&mut self) -> Result<Arc<str>, ValueError> {
        self.at += 1;
        let plain = self.plain_characters();
        if self.take(b'"') {
            return Ok(plain.into());
        }
        let mut text = String::from(plain);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text.into());
                }
                Some(b'\\') => text.push(self.escape()?),
                None | Some(0) => return Err(ValueError::InvalidJson(JsonFault::UnterminatedString)),
                Some(_) => return Err(ValueError::InvalidJson(JsonFault::InvalidEscape)),
            }
            text.push_str(self.plain_characters());
        }
    }

    /// The characters up to the next quotation mark, backslash or control character.
    fn plain_characters(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let length = plain_length(rest);
        self.at += length;
        &rest[..length]
    }

    fn escape(&mut self) -> Result<char, ValueError> {
        self.at += 1;
        let Some(character) = self.peek() else {
            return Err(ValueError::InvalidJson(JsonFault::InvalidEscape));
        };
        self.at += 1;
        Ok(match character {
            b'"' | b'\\' | b'/' => char::from(character),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => return Err(ValueError::InvalidJson(JsonFault::InvalidEscape)),
        })
    }

    fn unicode_escape(&mut self) -> Result<char, ValueError> {
        let mut code = self.hex_digits()?;
        if (0xD800..=0xDFFF).contains(&code) {
            let low = if self.take(b'\\') && self.take(b'u') { self.hex_digits()? } else { 0 };
            if code > 0xDBFF || !(0xDC00..=0xDFFF).contains(&low) {
                return Err(ValueError::InvalidJson(JsonFault::InvalidSurrogate));
            }
            code = 0x1_0000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        char::from_u32(code).ok_or(ValueError::InvalidJson(JsonFault::InvalidSurrogate))
    }

    fn hex_digits(&mut self) -> Result<u32, ValueError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let digit = digit.ok_or(ValueError::InvalidJson(JsonFault::InvalidHexDigit))?;
            self.at += 1;
            code = code << 4 | digit;
        }
        Ok(code)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Number, ValueError> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') && self.digits() == 0 {
            return Err(ValueError::InvalidJson(JsonFault::InvalidValue));
        }
        let mut is_integer = true;
        if self.take(b'.') {
            is_integer = false;
            if self.digits() == 0 {
                return Err(ValueError::InvalidJson(JsonFault::NoFraction));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            is_integer = false;
            self.at += 1;
            if !self.take(b'+') {
                self.take(b'-');
            }
            if self.digits() == 0 {
                return Err(ValueError::InvalidJson(JsonFault::NoExponent));
            }
        }
        let text = &self.text[start..self.at];
        let number: f64 = text.parse().map_err(|_| ValueError::InvalidJson(JsonFault::InvalidValue))?;
        // RethinkDB reads `-0` as an integer, which has no negative zero.
        let number = if is_integer && number == 0.0 { 0.0 } else { number };
        Number::new(number).map_err(|_| ValueError::InvalidJson(JsonFault::NumberTooBig))
    }
}
