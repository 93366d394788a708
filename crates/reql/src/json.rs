//! A JSON parser for queries and for `r.json`: keeps the order and duplicates of fields, bounds its depth, and words its
//! errors as RethinkDB's parser does.

use std::sync::Arc;

/// A JSON value as it was read, with the fields of objects in their order and duplicates kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// The value `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number as a double.
    Number(f64),
    /// A text.
    String(Arc<str>),
    /// An array.
    Array(Vec<Json>),
    /// An object, as a list of its fields.
    Object(Vec<(Arc<str>, Json)>),
}

/// Why a text is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonError(pub &'static str);

impl Json {
    /// The name of the type, as error texts of ReQL write it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Bool(_) => "BOOL",
            Self::Number(_) => "NUMBER",
            Self::String(_) => "STRING",
            Self::Array(_) => "ARRAY",
            Self::Object(_) => "OBJECT",
        }
    }

    /// The value of the first field of this name, if this is an object.
    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Self::Object(fields) => fields.iter().find(|(field, _)| &**field == name).map(|(_, value)| value),
            _ => None,
        }
    }
}

/// The text is nested deeper than it may be.
pub const TOO_DEEP: JsonError = JsonError("The document is nested too deeply.");
const INVALID: JsonError = JsonError("Invalid value.");

/// Parses one JSON document that is nested at most `depth` levels.
///
/// # Errors
/// What is wrong with the text, in the words of RethinkDB's parser.
pub fn parse(text: &str, depth: usize) -> Result<Json, JsonError> {
    let mut parser = Parser { bytes: text.as_bytes(), text, at: 0, fields: 0 };
    parser.skip_spaces();
    if parser.at == parser.bytes.len() {
        return Err(JsonError("The document is empty."));
    }
    let value = parser.value(depth)?;
    parser.skip_spaces();
    if parser.at < parser.bytes.len() {
        return Err(JsonError("The document root must not be followed by other values."));
    }
    Ok(value)
}

/// For so many fields at most room is made before they have come.
const MOST_FORESEEN: usize = 64;

struct Parser<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    /// How many fields the last object has had: the next one is often like it.
    fields: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json, JsonError> {
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::String(self.string()?)),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, JsonError> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(INVALID)
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, JsonError> {
        let depth = depth.checked_sub(1).ok_or(TOO_DEEP)?;
        self.at += 1;
        let mut items = Vec::new();
        self.skip_spaces();
        if self.take(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.skip_spaces();
            if self.take(b']') {
                return Ok(Json::Array(items));
            }
            if !self.take(b',') {
                return Err(JsonError("Missing a comma or ']' after an array element."));
            }
            self.skip_spaces();
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, JsonError> {
        let depth = depth.checked_sub(1).ok_or(TOO_DEEP)?;
        self.at += 1;
        self.skip_spaces();
        if self.take(b'}') {
            return Ok(Json::Object(Vec::new()));
        }
        let mut fields = Vec::with_capacity(self.fields.min(MOST_FORESEEN));
        loop {
            if self.peek() != Some(b'"') {
                return Err(JsonError("Missing a name for object member."));
            }
            let name = self.string()?;
            self.skip_spaces();
            if !self.take(b':') {
                return Err(JsonError("Missing a colon after a name of object member."));
            }
            self.skip_spaces();
            fields.push((name, self.value(depth)?));
            self.skip_spaces();
            if self.take(b'}') {
                self.fields = fields.len();
                return Ok(Json::Object(fields));
            }
            if !self.take(b',') {
                return Err(JsonError("Missing a comma or '}' after an object member."));
            }
            self.skip_spaces();
        }
    }

    fn string(&mut self) -> Result<Arc<str>, JsonError> {
        self.at += 1;
        let plain = self.plain_characters();
        if self.take(b'"') {
            return Ok(Arc::from(plain));
        }
        let mut out = String::from(plain);
        loop {
            match self.peek() {
                None => return Err(JsonError("Missing a closing quotation mark in string.")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Arc::from(out));
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape(&mut out)?;
                }
                Some(_) => return Err(JsonError("Invalid escape character in string.")),
            }
            out.push_str(self.plain_characters());
        }
    }

    /// The characters up to the next quotation mark, backslash or control character.
    fn plain_characters(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let length = tessera_document::plain_length(rest);
        self.at += length;
        &rest[..length]
    }

    fn escape(&mut self, out: &mut String) -> Result<(), JsonError> {
        let escape = self.peek();
        self.at += 1;
        out.push(match escape {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(out),
            _ => return Err(JsonError("Invalid escape character in string.")),
        });
        Ok(())
    }

    fn unicode_escape(&mut self, out: &mut String) -> Result<(), JsonError> {
        const SURROGATE: JsonError = JsonError("The surrogate pair in string is invalid.");
        let first = self.hex()?;
        let code = if (0xD800..0xE000).contains(&first) {
            if !(self.take(b'\\') && self.take(b'u')) {
                return Err(SURROGATE);
            }
            let second = self.hex()?;
            if first >= 0xDC00 || !(0xDC00..0xE000).contains(&second) {
                return Err(SURROGATE);
            }
            0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
        } else {
            first
        };
        out.push(char::from_u32(code).ok_or(SURROGATE)?);
        Ok(())
    }

    fn hex(&mut self) -> Result<u32, JsonError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| (byte as char).to_digit(16));
            let digit = digit.ok_or(JsonError("Incorrect hex digit after \\u escape in string."))?;
            code = code * 16 + digit;
            self.at += 1;
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

    fn number(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') && self.digits() == 0 {
            return Err(INVALID);
        }
        if self.take(b'.') && self.digits() == 0 {
            return Err(JsonError("Miss fraction part in number."));
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            if self.digits() == 0 {
                return Err(JsonError("Miss exponent in number."));
            }
        }
        match self.text[start..self.at].parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Json::Number(number)),
            _ => Err(JsonError("Number too big to be stored in double.")),
        }
    }
}
