//! Numbers as RethinkDB prints them in error messages.

/// The number as C's `%.20g` prints it, which RethinkDB does in error messages.
pub fn reconstructable(number: f64) -> String {
    const PRECISION: i32 = 20;
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{number:.19e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent of a double is a small integer");
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if (-4..PRECISION).contains(&exponent) {
        let decimals = usize::try_from(PRECISION - 1 - exponent).expect("the exponent is below the precision");
        return without_zeros(&format!("{number:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_print_twenty_digits() {
        for (number, text) in [
            (1.5, "1.5"),
            (1e300, "1.0000000000000000525e+300"),
            (0.1, "0.10000000000000000555"),
            (2_147_483_648.0, "2147483648"),
            (-1.0, "-1"),
            (0.0, "0"),
            (-0.0, "-0"),
            (1e-5, "1.0000000000000000818e-05"),
            (1e20, "1e+20"),
            (12_345_678_901_234_567_000.0, "12345678901234567168"),
        ] {
            assert_eq!(reconstructable(number), text);
        }
    }
}
