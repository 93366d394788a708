//! Tests of real processes, over real connections.

mod cluster;
mod connections;
mod crash;
mod differential;
mod disk;
mod doors;
mod operations;
mod pegasus;
mod resp_client;
mod server;
mod skipped;
