//! Numbers: finite doubles, and the two ways in which RethinkDB prints them.

use crate::ValueError;

/// The largest number up to which every integer is a double: 2^53. Integers within it are printed without a fraction.
pub const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// A finite double. There are no NaNs and infinities in ReQL, so numbers have a total order.
#[derive(Clone, Copy, Debug)]
pub struct Number(f64);

impl Number {
    /// The number 0.
    pub const ZERO: Self = Self(0.0);

    /// # Errors
    /// [`ValueError::NonFinite`] for NaN and infinities.
    pub fn new(number: f64) -> Result<Self, ValueError> {
        if number.is_finite() { Ok(Self(number)) } else { Err(ValueError::NonFinite(number)) }
    }

    /// The number, which is finite.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The number as an integer, if it is one that a double holds exactly (at most 2^53).
    pub fn as_integer(self) -> Option<i64> {
        // The conversion saturates and drops fractions, so what comes back the same was an integer.
        let integer = self.0 as i64;
        (integer as f64 == self.0 && self.0.abs() <= MAX_EXACT_INTEGER).then_some(integer)
    }

    /// Appends the number as JSON, as RethinkDB prints it: integers up to 2^53 without a fraction, others with their
    /// shortest digits, plain between 1e-6 and 1e21 and with an exponent outside. Negative zero is `-0.0`.
    pub fn write_json(self, out: &mut Vec<u8>) {
        let is_negative_zero = self.0 == 0.0 && self.0.is_sign_negative();
        match self.as_integer() {
            Some(integer) if !is_negative_zero => {
                out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
            }
            _ => write_double(self.0, out),
        }
    }
}

/// -0 equals 0, as in ReQL.
impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.partial_cmp(&other.0).expect("a number is finite")
    }
}

impl std::hash::Hash for Number {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // Adding zero makes -0 into 0, which it equals.
        (self.0 + 0.0).to_bits().hash(state);
    }
}

impl From<i32> for Number {
    fn from(integer: i32) -> Self {
        Self(f64::from(integer))
    }
}

impl From<u32> for Number {
    fn from(integer: u32) -> Self {
        Self(f64::from(integer))
    }
}

/// The layout of RapidJSON's writer: with the decimal point after the `point`-th digit, plain while -6 < point <= 21.
fn write_double(number: f64, out: &mut Vec<u8>) {
    if number.is_sign_negative() {
        out.push(b'-');
    }
    let mut digits = [0u8; 24];
    let (count, point) = shortest_digits(number.abs(), &mut digits);
    let digits = &digits[..count];
    match point {
        _ if digits == b"0" => out.extend_from_slice(b"0.0"),
        1..=21 => {
            let integral = usize::try_from(point).expect("between 1 and 21");
            if count <= integral {
                out.extend_from_slice(digits);
                out.resize(out.len() + integral - count, b'0');
                out.extend_from_slice(b".0");
            } else {
                out.extend_from_slice(&digits[..integral]);
                out.push(b'.');
                out.extend_from_slice(&digits[integral..]);
            }
        }
        -5..=0 => {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + usize::try_from(-point).expect("between 0 and 5"), b'0');
            out.extend_from_slice(digits);
        }
        _ => {
            out.push(digits[0]);
            if count > 1 {
                out.push(b'.');
                out.extend_from_slice(&digits[1..]);
            }
            out.push(b'e');
            out.extend_from_slice(itoa::Buffer::new().format(point - 1).as_bytes());
        }
    }
}

/// The shortest digits that are read back as `number`, without zeros at either end, and where the decimal point stands:
/// after so many of them. The library's own layout is taken apart, so that it may change.
fn shortest_digits(number: f64, digits: &mut [u8; 24]) -> (usize, i32) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(number);
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().expect("the exponent of a double is a small integer");
    let (mut count, mut point, mut has_point) = (0, 0, false);
    for &byte in mantissa.as_bytes() {
        match byte {
            b'.' => has_point = true,
            // Zeros before the first other digit are not digits of the number: they move the point.
            b'0' if count == 0 => point -= i32::from(has_point),
            _ => {
                digits[count] = byte;
                count += 1;
                point += i32::from(!has_point);
            }
        }
    }
    while count > 0 && digits[count - 1] == b'0' {
        count -= 1;
    }
    if count == 0 {
        digits[0] = b'0';
        return (1, 1);
    }
    (count, point + exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(number: f64) -> String {
        let mut out = Vec::new();
        Number::new(number).expect("finite").write_json(&mut out);
        String::from_utf8(out).expect("digits")
    }

    #[test]
    fn numbers_are_printed_as_rethinkdb_prints_them() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0.0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (100_000.0, "100000"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (-9_007_199_254_740_992.0, "-9007199254740992"),
            (9_007_199_254_740_994.0, "9007199254740994.0"),
            (1e16, "10000000000000000.0"),
            (1e20, "100000000000000000000.0"),
            (18_446_744_073_709_551_616.0, "18446744073709552000.0"),
            (-9_223_372_036_854_775_809.0, "-9223372036854776000.0"),
            (1e21, "1e21"),
            (1.2345678901234568e29, "1.2345678901234568e29"),
            (0.03, "0.03"),
            (1.03, "1.03"),
            (0.5, "0.5"),
            (1e-6, "0.000001"),
            (1.5e-6, "0.0000015"),
            (1e-7, "1e-7"),
            (1.25e-7, "1.25e-7"),
            (123.456, "123.456"),
            (f64::MAX, "1.7976931348623157e308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            (1_375_147_296.681, "1375147296.681"),
        ] {
            assert_eq!(json(number), text);
        }
    }

    #[test]
    fn printed_numbers_are_read_back_the_same() {
        let mut bits: u64 = 1;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = f64::from_bits(bits);
            if number.is_finite() {
                let text = json(number);
                let back: f64 = text.parse().expect("a number");
                assert_eq!(back.to_bits(), number.to_bits(), "{text}");
            }
        }
    }

    #[test]
    fn there_are_no_numbers_beyond_the_finite_ones() {
        assert_eq!(Number::new(f64::INFINITY).unwrap_err().to_string(), "Non-finite number: inf");
        assert_eq!(Number::new(f64::NAN).unwrap_err().to_string(), "Non-finite number: nan");
    }
}
