//! The filters of scans and the checks of conditional writes, with Pegasus' numbers.

/// What a key must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    None,
    Anywhere(Vec<u8>),
    Prefix(Vec<u8>),
    Postfix(Vec<u8>),
}

impl Filter {
    /// `None` for a type that there is not.
    pub(crate) fn new(filter_type: i32, pattern: Vec<u8>) -> Option<Self> {
        match filter_type {
            0 => Some(Self::None),
            1..=3 if pattern.is_empty() => Some(Self::None),
            1 => Some(Self::Anywhere(pattern)),
            2 => Some(Self::Prefix(pattern)),
            3 => Some(Self::Postfix(pattern)),
            _ => None,
        }
    }

    pub(crate) fn passes(&self, key: &[u8]) -> bool {
        match self {
            Self::None => true,
            Self::Anywhere(pattern) => memchr::memmem::find(key, pattern).is_some(),
            Self::Prefix(pattern) => key.starts_with(pattern),
            Self::Postfix(pattern) => key.ends_with(pattern),
        }
    }
}

/// The outcome of a check that could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Passed,
    Failed,
    /// The check, its operand or the value makes no sense.
    Invalid,
}

impl From<bool> for Check {
    fn from(passed: bool) -> Self {
        if passed { Self::Passed } else { Self::Failed }
    }
}

/// A whole number in decimal text, as Pegasus stores counters.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Makes one of the eighteen checks on a value, or on there being none.
pub(crate) fn check(check_type: i32, value: Option<&[u8]>, operand: &[u8]) -> Check {
    match (check_type, value) {
        (0, _) => Check::Passed,
        (1, value) => value.is_none().into(),
        (2, value) => value.is_none_or(<[u8]>::is_empty).into(),
        (3, value) => value.is_some().into(),
        (4, value) => value.is_some_and(|value| !value.is_empty()).into(),
        (5..=17, None) => Check::Failed,
        (5, Some(value)) => memchr::memmem::find(value, operand).is_some().into(),
        (6, Some(value)) => value.starts_with(operand).into(),
        (7, Some(value)) => value.ends_with(operand).into(),
        (8..=12, Some(value)) => compare(check_type - 8, value.cmp(operand)),
        (13..=17, Some(value)) => match (integer(value), integer(operand)) {
            (Some(value), Some(operand)) => compare(check_type - 13, value.cmp(&operand)),
            _ => Check::Invalid,
        },
        _ => Check::Invalid,
    }
}

/// Less, less or equal, equal, greater or equal, greater.
fn compare(which: i32, ordering: std::cmp::Ordering) -> Check {
    match which {
        0 => ordering.is_lt(),
        1 => ordering.is_le(),
        2 => ordering.is_eq(),
        3 => ordering.is_ge(),
        _ => ordering.is_gt(),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Check::{Failed, Invalid, Passed};

    #[test]
    fn every_check_on_values_that_pass_and_fail() {
        // By type: the outcome without a value, with an empty one, with "10" against "9", and against "10".
        let expected = [
            (0, [Passed, Passed, Passed, Passed]),
            (1, [Passed, Failed, Failed, Failed]),
            (2, [Passed, Passed, Failed, Failed]),
            (3, [Failed, Passed, Passed, Passed]),
            (4, [Failed, Failed, Passed, Passed]),
            (5, [Failed, Failed, Failed, Passed]),
            (6, [Failed, Failed, Failed, Passed]),
            (7, [Failed, Failed, Failed, Passed]),
            (8, [Failed, Passed, Passed, Failed]),
            (9, [Failed, Passed, Passed, Passed]),
            (10, [Failed, Failed, Failed, Passed]),
            (11, [Failed, Failed, Failed, Passed]),
            (12, [Failed, Failed, Failed, Failed]),
            (13, [Failed, Invalid, Failed, Failed]),
            (14, [Failed, Invalid, Failed, Passed]),
            (15, [Failed, Invalid, Failed, Passed]),
            (16, [Failed, Invalid, Passed, Passed]),
            (17, [Failed, Invalid, Passed, Failed]),
            (18, [Invalid, Invalid, Invalid, Invalid]),
            (-1, [Invalid, Invalid, Invalid, Invalid]),
        ];
        for (check_type, [absent, empty, nine, ten]) in expected {
            assert_eq!(check(check_type, None, b"9"), absent, "{check_type} without a value");
            assert_eq!(check(check_type, Some(b""), b"9"), empty, "{check_type} on an empty value");
            assert_eq!(check(check_type, Some(b"10"), b"9"), nine, "{check_type} on 10 and 9");
            assert_eq!(check(check_type, Some(b"10"), b"10"), ten, "{check_type} on 10 and 10");
        }
    }

    #[test]
    fn filters() {
        let filter = |filter_type, pattern: &str| Filter::new(filter_type, pattern.into());
        assert_eq!(filter(4, "x"), None);
        assert_eq!(filter(2, ""), Some(Filter::None));
        for (filter_type, passing) in [(0, "abcx"), (1, "xbcx"), (2, "bca"), (3, "abc")] {
            assert!(filter(filter_type, "bc").unwrap().passes(passing.as_bytes()), "{filter_type}");
            assert_eq!(filter(filter_type, "bc").unwrap().passes(b"b"), filter_type == 0);
        }
    }
}
