//! The page that says what `/metrics` serves is made of that.

use super::{Cluster, WHOLE};
use crate::resp_client::{Client, Value};
use crate::server::{free_port, http_get_from};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use tempfile::TempDir;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
const UPDATE: &str = "UPDATE_METRICS";

/// Ends of names of what has the units of Prometheus, and of what counts these things.
const UNITS: &[&str] = &["_seconds", "_bytes", "_total", "_info"];
const THINGS: &[&str] =
    &["partitions", "replicas", "leaders", "records", "files", "connections", "queries", "workers", "fds", "segments"];
/// Numbers whose names say in another way what is counted, and a truth and a ratio.
const OTHERS: &[&str] = &[
    "tessera_replicas_held",
    "tessera_replicas_set_aside",
    "tessera_recoveries",
    "tessera_transactions_open",
    "tessera_log_healthy",
    "tessera_table_level_write_amplification",
];

#[derive(Default)]
struct Metric {
    help: String,
    kind: String,
    labels: BTreeSet<String>,
}

/// What metrics are served, by name.
#[derive(Default)]
struct Metrics(BTreeMap<String, Metric>);

impl Metrics {
    /// Adds what a node serves.
    fn read(&mut self, text: &str) {
        let (mut name, mut families) = (String::new(), BTreeSet::new());
        for line in text.lines() {
            let words = |kind: &str| line.strip_prefix(kind)?.strip_prefix(' ')?.split_once(' ');
            if let Some((of, help)) = words("# HELP") {
                // The type comes next.
                name = of.into();
                self.0.entry(name.clone()).or_default().help = help.trim_end_matches('.').into();
            } else if let Some((_, kind)) = words("# TYPE") {
                // A gauge once had the name of a counter, which to Prometheus was the same with two types.
                assert!(families.insert(name.clone()), "{name} is served twice");
                let metric = self.0.remove(&name).unwrap();
                let known = self.0.entry(name.clone()).or_default();
                (known.help, known.kind) = (metric.help, kind.into());
                known.labels.extend(metric.labels);
            } else if let Some((_, labels)) = line.strip_prefix(&name).and_then(|rest| rest.split_once('{')) {
                let labels = labels.rsplit_once('}').unwrap().0;
                let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_string()));
                let metric = self.0.get_mut(&name).unwrap();
                // That of a bucket belongs to the type.
                metric.labels.extend(names.filter(|name| name != "le"));
            }
        }
    }

    fn page(&self) -> String {
        let mut page = String::from(
            "# Metrics\n\nMade from what `GET /metrics` of the admin port serves by a test, which fails where the two differ; \
             `make fix` writes it anew. [Operations](guide/operations.md#metrics) says which of them to watch.\n\nA *counter* \
             grows from 0 on since the node was started, a *gauge* is a value of now, and a *histogram* has \
             `_bucket{le=\"SECONDS\"}`, `_sum` and `_count`. All values are those of the node that is asked. Some are served \
             only where there is something to tell: of a kind of requests once there was one, of a table on RocksDB its \
             levels.\n\n| name | type | labels | what it tells |\n|---|---|---|---|\n",
        );
        for (name, Metric { help, kind, labels }) in &self.0 {
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).unwrap();
        }
        page
    }
}

/// Whether a name says what the number is one of.
fn has_unit(name: &str, metric: &Metric) -> bool {
    match &metric.kind[..] {
        "counter" => name.ends_with("_total"),
        "histogram" => name.ends_with("_seconds"),
        _ => {
            let is_thing = |thing: &&str| name.strip_suffix(*thing).is_some_and(|before| before.ends_with('_'));
            UNITS.iter().any(|unit| name.ends_with(unit) && *unit != "_total")
                || THINGS.iter().any(is_thing)
                || OTHERS.contains(&name)
        }
    }
}

#[test]
fn the_page_of_metrics_says_what_is_served() {
    let ports = |count: usize| (0..count).map(|_| free_port()).collect();
    let planned = Cluster::planned(TempDir::new().unwrap(), 3);
    let cluster = Cluster { pegasus_ports: ports(3), reql_ports: ports(3), ..planned }.started();
    for table in ["m --engine memory", "r --engine rocksdb", "d --model document --database test"] {
        cluster.cli(0, &format!("table create {table} --partitions 2")).unwrap();
    }
    for (number, port) in cluster.redis_ports().enumerate() {
        let mut client = Client::connect(port).unwrap();
        for table in ["m", "r"] {
            cluster.wait_for("the table serves", WHOLE, || {
                client.run(&format!("TABLE {table}"));
                client.run(&format!("SET k{number} v")) == Value::Simple("OK".into())
            });
        }
    }
    let served = |metrics: &mut Metrics| {
        for at in 0..3 {
            metrics.read(&http_get_from("127.0.0.1", cluster.ports[at].1, "/metrics").unwrap());
        }
    };
    // What is told only once replicas were compared, and once there are files.
    let last = ["tessera_replica_comparison_age_seconds", "tessera_replica_lag_seconds", "tessera_table_level_files"];
    let mut metrics = Metrics::default();
    cluster.wait_for("everything is served", WHOLE, || {
        for table in ["m", "r", "test.d"] {
            cluster.compare(0, table);
        }
        served(&mut metrics);
        last.iter().all(|name| metrics.0.contains_key(*name))
    });
    for (name, metric) in &metrics.0 {
        assert!(has_unit(name, metric), "{name}, a {}, has no unit", metric.kind);
        assert!(!metric.help.is_empty(), "nothing says what {name} is");
    }
    let page = metrics.page();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let committed = std::fs::read_to_string(Path::new(PAGE)).unwrap_or_default();
    assert_eq!(committed, page, "run `make fix`");
}
