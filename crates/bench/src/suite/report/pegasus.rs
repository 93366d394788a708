//! Pegasus' experiments but that on the size of the cluster: versions, latency, the rate limiter and partitions.

use super::Material;
use super::document::Block;
use super::shown::{
    FIGURES, PUBLISHED, REDIS, TESSERA, bars, capital, client_count, control, figures, line, or_dash, per_cpu, percent,
    whole,
};
use crate::measure::Second;
use crate::report::RunResult;
use crate::suite::experiments;
use crate::suite::published::{LatencyRow, LimiterRow, VersionRow};
use crate::suite::result::CellResult;

pub(super) fn versions(material: &Material) -> Vec<Block> {
    let mut blocks = vec![Block::text(
        "For each published row, first as published, then Tessera's. The ratio is of all operations. Rows that ask for the same are \
         measured once. The rows of 3 KB read and write three sort keys of a hash key at once; for them, the share of what reads looked for \
         that the caches had is told.",
    )];
    let about = ["case", "clients", "R:W", "record, B", "copies", "who"];
    for rows in material.published.versions.chunk_by(|one, other| one.version == other.version) {
        let result = |row| {
            let result = material.result(&experiments::version(row))?;
            Some((row, result, result.shown()?))
        };
        let measured: Vec<(&VersionRow, &CellResult, &RunResult)> = rows.iter().filter_map(result).collect();
        if measured.is_empty() {
            continue;
        }
        blocks.push(Block::Heading(3, format!("Pegasus {}", rows[0].version)));
        let hits: &[&str] = if measured.iter().any(|(row, ..)| reads_several(row)) { &["cache hits"] } else { &[] };
        let head = [&about[..], &FIGURES, &["ops, per CPU-s", "ratio"], hits].concat();
        let of_row = |(row, result, run)| version_rows(row, result, run, !hits.is_empty());
        let rows = measured.into_iter().flat_map(of_row).collect();
        blocks.push(Block::Table { head, rows });
    }
    blocks
}

/// Whether several sort keys of a hash key are read at once.
fn reads_several(row: &VersionRow) -> bool {
    row.case.starts_with("multi_get")
}

/// What was published, and what was measured.
fn version_rows(row: &VersionRow, result: &CellResult, run: &RunResult, has_hits: bool) -> [Vec<String>; 2] {
    let (record, replicas) = (whole(row.value_bytes as f64), row.replicas.to_string());
    let mut theirs = vec![row.case.clone(), row.threads.clone(), row.read_write.clone(), record, replicas];
    theirs.push("published".into());
    let published = [row.r_qps, row.r_avg_us, row.r_p99_us, row.r_p999_us, row.w_qps, row.w_avg_us];
    theirs.extend(published.into_iter().chain([row.w_p99_us, row.w_p999_us]).map(or_dash));
    theirs.extend(["", ""].map(String::from));
    let mut ours = vec![String::new(); 5];
    ours.push("Tessera".into());
    ours.extend(figures(&run.reads, run.seconds).into_iter().chain(figures(&run.writes, run.seconds)).map(or_dash));
    let ratio = run.operations_per_second / (row.r_qps.unwrap_or(0.0) + row.w_qps.unwrap_or(0.0));
    ours.extend([per_cpu(run), format!("{ratio:.3}")]);
    if has_hits {
        theirs.push(String::new());
        ours.push(result.cache_hit_rate.map_or("-".into(), percent));
    }
    [theirs, ours]
}

/// As shares of the largest, so that shapes can be compared.
fn as_shares(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let top = points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    points.into_iter().map(|(x, y)| (x, 100.0 * y / top)).collect()
}

/// Of the only kind of operation that a case has.
fn p99_ms(case: &str, run: &RunResult) -> f64 {
    if case == "read" { run.reads.p99_ms } else { run.writes.p99_ms }
}

