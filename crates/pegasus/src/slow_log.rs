//! Reads that take long or return much go to the log, as in Pegasus.

use crate::calls::{Read, Request};
use crate::execute::DataCall;
use std::time::Duration;

/// Bytes from which on a reply is worth a line: of one record, and of several.
const MANY_BYTES: (usize, usize) = (1 << 20, 10 << 20);
/// As much of a key as is shown.
const SHOWN_BYTES: usize = 100;

/// Notes a read that took so long and was answered with so many bytes, if either is much.
pub(crate) fn note(call: &DataCall, took: Duration, bytes: usize) {
    let is_of_one = matches!(call.request, Request::Read(Read::Get(_) | Read::Ttl(_)));
    let many = if is_of_one { MANY_BYTES.0 } else { MANY_BYTES.1 };
    if took < call.slow() && bytes < many {
        return;
    }
    let key = call.request.key().ok().flatten();
    let key = key.map(|key| if key.hash_key.is_empty() { key.sort_key } else { key.hash_key }).unwrap_or_default();
    tracing::warn!(
        table = %call.table.name(),
        partition = call.partition,
        call = call.call.name(),
        key = %key[..key.len().min(SHOWN_BYTES)].escape_ascii(),
        milliseconds = took.as_millis(),
        bytes,
        "a slow or large read"
    );
}
