//! Values as bytes: on disk, in the log, between nodes, and while queries run over them.
//!
//! Most of what is done with a document touches little of it: one field is compared, three are plucked, all are written
//! as JSON and none looked at. So the encoding is read in place. A container begins with a table of where its parts end;
//! a field is found by binary search among the sorted keys, and any part is a slice that is itself an encoded value,
//! which may be copied into another container as it is. Nothing is aligned, and nothing points outside its own slice.
//!
//! A value does not say how long it is: its slice does. The first byte is the tag:
//!
//! | tag | value | bytes that follow |
//! |---|---|---|
//! | 0x00 | `MINVAL` | |
//! | 0x01, 0x02, 0x03 | array, width 1, 2, 4 | count, ends of the elements, elements |
//! | 0x04, 0x05 | false, true | |
//! | 0x06 | null | |
//! | 0x07 | number | 8 bytes, IEEE 754, little-endian |
//! | 0x08 | integer | 1 to 7 bytes, two's complement, little-endian |
//! | 0x09, 0x0A | string, plain or to be escaped in JSON | UTF-8 |
//! | 0x0B | binary | the bytes |
//! | 0x0C | time | 8 bytes as of a number: seconds since the Unix epoch; 2 bytes, little-endian: the offset from UTC in minutes, the highest bit for a minus |
//! | 0x10, 0x11, 0x12 | object, width 1, 2, 4 | count, ends of the keys, ends of the values, keys, values |
//! | 0x14, 0x15, 0x16 | the same, with a key that is to be escaped in JSON | |
//! | 0x18 to 0x1A, 0x1C to 0x1E | geometry, as an object, `$reql_type$` included | |
//! | 0x1F | `MAXVAL` | |
//! | 0x80 to 0xFF | integer 0 to 127 | |
//!
//! Count and ends are little-endian numbers of the container's width: one byte if keys and values together have at most
//! 255 bytes, two up to 65,535, else four. Ends count from the first byte after the table, so the part before tells where
//! a part begins. Keys are UTF-8, ordered by bytes, and none is there twice.
//!
//! **There is one encoding for a value.** The width, and the form of a number, are the shortest that will do: an integer
//! up to 2^53 is never written as an eight-byte number, except negative zero. So values are the same if their bytes are.
//! They are *equal in ReQL* also if they differ in the sign of a zero or in the zone of a time; `Eq` and `Hash` of
//! [`EncodedValue`] know that.
//!
//! The format was chosen over VelocyPack's (whose lengths inside the value save nothing where the parent has ends), over
//! RethinkDB's (whose keys lie beside their values, so that a search touches all of the document), and over a dictionary
//! of names for each table (smaller, but then no slice means anything alone).

mod check;
mod document;
mod edit;
mod encode;
mod json;
mod order;
mod view;

pub use check::Damage;
pub use document::Document;
pub use edit::{assemble_array, assemble_object};
pub use view::{EncodedArray, EncodedObject, EncodedText, EncodedValue, View};

const MIN_VAL: u8 = 0x00;
/// Plus 0, 1 or 2 for the width.
const ARRAY: u8 = 0x01;
const FALSE: u8 = 0x04;
const TRUE: u8 = 0x05;
const NULL: u8 = 0x06;
const NUMBER: u8 = 0x07;
const INTEGER: u8 = 0x08;
const PLAIN_STRING: u8 = 0x09;
const STRING: u8 = 0x0A;
const BINARY: u8 = 0x0B;
const TIME: u8 = 0x0C;
/// Plus 0, 1 or 2 for the width.
const OBJECT: u8 = 0x10;
/// Plus 0, 1 or 2 for the width.
const GEOMETRY: u8 = 0x18;
/// Added to the tag of an object with a key that is to be escaped in JSON.
const ESCAPED_KEYS: u8 = 0x04;
const MAX_VAL: u8 = 0x1F;
/// Plus the integer, which is at most [`MAX_TINY`].
const TINY_INTEGER: u8 = 0x80;
const MAX_TINY: i64 = 127;
/// The bit of a time's offset that says minus.
const MINUS: u16 = 0x8000;

/// The bytes that an end takes if all parts together have `length` bytes, as what is added to the tag.
fn width_index(length: usize) -> u8 {
    match length {
        0..=0xFF => 0,
        0x100..=0xFFFF => 1,
        _ => 2,
    }
}

fn width(index: u8) -> usize {
    1 << index
}
