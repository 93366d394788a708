//! What can be asked of one partition, and the form in which one node asks another for it: a byte that names the work, and its
//! fields. Texts of bytes follow their `u32` length; numbers are little-endian. [`crate::partition`] does it.
//!
//! A write is a comparison: the document becomes what the asking node has computed if it still is what that was computed from, and
//! if the asking node knew which indexes the partition keeps. See docs/decisions/0039 and 0041.

mod claim;
mod fields;
mod reply;

pub(crate) use claim::{ClaimWork, Taken};
pub(crate) use fields::{put, put_option, take, take_option};
pub(crate) use reply::{Reply, Slice, SliceEnd};

use crate::feeds::ChangesWork;
use crate::indexes::NewEntries;
use bytes::{Buf as _, BufMut as _, Bytes};
use std::sync::Arc;
use tessera_document::EntryChanges;
use tessera_engine::Order;
use tessera_reql::{Cells, Lifetime};
use tessera_types::Space;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    Get {
        key: Bytes,
    },
    Scan(ScanWork),
    Evaluate(EvaluateWork),
    Write(WriteWork),
    /// Tell which indexes the partition keeps.
    List,
    /// Tell how far an index with this space is.
    Progress {
        space: Space,
    },
    /// Make durable what was written before.
    Sync,
    /// Keep changes from now on.
    BeginChanges,
    /// Tell what has changed, for feeds.
    Changes(ChangesWork),
    /// As a scan, and tell up to which change the page shows the partition.
    StampedScan(ScanWork),
    /// Tell which document has a key of the unique index with this space. It is done in transactions only.
    Holder {
        space: Space,
        key: Bytes,
    },
    /// Give a key of a unique index to a document, or take it away. It is done in transactions only.
    Claim(ClaimWork),
    /// Tell what is stored of a document, also if it has ended.
    Stored {
        key: Bytes,
    },
}

/// Documents by the keys of a space from `start` on, up to but without `end`; by the entries of a geospatial index only those that have
/// one of the cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScanWork {
    /// The space that is read: that of the documents, or of an index.
    pub(crate) space: Space,
    pub(crate) start: Bytes,
    pub(crate) end: Option<Bytes>,
    pub(crate) cells: Option<Arc<Cells>>,
    pub(crate) order: Order,
    pub(crate) after: Option<Bytes>,
    pub(crate) limit: u32,
}

/// Which documents, and what is to be made of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EvaluateWork {
    /// Its limit is for the rows that are made, if these are not brought to a value.
    pub(crate) scan: ScanWork,
    pub(crate) pipeline: Bytes,
    /// Whether the rows are to be merged in the order of the keys.
    pub(crate) wants_keys: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WriteWork {
    pub(crate) key: Bytes,
    /// What the document must still be.
    pub(crate) old: Option<Bytes>,
    pub(crate) new: Option<Bytes>,
    pub(crate) entries: NewEntries,
    /// Whether the write need not wait for the disk.
    pub(crate) is_soft: bool,
    pub(crate) is_hard: bool,
    pub(crate) lifetime: Lifetime,
    /// Whether the document is removed because it has ended: then it must have.
    pub(crate) removes_ended: bool,
}

impl WriteWork {
    /// A write that changes nothing, and only looks whether the document is still this one.
    pub(crate) fn comparison(key: Bytes, document: Option<Bytes>) -> Self {
        Self {
            key,
            old: document.clone(),
            new: document,
            entries: NewEntries::default(),
            is_soft: false,
            is_hard: false,
            lifetime: Lifetime::Kept,
            removes_ended: false,
        }
    }

    pub(crate) fn only_compares(&self) -> bool {
        self.old == self.new && self.lifetime == Lifetime::Kept
    }
}

/// What is added to the name of a scan's work if it has cells, which follow: nodes that know none refuse that work, and no other.
const WITH_CELLS: u8 = 5;

fn put_kind(out: &mut Vec<u8>, kind: u8, cells: Option<&Cells>) {
    let Some(cells) = cells else { return out.put_u8(kind) };
    out.put_u8(kind + WITH_CELLS);
    out.put_u32_le(u32::try_from(cells.ranges().len()).expect("a search has few ranges"));
    for range in cells.ranges() {
        out.put_u64_le(range.first);
        out.put_u64_le(range.last);
    }
}

fn take_cells(input: &mut Bytes) -> Option<Arc<Cells>> {
    let count = input.try_get_u32_le().ok()?;
    let mut range = || Some((input.try_get_u64_le().ok()?, input.try_get_u64_le().ok()?));
    let ranges = (0..count).map(|_| range()).collect::<Option<Vec<_>>>()?;
    Cells::of_numbers(ranges).map(Arc::new)
}

fn put_entries(out: &mut Vec<u8>, entries: &NewEntries) {
    out.put_u64_le(entries.stamp);
    out.put_u32_le(u32::try_from(entries.changes.len()).expect("indexes are few"));
    for (space, changes) in &entries.changes {
        out.put_u32_le(space.0);
        for keys in [&changes.removed, &changes.added] {
            out.put_u32_le(u32::try_from(keys.len()).expect("an array has fewer elements"));
            keys.iter().for_each(|key| put(out, key));
        }
    }
}

