//! Long calculations ask now and then whether they are still wanted.

use std::cell::Cell;

use crate::GeometryError;

/// After this many steps the caller is asked.
const STEPS_PER_CALL: u32 = 4096;

/// Ends a calculation whose result nobody waits for any more. The steps are some nanoseconds each.
pub struct Pace<'a> {
    goes_on: &'a dyn Fn() -> bool,
    steps: Cell<u32>,
}

impl<'a> Pace<'a> {
    /// Asks `goes_on` after every few thousand steps; false ends the calculation.
    pub fn new(goes_on: &'a dyn Fn() -> bool) -> Self {
        Self { goes_on, steps: Cell::new(0) }
    }

    /// For calculations that are known to be short.
    pub const fn endless() -> Pace<'static> {
        Pace { goes_on: &|| true, steps: Cell::new(0) }
    }

    /// Counts steps.
    ///
    /// # Errors
    /// [`GeometryError::Interrupted`], if the caller no longer wants the result.
    pub(crate) fn steps(&self, count: usize) -> Result<(), GeometryError> {
        let steps = self.steps.get().saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if steps < STEPS_PER_CALL {
            self.steps.set(steps);
            return Ok(());
        }
        self.steps.set(0);
        if (self.goes_on)() { Ok(()) } else { Err(GeometryError::Interrupted) }
    }
}
