#![no_main]
//! Resume tokens of changefeeds, which clients give back as they please: what is read says where to go on in partitions that can be.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // As text, and as what the text stands for, which mutations get into more easily.
    if let Ok(token) = std::str::from_utf8(bytes) {
        tessera_reql_wire::fuzzing::resume(token);
    }
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    tessera_reql_wire::fuzzing::resume(&token);
});
