#![no_main]
//! The log reader and the reader of entries' payloads. Damage must be told, never followed.

use libfuzzer_sys::fuzz_target;
use tessera_consensus::log::{LogRecord, decode_record, decode_segment, decode_staged};
use tessera_engine::mutation;

fuzz_target!(|bytes: &[u8]| {
    // Whole segments, and what was staged for them: nearly everything fails the checksum, which is the point.
    for record in decode_segment(bytes, 1).into_iter().chain(decode_staged(bytes)) {
        read_payloads(&record);
    }
    // Records behind the checksum, as if it had been right.
    if let Some(record) = decode_record(bytes) {
        read_payloads(&record);
    }
    let mutations: Vec<_> = mutation::decode(bytes).collect();
    assert!(mutations.iter().rev().skip(1).all(Result::is_ok), "damage ends the reading");
});

fn read_payloads(record: &LogRecord) {
    if let LogRecord::Entries { entries, .. } = record {
        for entry in entries {
            let _ = mutation::decode(&entry.payload).count();
        }
    }
}
