//! A section for each experiment.

use super::Material;
use super::document::Block;
use super::rethinkdb;
use super::shown::{FIGURES, cost, cost_shown, figures, line, or_dash, per_cpu, percent, projected, text, whole};
use crate::measure::Second;
use crate::report::RunResult;
use crate::suite::experiments::{self, Experiment};
use crate::suite::published::{VersionRow, clients};
use crate::suite::result::{CellResult, Measurement};
use std::collections::BTreeSet;

pub(super) fn of(experiment: Experiment, material: &Material) -> Vec<Block> {
    match experiment {
        Experiment::Versions => versions(material),
        Experiment::Latency => latency(material),
        Experiment::Limiter => limiter(material),
        Experiment::Scale => scale(material),
        Experiment::Partitions => partitions(material),
        Experiment::Rethinkdb => rethinkdb::workloads(material),
        Experiment::MapReduce => rethinkdb::map_reduce(material),
        Experiment::Nubase => nubase(material),
    }
}

fn versions(material: &Material) -> Vec<Block> {
    let mut blocks = vec![text(
        "For each published row, first as published, then Tessera's. Rates in operations per second, latencies in microseconds. \
         The ratio is of all operations. Rows that ask for the same are measured once. The rows of 3 KB read and write three sort keys \
         of a hash key at once.",
    )];
    let about = ["case", "clients", "R:W", "record", "replicas", "who"];
    let head = [&about[..], &FIGURES, &["ops per CPU-s", "ratio", "cache hits"]].concat();
    for rows in material.published.versions.chunk_by(|one, other| one.version == other.version) {
        blocks.push(Block::Heading(3, rows[0].version.clone()));
        let rows = rows.iter().flat_map(|row| version_rows(material, row)).collect();
        blocks.push(Block::Table { head: head.clone(), rows });
    }
    blocks
}

fn version_rows(material: &Material, row: &VersionRow) -> [Vec<String>; 2] {
    let (record, replicas) = (format!("{} B", row.value_bytes), row.replicas.to_string());
    let mut theirs = vec![row.case.clone(), row.threads.clone(), row.read_write.clone(), record, replicas];
    theirs.push("published".into());
    let published = [row.r_qps, row.r_avg_us, row.r_p99_us, row.r_p999_us, row.w_qps, row.w_avg_us];
    theirs.extend(published.into_iter().chain([row.w_p99_us, row.w_p999_us]).map(or_dash));
    theirs.extend(["", "", ""].map(String::from));
    let mut ours = vec![String::new(); 5];
    ours.push("Tessera".into());
    let result = material.result(&experiments::version(row));
    match result.and_then(|result| result.shown()) {
        Some(run) => {
            ours.extend(
                figures(&run.reads, run.seconds).into_iter().chain(figures(&run.writes, run.seconds)).map(or_dash),
            );
            let theirs = row.r_qps.unwrap_or(0.0) + row.w_qps.unwrap_or(0.0);
            ours.extend([per_cpu(run), format!("{:.3}", run.operations_per_second / theirs)]);
            let hits = result.and_then(|result| result.cache_hit_rate).filter(|_| run.settings.fields > 1);
            ours.push(hits.map_or("-".into(), percent));
        }
        None => ours.extend(["-"; 11].map(String::from)),
    }
    [theirs, ours]
}

fn client_count(threads: &str) -> f64 {
    let (processes, threads) = clients(threads);
    (processes * threads) as f64
}

/// As shares of the largest, so that shapes can be compared.
fn as_shares(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let top = points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    points.into_iter().map(|(x, y)| (x, 100.0 * y / top)).collect()
}

fn latency(material: &Material) -> Vec<Block> {
    let head = vec![
        "case",
        "clients",
        "published QPS",
        "published P99, us",
        "QPS",
        "P99, us",
        "ops per CPU-s",
        "ratio of QPS",
    ];
    let mut blocks = vec![text(
        "Five nodes, records of 1 KB, three replicas. The figures show throughput as a share of the highest, to compare shapes: \
         here two cores are busy long before the published servers are.",
    )];
    let rows = material.published.latency.iter().map(|row| {
        let mut cells = vec![row.case.clone(), row.threads.clone(), whole(row.qps), whole(row.p99_us)];
        match material.run(&experiments::latency(&row.case, &row.threads)) {
            Some(run) => {
                let p99 = if row.case == "read" { run.reads.p99_ms } else { run.writes.p99_ms };
                cells.extend([whole(run.operations_per_second), whole(p99 * 1e3), per_cpu(run)]);
                cells.push(format!("{:.3}", run.operations_per_second / row.qps));
            }
            None => cells.extend(["-"; 4].map(String::from)),
        }
        cells
    });
    blocks.push(Block::Table { head, rows: rows.collect() });
    for case in ["write", "read"] {
        let of_case = || material.published.latency.iter().filter(|row| row.case == case);
        let theirs = |value: fn(f64, f64) -> f64| -> Vec<(f64, f64)> {
            of_case().map(|row| (client_count(&row.threads), value(row.qps, row.p99_us / 1e3))).collect()
        };
        let ours = |value: fn(f64, f64) -> f64| -> Vec<(f64, f64)> {
            let point = |threads: &str| {
                let run = material.run(&experiments::latency(case, threads))?;
                let p99 = if case == "read" { run.reads.p99_ms } else { run.writes.p99_ms };
                Some((client_count(threads), value(run.operations_per_second, p99)))
            };
            of_case().filter_map(|row| point(&row.threads)).collect()
        };
        blocks.push(Block::Figure {
            name: format!("latency-{case}-qps"),
            title: format!("{case}: throughput by clients, as a share of the highest"),
            x: "clients",
            y: "% of the highest",
            lines: vec![
                line("published", 0, as_shares(theirs(|qps, _| qps))),
                line("Tessera", 1, as_shares(ours(|qps, _| qps))),
            ],
        });
        blocks.push(Block::Figure {
            name: format!("latency-{case}-p99"),
            title: format!("{case}: P99 by clients"),
            x: "clients",
            y: "P99, ms",
            lines: vec![line("published", 0, theirs(|_, p99| p99)), line("Tessera", 1, ours(|_, p99| p99))],
        });
    }
    blocks
}

