//! INFO.

use super::super::Connection;
use super::REDIS_VERSION;
use std::sync::atomic::Ordering;
use tessera_face::resident_bytes;
use tessera_types::Right;

impl Connection {
    pub(super) fn info(&mut self, sections: &[&[u8]]) {
        let server = self.server.clone();
        let statistics = server.store.statistics();
        let wants = |name: &str| {
            sections.is_empty()
                || sections.iter().any(|section| {
                    [name, "all", "default", "everything"]
                        .iter()
                        .any(|known| section.eq_ignore_ascii_case(known.as_bytes()))
                })
        };
        let mut text = String::new();
        let mut section = |name: &str, lines: Vec<(String, String)>| {
            if wants(name) {
                let title = name[..1].to_uppercase() + &name[1..];
                text += &format!("# {title}\r\n");
                lines.iter().for_each(|(key, value)| text += &format!("{key}:{value}\r\n"));
                text += "\r\n";
            }
        };
        let line = |key: &str, value: &dyn ToString| (key.to_string(), value.to_string());
        let (hits, misses) = server.lookups();
        let uptime = server.started.elapsed().as_secs();
        section(
            "server",
            vec![
                line("redis_version", &REDIS_VERSION),
                line("tessera_version", &env!("CARGO_PKG_VERSION")),
                line("redis_mode", &"standalone"),
                line("process_id", &std::process::id()),
                line("tcp_port", &server.config.port),
                line("uptime_in_seconds", &uptime),
                line("uptime_in_days", &(uptime / 86_400)),
            ],
        );
        section(
            "clients",
            vec![
                line("connected_clients", &server.clients.count()),
                line("maxclients", &server.max_clients.load(Ordering::Relaxed)),
                line("blocked_clients", &0),
                line("mem_clients", &server.config.client_memory.used()),
            ],
        );
        section(
            "memory",
            vec![
                line("used_memory", &statistics.memory_used_bytes),
                line("used_memory_rss", &resident_bytes()),
                line("maxmemory", &statistics.memory_limit_bytes),
                line("mem_allocator", &"mimalloc"),
            ],
        );
        section(
            "persistence",
            vec![
                line("loading", &u8::from(!server.store.is_serving())),
                line("log_bytes", &statistics.log.disk_bytes),
                line("log_segments", &statistics.log.segments),
                line("log_syncs", &statistics.log.syncs),
            ],
        );
        section(
            "stats",
            vec![
                line("total_connections_received", &server.clients.total.load(Ordering::Relaxed)),
                line("rejected_connections", &server.clients.refused.load(Ordering::Relaxed)),
                line("total_commands_processed", &server.commands.load(Ordering::Relaxed)),
                line("keyspace_hits", &hits),
                line("keyspace_misses", &misses),
                line("expired_keys", &statistics.tables.iter().map(|table| table.engine.expired_removed).sum::<u64>()),
                line("evicted_clients", &server.config.client_memory.evicted()),
                line("evicted_keys", &statistics.tables.iter().map(|table| table.engine.evicted).sum::<u64>()),
            ],
        );
        section("replication", vec![line("role", &"master"), line("connected_slaves", &0)]);
        let may_read =
            |table: &str| self.session.user.as_ref().is_some_and(|user| user.rights.may_in_table(Right::Read, table));
        let keyspace = statistics.tables.iter().filter(|table| may_read(&table.name)).filter_map(|table| {
            let number = server.selected_as(table.number.0, &table.name)?;
            let keys = table.engine.hash_keys.unwrap_or(table.engine.records);
            Some((format!("db{number}"), format!("keys={keys},expires=0,avg_ttl=0,name={}", table.name)))
        });
        section("keyspace", keyspace.collect());
        self.reply().verbatim(&text);
    }
}
