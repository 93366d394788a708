//! How much a connection does at a time.
//!
//! Connections of a thread run one after the other, so one that has much to do must let go now and then: its work is cut into
//! **turns**, after each of which the others run. Reads of values whose sizes nobody knows beforehand are made in **slices**: as
//! many at a time as are likely to fill a part of the output, by what the values before them took. Each value is then read about
//! once, however many a pipeline asks for, and the output stays small, since it is written out between slices.

use std::time::Duration;

/// Work of a turn: bytes of commands and of replies, [`COMMAND`] for each command, and the nanoseconds that commands took, since
/// some take long that are short and answer little. It takes a thread about half a millisecond, so a byte is like a nanosecond.
const TURN: usize = 512 << 10;
/// What a command costs beside its bytes, in the bytes that could be copied meanwhile.
const COMMAND: usize = 1 << 10;
/// Replies that a slice is meant to fill.
const SLICE_BYTES: usize = 1 << 20;
/// Reads of a slice, of a connection of which nothing is known yet, and at most.
const FIRST_SLICE: usize = 16;
pub(super) const LONGEST_SLICE: usize = 1 << 10;

/// What a connection has done since others had their turn, and how large its slices are.
pub(super) struct Turn {
    work: usize,
    slice: usize,
}

impl Default for Turn {
    fn default() -> Self {
        Self { work: 0, slice: FIRST_SLICE }
    }
}

impl Turn {
    /// Counts commands.
    pub(super) fn note_commands(&mut self, commands: usize) {
        self.work += COMMAND * commands;
    }

    /// Counts bytes of commands or of replies.
    pub(super) fn note_bytes(&mut self, bytes: usize) {
        self.work += bytes;
    }

    /// Counts the time that a command took.
    pub(super) fn note_time(&mut self, took: Duration) {
        self.work = self.work.saturating_add(took.as_nanos().try_into().unwrap_or(usize::MAX));
    }

    /// How many reads are made at a time.
    pub(super) fn slice(&self) -> usize {
        self.slice
    }

    /// Learns from the replies to some reads, of so many bytes in all, how many to make at a time. Few large ones are enough to
    /// shrink a slice; it grows step by step.
    pub(super) fn note_slice(&mut self, reads: usize, bytes: usize) {
        let longest = LONGEST_SLICE.min(2 * self.slice);
        // Values are nearly always small enough for the longest slice, which takes no division to see.
        self.slice = if bytes <= reads * (SLICE_BYTES / LONGEST_SLICE) {
            longest
        } else {
            let average = (bytes / reads.max(1)).max(1);
            (SLICE_BYTES / average).clamp(1, longest)
        };
    }

    /// Whether this connection has had its turn. Asked after every command, before the future of [`Self::end`] is made.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.work >= TURN
    }

    /// Lets others run if this connection has had its turn.
    pub(super) async fn end(&mut self) {
        if self.is_over() {
            self.work = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_follow_the_size_of_values() {
        let mut turn = Turn::default();
        for _ in 0..10 {
            turn.note_slice(turn.slice(), 10 * turn.slice());
        }
        assert_eq!(turn.slice(), LONGEST_SLICE);
        turn.note_slice(1, 16 << 20);
        assert_eq!(turn.slice(), 1);
        turn.note_slice(1, 100 << 10);
        turn.note_slice(2, 200 << 10);
        assert_eq!(turn.slice(), 4);
        turn.note_slice(4, 1 << 20);
        assert_eq!(turn.slice(), 4);
    }
}
