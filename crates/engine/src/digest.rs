//! Digests of slices of a partition's records, by which replicas are compared.
//!
//! Every engine goes through a slice in the order of [`Address`]. Records that had expired by the partition's
//! [time](crate::Engine::time) are left out, because each replica removes them when it comes to it. So replicas that have applied the
//! same entries get the same digest, and the same key at which the next slice begins, whatever engine they are on.

use crate::EngineError;
use bytes::Bytes;
use std::cmp::Ordering;
use tessera_types::{RecordKey, Space, StoredValue, UnixMillis};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that a record counts besides its key and value.
const RECORD_OVERHEAD: u64 = 16;

/// Which records a digest is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Where it begins: the first [address](Address) that may be in it. Empty is where the partition does.
    pub from: Bytes,
    /// The first address behind it; `None` leaves it to the limits.
    pub to: Option<Bytes>,
    /// It ends with the record that reaches one of these two.
    pub records: u64,
    /// Bytes of keys and values, with a fixed overhead for each record.
    pub bytes: u64,
    /// Records that are looked at in one go, with those that are left out.
    pub scanned: u64,
}

/// What a replica has in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceDigest {
    /// Records in the slice.
    pub records: u64,
    /// Bytes of their keys and values, with a fixed overhead for each record.
    pub bytes: u64,
    /// XXH3 with 128 bits over keys and values.
    pub hash: u128,
    /// Where the next slice begins, which is never behind the end that was asked for; `None` at the end of the partition.
    pub next: Option<Bytes>,
    /// Whether so many records were left out that it ended early. It is then not to be compared with others.
    pub is_cut: bool,
}

/// A digest, or what is left to do for it.
pub enum Digest {
    /// The digest is made already.
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

/// What an address in a space begins with. No record key in its ordered form does: a hash key of that length there cannot be.
const IN_SPACE: [u8; 10] = [u8::MAX; 10];

/// Where a record of a partition is. First come the records ordered by hash, as [`RecordKey::encode_ordered`] has them, then one
/// space after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address<'a> {
    /// A record under a hash key and a sort key.
    Record(RecordKey<'a>),
    /// An entry of an ordered space, by its key.
    InSpace(Space, &'a [u8]),
}

impl<'a> Address<'a> {
    /// Writes the bytes that order addresses: of a record its ordered key, of another ten bytes 0xff, the space's number, big-endian, and
    /// the key.
    pub fn to_ordered_bytes(&self) -> Bytes {
        match self {
            Self::Record(key) => key.to_ordered_bytes(),
            Self::InSpace(space, key) => [&IN_SPACE[..], &space.0.to_be_bytes(), *key].concat().into(),
        }
    }

    /// Reads what [`Self::to_ordered_bytes`] wrote; `None` if the bytes are no address.
    pub fn decode_ordered(bytes: &'a [u8]) -> Option<Self> {
        match bytes.strip_prefix(&IN_SPACE) {
            Some(in_space) => {
                let (space, key) = in_space.split_first_chunk::<4>()?;
                Some(Self::InSpace(Space(u32::from_be_bytes(*space)), key))
            }
            None => RecordKey::decode_ordered(bytes).map(Self::Record),
        }
    }

    fn compare(&self, other: &Address<'_>) -> Ordering {
        match (self, other) {
            (Self::Record(one), Address::Record(other)) => compare(one, other),
            (Self::Record(_), Address::InSpace(..)) => Ordering::Less,
            (Self::InSpace(..), Address::Record(_)) => Ordering::Greater,
            (Self::InSpace(space, key), Address::InSpace(other, other_key)) => {
                (*space, *key).cmp(&(*other, *other_key))
            }
        }
    }
}

fn compare(one: &RecordKey<'_>, other: &RecordKey<'_>) -> Ordering {
    let order = |key: &RecordKey<'_>| (key.hash(), key.hash_key.len());
    let keys = || (one.hash_key, one.sort_key).cmp(&(other.hash_key, other.sort_key));
    order(one).cmp(&order(other)).then_with(keys)
}

impl Slice {
    /// The first address; `None` if it begins with the partition.
    pub(crate) fn first(&self) -> Option<Address<'_>> {
        Address::decode_ordered(&self.from)
    }

    /// The first key of the records ordered by hash; `None` if it begins with the partition, or behind them.
    pub(crate) fn first_key(&self) -> Option<RecordKey<'_>> {
        match self.first()? {
            Address::Record(key) => Some(key),
            Address::InSpace(..) => None,
        }
    }