fn limiter(material: &Material) -> Vec<Block> {
    let head = vec!["setting", "who", "max write QPS", "P99, us", "P999, us", "P9999, us", "ops per CPU-s"];
    let mut rows = Vec::new();
    let (mut lines, mut disk_lines) = (Vec::new(), Vec::new());
    for (number, row) in material.published.limiter.iter().enumerate() {
        let theirs = [row.max_write_qps, row.p99_us, row.p999_us, row.p9999_us].map(whole);
        rows.push([vec![row.setting.clone(), "published".into()], theirs.into(), vec![String::new()]].concat());
        let Some(run) = material.run(&experiments::limiter(&row.setting)) else { continue };
        let writes = &run.writes;
        let ours = [writes.p99_ms, writes.p999_ms, writes.p9999_ms].map(|ms| whole(ms * 1e3));
        let rate = vec![String::new(), "Tessera".into(), whole(run.operations_per_second)];
        rows.push([rate, ours.into(), vec![per_cpu(run)]].concat());
        let over_time = |value: fn(&Second) -> Option<f64>| {
            run.timeline.iter().filter_map(|second| Some((second.second as f64, value(second)?))).collect()
        };
        lines.push(line(row.setting.clone(), number, over_time(|second| Some(second.write_p99_ms))));
        let written = over_time(|second| Some(second.server_written_bytes? as f64 / 1e6));
        disk_lines.push(line(row.setting.clone(), number, written));
    }
    vec![
        text(
            "The published limit of 500 MB/s is scaled to 8 MiB/s for each node here, with memtables of 1 MiB: a rate that binds on \
             this machine. Disk I/O is that of all five nodes' processes, their logs included, which nothing limits.",
        ),
        Block::Table { head, rows },
        Block::Figure {
            name: "limiter-p99".into(),
            title: "P99 of writes over time".into(),
            x: "seconds",
            y: "milliseconds",
            lines,
        },
        Block::Figure {
            name: "limiter-disk".into(),
            title: "What is written to the disk over time".into(),
            x: "seconds",
            y: "MB/s",
            lines: disk_lines,
        },
    ]
}

fn scale(material: &Material) -> Vec<Block> {
    let published = &material.published.scale;
    let nodes: BTreeSet<u16> = published.iter().map(|row| row.nodes).collect();
    let mut blocks = vec![text(
        "Processes of one machine cannot show that more machines do more. What they show is what an operation costs, in CPU time of \
         all nodes together: if that does not grow with the number of nodes, throughput grows with the machines. The last \
         column projects: a server for each node with as many cores as the published ones had, 20, each core like this machine's and \
         60 % busy. A network between them, and disks that are waited for, are not in it; that so many processes share a machine here \
         makes operations dearer.",
    )];
    let head = vec![
        "case",
        "clients",
        "nodes",
        "published QPS",
        "QPS",
        "CPU us per operation",
        "ops per CPU-s",
        "projected QPS",
    ];
    let rows = published.iter().map(|row| {
        let mut cells = vec![row.case.clone(), row.threads.clone(), row.nodes.to_string(), whole(row.qps)];
        match material.run(&experiments::scale(&row.case, &row.threads, row.nodes)) {
            Some(run) => {
                let projected = or_dash(projected(run, row.nodes));
                cells.extend([whole(run.operations_per_second), cost_shown(run), per_cpu(run), projected]);
            }
            None => cells.extend(["-"; 4].map(String::from)),
        }
        cells
    });
    blocks.push(Block::Table { head, rows: rows.collect() });
    for case in ["write", "read"] {
        let of_nodes = |count: u16| published.iter().filter(move |row| row.case == case && row.nodes == count);
        let mut lines = Vec::new();
        for (number, count) in nodes.iter().enumerate() {
            let theirs = of_nodes(*count).map(|row| (client_count(&row.threads), row.qps)).collect();
            lines.push(line(format!("{count} nodes"), number, theirs));
        }
        blocks.push(Block::Figure {
            name: format!("scale-{case}-published"),
            title: format!("{case}: QPS by clients, as published"),
            x: "clients",
            y: "operations/s",
            lines,
        });
        let mut lines = Vec::new();
        for (number, count) in nodes.iter().enumerate() {
            let point = |threads: &str| {
                let run = material.run(&experiments::scale(case, threads, *count))?;
                Some((client_count(threads), cost(run)?))
            };
            lines.push(line(
                format!("{count} nodes"),
                number,
                of_nodes(*count).filter_map(|row| point(&row.threads)).collect(),
            ));
        }
        blocks.push(Block::Figure {
            name: format!("scale-{case}-cost"),
            title: format!("{case}: CPU time of an operation by clients, Tessera"),
            x: "clients",
            y: "microseconds",
            lines,
        });
    }
    blocks
}

