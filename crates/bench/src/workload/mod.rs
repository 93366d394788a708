//! What is asked of a server: which operations, on which records, how large.

mod keys;
mod mix;
mod ycsb;

pub use keys::{KeyChooser, KeyDistribution};
pub use mix::{Mix, Operation};
pub use ycsb::{Properties, YcsbServer, YcsbWorkload};

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

/// The shape of records.
#[derive(Clone, Copy, Debug)]
pub struct RecordShape {
    pub fields: usize,
    /// Bytes of each field.
    pub field_bytes: usize,
    /// Whether a read reads all fields, or one.
    pub reads_all: bool,
    /// Whether an update writes all fields, or one; inserts write all.
    pub writes_all: bool,
    pub names: KeyNames,
}

/// How records are named, as YCSB's properties `insertorder` and `zeropadding` say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyNames {
    /// Whether by their numbers, not by hashes of these.
    pub are_ordered: bool,
    /// Digits at least, with zeros before.
    pub digits: usize,
}

impl RecordShape {
    /// All fields are read and written.
    pub fn whole(fields: usize, field_bytes: usize) -> Self {
        Self { fields, field_bytes, reads_all: true, writes_all: true, names: KeyNames::default() }
    }

    pub fn bytes(&self) -> usize {
        self.fields * self.field_bytes
    }

    /// Whether an insert or an update writes all fields.
    pub fn is_written_whole(&self, is_insert: bool) -> bool {
        is_insert || self.fields == 1 || self.writes_all
    }
}

impl KeyNames {
    /// Puts the key of a record in the place of what is in `out`: `user` and the FNV-1a hash of its number, or the number.
    pub fn write(self, number: u64, out: &mut Vec<u8>) {
        use std::io::Write;
        out.clear();
        let (number, digits) = (if self.are_ordered { number } else { keys::fnv1a(number) }, self.digits);
        write!(out, "user{number:0digits$}").expect("a vector takes all bytes");
    }
}

/// Values of random letters, cut from one long text, so that making one costs nothing.
pub struct Values {
    text: Vec<u8>,
    random: SmallRng,
}

impl Values {
    pub fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        // Six bits of entropy per byte: as compressible as base64, not as zeros.
        let text = (0..1 << 20).map(|_| b' ' + (random.next_u32() % 64) as u8).collect();
        Self { text, random }
    }

    /// One of several fields.
    pub fn choose(&mut self, fields: usize) -> usize {
        self.random.random_range(0..fields)
    }

    pub fn next(&mut self, bytes: usize) -> &[u8] {
        if bytes >= self.text.len() {
            self.text = self.text.repeat(bytes / self.text.len() + 2);
        }
        let start = self.random.random_range(0..self.text.len() - bytes);
        &self.text[start..start + bytes]
    }
}
