//! The record that ends a partition whose table is split or truncated.

use tessera_engine::mutation::SEAL;
use tessera_engine::{Engine, EngineError};
use tessera_types::Space;

/// What a seal says: how often its table had been truncated before. A table that was truncated and recalled still has the seals of
/// that truncation, which have no meaning any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seal(u32);

impl Seal {
    pub(crate) fn of(truncations: u32) -> Self {
        Self(truncations)
    }

    /// Whether a partition has this seal, or a later one: then this node does not know yet that the table was truncated and recalled.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn is_on(self, engine: &dyn Engine, partition: u32) -> Result<bool, EngineError> {
        let mut is_on = false;
        engine.get_in(partition, Space::SYSTEM, SEAL, &mut |value| is_on = self.is_in(value))?;
        Ok(is_on)
    }

    /// Whether the record of a partition's seal, with this value, is of this seal or a later one.
    pub fn is_in(self, value: &[u8]) -> bool {
        Self::decode(value) >= self
    }

    /// The value of the record. A table that was never truncated has seals without one, as in earlier versions.
    pub fn encode(self) -> Vec<u8> {
        if self.0 == 0 { Vec::new() } else { self.0.to_le_bytes().to_vec() }
    }

    fn decode(value: &[u8]) -> Self {
        Self(value.try_into().map_or(0, u32::from_le_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_read_as_it_was_written_and_one_of_before_a_truncation_is_less() {
        for truncations in [0, 1, 300, u32::MAX] {
            let seal = Seal::of(truncations);
            assert_eq!(Seal::decode(&seal.encode()), seal);
        }
        assert_eq!(Seal::of(0).encode(), b"", "as in earlier versions");
        assert!(Seal::of(0) < Seal::of(1));
    }
}
