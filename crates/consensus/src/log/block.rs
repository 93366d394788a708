//! A block: the content of one write to the log.
//!
//! ```text
//! u32 magic | u32 CRC-32C of what follows | u64 segment | u64 salt | u64 number | u64 durable | u64 batch | u32 length | records
//! | zeros
//! ```
//!
//! Integers are little-endian. The salt is a random number, the same in all blocks of a segment: a client that could
//! guess it could write a value that looks like a block, and after a torn block such a value would vouch for it.
//! Numbers count blocks over all segments from 1. `durable` is the number of the last block that was durable when this
//! one was written, `batch` that of the last batch whose records are all in this block or before it. Blocks begin at
//! multiples of [`ALIGNMENT`]; the checksum leaves out the zeros.
//!
//! In a data directory of format 4 blocks had no salt, and another magic number. They are read so that
//! [`conversion`](super::conversion) can write them anew.

use bytes::BufMut;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;

const MAGIC: u32 = 0x324c_5354; // "TSL2"
pub(super) const HEADER_LEN: usize = 52;
/// What the blocks of a data directory of format 4 begin with.
const FORMER_MAGIC: u32 = 0x4c53_5354; // "TSSL"
const FORMER_HEADER_LEN: usize = HEADER_LEN - 8;
/// The largest alignment that direct writes need.
pub(super) const ALIGNMENT: usize = 4096;

/// What the blocks of a segment have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Salt {
    /// The segment is of a data directory of format 4, whose blocks had none.
    Former,
    Random(u64),
}

impl Salt {
    /// A salt for a new segment.
    pub(super) fn new() -> Self {
        // The hasher has random keys, which nobody outside of the process knows.
        Self::Random(RandomState::new().hash_one(0))
    }

    /// The length of the headers of the segment's blocks.
    pub(super) fn header_len(self) -> usize {
        match self {
            Self::Former => FORMER_HEADER_LEN,
            Self::Random(_) => HEADER_LEN,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) segment: u64,
    pub(super) salt: Salt,
    pub(super) number: u64,
    pub(super) durable: u64,
    pub(super) batch: u64,
}

/// Leaves room for the header at the start of `out`.
pub(super) fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.resize(HEADER_LEN, 0);
}

/// Fills in the header of the block whose records follow it in `out`, and the zeros after them.
pub(super) fn finish(out: &mut Vec<u8>, header: BlockHeader) {
    let Salt::Random(salt) = header.salt else { unreachable!("former blocks are only read") };
    let length = u32::try_from(out.len() - HEADER_LEN).expect("a block is bounded by the writer");
    let mut head = &mut out[8..HEADER_LEN];
    head.put_u64_le(header.segment);
    head.put_u64_le(salt);
    head.put_u64_le(header.number);
    head.put_u64_le(header.durable);
    head.put_u64_le(header.batch);
    head.put_u32_le(length);
    let checksum = crc32c::crc32c(&out[8..]);
    out[..4].copy_from_slice(&MAGIC.to_le_bytes());
    out[4..8].copy_from_slice(&checksum.to_le_bytes());
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
}

/// The start of the block that follows one whose records end at `end`.
pub(super) fn after(end: usize) -> usize {
    end.next_multiple_of(ALIGNMENT)
}

/// The block at the start of `bytes` and where its records are, if it is whole and belongs to `segment`, which has this
/// salt, if that is known.
pub(super) fn read(bytes: &[u8], segment: u64, salt: Option<Salt>) -> Option<(BlockHeader, Range<usize>)> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let found = match half(0)? {
        MAGIC => Salt::Random(word(16)?),
        FORMER_MAGIC => Salt::Former,
        _ => return None,
    };
    if word(8)? != segment || salt.is_some_and(|salt| salt != found) {
        return None;
    }
    let begin = found.header_len();
    let records = begin..begin.checked_add(half(begin - 4)? as usize)?;
    let [number, durable, batch] = [word(begin - 28)?, word(begin - 20)?, word(begin - 12)?];
    let is_whole = crc32c::crc32c(bytes.get(8..records.end)?) == half(4)?;
    is_whole.then_some((BlockHeader { segment, salt: found, number, durable, batch }, records))
}

/// Whether a page does not begin like a block.
pub(super) fn is_no_block(page: &[u8]) -> bool {
    !page.starts_with(&MAGIC.to_le_bytes()) && !page.starts_with(&FORMER_MAGIC.to_le_bytes())
}

/// Where the next whole block of `segment`, with this salt, at or after `from` begins. Only its blocks have both, so no
/// byte is looked at more often than blocks overlap, which they do not.
pub(super) fn find(bytes: &[u8], segment: u64, salt: Salt, from: usize) -> Option<usize> {
    (after(from)..bytes.len()).step_by(ALIGNMENT).find(|&at| read(&bytes[at..], segment, Some(salt)).is_some())
}
