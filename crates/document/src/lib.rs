//! Documents: the values of ReQL, the query language of RethinkDB, in memory, as JSON, on disk and as keys.
//!
//! Pure: nothing here knows queries, partitions or sockets. Read first: [`Value`] (a decoded value and the order of
//! values) and `encoding` (a value as bytes, read in place by [`EncodedValue`]), `key` (a
//! value as bytes that sort).

#![warn(missing_docs)]

mod base64;
mod encoding;
mod error;
mod index;
mod json;
mod key;
mod merge;
mod number;
mod object_builder;
mod order;
mod pseudo_type;
mod reconstructable;
mod time;
mod utf8;
mod value;

pub use encoding::{
    Damage, Document, EncodedArray, EncodedObject, EncodedText, EncodedValue, View, assemble_array, assemble_object,
};
pub use error::{ErrorClass, JsonFault, ValueError};
pub use index::{EntryChanges, IndexShape};
pub use json::{JSON_SHOWN_BYTES, JSON_TRUNCATED_BYTES, plain_length, write_json_string};
pub use key::{
    EntryKey, KeyError, KeyRange, MAX_PRIMARY_KEY_BYTES, MAX_SECONDARY_KEY_BYTES, SecondaryKey, SecondaryRange,
    decode_key, entry_key, primary_key, primary_range, secondary_range, unique_key,
};
pub use number::{MAX_EXACT_INTEGER, Number};
pub use object_builder::ObjectBuilder;
pub use reconstructable::reconstructable;
pub use time::{Time, Timezone};
pub use utf8::text_from_utf8;
pub use value::{Array, MAX_DEPTH, MAX_VALUE_BYTES, Object, PSEUDO_TYPE_KEY, Value};
