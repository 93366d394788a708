#![no_main]
//! Stored functions of ReQL, which clients may give back to the server as they please: bytes that are read are written the same, and
//! what they do to a document is an answer or an error.

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tessera_document::Value;
use tessera_reql::{Env, Function, MemorySource, Pacer};

/// Ends a function after so many looks, so that loops without end are no finding.
const LOOKS: u32 = 200;

struct Countdown(AtomicU32);

impl Pacer for Countdown {
    fn goes_on(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < LOOKS
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(function) = Function::from_bytes(bytes) else { return };
    let written = function.to_bytes().expect("it was stored");
    let again = Function::from_bytes(&written).expect("what was written is read");
    assert_eq!(again.to_bytes().expect("it was stored"), written);
    let source = MemorySource::new("fuzz");
    let env = Env::new(Arc::new(source), Arc::new(Countdown(AtomicU32::new(0))), 0.into());
    let document = Value::from_json(r#"{"id": 1, "a": [1, "x", {"b": null}]}"#).expect("it is JSON");
    if function.is_deterministic() {
        let _ = function.value_of(&env, &document);
    }
});
