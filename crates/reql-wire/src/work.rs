//! What is done to one partition by the node that leads it, and the form in which another node asks for it: for each part `u32`
//! partition, a byte that names the work, and its fields. Texts of bytes follow their `u32` length; numbers are little-endian.
//!
//! A write is a comparison: the document becomes what the asking node has computed if it still is what that was computed from.
//! See docs/decisions/0039.

use bytes::{Buf as _, BufMut as _, Bytes};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_store::{Operation, PageLimit, Position, Store, Table, Transaction, Verdict, Visit};
use tessera_types::{ReadMode, RecordKey, RequestError};
use tokio::sync::Notify;

/// Bytes of documents in a page, about.
const PAGE_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    Get { key: Bytes },
    Scan(ScanWork),
    Write(WriteWork),
}

/// Documents with keys from `start` on, up to but without `end`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScanWork {
    pub(crate) start: Bytes,
    pub(crate) end: Option<Bytes>,
    pub(crate) order: u8,
    pub(crate) after: Option<Bytes>,
    pub(crate) limit: u32,
}

pub(crate) const ANY: u8 = 0;
pub(crate) const ASCENDING: u8 = 1;
pub(crate) const DESCENDING: u8 = 2;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WriteWork {
    pub(crate) key: Bytes,
    /// What the document must still be.
    pub(crate) old: Option<Bytes>,
    pub(crate) new: Option<Bytes>,
    /// Whether the write need not wait for the disk.
    pub(crate) is_soft: bool,
    pub(crate) is_hard: bool,
}

/// What came of work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Document(Option<Bytes>),
    /// Keys and documents, and whether there are more behind the last one.
    Page(Vec<(Bytes, Bytes)>, bool),
    Written,
    /// The document is not what it was; it is this.
    Differs(Option<Bytes>),
    /// Nothing was done, for this reason.
    Refused(String),
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u32_le(u32::try_from(bytes.len()).expect("values are shorter than 4 GiB"));
    out.put_slice(bytes);
}

fn put_option(out: &mut Vec<u8>, bytes: Option<&Bytes>) {
    out.put_u8(u8::from(bytes.is_some()));
    bytes.inspect(|bytes| put(out, bytes));
}

fn take(input: &mut Bytes) -> Option<Bytes> {
    let length = input.try_get_u32_le().ok()? as usize;
    (length <= input.len()).then(|| input.split_to(length))
}

fn take_option(input: &mut Bytes) -> Option<Option<Bytes>> {
    if input.try_get_u8().ok()? == 0 { Some(None) } else { take(input).map(Some) }
}

impl Work {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Get { key } => {
                out.put_u8(0);
                put(out, key);
            }
            Self::Scan(scan) => {
                out.put_slice(&[1, scan.order]);
                put(out, &scan.start);
                put_option(out, scan.end.as_ref());
                put_option(out, scan.after.as_ref());
                out.put_u32_le(scan.limit);
            }
            Self::Write(write) => {
                out.put_slice(&[2, u8::from(write.is_soft), u8::from(write.is_hard)]);
                put(out, &write.key);
                put_option(out, write.old.as_ref());
                put_option(out, write.new.as_ref());
            }
        }
    }

    pub(crate) fn decode(input: &mut Bytes) -> Option<Self> {
        Some(match input.try_get_u8().ok()? {
            0 => Self::Get { key: take(input)? },
            1 => Self::Scan(ScanWork {
                order: input.try_get_u8().ok()?,
                start: take(input)?,
                end: take_option(input)?,
                after: take_option(input)?,
                limit: input.try_get_u32_le().ok()?,
            }),
            2 => {
                let (is_soft, is_hard) = (input.try_get_u8().ok()? != 0, input.try_get_u8().ok()? != 0);
                let (key, old, new) = (take(input)?, take_option(input)?, take_option(input)?);
                Self::Write(WriteWork { key, old, new, is_soft, is_hard })
            }
            _ => return None,
        })
    }

    /// Whether it does no harm twice.
    pub(crate) fn is_read(&self) -> bool {
        !matches!(self, Self::Write(_))
    }
}

impl Reply {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Document(document) => {
                out.put_u8(0);
                put_option(&mut out, document.as_ref());
            }
            Self::Page(rows, has_more) => {
                out.put_slice(&[1, u8::from(*has_more)]);
                for (key, document) in rows {
                    put(&mut out, key);
                    put(&mut out, document);
                }
            }
            Self::Written => out.put_u8(2),
            Self::Differs(document) => {
                out.put_u8(3);
                put_option(&mut out, document.as_ref());
            }
            Self::Refused(reason) => {
                out.put_u8(4);
                put(&mut out, reason.as_bytes());
            }
        }
        out.into()
    }

    pub(crate) fn decode(mut input: Bytes) -> Option<Self> {
        let input = &mut input;
        Some(match input.try_get_u8().ok()? {
            0 => Self::Document(take_option(input)?),
            1 => {
                let (has_more, mut rows) = (input.try_get_u8().ok()? != 0, Vec::new());
                while !input.is_empty() {
                    rows.push((take(input)?, take(input)?));
                }
                Self::Page(rows, has_more)
            }
            2 => Self::Written,
            3 => Self::Differs(take_option(input)?),
            4 => Self::Refused(String::from_utf8_lossy(&take(input)?).into_owned()),
            _ => return None,
        })
    }
}

pub(crate) fn get(store: &Store, table: &Table, key: &[u8]) -> Result<Reply, RequestError> {
    let mut found = None;
    let keep = &mut |stored: tessera_types::StoredValue<'_>| found = Some(Bytes::copy_from_slice(stored.payload));
    table.read(&RecordKey::new(key, b""), ReadMode::Single, store.now(), keep)?;
    Ok(Reply::Document(found))
}

