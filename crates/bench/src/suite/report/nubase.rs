//! nubase's experiments: what its engines do within limits, and a long run of writes.

use super::Material;
use super::document::Block;
use super::shown::{MEMCACHED, PUBLISHED, REDIS, TESSERA, bars, line, peers, per_cpu, percent, whole};
use crate::measure::Second;
use crate::report::RunResult;
use crate::suite::experiments;
use crate::suite::published::NubaseRow;
use crate::suite::result::{CellResult, Measurement};

pub(super) fn blocks(material: &Material) -> Vec<Block> {
    let head = vec![
        "engine",
        "operation",
        "value, B",
        "who",
        "rate, ops/s",
        "servers' CPU",
        "network",
        "over 10 ms",
        "ops, per CPU-s",
    ];
    let mut rows = Vec::new();
    for row in &material.published.nubase {
        let Some((result, run)) = result(material, row).and_then(|result| Some((result, result.shown()?))) else {
            continue;
        };
        let network = if row.network_in.is_empty() {
            "-".into()
        } else {
            format!("{} in, {} out", row.network_in, row.network_out)
        };
        let slow = format!("{} %", row.timeout_ratio_10ms_percent);
        let names = [row.engine.clone(), row.op.clone(), whole(row.value_bytes as f64), "published".into()];
        rows.push([&names[..], &[whole(row.ops_per_s), row.cpu_usage.clone(), network, slow, String::new()]].concat());
        rows.push(searched("Tessera, two copies", &result.tessera, run));
        for (name, measured) in &result.peers {
            rows.extend(measured.shown().map(|run| searched(name, measured, run)));
        }
    }
    let mut blocks = vec![
        Block::text(
            "Open loop: the highest rate found that keeps the servers' CPU under 60 % of the machine, what crosses the network under \
             70 % of 10 Gbit/s, and under 0.1 % of requests over 10 ms from when they were due. Three nodes, two copies and a \
             witness; the network column has replication in it. The load generator takes a core of this machine beside the servers. MDB is \
             nubase's memory engine, RDB its RocksDB engine.",
        ),
        Block::Table { head, rows },
    ];
    let of_one_chart = |one: &NubaseRow, other: &NubaseRow| (&one.engine, &one.op) == (&other.engine, &other.op);
    blocks.extend(material.published.nubase.chunk_by(of_one_chart).map(|rows| rates(material, rows)));
    blocks.extend(material.result(&experiments::nubase_steady()).map_or(Vec::new(), steady));
    blocks
}

fn result<'a>(material: &'a Material, row: &NubaseRow) -> Option<&'a CellResult> {
    material.result(&experiments::nubase(&row.engine, &row.op, row.value_bytes))
}

/// Rates by the size of values.
fn rates(material: &Material, rows: &[NubaseRow]) -> Block {
    let of = |program: &str| -> Vec<Option<f64>> {
        let rate = |row| {
            let (_, run) = peers(result(material, row)?).find(|(name, _)| name.starts_with(program))?;
            Some(run.operations_per_second)
        };
        rows.iter().map(rate).collect()
    };
    let ours = rows.iter().map(|row| Some(result(material, row)?.shown()?.operations_per_second)).collect();
    let (engine, op) = (&rows[0].engine, &rows[0].op);
    Block::bars(
        format!("nubase-{}-{}", engine.to_lowercase(), op.to_lowercase()),
        format!("{engine} {op}: highest rate within the limits, by the size of values"),
        ("bytes of a value", "operations/s"),
        rows.iter().map(|row| whole(row.value_bytes as f64)).collect(),
        vec![
            bars("published", PUBLISHED, rows.iter().map(|row| Some(row.ops_per_s)).collect()),
            bars("Tessera", TESSERA, ours),
            bars("redis-server", REDIS, of("redis-server")),
            bars("memcached", MEMCACHED, of("memcached")),
        ],
    )
}

/// The long run of writes to the RocksDB engine.
fn steady(result: &CellResult) -> Vec<Block> {
    let Some(run) = result.shown() else { return Vec::new() };
    let stalled = result.stall_seconds.map_or("an unknown time".into(), |seconds| format!("{seconds:.1} s"));
    let operations = run.timeline.iter().map(|second| (second.second as f64, second.operations as f64)).collect();
    let disk = |second: &Second| Some((second.second as f64, second.server_written_bytes? as f64 / 1e6));
    let mut blocks = vec![
        Block::Heading(3, "Writes until the tree is steady".into()),
        Block::Text(format!(
            "Values of 1 KB for {:.0} s, each expiring after four ninths of that time, as nubase's did after 14,400 s of about nine \
             hours; memtables, files and levels are smaller likewise. {} writes a second with {} clients, P99 {:.1} ms; writers were held \
             back for {stalled} on the first node. nubase published a tree of L0 to L4 and no write stall.",
            run.seconds,
            whole(run.operations_per_second),
            run.settings.processes * run.settings.threads,
            run.writes.p99_ms
        )),
        Block::lines(
            "nubase-steady",
            "Writes over time",
            ("seconds", "operations/s"),
            vec![line("Tessera", TESSERA, operations)],
        ),
        Block::lines(
            "nubase-steady-disk",
            "What is written to the disk over time, by all three nodes",
            ("seconds", "MB/s"),
            vec![line("Tessera", TESSERA, run.timeline.iter().filter_map(disk).collect())],
        ),
    ];
    if let Some(levels) = level_table(result) {
        blocks.push(Block::text("Its levels at the end, on the first node:"));
        blocks.push(levels);
    }
    blocks
}

/// A row of what a search found.
fn searched(who: &str, measured: &Measurement, run: &RunResult) -> Vec<String> {
    vec![
        String::new(),
        String::new(),
        String::new(),
        who.into(),
        whole(run.operations_per_second),
        run.server_cpu_share().map_or("-".into(), percent),
        format!("{:.2} Gbit/s", measured.network_bits_per_second / 1e9),
        format!("{:.3} %", 100.0 * run.share_over_limit()),
        per_cpu(run),
    ]
}

fn level_table(result: &CellResult) -> Option<Block> {
    let head = vec![
        "level",
        "files",
        "size, B",
        "score",
        "read, GB",
        "written, GB",
        "write amplification",
        "keys in",
        "keys dropped",
    ];
    let keys = [
        "level",
        "files",
        "size_bytes",
        "score",
        "read_gigabytes",
        "write_gigabytes",
        "write_amplification",
        "keys_in",
        "keys_dropped",
    ];
    let levels = result.levels.as_ref()?.as_array()?;
    let value = |level: &serde_json::Value, key: &str| match &level[key] {
        serde_json::Value::String(text) => text.clone(),
        // Counts, and bytes.
        number if number.is_u64() => number.as_f64().map_or_else(String::new, whole),
        other => other.to_string(),
    };
    let rows = levels.iter().map(|level| keys.iter().map(|key| value(level, key)).collect()).collect();
    Some(Block::Table { head, rows })
}
