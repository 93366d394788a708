//! Primary keys.

use super::write::{Purpose, Writer};
use super::{KeyError, MAX_PRIMARY_KEY_BYTES};
use crate::EncodedValue;

/// Appends the primary key that `value` is; see the [module](super). `MINVAL` and `MAXVAL` are keys under which there is
/// no document, since none has them.
///
/// # Errors
/// [`KeyError`]; `out` is then as it was.
pub fn primary_key(value: EncodedValue<'_>, out: &mut Vec<u8>) -> Result<(), KeyError> {
    let start = out.len();
    let written = write(value, out).and_then(|is_short| if is_short { Ok(()) } else { Err(KeyError::too_long(value)) });
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// The end of a range of primary keys, which may be longer than any of them.
pub(super) fn primary_bound(value: EncodedValue<'_>) -> Result<Vec<u8>, KeyError> {
    let mut key = Vec::new();
    write(value, &mut key)?;
    Ok(key)
}

/// Appends a key, and says whether a primary key may be so long.
fn write(value: EncodedValue<'_>, out: &mut Vec<u8>) -> Result<bool, KeyError> {
    let mut writer = Writer::new(out, Purpose::Primary, usize::MAX);
    writer.key(value)?;
    Ok(writer.reql_bytes <= MAX_PRIMARY_KEY_BYTES)
}
