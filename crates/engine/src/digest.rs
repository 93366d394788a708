//! Digests of slices of a partition's records, by which replicas are compared.
//!
//! Every engine goes through a slice in the order of [`RecordKey::encode_ordered`]. Records that had expired by the partition's
//! [time](crate::Engine::time) are left out, because each replica removes them when it comes to it. So replicas that have applied the
//! same entries get the same digest, and the same key at which the next slice begins, whatever engine they are on.

use crate::EngineError;
use bytes::Bytes;
use std::cmp::Ordering;
use tessera_types::{RecordKey, StoredValue, UnixMillis};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that a record counts besides its key and value.
const RECORD_OVERHEAD: u64 = 16;

/// Which records a digest is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Where it begins: the first key that may be in it, [ordered](RecordKey::encode_ordered). Empty is where the partition does.
    pub from: Bytes,
    /// The first key behind it; `None` leaves it to the limits.
    pub to: Option<Bytes>,
    /// It ends with the record that reaches one of these two.
    pub records: u64,
    pub bytes: u64,
    /// Records that are looked at in one go, with those that are left out.
    pub looked_at: u64,
}

/// What a replica has in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceDigest {
    pub records: u64,
    pub bytes: u64,
    pub hash: u128,
    /// Where the next slice begins, which is never behind the end that was asked for; `None` at the end of the partition.
    pub next: Option<Bytes>,
    /// Whether so many records were left out that it ended early. It is then not to be compared with others.
    pub is_cut: bool,
}

/// A digest, or what is left to do for it.
pub enum Digest {
    Done(SliceDigest),
    /// Looks at the records as they were. May wait for a disk.
    Later(Box<dyn FnOnce() -> Result<SliceDigest, EngineError> + Send>),
}

impl Digest {
    /// Does what is left.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn finish(self) -> Result<SliceDigest, EngineError> {
        match self {
            Self::Done(digest) => Ok(digest),
            Self::Later(rest) => rest(),
        }
    }
}

fn compare(one: &RecordKey<'_>, other: &RecordKey<'_>) -> Ordering {
    let order = |key: &RecordKey<'_>| (key.hash(), key.hash_key.len());
    let keys = || (one.hash_key, one.sort_key).cmp(&(other.hash_key, other.sort_key));
    order(one).cmp(&order(other)).then_with(keys)
}

impl Slice {
    /// The first key; `None` if it begins with the partition.
    pub(crate) fn first(&self) -> Option<RecordKey<'_>> {
        RecordKey::decode_ordered(&self.from)
    }

    /// The least key behind `key`.
    fn behind(key: &RecordKey<'_>) -> Bytes {
        let mut next = Vec::with_capacity(11 + key.hash_key.len() + key.sort_key.len());
        key.encode_ordered(&mut next);
        next.push(0);
        next.into()
    }
}

/// Digests the records that it is given, in order.
pub(crate) struct Digester<'a> {
    slice: &'a Slice,
    time: UnixMillis,
    first: Option<RecordKey<'a>>,
    end: Option<RecordKey<'a>>,
    hash: Xxh3,
    looked_at: u64,
    digest: SliceDigest,
}

impl<'a> Digester<'a> {
    /// Leaves out what had expired at `time`.
    pub(crate) fn new(slice: &'a Slice, time: UnixMillis) -> Self {
        let end = slice.to.as_deref().and_then(RecordKey::decode_ordered);
        let digest = SliceDigest { records: 0, bytes: 0, hash: 0, next: slice.to.clone(), is_cut: false };
        Self { slice, time, first: slice.first(), end, hash: Xxh3::new(), looked_at: 0, digest }
    }

    /// Takes a record. Returns whether the slice goes on behind it.
    pub(crate) fn add(&mut self, key: &RecordKey<'_>, value: &[u8]) -> bool {
        if self.first.is_some_and(|first| compare(key, &first).is_lt()) {
            return true;
        }
        if self.end.is_some_and(|end| compare(key, &end).is_ge()) {
            return false;
        }
        self.looked_at += 1;
        // What cannot be read is compared as it is.
        if StoredValue::decode(value).is_none_or(|stored| stored.is_live(self.time)) {
            let lengths = [key.hash_key.len() as u64, key.sort_key.len() as u64, value.len() as u64];
            lengths.iter().for_each(|length| self.hash.update(&length.to_le_bytes()));
            [key.hash_key, key.sort_key, value].iter().for_each(|part| self.hash.update(part));
            self.digest.records += 1;
            self.digest.bytes += RECORD_OVERHEAD + lengths.iter().sum::<u64>();
            if self.digest.records >= self.slice.records || self.digest.bytes >= self.slice.bytes {
                self.digest.next = Some(Slice::behind(key));
                return false;
            }
        }
        if self.looked_at >= self.slice.looked_at {
            self.digest.next = Some(Slice::behind(key));
            self.digest.is_cut = true;
            return false;
        }
        true
    }

    /// The digest of what was added.
    pub(crate) fn finish(self) -> SliceDigest {
        SliceDigest { hash: self.hash.digest128(), ..self.digest }
    }
}
