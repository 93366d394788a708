//! The benchmark: workloads, drivers, measurement and report.
//!
//! It speaks public protocols only, so that peers are measured by the same code, and knows nothing of the server's
//! insides.

mod cli;
mod cpu;
mod driver;
mod measure;
mod null_server;
mod report;
mod run;
mod workload;

pub use cli::Cli;
