//! The face for clients of Redis.

use super::{Face, Foundation, Metrics, Opened, advertised};
use crate::config::{Config, Transactions};
use crate::exit::ExitError;
use crate::listening::{SharedListeners, address};
use std::sync::Arc;
use std::time::Duration;
use tessera_cluster::Site;
use tessera_redis::{RedisConfig, RedisServer};
use tessera_store::Store;

struct Redis {
    store: Store,
    server: Arc<RedisServer>,
    listeners: SharedListeners,
}

pub(super) fn open(config: &Config, workers: usize, site: &mut Site) -> Result<Opened, ExitError> {
    let address = address(config.redis.bind, config.redis.port, config.port_offset)?;
    let listeners = SharedListeners::listen(&[address], workers)?;
    site.redis = advertised(config, address);
    Ok(Box::new(move |foundation| {
        let store = foundation.store.clone();
        let server =
            RedisServer::start(store.clone(), redis_config(foundation, address.port()), foundation.tls.clone());
        Ok(Box::new(Redis { store, server, listeners }))
    }))
}

fn redis_config(foundation: &Foundation<'_>, port: u16) -> RedisConfig {
    let section = &foundation.config.redis;
    RedisConfig {
        max_clients: section.max_clients,
        write_timeout: Duration::from_millis(section.write_timeout_ms),
        slow_log_micros: section.slow_log_micros,
        slow_log_entries: section.slow_log_entries,
        client_memory: foundation.client_memory.clone(),
        authenticator: foundation.authenticator.clone(),
        transactions_over_partitions: section.transactions == Transactions::Any,
        databases: section.databases,
        port,
    }
}

impl Face for Redis {
    fn serve_on(&self, worker: usize) {
        let server = self.server.clone();
        self.listeners.accept(worker, &self.store, move |stream, address| server.clone().handle(stream, address));
    }

    fn metrics(&self) -> Metrics {
        let redis = self.server.clone();
        Box::new(move |gauges| {
            let (now, total, refused) = redis.connection_counts();
            gauges.set("tessera_redis_open_connections", "Open connections", &[], now as f64);
            gauges.set("tessera_redis_connections_total", "Connections so far", &[], total as f64);
            gauges.set("tessera_redis_connections_refused_total", "Connections refused", &[], refused as f64);
            gauges.set("tessera_redis_commands_total", "Commands carried out", &[], redis.command_count() as f64);
            let forwarded = redis.forwarded_count() as f64;
            let help = "Requests to nodes that lead, each of some commands";
            gauges.set("tessera_redis_forwarded_total", help, &[], forwarded);
        })
    }
}