fn take_entries(input: &mut Bytes) -> Option<NewEntries> {
    let mut entries = NewEntries { stamp: input.try_get_u64_le().ok()?, ..NewEntries::default() };
    for _ in 0..input.try_get_u32_le().ok()? {
        let space = Space(input.try_get_u32_le().ok()?);
        let mut keys = || -> Option<Vec<Vec<u8>>> {
            let count = input.try_get_u32_le().ok()?;
            (0..count).map(|_| take(input).map(|key| key.to_vec())).collect()
        };
        let changes = EntryChanges { removed: keys()?, added: keys()? };
        entries.changes.push((space, changes));
    }
    Some(entries)
}

/// A write that follows what nodes of earlier versions do not know, so that they refuse it.
fn take_write(input: &mut Bytes) -> Option<WriteWork> {
    match input.first() {
        Some(2) => match Work::decode(input)? {
            Work::Write(write) => Some(write),
            _ => None,
        },
        _ => None,
    }
}

impl Work {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Get { key } => {
                out.put_u8(0);
                put(out, key);
            }
            Self::Scan(scan) => {
                put_kind(out, 1, scan.cells.as_deref());
                scan.encode(out);
            }
            Self::Write(write) => {
                match (write.removes_ended, write.lifetime) {
                    (false, Lifetime::Kept) => {}
                    (true, _) => out.put_u8(17),
                    (false, Lifetime::Endless) => {
                        out.put_u8(18);
                        out.put_u64_le(0);
                    }
                    (false, Lifetime::Fresh) => {
                        out.put_u8(18);
                        out.put_u64_le(u64::MAX);
                    }
                    (false, Lifetime::Millis(millis)) => {
                        out.put_u8(18);
                        out.put_u64_le(millis);
                    }
                }
                out.put_slice(&[2, u8::from(write.is_soft), u8::from(write.is_hard)]);
                put(out, &write.key);
                put_option(out, write.old.as_ref());
                put_option(out, write.new.as_ref());
                put_entries(out, &write.entries);
            }
            Self::List => out.put_u8(3),
            Self::Sync => out.put_u8(4),
            Self::BeginChanges => out.put_u8(7),
            Self::Changes(changes) => {
                out.put_u8(8);
                changes.encode(out);
            }
            Self::StampedScan(scan) => {
                put_kind(out, 11, scan.cells.as_deref());
                scan.encode(out);
            }
            Self::Holder { space, key } => {
                out.put_u8(12);
                out.put_u32_le(space.0);
                put(out, key);
            }
            Self::Stored { key } => {
                out.put_u8(14);
                put(out, key);
            }
            Self::Claim(claim) => {
                out.put_u8(13);
                claim.encode(out);
            }
            Self::Progress { space } => {
                out.put_u8(19);
                out.put_u32_le(space.0);
            }
            Self::Evaluate(evaluate) => {
                put_kind(out, 5, evaluate.scan.cells.as_deref());
                evaluate.encode(out);
            }
        }
    }

    pub(crate) fn decode(input: &mut Bytes) -> Option<Self> {
        Some(match input.try_get_u8().ok()? {
            0 => Self::Get { key: take(input)? },
            1 => Self::Scan(ScanWork::decode(input)?),
            2 => {
                let (is_soft, is_hard) = (input.try_get_u8().ok()? != 0, input.try_get_u8().ok()? != 0);
                let (key, old, new) = (take(input)?, take_option(input)?, take_option(input)?);
                let (entries, lifetime) = (take_entries(input)?, Lifetime::Kept);
                Self::Write(WriteWork { key, old, new, entries, is_soft, is_hard, lifetime, removes_ended: false })
            }
            3 => Self::List,
            4 => Self::Sync,
            5 => Self::Evaluate(EvaluateWork::decode(input)?),
            6 => {
                let cells = Some(take_cells(input)?);
                Self::Scan(ScanWork { cells, ..ScanWork::decode(input)? })
            }
            7 => Self::BeginChanges,
            8 => Self::Changes(ChangesWork::decode(input)?),
            11 => Self::StampedScan(ScanWork::decode(input)?),
            12 => Self::Holder { space: Space(input.try_get_u32_le().ok()?), key: take(input)? },
            13 => Self::Claim(ClaimWork::decode(input)?),
            14 => Self::Stored { key: take(input)? },
            19 => Self::Progress { space: Space(input.try_get_u32_le().ok()?) },
            17 => Self::Write(WriteWork { removes_ended: true, ..take_write(input)? }),
            18 => {
                let lifetime = match input.try_get_u64_le().ok()? {
                    0 => Lifetime::Endless,
                    u64::MAX => Lifetime::Fresh,
                    millis => Lifetime::Millis(millis),
                };
                Self::Write(WriteWork { lifetime, ..take_write(input)? })
            }
            16 => {
                let cells = Some(take_cells(input)?);
                Self::StampedScan(ScanWork { cells, ..ScanWork::decode(input)? })
            }
            10 => {
                let cells = Some(take_cells(input)?);
                let evaluate = EvaluateWork::decode(input)?;
                Self::Evaluate(EvaluateWork { scan: ScanWork { cells, ..evaluate.scan }, ..evaluate })
            }
            _ => return None,
        })
    }

    /// Whether it looks at many documents.
    pub(crate) fn is_scan(&self) -> bool {
        matches!(self, Self::Scan(_) | Self::StampedScan(_) | Self::Evaluate(_))
    }

    /// Whether it does no harm twice.
    pub(crate) fn is_read(&self) -> bool {
        !matches!(self, Self::Write(_) | Self::Claim(_))
    }
}

