//! The face for clients of Apache Pegasus.

use super::{Face, Foundation, Metrics, Opened, advertised};
use crate::config::Config;
use crate::exit::ExitError;
use crate::listening::{SharedListeners, address};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tessera_cluster::Site;
use tessera_pegasus::{Openings, PegasusConfig, PegasusServer};
use tessera_store::Store;

struct Pegasus {
    store: Store,
    server: Arc<PegasusServer>,
    listeners: SharedListeners,
}

pub(super) fn open(config: &Config, workers: usize, site: &mut Site) -> Result<Opened, ExitError> {
    let addresses = addresses(config)?;
    let listeners = SharedListeners::listen(&addresses, workers)?;
    let site_of = |address: Option<&SocketAddr>| address.map(|it| advertised(config, *it)).unwrap_or_default();
    site.pegasus = site_of(addresses.first());
    site.pegasus_meta = site_of(addresses.last());
    Ok(Box::new(move |foundation| {
        let store = foundation.store.clone();
        let server = PegasusServer::start(store.clone(), pegasus_config(foundation));
        Ok(Box::new(Pegasus { store, server, listeners }))
    }))
}

/// First the data port, then the meta port.
fn addresses(config: &Config) -> Result<Vec<SocketAddr>, ExitError> {
    let section = &config.pegasus;
    let ports = [section.port, section.meta_port]
        .into_iter()
        .filter(|port| *port != 0 && !config.is_pegasus_closed(config.has_users()));
    ports.map(|port| address(section.bind, port, config.port_offset)).collect()
}

fn pegasus_config(foundation: &Foundation<'_>) -> PegasusConfig {
    let config = foundation.config;
    PegasusConfig {
        max_clients: config.pegasus.max_clients,
        write_timeout: Duration::from_millis(config.pegasus.write_timeout_ms),
        client_memory: foundation.client_memory.clone(),
        write_bytes: config.limits.write_bytes,
        address: foundation.site.pegasus.clone(),
        data_directory: config.data_dir.clone(),
        open_to: openings(config),
    }
}

fn openings(config: &Config) -> Openings {
    // The settings have been checked.
    let networks = config.pegasus.open_addresses.iter().filter_map(|text| text.parse().ok());
    let tables = config.pegasus.open_tables.clone().into();
    Openings { has_users: config.has_users(), networks: networks.collect(), tables }
}

impl Face for Pegasus {
    fn serve_on(&self, worker: usize) {
        let server = self.server.clone();
        self.listeners.accept(worker, &self.store, move |stream, address| server.clone().handle(stream, address));
    }

    fn metrics(&self) -> Metrics {
        let pegasus = self.server.clone();
        Box::new(move |gauges| {
            let (requests, forwarded) = pegasus.request_counts();
            let connections = pegasus.connection_count() as f64;
            gauges.set("tessera_pegasus_open_connections", "Open connections", &[], connections);
            gauges.set("tessera_pegasus_requests_total", "Requests so far", &[], requests as f64);
            gauges.set("tessera_pegasus_forwarded_total", "Requests to nodes that lead", &[], forwarded as f64);
        })
    }
}
