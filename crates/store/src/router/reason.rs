//! Why something was not done, as one node tells another one: `u8` code, then what the reason says beside that. Integers are
//! little-endian; a text has `u32` its length before it.
//!
//! | code | reason | what else |
//! |---|---|---|
//! | 1 | no leader that serves and can be reached | |
//! | 2 | the node stops | |
//! | 3 | the node was removed | |
//! | 4 | the table was dropped | text: its name |
//! | 5 | the queue of writes is full | |
//! | 6 | more than the table's rate | |
//! | 7 | a transaction holds the key | |
//! | 8 | a transaction gave way to others | |
//! | 9 | the disk is full | |
//! | 10, 11, 12 | the log's disk failed; an engine takes no writes; the disk cannot be read | text: the error |
//! | 13 | memory is used up | `u64` bytes needed, `u64` bytes left |
//! | 14 | the table denies it | `u8` 1 if it denies writes |
//! | 15 | too many records | `u64` limit |
//! | 16 | too large | text: what, text: the limit's name, `u64` length, `u64` limit |
//! | 17 | keys of several partitions | |
//! | 18 | the table has no log | `u8` the durability that was asked for: 0 none, 1 soft, 2 hard |
//! | 19, 20 | damaged records; another error of an engine | text: the error |
//! | 21 | it would have had to wait for the disk | |
//! | 22 | the node stopped while it was under way | |

use crate::ledger::encoding;
use bytes::{Buf, BufMut, Bytes};
use tessera_types::{Durability, RequestError};

const DURABILITIES: [Durability; 3] = [Durability::None, Durability::Soft, Durability::Hard];

/// Appends a reason.
pub fn encode(out: &mut Vec<u8>, reason: &RequestError) {
    match reason {
        RequestError::NotReady => out.put_u8(1),
        RequestError::ShuttingDown => out.put_u8(2),
        RequestError::Removed => out.put_u8(3),
        RequestError::NoSuchTable(name) => put_text(out, 4, name),
        RequestError::Busy => out.put_u8(5),
        RequestError::Throttled => out.put_u8(6),
        RequestError::Held => out.put_u8(7),
        RequestError::Contended => out.put_u8(8),
        RequestError::DiskFull => out.put_u8(9),
        RequestError::DiskFailed(error) => put_text(out, 10, error),
        RequestError::NotApplied(error) => put_text(out, 11, error),
        RequestError::DiskUnreadable(error) => put_text(out, 12, error),
        RequestError::MemoryFull { needed, spare } => {
            out.put_u8(13);
            out.put_u64_le(*needed);
            out.put_u64_le(*spare);
        }
        RequestError::Denied { is_write } => out.put_slice(&[14, u8::from(*is_write)]),
        RequestError::TooManyRecords { allowed } => {
            out.put_u8(15);
            put_count(out, *allowed);
        }
        RequestError::TooLarge { what, limit, actual, allowed } => {
            put_text(out, 16, what);
            encoding::put_bytes(out, limit.as_bytes());
            put_count(out, *actual);
            put_count(out, *allowed);
        }
        RequestError::CrossPartition => out.put_u8(17),
        RequestError::DurabilityUnavailable(durability) => {
            let code = DURABILITIES.iter().position(|one| one == durability).expect("all are listed");
            out.put_slice(&[18, code as u8]);
        }
        RequestError::Corruption(error) => put_text(out, 19, error),
        RequestError::Engine(error) => put_text(out, 20, error),
        RequestError::WouldWait => out.put_u8(21),
        RequestError::Interrupted => out.put_u8(22),
    }
}

