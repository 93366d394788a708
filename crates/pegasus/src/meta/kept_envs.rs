//! App envs that are taken, checked and kept, and that nothing here goes by: what they set in Pegasus, this node does by itself or
//! does not have. Scripts that set them go on working.

/// Which values an env may have.
#[derive(Clone, Copy)]
enum Values {
    Bool,
    Between(i64, i64),
    /// A level of RocksDB's files, or -1 for the last one.
    Level,
}

const KEPT: [(&str, Values); 6] = [
    ("rocksdb.write_buffer_size", Values::Between(16 << 20, 512 << 20)),
    ("replica.rocksdb_block_cache_enabled", Values::Bool),
    ("rocksdb.checkpoint.reserve_min_count", Values::Between(1, i32::MAX as i64)),
    ("rocksdb.checkpoint.reserve_time_seconds", Values::Between(0, i32::MAX as i64)),
    ("manual_compact.once.target_level", Values::Level),
    ("manual_compact.periodic.target_level", Values::Level),
];

/// What is said to who sets one.
pub(super) const HINT: &str = "kept, but it has no effect here: ";

/// The names of all of them.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KEPT.iter().map(|(name, _)| *name)
}

/// Whether this is the name of one.
pub(super) fn is_one(name: &str) -> bool {
    names().any(|kept| kept == name)
}

/// Checks the value of the env `name`; `None` if it is none of these.
///
/// # Errors
/// What is wrong with the value, for a person.
pub(super) fn check(name: &str, value: &str) -> Option<Result<(), String>> {
    let (_, values) = KEPT.iter().find(|(kept, _)| *kept == name)?;
    Some(match *values {
        Values::Bool => bool(name, value).map(|_| ()),
        Values::Between(least, most) => match value.parse::<i64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(()),
            _ => Err(format!("{name} is a number from {least} to {most}, not '{value}'")),
        },
        Values::Level => match value.parse::<i64>() {
            Ok(level) if level == -1 || level >= 1 => Ok(()),
            _ => Err(format!("{name} is -1 or a level from 1 on, not '{value}'")),
        },
    })
}

/// Reads an env that is `true` or `false`.
///
/// # Errors
/// That it is neither, for a person.
pub(super) fn bool(name: &str, value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| format!("{name} is true or false, not '{value}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_as_pegasus_does() {
        for (name, right, wrong) in [
            ("rocksdb.write_buffer_size", ["16777216", "536870912"], ["16777215", "64M"]),
            ("replica.rocksdb_block_cache_enabled", ["true", "false"], ["1", ""]),
            ("rocksdb.checkpoint.reserve_min_count", ["1", "2"], ["0", "2147483648"]),
            ("rocksdb.checkpoint.reserve_time_seconds", ["0", "3600"], ["-1", "soon"]),
            ("manual_compact.once.target_level", ["-1", "6"], ["0", "-2"]),
            ("manual_compact.periodic.target_level", ["1", "99"], ["0", "last"]),
        ] {
            assert!(is_one(name));
            right.iter().for_each(|value| assert_eq!(check(name, value), Some(Ok(())), "{name}={value}"));
            wrong.iter().for_each(|value| assert!(check(name, value).unwrap().is_err(), "{name}={value}"));
        }
        assert!(check("business.info", "x").is_none() && !is_one("business.info"));
    }
}
