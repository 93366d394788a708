#![no_main]
//! Requests of the Pegasus protocol. Whatever comes, parsing must end, stay within the buffer, take no more memory than came,
//! and not depend on where the bytes were cut.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (calls, read) = tessera_pegasus::fuzzing::parse_requests(bytes);
    assert!(read <= calls);
});
