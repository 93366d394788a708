//! The face for drivers of RethinkDB. It has threads of its own, on which it also takes connections.

use super::{Face, Foundation, Metrics, Opened, advertised};
use crate::browser_queries::BrowserQueries;
use crate::config::Config;
use crate::exit::ExitError;
use crate::listening::{address, listen};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tessera_admin::QuerySessions;
use tessera_cluster::Site;
use tessera_javascript::{Launch, Workers};
use tessera_reql_wire::{ReqlConfig, ReqlServer, UserLimits};

struct Reql {
    server: ReqlServer,
    has_port: bool,
}

pub(super) fn open(config: &Config, _workers: usize, site: &mut Site) -> Result<Opened, ExitError> {
    let listener = match config.reql.port {
        0 => None,
        port => {
            let address = address(config.reql.bind, port, config.port_offset)?;
            site.reql = advertised(config, address);
            Some(listen(address, false)?)
        }
    };
    Ok(Box::new(move |foundation| {
        let (store, tls, has_port) = (foundation.store.clone(), foundation.tls.clone(), listener.is_some());
        let server = ReqlServer::start(store, reql_config(foundation), tls, listener);
        Ok(Box::new(Reql { server: server.map_err(|error| ExitError::Other(error.to_string()))?, has_port }))
    }))
}

fn reql_config(foundation: &Foundation<'_>) -> ReqlConfig {
    let section = &foundation.config.reql;
    ReqlConfig {
        max_clients: section.max_clients,
        query_threads: section.query_threads,
        user_limits: UserLimits { queries: section.user_queries, threads_percent: section.user_threads_percent },
        query_bytes: section.query_bytes,
        greeting_timeout: Duration::from_millis(section.greeting_timeout_ms),
        write_timeout: Duration::from_millis(section.write_timeout_ms),
        client_memory: foundation.client_memory.clone(),
        cursor_timeout: Duration::from_secs(section.cursor_timeout_seconds),
        index_bytes_per_second: section.index_bytes_per_second,
        authenticator: foundation.authenticator.clone(),
        http: section.http,
        scripts: (section.javascript_workers > 0).then(|| {
            let launch = Launch::itself(&[crate::JAVASCRIPT_WORKER]);
            Workers::new(launch, section.javascript_workers)
        }),
        log_book: foundation.log_book.clone(),
    }
}

impl Face for Reql {
    fn metrics(&self) -> Metrics {
        let reql = self.server.statistics();
        Box::new(move |gauges| {
            let (now, total, refused) = reql.connection_counts();
            gauges.set("tessera_reql_open_connections", "Open connections", &[], now as f64);
            gauges.set("tessera_reql_connections_total", "Connections so far", &[], total as f64);
            gauges.set("tessera_reql_connections_refused_total", "Connections refused", &[], refused as f64);
            gauges.set("tessera_reql_queries_total", "Queries so far", &[], reql.query_count() as f64);
            let help = "Queries under way: those that compute, wait for something, or let others compute";
            gauges.set("tessera_reql_running_queries", help, &[], reql.queries_under_way() as f64);
            let help = "Queries refused because their user had too many under way";
            gauges.set("tessera_reql_queries_refused_total", help, &[], reql.refused_query_count() as f64);
            for (class, count) in reql.failure_counts() {
                let help = "Errors answered to queries, and to what is no query";
                gauges.set("tessera_reql_errors_total", help, &[("class", class)], count as f64);
            }
            let scripts = reql.script_counts();
            gauges.set("tessera_reql_javascript_workers", "Processes for r.js", &[], scripts.workers as f64);
            let help = "Programs of r.js that were run, and calls of their functions";
            gauges.set("tessera_reql_javascript_calls_total", help, &[], scripts.calls as f64);
            let help = "Processes for r.js that took too long, or ended without an answer";
            gauges.set("tessera_reql_javascript_killed_total", help, &[], scripts.killed as f64);
        })
    }

    fn query_sessions(&self) -> Option<Arc<dyn QuerySessions>> {
        self.has_port.then(|| Arc::new(BrowserQueries(self.server.sessions())) as Arc<dyn QuerySessions>)
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(self.server.stop())
    }
}
