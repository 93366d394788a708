//! The experiments of the published reports, and the cells that each needs.

use super::cell::{Cell, ClusterSpec, Loop, MAP_REDUCE, TableSpec};
use super::published::{Published, VersionRow, clients};
use crate::driver::Protocol;
use crate::workload::KeyDistribution;
use tessera_types::Partitioner;

/// A table or figure of a published report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Experiment {
    /// Pegasus: the tables of versions
    Versions,
    /// Pegasus: throughput against latency
    Latency,
    /// Pegasus: RocksDB's rate limiter
    Limiter,
    /// Pegasus: 5, 6 and 7 nodes
    Scale,
    /// Pegasus: 64, 128 and 256 partitions
    Partitions,
    /// RethinkDB: YCSB A and C on 1 to 16 nodes
    Rethinkdb,
    /// RethinkDB: the map-reduce query on 1 to 16 nodes
    MapReduce,
    /// nubase: memory engine and RocksDB engine, open loop
    Nubase,
}

/// Bytes per second that bind where memtables are as small as in [`limiter_settings`].
const LIMITED: &str = "rocksdb.rate_limit_bytes_per_second=8388608";

pub const ALL: [Experiment; 8] = [
    Experiment::Versions,
    Experiment::Latency,
    Experiment::Limiter,
    Experiment::Scale,
    Experiment::Partitions,
    Experiment::Rethinkdb,
    Experiment::MapReduce,
    Experiment::Nubase,
];

/// Sizes of clusters on which RethinkDB's workloads are measured.
pub const RETHINKDB_NODES: [u16; 5] = [1, 2, 4, 8, 16];
/// Sizes of clusters on which the map-reduce query is measured.
pub const MAP_REDUCE_NODES: [u16; 7] = [1, 2, 3, 4, 8, 12, 16];
/// Protocols through which RethinkDB's workloads are measured.
pub const RETHINKDB_PROTOCOLS: [Protocol; 2] = [Protocol::Rethinkdb, Protocol::Redis];

fn cluster(nodes: u16, settings: &[&str]) -> ClusterSpec {
    ClusterSpec { nodes, settings: settings.iter().map(|setting| (*setting).to_string()).collect(), running: None }
}

/// A table of Pegasus': it answers before its log is fsynced, as `soft` does.
fn pegasus_table(partitions: u32, replicas: u8, fields: usize, field_bytes: usize) -> TableSpec {
    let (engine, durability) = ("rocksdb".into(), "soft".into());
    TableSpec {
        engine,
        durability,
        partitions,
        replicas,
        fields,
        field_bytes,
        partitioner: Partitioner::Crc64,
        expires: false,
        is_document: false,
    }
}

fn pegasus(cluster: ClusterSpec, table: TableSpec, mix: &str, threads: &str) -> Cell {
    let (processes, threads) = clients(threads);
    Cell {
        cluster,
        table,
        protocol: Protocol::Pegasus,
        mix: mix.into(),
        distribution: KeyDistribution::Zipfian,
        processes,
        threads,
        reads: None,
        kind: Loop::Closed,
        times: 1,
    }
}

/// A ratio of reads to writes, as `bench run --mix` takes it.
fn mix(read_write: &str) -> &str {
    match read_write {
        "0:1" => "write",
        "1:0" => "read",
        ratio => ratio,
    }
}

pub fn version(row: &VersionRow) -> Cell {
    // Three sort keys for each hash key, together as large as the published record.
    let fields = if row.case.starts_with("multi_get") { 3 } else { 1 };
    let table = pegasus_table(row.partitions, row.replicas, fields, row.value_bytes / fields);
    pegasus(cluster(row.nodes, &[]), table, mix(&row.read_write), &row.threads)
}

/// The table of the experiments without one of their own: 1 KB, 64 partitions, three replicas.
fn plain(nodes: u16, mix: &str, threads: &str) -> Cell {
    pegasus(cluster(nodes, &[]), pegasus_table(64, 3, 1, 1_024), mix, threads)
}

pub fn latency(case: &str, threads: &str) -> Cell {
    plain(5, case, threads)
}

pub fn scale(case: &str, threads: &str, nodes: u16) -> Cell {
    plain(nodes, case, threads)
}

/// Whether a cell has the clusters and the table of [`scale`].
pub fn is_scaled(cell: &Cell) -> bool {
    let like = plain(cell.cluster.nodes, &cell.mix, "1*1");
    (&cell.cluster, &cell.table, cell.protocol) == (&like.cluster, &like.table, like.protocol)
}

/// What a published setting of the rate limiter is here. Memtables are small, so that something is limited.
fn limiter_settings(setting: &str) -> Vec<&'static str> {
    let mut settings = vec!["rocksdb.write_buffer_bytes=1048576"];
    if setting != "no limit" {
        settings.push(LIMITED);
    }
    if setting.contains("auto-tune") {
        settings.push("rocksdb.rate_limit_auto_tune=true");
    }
    settings
}

pub fn limiter(setting: &str) -> Cell {
    // There are curves over time.
    Cell {
        times: 4,
        ..pegasus(cluster(5, &limiter_settings(setting)), pegasus_table(64, 3, 1, 1_024), "write", "3*20")
    }
}

/// Writes and reads of a number of partitions.
pub fn partitions(count: u32) -> [Cell; 2] {
    let table = pegasus_table(count, 3, 1, 1_024);
    let cell = |mix, threads| pegasus(cluster(5, &[]), table.clone(), mix, threads);
    [cell("write", "3*40"), cell("read", "3*50")]
}

