//! Values as JSON text.

mod read;
mod write;

pub use read::plain_length;
pub use write::{JSON_SHOWN_BYTES, JSON_TRUNCATED_BYTES, write_json_string};
pub(crate) use write::{is_plain, write_binary, write_bytes, write_time};
