//! Keys and times as Pegasus' clients give them.

use tessera_types::{Expiry, UnixMillis};

/// Seconds from the Unix epoch to that of Pegasus, 2016-01-01.
const EPOCH: u64 = 1_451_606_400;

/// Takes a stored key apart: `u16 length | hash key | sort key`.
pub(crate) fn split(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = key.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

pub(crate) fn join(hash_key: &[u8], sort_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(2 + hash_key.len() + sort_key.len());
    // Hash keys are checked against a limit below this.
    key.extend_from_slice(&u16::try_from(hash_key.len()).unwrap_or(u16::MAX).to_be_bytes());
    key.extend_from_slice(hash_key);
    key.extend_from_slice(sort_key);
    key
}

/// The first key, in the order of bytes, that does not begin with `prefix`; empty if there is none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut next = prefix.to_vec();
    while let Some(last) = next.last_mut() {
        if let Some(more) = last.checked_add(1) {
            *last = more;
            break;
        }
        next.pop();
    }
    next
}

/// When a record ends that a client gives `expire_ts`, seconds since Pegasus' epoch. A string that a Redis client sees
/// ends as a whole, a field on its own.
pub(crate) fn expiry(expire_ts: i32, sort_key: &[u8]) -> Expiry {
    // Clients of the C++ library count without a sign.
    let time = UnixMillis::new((u64::from(expire_ts.cast_unsigned()) + EPOCH) * 1_000);
    if sort_key.is_empty() { Expiry::at_key(Some(time)) } else { Expiry { key: None, record: Some(time) } }
}

/// The `expire_ts` of a record, rounded up; zero if it has none.
pub(crate) fn expire_ts(expiry: Expiry) -> i32 {
    let Some(end) = expiry.earliest() else { return 0 };
    let seconds = end.get().div_ceil(1_000).saturating_sub(EPOCH).max(1);
    u32::try_from(seconds).unwrap_or(u32::MAX).cast_signed()
}

/// Seconds that a record has left, at least one; -1 for one that does not end. Both times count by whole seconds, as in Pegasus, so that a
/// record that has just been given a number of seconds has no more of them left.
pub(crate) fn seconds_left(expiry: Expiry, now: UnixMillis) -> i32 {
    let Some(end) = expiry.earliest() else { return -1 };
    let seconds = (end.get() / 1_000).saturating_sub(now.get() / 1_000).max(1);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_apart_as_they_were_joined() {
        for (hash_key, sort_key) in [("", ""), ("h", ""), ("", "s"), ("hash", "sort")] {
            let key = join(hash_key.as_bytes(), sort_key.as_bytes());
            assert_eq!(split(&key), Some((hash_key.as_bytes(), sort_key.as_bytes())));
        }
        assert_eq!(split(b"\0"), None);
        assert_eq!(split(b"\0\x05abc"), None);
    }

    #[test]
    fn the_key_after_a_prefix_is_the_next_one() {
        assert_eq!(after_prefix(b"ab"), b"ac");
        assert_eq!(after_prefix(b"a\xff\xff"), b"b");
        assert_eq!(after_prefix(b"\xff"), b"");
    }

    #[test]
    fn times_come_back() {
        for ts in [1, 1_000_000, i32::MAX] {
            assert_eq!(expire_ts(expiry(ts, b"")), ts);
            assert_eq!(expire_ts(expiry(ts, b"sort key")), ts);
        }
        assert_eq!(expire_ts(Expiry::NEVER), 0);
        let now = UnixMillis::new((EPOCH + 100) * 1_000 + 500);
        assert_eq!(seconds_left(expiry(103, b""), now), 3);
        // The time of a default is told to the millisecond. A second too many was told.
        let default = Expiry::at_key(now.checked_add_millis(60_000));
        assert_eq!(seconds_left(default, now), 60);
        let after = |millis: u64| now.checked_add_millis(millis).unwrap();
        assert_eq!((seconds_left(default, after(59_400)), seconds_left(default, after(59_900))), (1, 1));
        assert_eq!(seconds_left(Expiry::NEVER, now), -1);
    }
}
