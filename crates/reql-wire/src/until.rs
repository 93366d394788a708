//! How long functions may run that no query evaluates.

use std::time::{Duration, Instant};
use tessera_reql::Pacer;

/// Lets functions run until a time.
pub(crate) struct Until(Instant);

impl Until {
    /// Functions may run for so long, counted from now.
    pub(crate) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }
}

impl Pacer for Until {
    fn goes_on(&self) -> bool {
        Instant::now() < self.0
    }
}