pub(super) fn latency(material: &Material) -> Vec<Block> {
    let head = vec![
        "case",
        "clients",
        "published, ops/s",
        "published P99, µs",
        "Tessera, ops/s",
        "Tessera P99, µs",
        "Tessera, ops per CPU-s",
        "ratio of ops/s",
    ];
    let mut blocks = vec![Block::text(
        "Five nodes, records of 1 KB, three copies. The charts of throughput show it as a share of the highest, to compare shapes: here \
         two cores are busy long before the published servers are.",
    )];
    let rows = material.published.latency.iter().filter_map(|row| {
        let run = material.run(&experiments::latency(&row.case, &row.threads))?;
        let mut cells = vec![row.case.clone(), row.threads.clone(), whole(row.qps), whole(row.p99_us)];
        cells.extend([whole(run.operations_per_second), whole(p99_ms(&row.case, run) * 1e3), per_cpu(run)]);
        cells.push(format!("{:.3}", run.operations_per_second / row.qps));
        Some(cells)
    });
    blocks.push(Block::Table { head, rows: rows.collect() });
    for case in ["write", "read"] {
        let rows: Vec<&LatencyRow> = material.published.latency.iter().filter(|row| row.case == case).collect();
        let theirs = |value: fn(&LatencyRow) -> f64| -> Vec<(f64, f64)> {
            rows.iter().map(|row| (client_count(&row.threads), value(row))).collect()
        };
        let ours = |shown: fn(&CellResult) -> Option<&RunResult>, value: fn(&str, &RunResult) -> f64| {
            let point = |row: &&LatencyRow| {
                let run = shown(material.result(&experiments::latency(case, &row.threads))?)?;
                Some((client_count(&row.threads), value(case, run)))
            };
            rows.iter().filter_map(point).collect::<Vec<_>>()
        };
        let rate = |_: &str, run: &RunResult| run.operations_per_second;
        blocks.push(Block::lines(
            format!("latency-{case}-qps"),
            format!("{}: throughput by clients, as a share of the highest", capital(case)),
            ("clients", "% of the highest"),
            vec![
                line("published", PUBLISHED, as_shares(theirs(|row| row.qps))),
                line("Tessera", TESSERA, as_shares(ours(CellResult::shown, rate))),
                line("five redis-server", REDIS, as_shares(ours(control, rate))),
            ],
        ));
        blocks.push(Block::lines(
            format!("latency-{case}-p99"),
            format!("{}: P99 by clients", capital(case)),
            ("clients", "P99, ms"),
            vec![
                line("published", PUBLISHED, theirs(|row| row.p99_us / 1e3)),
                line("Tessera", TESSERA, ours(CellResult::shown, p99_ms)),
                line("five redis-server", REDIS, ours(control, p99_ms)),
            ],
        ));
    }
    blocks
}

