//! Tests of real processes, over real connections.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod cluster;
mod connections;
mod crash;
mod differential;
mod disk;
mod doors;
mod expiry;
mod formats;
mod local;
mod metrics;
mod operations;
mod pegasus;
mod redis_clients;
mod reql;
mod reql_browser;
mod reql_drivers;
mod reql_expiry;
mod reql_feeds;
mod reql_feeds_split;
mod reql_geo;
mod reql_hooks;
mod reql_http;
mod reql_index_build;
mod reql_indexes;
mod reql_js;
mod reql_limits;
mod reql_oracle;
mod reql_pipelines;
mod reql_pushdown;
mod reql_system;
mod reql_tables;
mod reql_together;
mod reql_unique;
mod reql_users;
mod resp_client;
mod scram;
mod server;
mod skipped;
mod tls;
