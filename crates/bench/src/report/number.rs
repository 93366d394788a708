//! Numbers as people read them.

/// With thousands apart, and so many digits behind the point.
pub(crate) fn grouped(value: f64, decimals: usize) -> String {
    let digits = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let groups: Vec<&str> =
        whole.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    let is_negative = value < 0.0 && digits.bytes().any(|digit| (b'1'..=b'9').contains(&digit));
    let (sign, point) = (if is_negative { "-" } else { "" }, if fraction.is_empty() { "" } else { "." });
    format!("{sign}{}{point}{fraction}", groups.join(","))
}

/// With thousands apart, and nothing behind the point.
pub(crate) fn whole(value: f64) -> String {
    grouped(value, 0)
}

/// With as many digits behind the point as make three that matter, and none that are 0 at the end.
pub(crate) fn exact(value: f64) -> String {
    let before = if value.abs() < 1.0 { 1.0 } else { value.abs().log10().floor() + 1.0 };
    let text = grouped(value, (3.0 - before).max(0.0) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// Two or three digits, with `k` for thousands and `M` for millions: what fits on a bar.
pub(crate) fn short(value: f64) -> String {
    let (divided, unit) = match value.abs() {
        size if size >= 999_500.0 => (value / 1e6, "M"),
        size if size >= 999.5 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let decimals = if divided.abs() < 9.95 && divided != 0.0 { 1 } else { 0 };
    let text = grouped(divided, decimals);
    format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart_whatever_the_sign() {
        let of = [0.0, 7.0, 999.0, 1_000.0, -1_234.0, 1_234_567.0, -0.2].map(whole);
        assert_eq!(of, ["0", "7", "999", "1,000", "-1,234", "1,234,567", "0"]);
        assert_eq!(grouped(12_345.678, 1), "12,345.7");
        assert_eq!(grouped(999.96, 1), "1,000.0");
    }

    #[test]
    fn three_digits_are_shown_of_small_numbers_and_all_of_large_ones() {
        let of = [0.0, 0.053, 0.5, 1.0, 9.87, 26.04, 152.4, 1_234.5].map(exact);
        assert_eq!(of, ["0", "0.05", "0.5", "1", "9.87", "26", "152", "1,234"]);
    }

    #[test]
    fn a_short_number_has_a_unit_instead_of_thousands() {
        let of = [0.0, 0.4, 9.96, 999.0, 999.7, 4_200.0, 41_155.0, 999_600.0, 1_300_000.0].map(short);
        assert_eq!(of, ["0", "0.4", "10", "999", "1k", "4.2k", "41k", "1M", "1.3M"]);
    }
}
