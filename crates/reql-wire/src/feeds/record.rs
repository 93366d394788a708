//! The records of a partition's changes, and what nodes ask each other about them.
//!
//! A change stands in [`Space::CHANGES`](tessera_types::Space::CHANGES) under its number, a big-endian `u64`, and the primary key. Its value is `u8` flags (1: there
//! is an old document, 2: there is a new one), and the documents, the old one after its `u32` length. Numbers are little-endian but
//! for keys. The number of a change is that of the one before plus one, or the time in milliseconds above 20 bits, whichever is
//! greater; so the number says about when the change was.
//!
//! How the log stands is a record of [`Space::INDEXES`](tessera_types::Space::INDEXES) under [`STATE_KEY`]: six `u64`, see [`LogState`]; of versions before, five.

use crate::work::{put, put_option, take, take_option};
use bytes::{Buf as _, BufMut as _, Bytes};
use std::ops::Bound;
use tessera_types::UnixMillis;

/// Where it is kept how the log stands.
pub(crate) const STATE_KEY: &[u8] = b"changes";

/// Bits of a number below the time.
const TIME_SHIFT: u32 = 20;

const HAS_OLD: u8 = 1;
const HAS_NEW: u8 = 2;

/// How a partition's log of changes stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogState {
    /// Changes up to this number are not kept any more.
    pub(crate) floor: u64,
    /// The number of the last change.
    pub(crate) last: u64,
    /// Bytes of the changes that are kept; after a split about those.
    pub(crate) bytes: u64,
    /// When the log ends, in milliseconds, if no feed says that it needs it for longer.
    pub(crate) until: u64,
    /// When it is to be looked next whether there are changes that are too old, in milliseconds.
    pub(crate) trim_at: u64,
    /// Partitions of the table when the last change was noted; 0 if nothing says so.
    pub(crate) partitions: u32,
}

/// Reads a record of how a log stands.
pub(crate) fn decode_state(mut bytes: &[u8]) -> Option<LogState> {
    let mut next = || bytes.try_get_u64_le().ok();
    let (floor, last, bytes, until, trim_at) = (next()?, next()?, next()?, next()?, next()?);
    let partitions = next().map_or(Some(0), |partitions| u32::try_from(partitions).ok())?;
    Some(LogState { floor, last, bytes, until, trim_at, partitions })
}

impl LogState {
    pub(crate) fn encode(&self) -> [u8; 48] {
        let mut out = [0; 48];
        let mut rest = &mut out[..];
        [self.floor, self.last, self.bytes, self.until, self.trim_at, self.partitions.into()]
            .into_iter()
            .for_each(|field| rest.put_u64_le(field));
        out
    }

    /// How a log stands at its beginning. `ended` is the one before it: numbers go on after those that it has had.
    pub(crate) fn begun(ended: Option<Self>, now: UnixMillis, millis: u64) -> Self {
        let last = ended.map_or(0, |ended| ended.last).max(number_at(now.get()));
        Self { floor: last, last, until: now.get() + millis, ..Self::default() }
    }

    /// How the log stands once it has ended, with a change that is in it no more: it has none that is after a position in it.
    pub(crate) fn ended(&self) -> Self {
        Self { floor: self.last + 1, last: self.last + 1, ..Self::default() }
    }

    /// Whether all changes after a position are kept.
    pub(crate) fn has(&self, position: u64) -> bool {
        (self.floor..=self.last).contains(&position)
    }

    /// The number of the next change.
    pub(crate) fn next(&self, now: UnixMillis) -> u64 {
        (self.last + 1).max(number_at(now.get()))
    }
}

/// The least number of a change at this time, in milliseconds.
pub(crate) fn number_at(millis: u64) -> u64 {
    millis << TIME_SHIFT
}

/// The key of a change.
pub(crate) fn key_of(number: u64, primary: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], primary].concat()
}

/// The number and the primary key that a key stands for.
pub(crate) fn number_of(key: &[u8]) -> Option<(u64, &[u8])> {
    let (number, primary) = key.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), primary))
}

/// The value of a change.
pub(crate) fn encode_change(old: Option<&Bytes>, new: Option<&Bytes>) -> Vec<u8> {
    let flags = if old.is_some() { HAS_OLD } else { 0 } | if new.is_some() { HAS_NEW } else { 0 };
    let mut out = Vec::with_capacity(5 + old.map_or(0, Bytes::len) + new.map_or(0, Bytes::len));
    out.push(flags);
    if let Some(old) = old {
        put(&mut out, old);
    }
    out.extend_from_slice(new.map_or(&[], |new| new));
    out
}

/// The old and the new document.
pub(crate) fn decode_change(mut value: Bytes) -> Option<(Option<Bytes>, Option<Bytes>)> {
    let flags = value.try_get_u8().ok()?;
    let old = if flags & HAS_OLD != 0 { Some(take(&mut value)?) } else { None };
    Some((old, (flags & HAS_NEW != 0).then_some(value)))
}

/// Primary keys from one to another.
pub(crate) type Keys = (Bytes, Option<Bytes>);

