#![no_main]
//! Connections of ReQL clients, from the handshake to the queries. Whatever comes must be taken or refused, take no memory out of
//! proportion to what came, and not depend on where the bytes were cut: the first four bytes say where.

use libfuzzer_sys::fuzz_target;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a client takes however little it says: buffers, and threads that check keys.
const FIXED_BYTES: usize = 1 << 20;
/// A value of a query takes so much more than its text: the tree of the query, its terms, their plan, and messages about them.
const BYTES_PER_BYTE: usize = 256;

/// Knows how much memory was taken at most.
struct Counting {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Counting {
    fn take(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(now, Ordering::Relaxed);
    }
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.now.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static MEMORY: Counting = Counting { now: AtomicUsize::new(0), most: AtomicUsize::new(0) };

fuzz_target!(|bytes: &[u8]| {
    let Some((lengths, said)) = bytes.split_first_chunk::<4>() else { return };
    let before = MEMORY.now.load(Ordering::Relaxed);
    MEMORY.most.store(before, Ordering::Relaxed);
    let (queries, read) = tessera_reql_wire::fuzzing::serve(said, lengths);
    assert!(read <= queries);
    let taken = MEMORY.most.load(Ordering::Relaxed) - before;
    assert!(taken <= FIXED_BYTES + BYTES_PER_BYTE * bytes.len(), "{taken} bytes for {}", bytes.len());
});