/// Reads what [`encode`] wrote; `None` if that is not what this is.
pub fn decode(mut from: Bytes) -> Option<RequestError> {
    let from = &mut from;
    let reason = match from.try_get_u8().ok()? {
        1 => RequestError::NotReady,
        2 => RequestError::ShuttingDown,
        3 => RequestError::Removed,
        4 => RequestError::NoSuchTable(string(from)?),
        5 => RequestError::Busy,
        6 => RequestError::Throttled,
        7 => RequestError::Held,
        8 => RequestError::Contended,
        9 => RequestError::DiskFull,
        10 => RequestError::DiskFailed(string(from)?),
        11 => RequestError::NotApplied(string(from)?),
        12 => RequestError::DiskUnreadable(string(from)?),
        13 => RequestError::MemoryFull { needed: from.try_get_u64_le().ok()?, spare: from.try_get_u64_le().ok()? },
        14 => RequestError::Denied { is_write: from.try_get_u8().ok()? != 0 },
        15 => RequestError::TooManyRecords { allowed: count(from)? },
        16 => RequestError::TooLarge {
            what: string(from)?.into(),
            limit: string(from)?.into(),
            actual: count(from)?,
            allowed: count(from)?,
        },
        17 => RequestError::CrossPartition,
        18 => RequestError::DurabilityUnavailable(*DURABILITIES.get(usize::from(from.try_get_u8().ok()?))?),
        19 => RequestError::Corruption(string(from)?),
        20 => RequestError::Engine(string(from)?),
        21 => RequestError::WouldWait,
        22 => RequestError::Interrupted,
        _ => return None,
    };
    from.is_empty().then_some(reason)
}

fn put_text(out: &mut Vec<u8>, code: u8, text: &str) {
    out.put_u8(code);
    encoding::put_bytes(out, text.as_bytes());
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.put_u64_le(count as u64);
}

fn string(from: &mut Bytes) -> Option<String> {
    Some(String::from_utf8_lossy(&encoding::bytes(from)?).into_owned())
}

fn count(from: &mut Bytes) -> Option<usize> {
    usize::try_from(from.try_get_u64_le().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each reason with its bytes, which nodes of other builds read and write.
    fn reasons() -> Vec<(RequestError, &'static [u8])> {
        let text = || "ab".to_string();
        vec![
            (RequestError::NotReady, b"\x01"),
            (RequestError::ShuttingDown, b"\x02"),
            (RequestError::Removed, b"\x03"),
            (RequestError::NoSuchTable(text()), b"\x04\x02\0\0\0ab"),
            (RequestError::Busy, b"\x05"),
            (RequestError::Throttled, b"\x06"),
            (RequestError::Held, b"\x07"),
            (RequestError::Contended, b"\x08"),
            (RequestError::DiskFull, b"\x09"),
            (RequestError::DiskFailed(text()), b"\x0a\x02\0\0\0ab"),
            (RequestError::NotApplied(text()), b"\x0b\x02\0\0\0ab"),
            (RequestError::DiskUnreadable(text()), b"\x0c\x02\0\0\0ab"),
            (RequestError::MemoryFull { needed: 258, spare: 1 }, b"\x0d\x02\x01\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"),
            (RequestError::Denied { is_write: false }, b"\x0e\0"),
            (RequestError::Denied { is_write: true }, b"\x0e\x01"),
            (RequestError::TooManyRecords { allowed: 258 }, b"\x0f\x02\x01\0\0\0\0\0\0"),
            (
                RequestError::TooLarge { what: "key".into(), limit: "k".into(), actual: 2, allowed: 1 },
                b"\x10\x03\0\0\0key\x01\0\0\0k\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0",
            ),
            (RequestError::CrossPartition, b"\x11"),
            (RequestError::DurabilityUnavailable(Durability::None), b"\x12\0"),
            (RequestError::DurabilityUnavailable(Durability::Soft), b"\x12\x01"),
            (RequestError::DurabilityUnavailable(Durability::Hard), b"\x12\x02"),
            (RequestError::Corruption(text()), b"\x13\x02\0\0\0ab"),
            (RequestError::Engine(text()), b"\x14\x02\0\0\0ab"),
            (RequestError::WouldWait, b"\x15"),
            (RequestError::Interrupted, b"\x16"),
        ]
    }

    #[test]
    fn the_bytes_of_reasons_stay_and_what_is_cut_off_is_none() {
        for (reason, bytes) in reasons() {
            let mut encoded = Vec::new();
            encode(&mut encoded, &reason);
            assert_eq!(encoded, bytes, "{reason:?}");
            let encoded = Bytes::from(encoded);
            assert_eq!(decode(encoded.clone()).as_ref(), Some(&reason));
            for length in 0..encoded.len() {
                assert_eq!(decode(encoded.slice(..length)), None, "{reason:?} cut at {length}");
            }
            assert_eq!(decode([bytes, b"x"].concat().into()), None, "{reason:?} and more");
        }
        assert_eq!(decode(Bytes::from_static(b"\x17")), None);
        assert_eq!(decode(Bytes::from_static(b"\0")), None);
    }
}