pub(super) fn limiter(material: &Material) -> Vec<Block> {
    let published = &material.published.limiter;
    let head = vec!["setting", "who", "most writes, per s", "P99, µs", "P99.9, µs", "P99.99, µs", "writes, per CPU-s"];
    let mut rows = Vec::new();
    let (mut lines, mut disk_lines) = (Vec::new(), Vec::new());
    for (number, row) in published.iter().enumerate() {
        let Some(run) = material.run(&experiments::limiter(&row.setting)) else { continue };
        let theirs = [row.max_write_qps, row.p99_us, row.p999_us, row.p9999_us].map(whole);
        rows.push([vec![row.setting.clone(), "published".into()], theirs.into(), vec![String::new()]].concat());
        let writes = &run.writes;
        let ours = [writes.p99_ms, writes.p999_ms, writes.p9999_ms].map(|ms| whole(ms * 1e3));
        let rate = vec![String::new(), "Tessera".into(), whole(run.operations_per_second)];
        rows.push([rate, ours.into(), vec![per_cpu(run)]].concat());
        let over_time = |value: fn(&Second) -> Option<f64>| {
            run.timeline.iter().filter_map(|second| Some((second.second as f64, value(second)?))).collect()
        };
        // Where no write has ended, none was quick.
        let p99 = over_time(|second| (second.operations > 0).then_some(second.write_p99_ms));
        lines.push(line(row.setting.clone(), number + 1, p99));
        let written = over_time(|second| Some(second.server_written_bytes? as f64 / 1e6));
        disk_lines.push(line(row.setting.clone(), number + 1, written));
    }
    let settings = || published.iter().map(|row| row.setting.clone()).collect::<Vec<_>>();
    let ours = |value: fn(&RunResult) -> f64| -> Vec<Option<f64>> {
        published.iter().map(|row| material.run(&experiments::limiter(&row.setting)).map(value)).collect()
    };
    let theirs = |value: fn(&LimiterRow) -> f64| published.iter().map(|row| Some(value(row))).collect::<Vec<_>>();
    // Of the first setting, which is no limit.
    let shares = |values: Vec<Option<f64>>| {
        let first = values.first().copied().flatten();
        values.into_iter().map(|value| Some(100.0 * value? / first?)).collect::<Vec<_>>()
    };
    let both = |published, tessera| vec![bars("published", PUBLISHED, published), bars("Tessera", TESSERA, tessera)];
    vec![
        Block::text(
            "The published limit of 500 MB/s is scaled to 8 MiB/s for each node here, with memtables of 1 MiB: a rate that binds on \
             this machine. Disk I/O is that of all five nodes' processes, their logs included, which nothing limits.",
        ),
        Block::Table { head, rows },
        Block::bars(
            "limiter-writes",
            "Most writes by setting, as a share of those without a limit",
            ("setting", "% of those without a limit"),
            settings(),
            both(shares(theirs(|row| row.max_write_qps)), shares(ours(|run| run.operations_per_second))),
        ),
        Block::bars(
            "limiter-tail",
            "P99.9 of writes by setting",
            ("setting", "P99.9, ms"),
            settings(),
            both(theirs(|row| row.p999_us / 1e3), ours(|run| run.writes.p999_ms)),
        ),
        Block::lines(
            "limiter-p99",
            "Tessera: P99 of writes over time, of the seconds in which some ended",
            ("seconds", "P99, ms"),
            lines,
        ),
        Block::lines("limiter-disk", "Tessera: what is written to the disk over time", ("seconds", "MB/s"), disk_lines),
    ]
}

pub(super) fn partitions(material: &Material) -> Vec<Block> {
    let published = &material.published.partitions;
    let head = vec![
        "partitions",
        "published writes, per s",
        "published reads, per s",
        "Tessera, writes per s",
        "Tessera, reads per s",
        "Tessera, writes per CPU-s",
        "Tessera, reads per CPU-s",
    ];
    let rows = published.iter().filter_map(|row| {
        let [writes, reads] = experiments::partitions(row.partitions).map(|cell| material.run(&cell));
        writes.or(reads)?;
        let rate = |run: Option<&RunResult>| or_dash(run.map(|run| run.operations_per_second));
        let cost = |run: Option<&RunResult>| run.map_or("-".into(), per_cpu);
        let published = [row.partitions.to_string(), whole(row.w_qps), whole(row.r_qps)];
        Some([published.as_slice(), &[rate(writes), rate(reads), cost(writes), cost(reads)]].concat())
    });
    let mut blocks = vec![
        Block::text("Five nodes; writes with 3*40 clients, reads with 3*50."),
        Block::Table { head, rows: rows.collect() },
    ];
    for (number, what) in ["writes", "reads"].into_iter().enumerate() {
        let theirs = published.iter().map(|row| Some(if number == 0 { row.w_qps } else { row.r_qps })).collect();
        let cell = |count| experiments::partitions(count)[number].clone();
        let ours =
            published.iter().map(|row| Some(material.run(&cell(row.partitions))?.operations_per_second)).collect();
        blocks.push(Block::bars(
            format!("partitions-{what}"),
            format!("{} by partitions", capital(what)),
            ("partitions", "operations/s"),
            published.iter().map(|row| row.partitions.to_string()).collect(),
            vec![bars("published", PUBLISHED, theirs), bars("Tessera", TESSERA, ours)],
        ));
    }
    blocks
}