/// A page of a partition's documents. In any order it is that of their hashes. Otherwise the whole partition is looked at for
/// the page, of which no more is held than the page.
pub(crate) fn scan(store: &Store, table: &Table, partition: u32, scan: &ScanWork) -> Result<Reply, RequestError> {
    let limit = (scan.limit as usize).max(1);
    let in_range = |key: &[u8]| key >= &scan.start[..] && scan.end.as_ref().is_none_or(|end| key < &end[..]);
    let mut position = match &scan.after {
        Some(after) if scan.order == ANY => Position::behind(&RecordKey::new(after, b"")),
        _ => Position::START,
    };
    let (mut rows, mut bytes, mut has_more) = (Vec::new(), 0, false);
    let mut sorted = BTreeMap::new();
    loop {
        let next =
            table.scan(partition, &position, PageLimit::of_records(limit), store.now(), &mut |key, stored| {
                let key = key.hash_key;
                if !in_range(key) {
                    return Visit::NextRecord;
                }
                let row = || (Bytes::copy_from_slice(key), Bytes::copy_from_slice(stored.payload));
                let is_left = |after: &Bytes| if scan.order == ASCENDING { key > &after[..] } else { key < &after[..] };
                if scan.order == ANY {
                    bytes += stored.payload.len();
                    rows.push(row());
                } else if scan.after.as_ref().is_none_or(is_left) {
                    let (key, document) = row();
                    bytes += document.len();
                    sorted.insert(key, document);
                    while sorted.len() > 1 && (sorted.len() > limit || bytes > PAGE_BYTES) {
                        let last = if scan.order == ASCENDING { sorted.pop_last() } else { sorted.pop_first() };
                        bytes -= last.map_or(0, |(_, document)| document.len());
                        has_more = true;
                    }
                }
                Visit::NextRecord
            })?;
        match next {
            Some(_) if scan.order == ANY && (rows.len() >= limit || bytes >= PAGE_BYTES) => {
                return Ok(Reply::Page(rows, true));
            }
            Some(next) => position = next,
            None => break,
        }
    }
    match scan.order {
        ANY => {}
        ASCENDING => rows.extend(sorted),
        _ => rows.extend(sorted.into_iter().rev()),
    }
    Ok(Reply::Page(rows, has_more))
}

/// Writes, each to its partition.
pub(crate) struct Writes {
    writes: Vec<WriteWork>,
    replies: Mutex<Vec<Option<Result<Reply, RequestError>>>>,
    left: AtomicUsize,
    all_done: Notify,
}

impl Writes {
    pub(crate) fn new(writes: Vec<WriteWork>) -> Self {
        let left = AtomicUsize::new(writes.len());
        let replies = Mutex::new(vec![None; writes.len()]);
        Self { writes, replies, left, all_done: Notify::new() }
    }

    /// Waits until all are answered.
    pub(crate) async fn done(&self) -> Vec<Result<Reply, RequestError>> {
        loop {
            let all_done = self.all_done.notified();
            if self.left.load(Ordering::Acquire) == 0 {
                break;
            }
            all_done.await;
        }
        let replies = std::mem::take(&mut *self.replies.lock());
        replies.into_iter().map(|reply| reply.unwrap_or(Err(RequestError::Interrupted))).collect()
    }
}

impl Operation for Writes {
    fn evaluate(&self, part: usize, transaction: &mut Transaction<'_>) -> Verdict {
        let write = &self.writes[part];
        let step = || -> Result<Reply, RequestError> {
            let there = transaction.get(&write.key, b"")?.map(|record| record.value);
            if there != write.old {
                return Ok(Reply::Differs(there));
            }
            match &write.new {
                Some(new) => transaction.put(&write.key, b"", new, transaction.default_expiry(), false)?,
                None => transaction.delete(&write.key, b""),
            }
            Ok(Reply::Written)
        };
        let reply = {
            let mut step = step;
            step()
        };
        let verdict = if matches!(reply, Ok(Reply::Written)) { Verdict::Commit } else { Verdict::Abandon };
        self.replies.lock()[part] = Some(reply);
        verdict
    }

    fn answer(&self, part: usize, outcome: Result<(), RequestError>) {
        if let Err(error) = outcome {
            self.replies.lock()[part] = Some(Err(error));
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_done.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_replies_travel() {
        let key = Bytes::from_static(b"key");
        let some = [
            Work::Get { key: key.clone() },
            Work::Scan(ScanWork { start: key.clone(), end: None, order: ANY, after: Some(key.clone()), limit: 7 }),
            Work::Write(WriteWork {
                key: key.clone(),
                old: None,
                new: Some(key.clone()),
                is_soft: true,
                is_hard: false,
            }),
        ];
        for work in some {
            let mut out = Vec::new();
            work.encode(&mut out);
            assert_eq!(Work::decode(&mut Bytes::from(out.clone())), Some(work));
            for length in 0..out.len() {
                assert_eq!(Work::decode(&mut Bytes::copy_from_slice(&out[..length])), None, "cut at {length}");
            }
        }
        let row = (key.clone(), key.clone());
        let some = [
            Reply::Document(None),
            Reply::Document(Some(key.clone())),
            Reply::Page(vec![row.clone(), row], true),
            Reply::Written,
            Reply::Differs(Some(key)),
            Reply::Refused("reason".into()),
        ];
        for reply in some {
            assert_eq!(Reply::decode(reply.encode()), Some(reply));
        }
    }
}
