//! Primary keys.

use super::KeyError;
use super::write::{Purpose, Writer};
use crate::EncodedValue;

/// How many bytes a primary key may have in RethinkDB's form, which has one more than a string has.
pub const MAX_PRIMARY_KEY_BYTES: usize = 128;

/// Appends the primary key that `value` is; see the [module](super). `MINVAL` and `MAXVAL` are keys under which there is
/// no document, since none has them.
///
/// # Errors
/// [`KeyError`]; `out` is then as it was.
pub fn primary_key(value: EncodedValue<'_>, out: &mut Vec<u8>) -> Result<(), KeyError> {
    let start = out.len();
    let mut writer = Writer::new(out, Purpose::Primary, usize::MAX);
    let result = writer.key(value);
    let is_too_long = writer.reql_bytes > MAX_PRIMARY_KEY_BYTES;
    match result {
        Ok(()) if !is_too_long => Ok(()),
        result => {
            out.truncate(start);
            Err(result.err().unwrap_or_else(|| KeyError::too_long(value)))
        }
    }
}
