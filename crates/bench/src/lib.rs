//! The benchmark: workloads, drivers, measurement and report.
//!
//! It speaks public protocols, so that peers are measured by the same code, and knows nothing of the server's insides;
//! to measure an engine alone it is handed one behind a trait of its own.

#![warn(missing_docs)]

mod arguments;
mod cli;
mod command;
mod connection;
mod cpu;
mod disk;
mod driver;
mod execute;
mod in_process;
mod machine;
mod measure;
mod null_server;
mod pace;
mod plan;
mod report;
mod run;
mod search;
mod socket;
mod suite;
mod workload;

pub use cli::Cli;
pub use in_process::{EngineName, EngineUnderTest, OpenEngine};
pub use socket::Trust;
