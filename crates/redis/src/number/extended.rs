//! Floating-point numbers with 64 bits of mantissa: the `long double` of x86, in which Redis computes INCRBYFLOAT and
//! HINCRBYFLOAT. With `f64` 0.1 + 0.2 would be 0.30000000000000004, where Redis says 0.3.

use num_bigint::{BigInt, BigUint, Sign};
use num_traits::Zero;

/// Bits of the mantissa.
const PRECISION: u64 = 64;
/// Largest and least exponent of a normal number, as of the mantissa's leading bit.
const EXPONENT_MAX: i64 = 16_383;
const EXPONENT_MIN: i64 = -16_382;
/// A decimal text with a larger exponent is out of range whatever its digits; bounds the work on hostile input.
const DECIMAL_EXPONENT_LIMIT: i64 = 6_000;
const TEXT_LIMIT: usize = 5 << 10;

/// `mantissa * 2^exponent`, exact, or an infinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extended {
    mantissa: BigInt,
    exponent: i64,
    is_infinite: bool,
}

impl Extended {
    /// Reads a decimal number as Redis does: infinities by name, but neither NaN nor spaces nor what overflows.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_LIMIT {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
            return Some(Self { mantissa: BigInt::zero(), exponent: 0, is_infinite: true });
        }
        let (digits, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = format!("{whole}{fraction}");
        if all_digits.is_empty() || !all_digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let value = BigUint::parse_bytes(all_digits.as_bytes(), 10)?;
        if value.is_zero() {
            return Some(Self { mantissa: BigInt::zero(), exponent: 0, is_infinite: false });
        }
        let scale = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        if scale.abs() > DECIMAL_EXPONENT_LIMIT {
            return None;
        }
        let power = BigUint::from(10u32).pow(u32::try_from(scale.unsigned_abs()).ok()?);
        let (numerator, denominator) = if scale >= 0 { (value * power, BigUint::from(1u32)) } else { (value, power) };
        let sign = if negative { Sign::Minus } else { Sign::Plus };
        Self::rounded_quotient(sign, numerator, &denominator)
    }

    pub fn is_infinite(&self) -> bool {
        self.is_infinite
    }

    /// The nearest representable number to a quotient, ties to even; `None` out of range.
    fn rounded_quotient(sign: Sign, numerator: BigUint, denominator: &BigUint) -> Option<Self> {
        // Enough bits that the quotient has a few more than the mantissa; what is cut off is kept as a sticky bit.
        let wanted = PRECISION + 3;
        let have = i64::try_from(numerator.bits()).ok()? - i64::try_from(denominator.bits()).ok()?;
        let shift = i64::try_from(wanted).ok()? - have;
        let (quotient, remainder) = if shift >= 0 {
            let scaled = numerator << shift.unsigned_abs();
            (&scaled / denominator, scaled % denominator)
        } else {
            let scaled = denominator << shift.unsigned_abs();
            (&numerator / &scaled, numerator % scaled)
        };
        let sticky = u32::from(!remainder.is_zero());
        Self::rounded(sign, (quotient << 1u32) | BigUint::from(sticky), -shift - 1)
    }

    fn rounded(sign: Sign, mut mantissa: BigUint, mut exponent: i64) -> Option<Self> {
        if mantissa.is_zero() {
            return Some(Self { mantissa: BigInt::zero(), exponent: 0, is_infinite: false });
        }
        // Numbers too small for a full mantissa keep fewer bits.
        let leading = i64::try_from(mantissa.bits()).ok()? - 1 + exponent;
        let lost_below_normal = (EXPONENT_MIN - leading).max(0);
        let keep = i64::try_from(PRECISION).ok()? - lost_below_normal;
        let excess = i64::try_from(mantissa.bits()).ok()? - keep;
        if excess > 0 {
            let excess_bits = excess.unsigned_abs();
            let mut kept = &mantissa >> excess_bits;
            let cut = &mantissa - (&kept << excess_bits);
            let half = BigUint::from(1u32) << (excess_bits - 1);
            if cut > half || (cut == half && kept.bit(0)) {
                kept += 1u32;
            }
            mantissa = kept;
            exponent += excess;
        }
        if i64::try_from(mantissa.bits()).ok()? - 1 + exponent > EXPONENT_MAX {
            return None;
        }
        Some(Self { mantissa: BigInt::from_biguint(sign, mantissa), exponent, is_infinite: false })
    }

    /// The sum, rounded; `None` if it would be infinite or undefined.
    pub fn checked_add(&self, other: &Self) -> Option<Self> {
        if self.is_infinite || other.is_infinite {
            return None;
        }
        let exponent = self.exponent.min(other.exponent);
        let align = |number: &Self| &number.mantissa << (number.exponent - exponent).unsigned_abs();
        let sum: BigInt = align(self) + align(other);
        let (sign, magnitude) = sum.into_parts();
        Self::rounded(sign, magnitude, exponent)
    }

    /// The text that Redis keeps: seventeen digits behind the point, without trailing zeros.
    pub fn to_text(&self) -> String {
        const DIGITS: u32 = 17;
        let scaled = BigInt::from(10u32).pow(DIGITS) * &self.mantissa;
        let (sign, magnitude) = scaled.into_parts();
        // Round to an integer, ties to even, as printf does.
        let integer = if self.exponent >= 0 {
            magnitude << self.exponent.unsigned_abs()
        } else {
            let bits = self.exponent.unsigned_abs();
            let kept = &magnitude >> bits;
            let cut = magnitude - (&kept << bits);
            let half = BigUint::from(1u32) << (bits - 1);
            if cut > half || (cut == half && kept.bit(0)) { kept + 1u32 } else { kept }
        };
        let digits = format!("{:0>width$}", integer.to_string(), width = DIGITS as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - DIGITS as usize);
        let fraction = fraction.trim_end_matches('0');
        let minus = if sign == Sign::Minus { "-" } else { "" };
        let text = if fraction.is_empty() { format!("{minus}{whole}") } else { format!("{minus}{whole}.{fraction}") };
        if text == "-0" { "0".into() } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(one: &str, other: &str) -> Option<String> {
        Some(Extended::parse(one.as_bytes())?.checked_add(&Extended::parse(other.as_bytes())?)?.to_text())
    }

    #[test]
    fn sums_are_those_of_redis() {
        // Replies of redis-server 7.0 on x86-64.
        assert_eq!(sum("0.1", "0.2").as_deref(), Some("0.3"));
        assert_eq!(sum("10.50", "0.1").as_deref(), Some("10.6"));
        assert_eq!(sum("5.0e3", "2.0e2").as_deref(), Some("5200"));
        assert_eq!(sum("3", "1.2").as_deref(), Some("4.2"));
        assert_eq!(sum("-0.5", "0.5").as_deref(), Some("0"));
        assert_eq!(sum("1e-20", "0").as_deref(), Some("0"));
    }

    #[test]
    fn what_is_no_finite_number_is_refused() {
        for bad in ["", "abc", "1 ", " 1", "nan", "1e", "0x", "1.2.3", "1e5000", "--1", "1e99999999999999999999"] {
            assert_eq!(Extended::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(sum("1e4932", "1e4932"), None);
        assert_eq!(sum("inf", "1"), None);
    }
}
