//! INFO.

use super::super::Connection;
use super::REDIS_VERSION;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tessera_engine::{PageLimit, Visit};
use tessera_face::resident_bytes;
use tessera_store::{Store, Table, TableStatistics};
use tessera_types::{Right, TableNumber};
use tokio::sync::Semaphore;
use tokio::time::timeout_at;

/// How long keys are counted, of all tables together.
const COUNTING: Duration = Duration::from_millis(200);
/// So much longer INFO waits for the end of a count, which is noticed between two records only, and after a read of the disk.
const STEP: Duration = Duration::from_millis(100);
/// Of a table on RocksDB that has more, its estimate is shown.
const COUNTED: PageLimit = PageLimit { records: 10_000, bytes: 16 << 20 };

/// One INFO counts at a time. Many clients ask for it when they connect, and the threads that count are there for reads.
static TURN: Semaphore = Semaphore::const_new(1);

/// How many keys each of some tables has on this node. Those that are not counted in time are left out.
async fn count_keys(store: &Store, tables: Vec<Arc<Table>>) -> HashMap<TableNumber, u64> {
    let until = Instant::now() + COUNTING;
    let counted = async {
        let turn = TURN.acquire().await.ok()?;
        let count = move || {
            // It is over when the count is, also if nobody waits for it any more.
            let _turn = &turn;
            let keys = Table::count_few_of(&tables, Visit::NextHashKey, COUNTED, until);
            let counted = tables.iter().zip(keys).filter_map(|(table, keys)| Some((table.number(), keys?)));
            counted.collect::<HashMap<_, _>>()
        };
        // The disk may have to be waited for; this thread serves others.
        store.disk_readers().read_from_disk(count).await.ok()
    };
    timeout_at((until + STEP).into(), counted).await.ok().flatten().unwrap_or_default()
}

impl Connection {
    pub(super) async fn info(&mut self, sections: &[&[u8]]) {
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
        let keyspace = if wants("keyspace") { self.keyspace(&statistics.tables).await } else { Vec::new() };
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
        section("keyspace", keyspace);
        self.reply().verbatim(&text);
    }

    /// The tables that the user may read, with how many keys they have on this node.
    async fn keyspace(&mut self, tables: &[TableStatistics]) -> Vec<(String, String)> {
        let server = self.server.clone();
        let may_read =
            |table: &str| self.session.user.as_ref().is_some_and(|user| user.rights.may_in_table(Right::Read, table));
        let shown = tables.iter().filter(|table| may_read(&table.name));
        let shown = shown.filter_map(|table| Some((server.selected_as(table.number.0, &table.name)?, table)));
        let shown: Vec<(u32, &TableStatistics)> = shown.collect();
        let estimated = shown.iter().filter(|(_, table)| table.engine.records_are_estimated);
        let estimated: Vec<_> = estimated.filter_map(|(_, table)| server.store.table_numbered(table.number)).collect();
        let counted = match estimated.is_empty() {
            true => HashMap::new(),
            false => self.wait_for(None, count_keys(&server.store, estimated)).await,
        };
        let line = |(number, table): (u32, &TableStatistics)| {
            let keys = counted.get(&table.number).copied().or(table.engine.hash_keys).unwrap_or(table.engine.records);
            (format!("db{number}"), format!("keys={keys},expires=0,avg_ttl=0,name={}", table.name))
        };
        shown.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::connection::tests::connection;
    use crate::test_cluster::{TestNode, config};
    use std::time::{Duration, Instant};
    use tessera_types::EngineKind;

    #[tokio::test]
    #[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
    async fn the_keyspace_has_the_keys_of_a_small_table_and_no_deleted_ones() {
        let node = TestNode::start(None, config());
        let table = node.create_table("t", EngineKind::Rocksdb, 2).await;
        let mut connection = connection(&node, &table);
        for (commands, keys) in [("SET a 1\nSET a 2\nSET b 1\nHSET h x 1 y 2", 3), ("DEL b h", 1), ("DEL a", 0)] {
            connection.given(commands).await;
            let (expected, began) = (format!(":keys={keys},expires=0,avg_ttl=0,name=t\r\n"), Instant::now());
            // A machine that has much to do may not count in time, and shows the estimate.
            loop {
                let info = connection.given("INFO keyspace").await;
                if info.contains(&expected) {
                    break;
                }
                assert!(began.elapsed() < Duration::from_secs(60), "{info}");
            }
            assert!(!connection.given("INFO memory").await.contains("keys="));
        }
    }
}
