//! The admin face: tables, status, metrics and health over HTTP.

#![warn(missing_docs)]

mod access;
mod api;
mod body;
mod cluster;
mod code;
mod compaction;
mod comparison;
mod doors;
mod drains;
mod failure;
mod listener;
mod metrics;
mod metrics_format;
mod process;
mod queries;
mod query_sessions;
mod requests;
mod scrape;
mod server;
mod tables;
mod traffic;
mod transactions;
mod users;

pub use listener::AdminListener;
pub use query_sessions::{Answered, NotAnswered, QuerySessions};
pub use scrape::Scrape;
pub use server::{AdminServer, Doors, ExtraMetrics};
pub use tables::{NewTable, SettingsChange, TableInfo};