fn partitions(material: &Material) -> Vec<Block> {
    let head = vec![
        "partitions",
        "published W-QPS",
        "published R-QPS",
        "W-QPS",
        "R-QPS",
        "writes per CPU-s",
        "reads per CPU-s",
    ];
    let rows = material.published.partitions.iter().map(|row| {
        let [writes, reads] = experiments::partitions(row.partitions).map(|cell| material.run(&cell));
        let rate = |run: Option<&RunResult>| or_dash(run.map(|run| run.operations_per_second));
        let cost = |run: Option<&RunResult>| run.map_or("-".into(), per_cpu);
        let published = [row.partitions.to_string(), whole(row.w_qps), whole(row.r_qps)];
        [published.as_slice(), &[rate(writes), rate(reads), cost(writes), cost(reads)]].concat()
    });
    vec![text("Five nodes; writes with 3*40 clients, reads with 3*50."), Block::Table { head, rows: rows.collect() }]
}

fn nubase(material: &Material) -> Vec<Block> {
    let head = vec!["engine", "operation", "value", "who", "ops/s", "CPU", "network", "over 10 ms", "ops per CPU-s"];
    let mut rows = Vec::new();
    for row in &material.published.nubase {
        let network = if row.network_in.is_empty() {
            "-".into()
        } else {
            format!("{} in, {} out", row.network_in, row.network_out)
        };
        let slow = format!("{} %", row.timeout_ratio_10ms_percent);
        let names = [row.engine.clone(), row.op.clone(), format!("{} B", row.value_bytes), "published".into()];
        rows.push([&names[..], &[whole(row.ops_per_s), row.cpu_usage.clone(), network, slow, String::new()]].concat());
        let cell = experiments::nubase(&row.engine, &row.op, row.value_bytes);
        let Some((result, run)) = material.result(&cell).and_then(|result| Some((result, result.shown()?))) else {
            continue;
        };
        rows.push(searched("Tessera, two replicas", &result.tessera, run));
        for (name, measured) in &result.peers {
            rows.extend(measured.shown().map(|run| searched(name, measured, run)));
        }
    }
    let mut blocks = vec![
        text(
            "Open loop: the highest rate found that keeps the servers' CPU under 60 % of the machine, what crosses the network under \
             70 % of 10 Gbit/s, and under 0.1 % of requests over 10 ms from when they were due. Three nodes, two replicas and a \
             witness; the network column has replication in it. The load generator takes a core of this machine beside the servers.",
        ),
        Block::Table { head, rows },
    ];
    blocks.extend(material.result(&experiments::nubase_steady()).map_or(Vec::new(), nubase_steady));
    blocks
}

/// The long run of writes to the RocksDB engine.
fn nubase_steady(result: &CellResult) -> Vec<Block> {
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
        Block::Figure {
            name: "nubase-steady".into(),
            title: "Writes over time".into(),
            x: "seconds",
            y: "operations/s",
            lines: vec![line("writes", 1, operations)],
        },
        Block::Figure {
            name: "nubase-steady-disk".into(),
            title: "What is written to the disk over time, by all three nodes".into(),
            x: "seconds",
            y: "MB/s",
            lines: vec![line("written", 1, run.timeline.iter().filter_map(disk).collect())],
        },
    ];
    if let Some(levels) = level_table(result) {
        blocks.push(text("Its levels at the end, on the first node:"));
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
    let head = vec!["level", "files", "bytes", "score", "read GB", "write GB", "W-amp", "key in", "key drop"];
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
    let value = |level: &serde_json::Value, key: &str| {
        level[key].as_str().map_or_else(|| level[key].to_string(), str::to_string)
    };
    let rows = levels.iter().map(|level| keys.iter().map(|key| value(level, key)).collect()).collect();
    Some(Block::Table { head, rows })
}
