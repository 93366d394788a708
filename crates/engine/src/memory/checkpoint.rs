//! A partition's records in a file.
//!
//! ```text
//! "TESSCKP2" | u64 log index | u64 the partition's time | u8 1 if it may hold sort keys, else 0
//!            | u32 CRC-32C of these three | blocks | end
//! block: u32 length (> 0) | u32 CRC-32C | puts, and puts in spaces, as in `mutation`
//! end:   u32 0 | u32 CRC-32C of the two | u64 number of records | u64 end index
//! ```
//!
//! Integers are little-endian. The file is written page by page beside the writer, so it may hold effects of entries
//! after its index, up to its end index; applying those again from the log makes the state whole, as entries carry results.
//! Files of the version before begin with "TESSCKP1", then the index, then blocks; their end has no end index.

use super::partition::Partition;
use crate::mutation::{self, Mutation};
use crate::{EngineError, Order, PageLimit, Position, Visit};
use bytes::BytesMut;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::ops::Bound;
use std::path::Path;
use tessera_types::{Space, StoredValue, UnixMillis};

const MAGIC: &[u8; 8] = b"TESSCKP2";
const MAGIC_OF_VERSION_1: &[u8; 8] = b"TESSCKP1";
/// Records visited under one hold of the lock.
const PAGE_RECORDS: usize = 1_024;

/// Returns the log index at which the checkpoint began.
pub(super) fn write(partition: &Partition, path: &Path) -> Result<u64, EngineError> {
    let index = partition.reflected.applied();
    // Evicting tables may have lost all records by which it could be told from the others.
    let (time, may_hold_sort_keys) = (partition.expiries().time(), partition.may_hold_sort_keys());
    let file = File::create(path).map_err(EngineError::io(path))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut write = || -> std::io::Result<()> {
        out.write_all(MAGIC)?;
        let head = [&index.to_le_bytes()[..], &time.get().to_le_bytes(), &[u8::from(may_hold_sort_keys)]].concat();
        out.write_all(&head)?;
        out.write_all(&crc32c::crc32c(&head).to_le_bytes())?;
        let mut records = 0u64;
        let mut from = Some(Position::START);
        let mut block = BytesMut::new();
        while let Some(position) = from {
            block.clear();
            from = partition.scan(&position, PageLimit::of_records(PAGE_RECORDS), &mut |key, value| {
                let stored = StoredValue::decode(value).expect("only stored values are put");
                mutation::encode_put(&mut block, &key, &stored);
                records += 1;
                Visit::NextRecord
            });
            write_block(&block, &mut out)?;
        }
        let mut space = partition.next_space(Space(0));
        while let Some(number) = space {
            records += write_space(partition, number, &mut block, &mut out)?;
            space = number.0.checked_add(1).and_then(|next| partition.next_space(Space(next)));
        }
        // Records that were loaded may hold effects of entries that are not applied again yet.
        let end_index = partition.reflected.applied().max(partition.reflected.settled_from());
        let end = [records.to_le_bytes(), end_index.to_le_bytes()].concat();
        out.write_all(&0u32.to_le_bytes())?;
        out.write_all(&crc32c::crc32c(&end).to_le_bytes())?;
        out.write_all(&end)?;
        out.flush()?;
        out.get_ref().sync_all()
    };
    write().map_err(EngineError::io(path))?;
    Ok(index)
}

fn write_block(block: &[u8], out: &mut impl Write) -> std::io::Result<()> {
    if block.is_empty() {
        return Ok(());
    }
    out.write_all(&u32::try_from(block.len()).map_err(std::io::Error::other)?.to_le_bytes())?;
    out.write_all(&crc32c::crc32c(block).to_le_bytes())?;
    out.write_all(block)
}

/// Writes the records of a space, page by page, and returns how many these were.
fn write_space(
    partition: &Partition,
    space: Space,
    block: &mut BytesMut,
    out: &mut impl Write,
) -> std::io::Result<u64> {
    let mut records = 0;
    let mut last: Option<Vec<u8>> = None;
    loop {
        block.clear();
        let mut limit = PageLimit::of_records(PAGE_RECORDS);
        let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut page_end = None;
        partition.scan_space(space, (from, Bound::Unbounded), Order::Ascending, &mut |key, value| {
            mutation::encode_put_in(block, space, key, value);
            records += 1;
            let goes_on = limit.take_bytes(key.len() + value.len());
            page_end = (!goes_on).then(|| key.to_vec());
            goes_on
        });
        write_block(block, out)?;
        last = page_end;
        if last.is_none() {
            return Ok(records);
        }
    }
}

/// What a checkpoint's records reflect.
pub(super) struct Reflects {
    /// All log entries up to this one.
    pub(super) index: u64,
    /// Perhaps some of those up to this one.
    pub(super) end: u64,
}

/// Loads the records of a checkpoint.
pub(super) fn load(partition: &Partition, path: &Path) -> Result<Reflects, EngineError> {
    let file = File::open(path).map_err(EngineError::io(path))?;
    let file_len = file.metadata().map_err(EngineError::io(path))?.len();
    let mut input = BufReader::with_capacity(1 << 20, file);
    let damaged = |what: &str| EngineError::Corruption(format!("{}: {what}", path.display()));
    let mut magic = [0; 8];
    input.read_exact(&mut magic).map_err(EngineError::io(path))?;
    let is_current = magic == *MAGIC;
    if !is_current && magic != *MAGIC_OF_VERSION_1 {
        return Err(damaged("not a checkpoint, or one of another version"));
    }
    let mut word = [0; 8];
    input.read_exact(&mut word).map_err(EngineError::io(path))?;
    let index = u64::from_le_bytes(word);
    if is_current {
        let mut head = [0; 13];
        input.read_exact(&mut head).map_err(EngineError::io(path))?;
        let (time, flag) = (u64::from_le_bytes(head[..8].try_into().expect("eight bytes")), head[8]);
        if crc32c::crc32c_append(crc32c::crc32c(&word), &head[..9]).to_le_bytes() != head[9..] {
            return Err(damaged("its head's checksum does not match"));
        }
        partition.load_time(UnixMillis::new(time));
        if flag != 0 {
            partition.note_sort_keys();
        }
    }
    let mut records = 0u64;
    let mut block = Vec::new();
    loop {
        let mut head = [0; 8];
        input.read_exact(&mut head).map_err(EngineError::io(path))?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let checksum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if u64::from(length) > file_len {
            return Err(damaged("a block is longer than the file"));
        }
        let end_bytes = if is_current { 16 } else { 8 };
        block.resize(if length == 0 { end_bytes } else { length as usize }, 0);
        input.read_exact(&mut block).map_err(EngineError::io(path))?;
        if crc32c::crc32c(&block) != checksum {
            return Err(damaged("a block's checksum does not match"));
        }
        if length == 0 {
            let mut words = block.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
            let (count, end) = (words.next(), words.next().unwrap_or(index));
            return if count == Some(records) {
                Ok(Reflects { index, end })
            } else {
                Err(damaged("records are missing"))
            };
        }
        for mutation in mutation::decode(&block) {
            match mutation? {
                Mutation::Put { key, value } => partition.load(&key, value)?,
                Mutation::PutIn { space, key, value } => partition.load_in(space, key, value),
                _ => return Err(damaged("holds more than puts")),
            }
            records += 1;
        }
    }
}

/// Makes a rename in `directory` durable.
pub(super) fn sync_directory(directory: &Path) -> Result<(), EngineError> {
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(EngineError::io(directory))
}
