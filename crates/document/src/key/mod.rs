//! Keys: bytes whose order is the order of the values.
//!
//! Documents lie in the order of their primary keys and index entries in that of their secondary keys, and engines compare
//! bytes. So a key is written such that comparing bytes compares values as ReQL does. Each begins with a tag, in the order
//! of types:
//!
//! | tag | value | bytes that follow |
//! |---|---|---|
//! | 0x10 | `MINVAL` | |
//! | 0x20 | array | its elements, each as a key, then 0x00 |
//! | 0x30, 0x31 | false, true | |
//! | 0x40 | number | 8 bytes |
//! | 0x50 | binary | the bytes, escaped, then 0x00 |
//! | 0x60 | time | 8 bytes of the moment, as of a number; the time zone does not count |
//! | 0x70 | string | UTF-8, escaped, then 0x00 |
//! | 0xF0 | `MAXVAL` | |
//!
//! Numbers are the bits of an IEEE 754 double, big-endian, with the sign flipped, and negative ones with all bits flipped;
//! -0 is written as 0. Escaped, 0x00 is 0x01 0x01 and 0x01 is 0x01 0x02. Null, objects and geometry are no keys.
//!
//! No key is the beginning of another one, so keys may stand one after the other: an [entry of an index](entry) is a
//! secondary key followed by a primary one.
//!
//! These are not RethinkDB's bytes (which take 20 to 45 for a number), but its limits: a [primary key](primary) is refused
//! if it would have more than 128 bytes there. A [secondary key](SecondaryKey) is cut to [`MAX_SECONDARY_KEY_BYTES`]. Keys
//! that were cut may be the same although the values are not: whoever finds one looks at the document again.

mod entry;
mod error;
mod primary;
mod range;
mod read;
mod secondary;
mod unique;
mod write;

pub use entry::{EntryKey, entry_key};
pub use error::KeyError;
pub use primary::primary_key;
pub use range::{KeyRange, SecondaryRange, primary_range, secondary_range};
pub use read::decode_key;
pub use secondary::{MAX_SECONDARY_KEY_BYTES, SecondaryKey};
pub use unique::unique_key;

/// How many bytes a primary key may have in RethinkDB's form, which has one more than a string has.
pub const MAX_PRIMARY_KEY_BYTES: usize = 128;

const MIN_VAL: u8 = 0x10;
const ARRAY: u8 = 0x20;
const FALSE: u8 = 0x30;
const TRUE: u8 = 0x31;
const NUMBER: u8 = 0x40;
const BINARY: u8 = 0x50;
const TIME: u8 = 0x60;
const STRING: u8 = 0x70;
const MAX_VAL: u8 = 0xF0;
/// Ends arrays, binaries and strings. Less than every tag, so that an array is less than a longer one it begins.
const END: u8 = 0x00;
/// Precedes what stands for 0x00 and 0x01.
const ESCAPE: u8 = 0x01;
