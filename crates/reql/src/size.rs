//! How much a query has gathered.

use tessera_document::{MAX_VALUE_BYTES, ValueError};

use crate::error::Result;

/// What a row or a value in a list takes besides its encoding.
pub const ELEMENT_BYTES: usize = 32;

/// Rows that are more than this are enough at a time.
const BATCH_BYTES: usize = 1 << 20;

/// How many bytes rows or values have that a query holds together.
#[derive(Debug, Default)]
pub struct Size(usize);

impl Size {
    /// Counts one more, by the length of its encoding.
    ///
    /// # Errors
    /// As [`check`].
    pub fn add(&mut self, encoded_len: usize) -> Result<()> {
        self.0 = self.0.saturating_add(encoded_len).saturating_add(ELEMENT_BYTES);
        check(self.0)
    }

    /// Whether these are enough, if more can come later.
    pub fn is_batch(&self) -> bool {
        self.0 >= BATCH_BYTES
    }
}

/// # Errors
/// If so many bytes are more than a value may have: whoever gathers them makes a value of them, or something as large.
pub fn check(bytes: usize) -> Result<()> {
    if bytes <= MAX_VALUE_BYTES { Ok(()) } else { Err(ValueError::TooLarge { limit: MAX_VALUE_BYTES }.into()) }
}
