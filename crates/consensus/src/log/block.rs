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

use bytes::BufMut;
use std::hash::{BuildHasher as _, RandomState};

const MAGIC: u32 = 0x324c_5354; // "TSL2"
pub(super) const HEADER_LEN: usize = 52;
/// The largest alignment that direct writes need.
pub(super) const ALIGNMENT: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) segment: u64,
    pub(super) salt: u64,
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
    let length = u32::try_from(out.len() - HEADER_LEN).expect("a block is bounded by the writer");
    let mut head = &mut out[8..HEADER_LEN];
    head.put_u64_le(header.segment);
    head.put_u64_le(header.salt);
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

/// A salt for a new segment.
pub(super) fn new_salt() -> u64 {
    // The hasher has random keys, which nobody outside of the process knows.
    RandomState::new().hash_one(0)
}

/// The block at the start of `bytes` and the length of its records, if it is whole and belongs to `segment`, which has
/// this salt, if that is known.
pub(super) fn read(bytes: &[u8], segment: u64, salt: Option<u64>) -> Option<(BlockHeader, usize)> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if half(0)? != MAGIC || word(8)? != segment || salt.is_some_and(|salt| word(16) != Some(salt)) {
        return None;
    }
    let length = half(48)? as usize;
    let checked = bytes.get(8..HEADER_LEN.checked_add(length)?)?;
    (crc32c::crc32c(checked) == half(4)?).then_some((
        BlockHeader { segment, salt: word(16)?, number: word(24)?, durable: word(32)?, batch: word(40)? },
        length,
    ))
}

/// Whether a page does not begin like a block.
pub(super) fn is_no_block(page: &[u8]) -> bool {
    !page.starts_with(&MAGIC.to_le_bytes())
}

/// Where the next whole block of `segment`, with this salt, at or after `from` begins. Only its blocks have both, so no
/// byte is looked at more often than blocks overlap, which they do not.
pub(super) fn find(bytes: &[u8], segment: u64, salt: u64, from: usize) -> Option<usize> {
    (after(from)..bytes.len()).step_by(ALIGNMENT).find(|&at| read(&bytes[at..], segment, Some(salt)).is_some())
}
