//! The admin face: tables, status, metrics and health over HTTP.

mod api;
mod body;
mod cluster;
mod compaction;
mod comparison;
mod doors;
mod listener;
mod metrics;
mod traffic;

pub use api::{AdminServer, ExtraMetrics, NewTable, SettingsChange, TableInfo, TokenCheck};
pub use listener::AdminListener;
pub use metrics::Gauges;
