//! The Pegasus face: real clients of Apache Pegasus, what is on the wire, and what must not be there.

mod access;
mod admin_cli;
mod administration;
mod bad_input;
mod clients;
mod meta_client;
mod progress;
mod same_data;
mod table_life;
mod transcripts;
mod wire;
