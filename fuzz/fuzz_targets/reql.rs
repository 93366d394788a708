#![no_main]
//! Queries of ReQL: whatever comes must be read, checked and evaluated to an answer or an error, in bounded time and
//! memory and without a panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use libfuzzer_sys::fuzz_target;
use tessera_reql::{Answer, MemorySource, Pacer, Request, Source as _, write_answer, write_row};

/// Ends a query after so many looks, so that loops without end are no finding.
const LOOKS: u32 = 200;

struct Countdown(AtomicU32);

impl Pacer for Countdown {
    fn goes_on(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < LOOKS
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(Request::Start(query)) = Request::read(text) else { return };
    let Ok(prepared) = query.prepare(0.into()) else { return };
    let source = MemorySource::new("fuzz");
    source.create_database("test").expect("the source is empty");
    let pacer = Arc::new(Countdown(AtomicU32::new(0)));
    let mut out = Vec::new();
    match prepared.run(Arc::new(source), pacer) {
        Ok(Answer::Value(value)) => drop(write_answer(&value, &mut out)),
        Ok(Answer::Cursor(mut cursor)) => {
            for row in cursor.next(1000).unwrap_or_default() {
                drop(write_row(&row, &mut out));
            }
        }
        Err(_) => {}
    }
});
