//! Which hash keys of a partition are asked most, while somebody wants to know.
//!
//! Counting costs something, so it goes on for a stated time only, and takes one request of [`SAMPLING`]. The counts are those
//! of Misra and Gries, "Finding repeated elements", 1982: with `k` counters every key that more than one in `k + 1` samples was
//! for is found, and a count is never too high.

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One request of this many is counted.
const SAMPLING: u64 = 4;
const COUNTERS: usize = 64;
/// Keys that at least this part of the requests is for are hot.
const HOT: f64 = 0.05;

/// Counts the requests of a partition by hash key, for as long as it is told to.
#[derive(Default)]
pub struct HotKeys {
    is_counting: AtomicBool,
    requests: AtomicU64,
    reads: Mutex<Counters>,
    writes: Mutex<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    samples: u64,
    by_key: HashMap<Bytes, u64, ahash::RandomState>,
}

impl Counters {
    fn count(&mut self, hash_key: &[u8]) {
        self.samples += 1;
        if let Some(count) = self.by_key.get_mut(hash_key) {
            *count += 1;
        } else if self.by_key.len() < COUNTERS {
            self.by_key.insert(Bytes::copy_from_slice(hash_key), 1);
        } else {
            self.by_key.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
        }
    }

    fn hot(&self) -> Vec<HotKey> {
        let share = |count: u64| count as f64 / self.samples.max(1) as f64;
        let is_hot = |(_, count): &(&Bytes, &u64)| share(**count) >= HOT;
        let hot = self.by_key.iter().filter(is_hot);
        let mut hot: Vec<_> =
            hot.map(|(key, count)| HotKey { hash_key: key.escape_ascii().to_string(), share: share(*count) }).collect();
        hot.sort_by(|one, other| other.share.total_cmp(&one.share).then_with(|| one.hash_key.cmp(&other.hash_key)));
        hot
    }
}

/// A hash key with the part of the requests that was for it, at least.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotKey {
    /// Bytes that are no printable ASCII are escaped as in Rust.
    pub hash_key: String,
    /// The part of the sampled requests that used the key, from 0 to 1.
    pub share: f64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotKeysFound {
    /// Reads that were sampled.
    pub sampled_reads: u64,
    /// Writes that were sampled.
    pub sampled_writes: u64,
    /// The hottest first.
    pub reads: Vec<HotKey>,
    /// The hash keys that most writes use, the hottest first.
    pub writes: Vec<HotKey>,
}

impl HotKeys {
    #[inline]
    pub fn read(&self, hash_key: &[u8]) {
        if self.is_counting.load(Ordering::Relaxed) {
            self.count(&self.reads, hash_key);
        }
    }

    #[inline]
    pub fn is_counting(&self) -> bool {
        self.is_counting.load(Ordering::Relaxed)
    }

    pub fn write(&self, hash_key: &[u8]) {
        self.count(&self.writes, hash_key);
    }

    #[cold]
    fn count(&self, counters: &Mutex<Counters>, hash_key: &[u8]) {
        // Not every fourth: requests come in patterns.
        let number = self.requests.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if number >> 32 & (SAMPLING - 1) == 0 {
            counters.lock().count(hash_key);
        }
    }

    /// Begins to count, unless somebody has begun already.
    pub fn begin(&self) -> bool {
        if self.is_counting.swap(true, Ordering::AcqRel) {
            return false;
        }
        (*self.reads.lock(), *self.writes.lock()) = Default::default();
        true
    }

    pub fn end(&self) {
        self.is_counting.store(false, Ordering::Release);
    }

    /// What has been found so far.
    pub fn found(&self) -> HotKeysFound {
        let (reads, writes) = (self.reads.lock(), self.writes.lock());
        HotKeysFound {
            sampled_reads: reads.samples,
            sampled_writes: writes.samples,
            reads: reads.hot(),
            writes: writes.hot(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_above_their_share_are_found_among_many() {
        let hot_keys = HotKeys::default();
        hot_keys.read(b"before");
        assert!(hot_keys.begin() && !hot_keys.begin());
        for number in 0..100_000u32 {
            let key = format!("k{number}");
            hot_keys.read(match number % 10 {
                0..=2 => b"hot",
                3 => b"warm",
                _ => key.as_bytes(),
            });
            hot_keys.write(key.as_bytes());
        }
        hot_keys.end();
        hot_keys.read(b"after");
        let found = hot_keys.found();
        assert!(found.sampled_reads.abs_diff(25_000) < 1_500, "{found:?}");
        let keys: Vec<_> = found.reads.iter().map(|key| &*key.hash_key).collect();
        assert_eq!(keys, ["hot", "warm"]);
        // Never too high, and too low by no more than one part in the number of counters.
        assert!((0.27..=0.31).contains(&found.reads[0].share), "{found:?}");
        assert_eq!(found.writes, []);
    }
}
