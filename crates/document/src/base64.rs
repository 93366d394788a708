//! Base64 as RethinkDB reads and writes binaries: lines of 76 characters, and lenient about white space and padding,
//! which is why no library serves.

use crate::ValueError;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// So many bytes make a line of 76 characters.
const BYTES_PER_LINE: usize = 57;

/// Appends the bytes as base64; `line_end` stands between lines.
pub(crate) fn encode(bytes: &[u8], line_end: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4 + bytes.len() / BYTES_PER_LINE * line_end.len());
    for (number, line) in bytes.chunks(BYTES_PER_LINE).enumerate() {
        if number > 0 {
            out.extend_from_slice(line_end);
        }
        for chunk in line.chunks(3) {
            let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
            let group = byte(0) << 16 | byte(1) << 8 | byte(2);
            let character = |place: usize| match place <= chunk.len() {
                true => ALPHABET[(group >> (18 - 6 * place) & 63) as usize],
                false => b'=',
            };
            out.extend_from_slice(&[character(0), character(1), character(2), character(3)]);
        }
    }
}

/// # Errors
/// If there is something else than base64, white space, and padding at the end.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, ValueError> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut group, mut count) = (0u32, 0);
    let mut rest = text.char_indices();
    for (at, character) in rest.by_ref() {
        let value = match character {
            'A'..='Z' => u32::from(character) - u32::from('A'),
            'a'..='z' => u32::from(character) - u32::from('a') + 26,
            '0'..='9' => u32::from(character) - u32::from('0') + 52,
            '+' => 62,
            '/' => 63,
            '\r' | '\n' | ' ' | '\t' => continue,
            '=' => {
                if text[at..].contains(|other| !matches!(other, '=' | '\r' | '\n' | ' ' | '\t')) {
                    return Err(ValueError::DataAfterBase64Padding);
                }
                break;
            }
            _ => return Err(ValueError::InvalidBase64Character(character)),
        };
        group = group << 6 | value;
        count += 1;
        if count == 4 {
            bytes.extend_from_slice(&group.to_be_bytes()[1..]);
            (group, count) = (0, 0);
        }
    }
    match count {
        0 => {}
        1 => return Err(ValueError::InvalidBase64Length),
        _ => bytes.extend_from_slice(&(group << (6 * (4 - count))).to_be_bytes()[1..count]),
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        encode(bytes, b"\r\n", &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn binaries_come_back() {
        for length in 0..200u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            assert_eq!(decode(&encoded(&bytes)).unwrap(), bytes);
        }
    }

    #[test]
    fn lines_have_76_characters_and_none_is_empty() {
        assert_eq!(encoded(&[b'a'; 57]).len(), 76);
        let long = encoded(&[b'x'; 115]);
        assert_eq!(long.split("\r\n").map(str::len).collect::<Vec<_>>(), [76, 76, 4]);
    }

    #[test]
    fn white_space_and_padding_are_lenient_and_the_rest_is_not() {
        for (text, bytes) in [("", &b""[..]), ("YQ==", b"a"), ("YQ", b"a"), ("Y W\r\nI=", b"ab"), ("=", b"")] {
            assert_eq!(decode(text).unwrap(), bytes);
        }
        for (text, message) in [
            ("!!!!", "Invalid base64 character found: '!'."),
            ("QUJ_", "Invalid base64 character found: '_'."),
            ("A", "Invalid base64 length: 1 character remaining, cannot decode a full byte."),
            ("YQ==YQ==", "Invalid base64 format, data found after padding character '='."),
        ] {
            assert_eq!(decode(text).unwrap_err().to_string(), message);
        }
    }
}
