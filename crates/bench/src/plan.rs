//! What a run is to do.

use crate::driver::Route;
use crate::socket::ClientTls;
use crate::workload::{KeyDistribution, Mix, RecordShape};
use std::time::Duration;

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    pub route: Route,
    /// Absent if the servers speak plainly.
    pub tls: Option<ClientTls>,
    /// Sent once on each connection, to log in or choose a table.
    pub greeting: Vec<Vec<String>>,
    pub connections: usize,
    pub pipeline: usize,
    pub batch: usize,
    pub mix: Mix,
    pub distribution: KeyDistribution,
    pub records: u64,
    pub shape: RecordShape,
    /// Operations per second of all connections together; `None` for a closed loop.
    pub rate: Option<f64>,
    pub warm_up: Duration,
    pub duration: Duration,
    /// Ends the run early once so many operations are done.
    pub operations: Option<u64>,
    pub limit: Duration,
    pub seed: u64,
}