    /// The first space and key, if it begins behind the records ordered by hash.
    pub(crate) fn first_in_space(&self) -> Option<(Space, &[u8])> {
        match self.first()? {
            Address::Record(_) => None,
            Address::InSpace(space, key) => Some((space, key)),
        }
    }

    /// The least address behind this one.
    fn behind(address: &Address<'_>) -> Bytes {
        [&address.to_ordered_bytes()[..], &[0]].concat().into()
    }
}

/// Digests the records that it is given, in order.
pub(crate) struct Digester<'a> {
    slice: &'a Slice,
    time: UnixMillis,
    first: Option<Address<'a>>,
    end: Option<Address<'a>>,
    hash: Xxh3,
    scanned: u64,
    digest: SliceDigest,
}

impl<'a> Digester<'a> {
    /// Leaves out what had expired at `time`.
    pub(crate) fn new(slice: &'a Slice, time: UnixMillis) -> Self {
        let end = slice.to.as_deref().and_then(Address::decode_ordered);
        let digest = SliceDigest { records: 0, bytes: 0, hash: 0, next: slice.to.clone(), is_cut: false };
        Self { slice, time, first: slice.first(), end, hash: Xxh3::new(), scanned: 0, digest }
    }

    /// Takes a record. Returns whether the slice goes on behind it.
    pub(crate) fn add(&mut self, key: &RecordKey<'_>, value: &[u8]) -> bool {
        // What cannot be read is compared as it is.
        let is_left_out = StoredValue::decode(value).is_some_and(|stored| !stored.is_live(self.time));
        let lengths = [key.hash_key.len() as u64, key.sort_key.len() as u64, value.len() as u64];
        self.add_parts(&Address::Record(*key), is_left_out, lengths, [key.hash_key, key.sort_key, value])
    }

    /// Takes a record of a space. Returns whether the slice goes on behind it.
    pub(crate) fn add_in(&mut self, space: Space, key: &[u8], value: &[u8]) -> bool {
        // No hash key is so long, so that no record ordered by hash passes for it.
        let number = u64::MAX - u64::from(space.0);
        let lengths = [number, key.len() as u64, value.len() as u64];
        self.add_parts(&Address::InSpace(space, key), false, lengths, [b"", key, value])
    }

    fn add_parts(&mut self, address: &Address<'_>, is_left_out: bool, lengths: [u64; 3], parts: [&[u8]; 3]) -> bool {
        if self.first.is_some_and(|first| address.compare(&first).is_lt()) {
            return true;
        }
        if self.end.is_some_and(|end| address.compare(&end).is_ge()) {
            return false;
        }
        self.scanned += 1;
        if !is_left_out {
            lengths.iter().for_each(|length| self.hash.update(&length.to_le_bytes()));
            parts.iter().for_each(|part| self.hash.update(part));
            self.digest.records += 1;
            self.digest.bytes += RECORD_OVERHEAD + parts.iter().map(|part| part.len() as u64).sum::<u64>();
            if self.digest.records >= self.slice.records || self.digest.bytes >= self.slice.bytes {
                self.digest.next = Some(Slice::behind(address));
                return false;
            }
        }
        if self.scanned >= self.slice.scanned {
            self.digest.next = Some(Slice::behind(address));
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
