//! What names a table in requests between nodes.

use bytes::{Buf, BufMut, Bytes};
use tessera_types::TableId;

/// Says that how often it was truncated follows. Tables that never were are named by their identifier alone, as in earlier versions.
const WAS_TRUNCATED: u32 = 1 << 31;

/// A table, and how often an empty one has taken its place. A node that has not heard yet that a table was truncated and recalled asks
/// for the table of before: what it asks must not be done in the one that was recalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableIdentity {
    pub(crate) id: TableId,
    pub(crate) truncations: u32,
}

impl TableIdentity {
    /// Writes it: `u32` the identifier, and, if the highest bit of that is set, `u32` how often the table was truncated; little-endian.
    pub fn encode(self, out: &mut impl BufMut) {
        match self.truncations {
            0 => out.put_u32_le(self.id.0),
            truncations => {
                out.put_u32_le(self.id.0 | WAS_TRUNCATED);
                out.put_u32_le(truncations);
            }
        }
    }

    /// Reads what [`Self::encode`] wrote, and leaves what comes after it; `None` if that is not all there.
    pub fn decode(from: &mut Bytes) -> Option<Self> {
        let id = from.try_get_u32_le().ok()?;
        let truncations = if id & WAS_TRUNCATED == 0 { 0 } else { from.try_get_u32_le().ok()? };
        Some(Self { id: TableId(id & !WAS_TRUNCATED), truncations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_it_was_written() {
        for truncations in [0, 1, u32::MAX] {
            let identity = TableIdentity { id: TableId(7), truncations };
            let mut written = Vec::new();
            identity.encode(&mut written);
            written.put_u8(9);
            let mut from = Bytes::from(written);
            assert_eq!((TableIdentity::decode(&mut from), &from[..]), (Some(identity), &[9][..]));
        }
        let mut written = Vec::new();
        TableIdentity { id: TableId(7), truncations: 0 }.encode(&mut written);
        assert_eq!(written, [7, 0, 0, 0], "as in earlier versions");
        written[3] |= 0x80;
        assert_eq!(TableIdentity::decode(&mut written.into()), None, "it ends too early");
    }
}
