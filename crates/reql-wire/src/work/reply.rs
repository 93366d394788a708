//! What came of work for a partition, and the form in which it comes back from another node: a byte that names the outcome, and its
//! fields.

use super::claim::Taken;
use super::fields::{put, put_option, take, take_option};
use crate::feeds::{LogPosition, NewChanges};
use bytes::{Buf as _, BufMut as _, Bytes};

/// What came of work.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Document(Option<Bytes>),
    /// Keys of the space and documents, and whether there are more behind the last one.
    Page(Vec<(Bytes, Bytes)>, bool),
    Written,
    /// The document is not what it was; it is this.
    Differs(Option<Bytes>),
    /// Nothing was done, for this reason.
    Refused(String),
    /// The [list](crate::indexes::IndexList) of indexes that the partition keeps. Nothing was written: the entries were made for
    /// another one.
    List(Bytes),
    /// The partition does not have the index yet.
    NotBuilt,
    Synced,
    Slice(Slice),
    /// Changes are kept; where the log of them stands.
    ChangesBegun(LogPosition),
    Changes(NewChanges),
    /// A page, with the last change that it shows.
    Stamped(u64, Vec<(Bytes, Bytes)>, bool),
    /// The document cannot have what another one has.
    Taken(Taken),
    /// A document with this primary key has ended and is still stored: it is to be removed first.
    Ended(Bytes),
    /// What is stored of a document, and the time in milliseconds since 1970 by which it is judged whether it has ended.
    Stored(Option<Bytes>, u64),
    /// Which share of the documents an index holds, 0 to 1.
    Progress(f64),
}

/// What was made of a slice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slice {
    pub(crate) partial: Bytes,
    /// The keys of documents, with the number of rows that were made of each, if the keys are wanted.
    pub(crate) keys: Vec<(Bytes, u32)>,
    /// The last document of the slice; none if there is no document in it.
    pub(crate) last: Option<Bytes>,
    pub(crate) end: SliceEnd,
}

/// Why a slice has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SliceEnd {
    /// There are no more documents.
    All,
    /// It was time for others.
    Turn,
    /// The functions for the next document, which has this key, take too long.
    Slow(Bytes),
    /// The pipeline complained about the next document: its key, and the error as bytes.
    Failed(Bytes, Bytes),
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
            Self::List(list) => {
                out.put_u8(5);
                put(&mut out, list);
            }
            Self::NotBuilt => out.put_u8(6),
            Self::Synced => out.put_u8(7),
            Self::Slice(slice) => {
                out.put_u8(8);
                slice.encode(&mut out);
            }
            Self::ChangesBegun(position) => {
                out.put_u8(9);
                out.put_u64_le(position.floor);
                out.put_u64_le(position.last);
            }
            Self::Changes(changes) => {
                out.put_u8(10);
                changes.encode(&mut out);
            }
            Self::Stamped(stamp, rows, has_more) => {
                out.put_u8(11);
                out.put_u64_le(*stamp);
                out.put_u8(u8::from(*has_more));
                for (key, document) in rows {
                    put(&mut out, key);
                    put(&mut out, document);
                }
            }
            Self::Ended(key) => {
                out.put_u8(13);
                put(&mut out, key);
            }
            Self::Stored(stored, now) => {
                out.put_u8(14);
                put_option(&mut out, stored.as_ref());
                out.put_u64_le(*now);
            }
            Self::Progress(share) => {
                out.put_u8(15);
                out.put_f64_le(*share);
            }
            Self::Taken(taken) => {
                out.put_u8(12);
                taken.encode(&mut out);
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
            5 => Self::List(take(input)?),
            6 => Self::NotBuilt,
            7 => Self::Synced,
            8 => Self::Slice(Slice::decode(input)?),
            9 => Self::ChangesBegun(LogPosition {
                floor: input.try_get_u64_le().ok()?,
                last: input.try_get_u64_le().ok()?,
            }),
            10 => Self::Changes(NewChanges::decode(input)?),
            11 => {
                let (stamp, has_more) = (input.try_get_u64_le().ok()?, input.try_get_u8().ok()? != 0);
                let mut rows = Vec::new();
                while !input.is_empty() {
                    rows.push((take(input)?, take(input)?));
                }
                Self::Stamped(stamp, rows, has_more)
            }
            12 => Self::Taken(Taken::decode(input)?),
            13 => Self::Ended(take(input)?),
            14 => Self::Stored(take_option(input)?, input.try_get_u64_le().ok()?),
            15 => Self::Progress(input.try_get_f64_le().ok()?),
            _ => return None,
        })
    }
}

impl Slice {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match &self.end {
            SliceEnd::All => out.put_u8(0),
            SliceEnd::Turn => out.put_u8(1),
            SliceEnd::Slow(next) => {
                out.put_u8(2);
                put(out, next);
            }
            SliceEnd::Failed(next, error) => {
                out.put_u8(3);
                put(out, next);
                put(out, error);
            }
        }
        put(out, &self.partial);
        put_option(out, self.last.as_ref());
        out.put_u32_le(u32::try_from(self.keys.len()).expect("a slice has few documents"));
        for (key, rows) in &self.keys {
            put(out, key);
            out.put_u32_le(*rows);
        }
    }

    pub(crate) fn decode(input: &mut Bytes) -> Option<Self> {
        let end = match input.try_get_u8().ok()? {
            0 => SliceEnd::All,
            1 => SliceEnd::Turn,
            2 => SliceEnd::Slow(take(input)?),
            3 => SliceEnd::Failed(take(input)?, take(input)?),
            _ => return None,
        };
        let (partial, last) = (take(input)?, take_option(input)?);
        let count = input.try_get_u32_le().ok()?;
        let keys = (0..count).map(|_| Some((take(input)?, input.try_get_u32_le().ok()?))).collect::<Option<_>>()?;
        Some(Self { partial, keys, last, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_travel() {
        let key = Bytes::from_static(b"key");
        let row = (key.clone(), key.clone());
        let some = [
            Reply::Document(None),
            Reply::Document(Some(key.clone())),
            Reply::Ended(key.clone()),
            Reply::Stored(Some(key.clone()), 77),
            Reply::Stored(None, 1),
            Reply::Progress(0.75),
            Reply::Taken(Taken { space: tessera_types::Space(17), key: key.clone(), holder: key.clone() }),
            Reply::Page(vec![row.clone(), row.clone()], true),
            Reply::Written,
            Reply::Differs(Some(key)),
            Reply::Refused("reason".into()),
            Reply::List(Bytes::from_static(b"list")),
            Reply::NotBuilt,
            Reply::Synced,
            Reply::ChangesBegun(LogPosition { floor: 3, last: 9 }),
            Reply::Changes(NewChanges { is_lost: true, reached: 7, records: vec![row.clone(), row.clone()] }),
            Reply::Stamped(5, vec![row.clone()], true),
            Reply::Slice(Slice {
                partial: row.0.clone(),
                keys: vec![(row.0.clone(), 3)],
                last: Some(row.1.clone()),
                end: SliceEnd::Failed(row.1.clone(), row.0.clone()),
            }),
        ];
        for reply in some {
            assert_eq!(Reply::decode(reply.encode()), Some(reply));
        }
    }
}
