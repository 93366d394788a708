//! Numbers as Redis reads and writes them.

mod extended;

pub use extended::Extended;

/// A decimal integer without plus sign, leading zeros or spaces.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        value = value.checked_mul(10)?;
        // Counting down for negative numbers reaches the lowest one too.
        value = if negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_strict() {
        for good in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(parse_integer(good.to_string().as_bytes()), Some(good));
        }
        for bad in ["", "-", "-0", "01", "+1", " 1", "1 ", "1.0", "9223372036854775808", "-9223372036854775809"] {
            assert_eq!(parse_integer(bad.as_bytes()), None, "{bad}");
        }
    }
}
