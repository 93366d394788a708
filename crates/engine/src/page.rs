//! Pages of a scan of a partition: where one begins, how much it may hold, and its records where they are wanted for longer than
//! the engine holds them.

use tessera_types::RecordKey;

/// A hash key and a sort key.
type Key = (Box<[u8]>, Box<[u8]>);

/// Where a page of a scan begins, in the order of [`RecordKey::encode_ordered`]: with the first record of a hash, or in the middle of
/// those that have it. It stays right whatever is written meanwhile; a record there need not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    hash: u64,
    /// The least hash key and sort key of that hash that the page may hold; `None` for all of them.
    within: Option<Key>,
}

impl Position {
    /// The beginning of a partition.
    pub const START: Self = Self { hash: 0, within: None };

    /// The first record with this hash, or a greater one.
    pub fn of_hash(hash: u64) -> Self {
        Self { hash, within: None }
    }

    /// The record of that key, or the first one behind it.
    pub fn at(key: &RecordKey<'_>) -> Self {
        Self { hash: key.hash(), within: Some((key.hash_key.into(), key.sort_key.into())) }
    }

    /// The first record behind that key.
    pub fn behind(key: &RecordKey<'_>) -> Self {
        let next: Vec<u8> = key.sort_key.iter().copied().chain([0]).collect();
        Self { hash: key.hash(), within: Some((key.hash_key.into(), next.into())) }
    }

    /// The hash of the hash key at which the page begins.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether records before it have the same hash: those of the same hash key, or of one that was made to have the same hash.
    pub fn is_within_hash(&self) -> bool {
        self.within.is_some()
    }

    /// The least key that the page may hold.
    pub fn key(&self) -> RecordKey<'_> {
        let (hash_key, sort_key) = self.within.as_ref().map_or((&b""[..], &b""[..]), |(hash, sort)| (hash, sort));
        RecordKey::with_hash(self.hash, hash_key, sort_key)
    }

    /// Where a page goes on whose last record had the hash `last`, if `next` is the record that comes then.
    pub(crate) fn after(last: u64, next: &RecordKey<'_>) -> Self {
        if next.hash() == last { Self::at(next) } else { Self::of_hash(next.hash()) }
    }
}

/// How much a page may hold: it ends with the record that reaches one of these. No lock is held for longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    /// Records that are looked at.
    pub records: usize,
    /// Bytes of their keys and values.
    pub bytes: usize,
}

impl PageLimit {
    /// Bytes of a page, about, where nothing else is said.
    const BYTES: usize = 1 << 20;

    /// So many records, and no more than a mebibyte and one record.
    pub fn of_records(records: usize) -> Self {
        Self { records, bytes: Self::BYTES }
    }

    /// Counts a record that was looked at. Returns whether the page may hold more.
    pub(crate) fn take(&mut self, key: &RecordKey<'_>, value: &[u8]) -> bool {
        self.take_bytes(key.hash_key.len() + key.sort_key.len() + value.len())
    }

    /// Counts a record of so many bytes. Returns whether the page may hold more.
    pub fn take_bytes(&mut self, bytes: usize) -> bool {
        self.records = self.records.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.records > 0 && self.bytes > 0
    }
}

/// A page's records, owned: what is done with them keeps nobody waiting.
#[derive(Debug, Default)]
pub struct Page {
    /// Hash key, sort key and value of one record after the other.
    bytes: Vec<u8>,
    /// The hash of each record, and where its three parts end.
    records: Vec<(u64, [usize; 3])>,
    /// Where the next page begins; `None` at the end of the partition.
    pub next: Option<Position>,
}

impl Page {
    pub(crate) fn add(&mut self, key: &RecordKey<'_>, value: &[u8]) {
        let ends = [key.hash_key, key.sort_key, value].map(|part| {
            self.bytes.extend_from_slice(part);
            self.bytes.len()
        });
        self.records.push((key.hash(), ends));
    }

    /// The records, in order, with their stored values.
    pub fn records(&self) -> impl Iterator<Item = (RecordKey<'_>, &[u8])> {
        let begins = std::iter::once(0).chain(self.records.iter().map(|(_, ends)| ends[2]));
        begins.zip(&self.records).map(|(begin, (hash, ends))| {
            let [hash_key, sort_key, value] = [begin..ends[0], ends[0]..ends[1], ends[1]..ends[2]];
            let key = RecordKey::with_hash(*hash, &self.bytes[hash_key], &self.bytes[sort_key]);
            (key, &self.bytes[value])
        })
    }
}

/// Records of a space, owned.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SpacePage {
    /// Key and value of one record after the other.
    bytes: Vec<u8>,
    /// Where the two end.
    ends: Vec<[usize; 2]>,
    /// Whether the range has more records: they lie behind the last one here, in the order that was asked for.
    pub is_cut: bool,
}

impl SpacePage {
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.ends.push([key, value].map(|part| {
            self.bytes.extend_from_slice(part);
            self.bytes.len()
        }));
    }

    /// The records, in order.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> + ExactSizeIterator {
        let begin = |at: usize| if at == 0 { 0 } else { self.ends[at - 1][1] };
        (0..self.ends.len()).map(move |at| {
            let [key, value] = self.ends[at];
            (&self.bytes[begin(at)..key], &self.bytes[key..value])
        })
    }

    /// The last key, behind which the next page begins if there is one.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.records().next_back().map(|(key, _)| key)
    }
}
