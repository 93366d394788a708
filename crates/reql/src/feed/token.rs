//! The text by which a client says after which message a feed is to go on.
//!
//! Hexadecimal digits of: a byte 1; for each table of the feed its identifier after a byte of length, and the numbers `scheme` and
//! count of parts; then for each part its number, up to which change the feed knows it, and how many messages of the changes after that
//! it knows as well. Numbers have seven bits a byte, the lowest first; that of a change is the difference to the part before it, its
//! sign in the lowest bit.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::change_log::{Reached, Resume};
use crate::error::{Error, Result};

/// The form of tokens.
const FORM: u8 = 1;

/// Where to go on in a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableToken {
    pub table: String,
    /// Which parts the numbers mean.
    pub scheme: u32,
    /// The number of the last change of each part that is known, and how many messages were told after that.
    pub parts: BTreeMap<u32, (u64, u64)>,
}

impl TableToken {
    pub fn reached(&self) -> Vec<Reached> {
        self.parts.iter().map(|(part, (at, _))| (*part, *at)).collect()
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = input.split_first()?;
        *input = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn zigzag(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

pub fn write(tables: &[TableToken]) -> String {
    let mut out = vec![FORM];
    for token in tables {
        out.push(token.table.len() as u8);
        out.extend_from_slice(token.table.as_bytes());
        put(&mut out, u64::from(token.scheme));
        put(&mut out, token.parts.len() as u64);
        let mut before = 0_u64;
        for (part, (at, messages)) in &token.parts {
            put(&mut out, u64::from(*part));
            put(&mut out, zigzag(at.wrapping_sub(before) as i64));
            put(&mut out, *messages);
            before = *at;
        }
    }
    let mut text = String::with_capacity(2 * out.len());
    for byte in out {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// # Errors
/// If the text is no token.
pub fn read(text: &str) -> Result<Vec<TableToken>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect();
    let tables = bytes.and_then(|bytes| read_bytes(&bytes));
    tables.ok_or_else(|| Error::logic("The option `resume` is not a resume token of a changefeed."))
}

/// Where a feed with this token goes on in each of its tables.
///
/// # Errors
/// If the text is no token.
pub fn read_resume_token(text: &str) -> Result<Vec<Resume>> {
    let resume = |token: TableToken| Resume { scheme: token.scheme, reached: token.reached() };
    Ok(read(text)?.into_iter().map(resume).collect())
}

fn read_bytes(mut input: &[u8]) -> Option<Vec<TableToken>> {
    let input = &mut input;
    let mut tables = Vec::new();
    let (form, rest) = input.split_first()?;
    *input = rest;
    if *form != FORM {
        return None;
    }
    while let Some((length, rest)) = input.split_first() {
        let (table, rest) = rest.split_at_checked(usize::from(*length))?;
        *input = rest;
        let mut token = TableToken { table: std::str::from_utf8(table).ok()?.into(), ..TableToken::default() };
        token.scheme = u32::try_from(take(input)?).ok()?;
        let mut before = 0_u64;
        for _ in 0..take(input)? {
            let part = u32::try_from(take(input)?).ok()?;
            before = before.wrapping_add(unzigzag(take(input)?) as u64);
            token.parts.insert(part, (before, take(input)?));
        }
        tables.push(token);
    }
    Some(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_written_and_read() {
        let parts = BTreeMap::from([(0, (1_790_000_000_000 << 20, 0)), (3, (5, 2)), (64, (u64::MAX, u64::MAX))]);
        let token = TableToken { table: "6bd1d3b6-0000".into(), scheme: 65, parts };
        let text = write(&[token.clone(), TableToken::default()]);
        assert_eq!(read(&text).unwrap(), [token, TableToken::default()]);
        for length in 0..text.len() {
            let cut = read(&text[..length]);
            assert!(cut.is_err() || cut.unwrap().len() < 2, "cut at {length}");
        }
        assert!(read("xx").is_err() && read("é").is_err() && read("").is_err());
    }
}