/// The table of RethinkDB's experiments: documents of ten fields of 100 bytes, or hashes.
fn rethinkdb_table(is_document: bool) -> TableSpec {
    TableSpec {
        engine: "rocksdb".into(),
        durability: "hard".into(),
        partitions: 32,
        replicas: 2,
        fields: 10,
        field_bytes: 100,
        partitioner: Partitioner::Crc64,
        expires: false,
        is_document,
    }
}

/// YCSB A or C, the latter in a read mode: documents through ReQL, or hashes through Redis' protocol.
pub fn rethinkdb(protocol: Protocol, workload: &str, nodes: u16, reads: Option<&str>) -> Cell {
    let table = rethinkdb_table(protocol == Protocol::Rethinkdb);
    Cell { protocol, reads: reads.map(str::to_string), ..pegasus(cluster(nodes, &[]), table, workload, "1*64") }
}

/// The map-reduce query, one after the other.
pub fn map_reduce(nodes: u16) -> Cell {
    let table = rethinkdb_table(true);
    Cell { protocol: Protocol::Rethinkdb, ..pegasus(cluster(nodes, &[]), table, MAP_REDUCE, "1*1") }
}

pub fn nubase(engine: &str, op: &str, value_bytes: usize) -> Cell {
    let (engine, durability) = if engine == "MDB" { ("memory", "none") } else { ("rocksdb", "soft") };
    let (engine, durability) = (engine.into(), durability.into());
    let table = TableSpec {
        engine,
        durability,
        partitions: 64,
        replicas: 2,
        fields: 1,
        field_bytes: value_bytes,
        // Its clients know which server has which key.
        partitioner: Partitioner::RedisSlots,
        expires: false,
        is_document: false,
    };
    Cell {
        protocol: Protocol::RedisCluster,
        distribution: KeyDistribution::Uniform,
        kind: Loop::Search,
        ..pegasus(cluster(3, &[]), table, if op == "SET" { "write" } else { "read" }, "1*64")
    }
}

/// Writes to the RocksDB engine for so long that records expire as fast as they come. Memtables, files and levels are as much
/// smaller as the tree is, so that it has as many levels.
pub fn nubase_steady() -> Cell {
    let settings = [
        "rocksdb.write_buffer_bytes=4194304",
        "rocksdb.target_file_bytes=4194304",
        "rocksdb.max_bytes_for_level_base=8388608",
    ];
    let searched = nubase("RDB", "SET", 1_024);
    let table = TableSpec { expires: true, ..searched.table };
    Cell { cluster: cluster(3, &settings), table, kind: Loop::Closed, threads: 16, times: 20, ..searched }
}

impl Experiment {
    pub fn title(self) -> &'static str {
        match self {
            Self::Versions => "Pegasus: versions 1.11.0 to 2.4.0",
            Self::Latency => "Pegasus: throughput against latency",
            Self::Limiter => "Pegasus: RocksDB's rate limiter",
            Self::Scale => "Pegasus: the size of the cluster",
            Self::Partitions => "Pegasus: the number of partitions",
            Self::Rethinkdb => "RethinkDB 2.1.5: YCSB A and C on 1 to 16 nodes",
            Self::MapReduce => "RethinkDB 2.1.5: a map-reduce query on 1 to 16 nodes",
            Self::Nubase => "nubase: memory engine and RocksDB engine",
        }
    }

    pub fn cells(self, published: &Published) -> Vec<Cell> {
        match self {
            Self::Versions => published.versions.iter().map(version).collect(),
            Self::Latency => published.latency.iter().map(|row| latency(&row.case, &row.threads)).collect(),
            Self::Limiter => published.limiter.iter().map(|row| limiter(&row.setting)).collect(),
            Self::Scale => published.scale.iter().map(|row| scale(&row.case, &row.threads, row.nodes)).collect(),
            Self::Partitions => published.partitions.iter().flat_map(|row| partitions(row.partitions)).collect(),
            Self::Rethinkdb => {
                let of_size = |nodes| {
                    RETHINKDB_PROTOCOLS.into_iter().flat_map(move |protocol| {
                        let cell = |workload, reads| rethinkdb(protocol, workload, nodes, reads);
                        [cell("a", None), cell("c", None), cell("c", Some("outdated"))]
                    })
                };
                RETHINKDB_NODES.into_iter().flat_map(of_size).collect()
            }
            Self::MapReduce => MAP_REDUCE_NODES.into_iter().map(map_reduce).collect(),
            Self::Nubase => {
                let searched = published.nubase.iter().map(|row| nubase(&row.engine, &row.op, row.value_bytes));
                searched.chain([nubase_steady()]).collect()
            }
        }
    }
}

/// The cells of experiments.
pub fn cells(experiments: &[Experiment], published: &Published) -> Vec<Cell> {
    in_order(experiments.iter().flat_map(|experiment| experiment.cells(published)).collect())
}

/// Each cell once, in an order in which clusters and tables are made once.
pub fn in_order(mut cells: Vec<Cell>) -> Vec<Cell> {
    cells.sort_by(|one, other| (&one.cluster, &one.table, one.id()).cmp(&(&other.cluster, &other.table, other.id())));
    cells.dedup_by_key(|cell| cell.id());
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_published_row_has_a_cell_and_names_tell_cells_apart() {
        let published = Published::read();
        let all = cells(&ALL, &published);
        let ids: BTreeSet<String> = all.iter().map(Cell::id).collect();
        assert_eq!(ids.len(), all.len());
        for experiment in ALL {
            for cell in experiment.cells(&published) {
                assert!(all.contains(&cell), "{}", cell.id());
            }
        }
    }
}
