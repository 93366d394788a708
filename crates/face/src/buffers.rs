//! Buffers that the connections of a thread lend each other: a connection needs one only while it has something to do.

use std::cell::RefCell;

/// Capacity of a new buffer.
const NEW_BYTES: usize = 16 << 10;
/// Buffers that have grown beyond this are freed.
const KEPT_BYTES: usize = 64 << 10;
const KEPT: usize = 8;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Gives a buffer room for what one read may bring, unless it has some. A buffer that holds the beginning of a command needs as much
/// room as an empty one: with just enough for the rest of that command, a read would also bring the beginning of the next one, and
/// a pipeline would be read one command at a time.
pub fn take(buffer: &mut Vec<u8>) {
    if buffer.capacity() == 0 {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        *buffer = spare.unwrap_or_else(|| Vec::with_capacity(NEW_BYTES));
    } else if buffer.capacity() - buffer.len() < NEW_BYTES / 2 {
        buffer.reserve(NEW_BYTES);
    }
}

/// Empties a buffer and takes its room back.
pub fn give_back(buffer: &mut Vec<u8>) {
    let mut room = std::mem::take(buffer);
    room.clear();
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < KEPT && (1..=KEPT_BYTES).contains(&room.capacity()) {
            spare.push(room);
        }
    });
}
