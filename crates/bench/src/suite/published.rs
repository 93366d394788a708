//! The figures of the published reports, as data: `crates/bench/published/`, with their sources in `README.md` there.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A row of the tables of Pegasus' versions. Latencies in microseconds.
#[derive(Clone, Debug, Deserialize)]
pub struct VersionRow {
    pub version: String,
    pub value_bytes: usize,
    pub replicas: u8,
    pub nodes: u16,
    pub partitions: u32,
    pub case: String,
    /// Client processes and the threads of each: `3*15`.
    pub threads: String,
    /// Reads to writes.
    pub read_write: String,
    pub r_qps: Option<f64>,
    pub r_avg_us: Option<f64>,
    pub r_p99_us: Option<f64>,
    pub r_p999_us: Option<f64>,
    pub w_qps: Option<f64>,
    pub w_avg_us: Option<f64>,
    pub w_p99_us: Option<f64>,
    pub w_p999_us: Option<f64>,
}

/// Throughput and latency of Pegasus by the number of clients.
#[derive(Clone, Debug, Deserialize)]
pub struct LatencyRow {
    pub case: String,
    pub threads: String,
    pub qps: f64,
    pub p99_us: f64,
}

/// Writes of Pegasus by the setting of RocksDB's rate limiter.
#[derive(Clone, Debug, Deserialize)]
pub struct LimiterRow {
    pub setting: String,
    pub max_write_qps: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub p9999_us: f64,
}

/// Throughput of Pegasus by the number of nodes.
#[derive(Clone, Debug, Deserialize)]
pub struct ScaleRow {
    pub case: String,
    pub threads: String,
    pub nodes: u16,
    pub qps: f64,
}

/// Throughput of Pegasus by the number of partitions.
#[derive(Clone, Debug, Deserialize)]
pub struct PartitionsRow {
    pub partitions: u32,
    pub w_qps: f64,
    pub r_qps: f64,
}

/// A figure of RethinkDB 2.1.5.
#[derive(Clone, Debug, Deserialize)]
pub struct RethinkRow {
    pub workload: String,
    pub nodes: u16,
    pub metric: String,
    pub value: f64,
}

/// Rates of nubase, each the highest within its limits of CPU, network and slow requests.
#[derive(Clone, Debug, Deserialize)]
pub struct NubaseRow {
    pub engine: String,
    pub op: String,
    pub value_bytes: usize,
    pub ops_per_s: f64,
    pub cpu_usage: String,
    pub network_in: String,
    pub network_out: String,
    pub timeout_ratio_10ms_percent: f64,
}

/// All that was published.
pub struct Published {
    pub versions: Vec<VersionRow>,
    pub latency: Vec<LatencyRow>,
    pub limiter: Vec<LimiterRow>,
    pub scale: Vec<ScaleRow>,
    pub partitions: Vec<PartitionsRow>,
    pub rethinkdb: Vec<RethinkRow>,
    pub nubase: Vec<NubaseRow>,
}

impl Published {
    pub fn read() -> Self {
        Self {
            versions: rows(include_str!("../../published/pegasus_tables.csv")),
            latency: rows(include_str!("../../published/pegasus_throughput_latency.csv")),
            limiter: rows(include_str!("../../published/pegasus_rate_limiter.csv")),
            scale: rows(include_str!("../../published/pegasus_cluster_scale.csv")),
            partitions: rows(include_str!("../../published/pegasus_partition_count.csv")),
            rethinkdb: rows(include_str!("../../published/rethinkdb_2_1_5.csv")),
            nubase: rows(include_str!("../../published/nubase.csv")),
        }
    }
}

fn rows<Row: DeserializeOwned>(text: &str) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().collect::<Result<_, _>>().expect("the files are part of the program, and a test reads them")
}

/// Client processes, and the threads of each.
pub fn clients(threads: &str) -> (usize, usize) {
    let (processes, threads) = threads.split_once('*').expect("processes*threads");
    let number = |text: &str| text.trim().parse().expect("a number");
    (number(processes), number(threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_read_whole() {
        let published = Published::read();
        assert_eq!(published.versions.len(), 47);
        assert_eq!((published.latency.len(), published.limiter.len(), published.scale.len()), (11, 3, 36));
        assert_eq!((published.partitions.len(), published.rethinkdb.len(), published.nubase.len()), (3, 15, 12));
        for threads in published.versions.iter().map(|row| &row.threads) {
            assert!(clients(threads).0 > 0);
        }
    }
}
