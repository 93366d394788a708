//! What a RethinkDB server was recorded to answer to some 150,000 steps, and how much of it another one answers alike.
//!
//! For tests: whoever answers queries is a [`Player`]. The evaluator over a source in memory is one (`tests/memory`), a node that is
//! asked over its port is another one (`tests/node/reql_oracle` of the binary). Both are compared by the same [`judge`], leave out the
//! same steps (`scope`), and must reach a floor in every area, so that no change makes answers worse unseen. `README.md` says where the
//! recordings come from.
//!
//! `ORACLE_ONLY=area` plays the areas whose names begin so, `ORACLE_SCENARIO=text` the scenarios whose names hold that, and
//! `ORACLE_SHOW=20` prints so many differences of each area.

#![warn(missing_docs)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on is to fail")]

mod compare;
mod expected;
mod recording;
mod sample;
mod scope;

pub use compare::{judge, write};
pub use expected::Expected;
pub use recording::{Area, Scenario, areas, lines, text};
pub use sample::Sample;
pub use tessera_reql::{Json, parse_json};

/// Deeper than any recorded query or answer.
pub const JSON_DEPTH: usize = 2000;

/// A stream with more rows was stopped when it was recorded, and its answer is `ENDLESS` with a few rows.
pub const ENDLESS_ROWS: usize = 150_000;
/// How many rows of such a stream were kept.
pub const ENDLESS_SHOWN: usize = 5;

/// Somebody who answers recorded steps.
pub trait Player {
    /// Forgets everything but an empty database `test`, with which each scenario begins.
    fn begin(&mut self);

    /// The reply to a step, in the form of the recordings. `None` if this player cannot play such steps.
    fn play(&mut self, step: &Json) -> Option<Json>;
}
