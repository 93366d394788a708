//! Text out of bytes that may be no text.

use crate::ValueError;

/// The text that `bytes` are.
///
/// # Errors
/// [`ValueError::NotUtf8`], which names the place and the reason as RethinkDB does. (RethinkDB lets encoded surrogates
/// pass. They are not UTF-8 and are refused here.)
pub fn text_from_utf8(bytes: &[u8]) -> Result<&str, ValueError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let (reason, position) = fault(bytes, error.valid_up_to());
        let prefix = String::from_utf8_lossy(&bytes[..position.min(20)]).into_owned();
        ValueError::NotUtf8 { prefix, reason, position }
    })
}

/// What is wrong with the sequence that begins at `start`, and where.
fn fault(bytes: &[u8], start: usize) -> (&'static str, usize) {
    let (length, least, bits) = match bytes[start] {
        first @ 0xC0..=0xDF => (2, 0x80, u32::from(first & 0x1F)),
        first @ 0xE0..=0xEF => (3, 0x800, u32::from(first & 0x0F)),
        first @ 0xF0..=0xF7 => (4, 0x1_0000, u32::from(first & 0x07)),
        _ => return ("Invalid initial byte seen", start),
    };
    let mut character = bits;
    for place in start + 1..start + length {
        match bytes.get(place) {
            None => return ("Expected continuation byte, saw end of string", place),
            Some(byte @ 0x80..=0xBF) => character = character << 6 | u32::from(byte & 0x3F),
            Some(_) => return ("Expected continuation byte, saw something else", place),
        }
    }
    let end = start + length - 1;
    match character {
        _ if character < least => ("Overlong encoding seen", end),
        0xD800..=0xDFFF => ("Surrogate seen", end),
        _ => ("Non-Unicode character encoded (beyond U+10FFFF)", end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_is_named() {
        for (bytes, message) in [
            (
                &b"\x00\x01\xff"[..],
                "String `\0\u{1}` (truncated) is not a UTF-8 string; Invalid initial byte seen at position 2.",
            ),
            (
                b"a\xc3",
                "String `a\u{fffd}` (truncated) is not a UTF-8 string; Expected continuation byte, saw end of string at position 2.",
            ),
            (
                b"\xc3a",
                "String `\u{fffd}` (truncated) is not a UTF-8 string; Expected continuation byte, saw something else at position 1.",
            ),
            (b"\xc0\x80", "String `\u{fffd}` (truncated) is not a UTF-8 string; Overlong encoding seen at position 1."),
        ] {
            assert_eq!(text_from_utf8(bytes).unwrap_err().to_string(), message);
        }
        assert_eq!(text_from_utf8("é✓😀".as_bytes()).unwrap(), "é✓😀");
    }
}
