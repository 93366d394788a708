use crate::commands::{CommandError, parse_cursor};

/// Bits of a hash that a cursor keeps: the rest holds the partition.
const CURSOR_HASH_BITS: u32 = 48;

/// A place in a scan of a table: a partition, and a hash of which the leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanPosition {
    pub(super) partition: u32,
    pub(super) hash: u64,
}

impl ScanPosition {
    /// Where SCAN with this cursor begins.
    ///
    /// # Errors
    /// If it is no cursor.
    pub(super) fn parse(cursor: &[u8]) -> Result<Self, CommandError> {
        parse_cursor(cursor).map(Self::from_cursor)
    }

    /// What a cursor keeps of a hash.
    pub(super) fn leading_bits(hash: u64) -> u64 {
        hash >> (64 - CURSOR_HASH_BITS)
    }

    /// Never 0 but at the start.
    pub(super) fn to_cursor(self) -> u64 {
        u64::from(self.partition) << CURSOR_HASH_BITS | Self::leading_bits(self.hash)
    }

    fn from_cursor(cursor: u64) -> Self {
        // The shift leaves sixteen bits.
        Self { partition: (cursor >> CURSOR_HASH_BITS) as u32, hash: cursor << (64 - CURSOR_HASH_BITS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back_and_only_the_start_is_zero() {
        assert_eq!(ScanPosition { partition: 0, hash: 0 }.to_cursor(), 0);
        for position in
            [ScanPosition { partition: 1, hash: 0 }, ScanPosition { partition: 65_535, hash: u64::MAX << 16 }]
        {
            assert_eq!(ScanPosition::from_cursor(position.to_cursor()), position);
            assert_ne!(position.to_cursor(), 0);
        }
    }
}