/// Whether a key is in one of the ranges; without ranges, every key is.
pub(crate) fn is_wanted(ranges: &[Keys], primary: &[u8]) -> bool {
    let is_in = |(start, end): &Keys| *primary >= **start && end.as_ref().is_none_or(|end| *primary < **end);
    ranges.is_empty() || ranges.iter().any(is_in)
}

/// Changes that a feed wants of a partition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChangesWork {
    /// The last one that it has.
    pub(crate) after: u64,
    /// Only those of documents with these primary keys, if there are ranges.
    pub(crate) ranges: Vec<Keys>,
    /// How long the answer may wait for a change, in milliseconds.
    pub(crate) patience: u32,
}

impl ChangesWork {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64_le(self.after);
        out.put_u32_le(self.patience);
        out.put_u32_le(u32::try_from(self.ranges.len()).expect("a query has few ranges"));
        for (start, end) in &self.ranges {
            put(out, start);
            put_option(out, end.as_ref());
        }
    }

    pub(crate) fn decode(input: &mut Bytes) -> Option<Self> {
        let (after, patience) = (input.try_get_u64_le().ok()?, input.try_get_u32_le().ok()?);
        let count = input.try_get_u32_le().ok()?;
        let ranges = (0..count).map(|_| Some((take(input)?, take_option(input)?))).collect::<Option<_>>()?;
        Some(Self { after, ranges, patience })
    }

    /// Where the keys of the changes begin.
    pub(crate) fn start(&self) -> [u8; 8] {
        (self.after.saturating_add(1)).to_be_bytes()
    }
}

/// Where a log of changes stands, for a feed that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub(crate) floor: u64,
    pub(crate) last: u64,
}

/// What has changed in a partition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewChanges {
    /// Whether changes are missing behind the position that was asked for.
    pub(crate) is_lost: bool,
    /// The last change that was looked at.
    pub(crate) reached: u64,
    /// Keys and values of the records.
    pub(crate) records: Vec<(Bytes, Bytes)>,
}

impl NewChanges {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(self.is_lost));
        out.put_u64_le(self.reached);
        for (key, value) in &self.records {
            put(out, key);
            put(out, value);
        }
    }

    pub(crate) fn decode(input: &mut Bytes) -> Option<Self> {
        let is_lost = input.try_get_u8().ok()? != 0;
        let (reached, mut records) = (input.try_get_u64_le().ok()?, Vec::new());
        while !input.is_empty() {
            records.push((take(input)?, take(input)?));
        }
        Some(Self { is_lost, reached, records })
    }
}

/// A range of keys for the engine.
pub(crate) fn from(start: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(start), Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_states_are_written_and_read() {
        let (old, new) = (Bytes::from_static(b"old"), Bytes::from_static(b"new"));
        for (old, new) in [(None, Some(&new)), (Some(&old), Some(&new)), (Some(&old), None)] {
            let read = decode_change(encode_change(old, new).into());
            assert_eq!(read, Some((old.cloned(), new.cloned())));
        }
        let state = LogState { floor: 1, last: u64::MAX, bytes: 3, until: 4, trim_at: 5, partitions: 6 };
        assert_eq!(decode_state(&state.encode()), Some(state));
        assert_eq!(decode_state(&state.encode()[..40]), Some(LogState { partitions: 0, ..state }));
        assert_eq!(decode_state(&state.encode()[..39]), None);
        assert_eq!(number_of(&key_of(7, b"key")), Some((7, &b"key"[..])));
    }

    #[test]
    fn numbers_grow_whatever_the_clock_says() {
        let mut state = LogState::default();
        state.last = state.next(UnixMillis::new(1_000));
        assert_eq!(state.last, 1_000 << 20);
        assert_eq!(state.next(UnixMillis::new(900)), state.last + 1);
        assert_eq!(state.next(UnixMillis::new(1_001)), 1_001 << 20);
    }

    #[test]
    fn a_log_has_greater_numbers_than_one_that_has_ended_whatever_the_clock_says() {
        let mut state = LogState::begun(None, UnixMillis::new(1_000), 60_000);
        state.last = state.next(UnixMillis::new(1_001));
        let token = state.last;
        assert!(state.has(token));
        let ended = state.ended();
        assert!(!ended.has(token), "the change with which the log has ended is missing");
        let again = LogState::begun(Some(ended), UnixMillis::new(500), 60_000);
        assert!(again.has(again.last) && !again.has(token));
        assert_eq!(LogState::begun(Some(ended), UnixMillis::new(2_000), 60_000).last, 2_000 << 20);
    }

    #[test]
    fn ranges_choose_keys() {
        let range = |start: &'static [u8], end| (Bytes::from_static(start), end);
        let ranges = [range(b"b", Some(Bytes::from_static(b"d"))), range(b"x", None)];
        let wanted: Vec<u8> = (b'a'..=b'z').filter(|key| is_wanted(&ranges, &[*key])).collect();
        assert_eq!(wanted, b"bcxyz");
        assert!(is_wanted(&[], b"any"));
    }
}