impl ScanWork {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(self.order == Order::Descending));
        out.put_u32_le(self.space.0);
        put(out, &self.start);
        put_option(out, self.end.as_ref());
        put_option(out, self.after.as_ref());
        out.put_u32_le(self.limit);
    }

    pub(crate) fn decode(input: &mut Bytes) -> Option<Self> {
        Some(Self {
            order: if input.try_get_u8().ok()? == 0 { Order::Ascending } else { Order::Descending },
            space: Space(input.try_get_u32_le().ok()?),
            start: take(input)?,
            end: take_option(input)?,
            after: take_option(input)?,
            limit: input.try_get_u32_le().ok()?,
            cells: None,
        })
    }
}

impl EvaluateWork {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.scan.encode(out);
        put(out, &self.pipeline);
        out.put_u8(u8::from(self.wants_keys));
    }

    pub(crate) fn decode(input: &mut Bytes) -> Option<Self> {
        let scan = ScanWork::decode(input)?;
        Some(Self { scan, pipeline: take(input)?, wants_keys: input.try_get_u8().ok()? != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_travels() {
        let key = Bytes::from_static(b"key");
        let some = [
            Work::Get { key: key.clone() },
            Work::Scan(ScanWork {
                space: Space(17),
                start: key.clone(),
                end: None,
                cells: Some(Arc::new(Cells::of_numbers(vec![(1, 1), (5, 900)]).unwrap())),
                order: Order::Descending,
                after: Some(key.clone()),
                limit: 7,
            }),
            Work::List,
            Work::Sync,
            Work::BeginChanges,
            Work::Changes(ChangesWork {
                after: 77,
                ranges: vec![(key.clone(), None), (key.clone(), Some(key.clone()))],
                patience: 9,
            }),
            Work::StampedScan(ScanWork {
                space: Space::DOCUMENTS,
                start: key.clone(),
                end: None,
                cells: None,
                order: Order::Ascending,
                after: None,
                limit: 7,
            }),
            Work::Evaluate(EvaluateWork {
                scan: ScanWork {
                    space: Space::DOCUMENTS,
                    start: Bytes::new(),
                    end: Some(key.clone()),
                    cells: None,
                    order: Order::Ascending,
                    after: None,
                    limit: 3,
                },
                pipeline: key.clone(),
                wants_keys: true,
            }),
            Work::Evaluate(EvaluateWork {
                scan: ScanWork {
                    space: Space(16),
                    start: Bytes::new(),
                    end: None,
                    cells: Some(Arc::default()),
                    order: Order::Ascending,
                    after: None,
                    limit: 3,
                },
                pipeline: key.clone(),
                wants_keys: false,
            }),
            Work::Holder { space: Space(17), key: key.clone() },
            Work::Claim(ClaimWork {
                space: Space(17),
                key: key.clone(),
                leaving: vec![key.clone(), Bytes::new()],
                taking: Some(key.clone()),
            }),
            Work::Write(WriteWork {
                key: key.clone(),
                old: None,
                new: Some(key.clone()),
                entries: NewEntries {
                    stamp: 77,
                    changes: vec![(
                        Space(16),
                        EntryChanges { removed: vec![b"one".to_vec()], added: vec![b"two".to_vec(), b"3".to_vec()] },
                    )],
                },
                is_soft: true,
                is_hard: false,
                lifetime: Lifetime::Kept,
                removes_ended: false,
            }),
            Work::Write(WriteWork {
                lifetime: Lifetime::Millis(77),
                ..WriteWork::comparison(key.clone(), Some(key.clone()))
            }),
            Work::Write(WriteWork { lifetime: Lifetime::Endless, ..WriteWork::comparison(key.clone(), None) }),
            Work::Write(WriteWork { lifetime: Lifetime::Fresh, ..WriteWork::comparison(key.clone(), None) }),
            Work::Write(WriteWork { removes_ended: true, ..WriteWork::comparison(key.clone(), Some(key.clone())) }),
            Work::Stored { key: key.clone() },
            Work::Progress { space: Space(17) },
        ];
        for work in some {
            let mut out = Vec::new();
            work.encode(&mut out);
            assert_eq!(Work::decode(&mut Bytes::from(out.clone())), Some(work));
            for length in 0..out.len() {
                assert_eq!(Work::decode(&mut Bytes::copy_from_slice(&out[..length])), None, "cut at {length}");
            }
        }
    }
}
