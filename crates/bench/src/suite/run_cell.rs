//! Measuring one cell.

use super::cell::{Cell, Loop};
use super::cluster::Cluster;
use super::limits::{Attempt, PUBLISHED};
use super::peer::{self, Peer, PeerAddress};
use super::result::{CellResult, Measurement};
use crate::cpu::Cores;
use crate::driver::{Protocol, Route};
use crate::execute::{Execution, execute};
use crate::plan::Plan;
use crate::report::{RunResult, Settings};
use crate::search;
use crate::workload::{Mix, RecordShape};
use anyhow::{Context, bail};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How much of the published experiments is done: the one factor by which they are made to fit a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scale {
    /// 3 seconds a run, 20 MB a table
    Small,
    /// 20 seconds a run, 200 MB a table
    Medium,
    /// 5 minutes a run, 10 GB a table
    Full,
}

impl Scale {
    fn seconds(self) -> f64 {
        match self {
            Self::Small => 3.0,
            Self::Medium => 20.0,
            Self::Full => 300.0,
        }
    }

    fn table_bytes(self) -> usize {
        match self {
            Self::Small => 20_000_000,
            Self::Medium => 200_000_000,
            Self::Full => 10_000_000_000,
        }
    }
}

const WARM_UP: f64 = 1.0;
/// A run ends a little before or after its time.
const AS_LONG: f64 = 0.9;
/// Records that expire do so after this share of a run: nubase's after 4 hours of 9.
const TTL_SHARE: f64 = 14_400.0 / 32_400.0;
/// Requests that took longer are slow.
const LIMIT: Duration = Duration::from_millis(10);
/// For the time to go only: nodes that start in a second, bytes that are loaded in one.
const STARTS: f64 = 1.5;
const LOADS: f64 = 4e6;

pub struct Runner {
    pub scale: Scale,
    pub repeats: usize,
    /// Servers of the user's that are measured too.
    pub peers: Vec<PeerAddress>,
    /// Where servers and load generator run, if they are kept apart.
    pub server_cores: Option<Cores>,
    pub core: Option<usize>,
    /// Rates that a search tries.
    pub attempts: usize,
    /// Whether this is a quick suite.
    pub is_quick: bool,
}

impl Runner {
    fn records(&self, cell: &Cell) -> u64 {
        // Those that expire are no more than were written lately.
        let times = if cell.table.expires { cell.times as usize } else { 1 };
        (times * self.scale.table_bytes() / cell.table.record_bytes()).max(1_000) as u64
    }

    fn run_seconds(&self, cell: &Cell) -> f64 {
        self.scale.seconds() * f64::from(cell.times)
    }

    /// Whether a result is of runs as long and as many as this makes, of Tessera and of each peer that the user has named.
    pub fn has_measured(&self, result: &CellResult) -> bool {
        let is_as_long = |run: &RunResult| run.seconds >= self.run_seconds(&result.cell) * AS_LONG;
        let is_whole = |measured: &Measurement| {
            let is_as_often = match result.cell.kind {
                Loop::Closed => measured.runs.len() >= self.repeats,
                Loop::Search => measured.rates() >= self.attempts,
            };
            is_as_often && measured.runs.iter().all(is_as_long)
        };
        let mut named = peer::names(&result.cell, &self.peers);
        !result.tessera.runs.is_empty()
            && is_whole(&result.tessera)
            && result.peers.values().all(is_whole)
            && named.all(|name| result.peers.contains_key(&name))
    }

    /// After how many seconds the records of a cell's table expire; 0 is never.
    pub fn ttl_seconds(&self, cell: &Cell) -> u64 {
        if cell.table.expires { (self.run_seconds(cell) * TTL_SHARE).ceil() as u64 } else { 0 }
    }

    /// Seconds that a cell takes.
    pub fn seconds(&self, cell: &Cell) -> f64 {
        let runs = match cell.kind {
            Loop::Closed => self.repeats,
            // Some attempts fail, and are made twice.
            Loop::Search => 1 + self.attempts + self.attempts / 2,
        };
        let servers = 1 + peer::count(cell, &self.peers);
        (servers * runs) as f64 * (WARM_UP + self.run_seconds(cell))
    }

    pub fn start_seconds(cell: &Cell) -> f64 {
        if cell.cluster.running.is_some() { 0.0 } else { 2.0 + f64::from(cell.cluster.nodes) / STARTS }
    }

    pub fn load_seconds(&self) -> f64 {
        1.0 + self.scale.table_bytes() as f64 / LOADS
    }

    fn plan(&self, cell: &Cell, route: Route, greeting: Vec<Vec<String>>) -> anyhow::Result<Plan> {
        Ok(Plan {
            route,
            tls: None,
            greeting,
            connections: cell.processes * cell.threads,
            pipeline: 1,
            batch: 1,
            mix: Mix::parse(&cell.mix)?,
            distribution: cell.distribution,
            records: self.records(cell),
            // YCSB updates a field; a Pegasus client sets all sort keys at once.
            shape: RecordShape {
                writes_all: cell.protocol == Protocol::Pegasus,
                ..RecordShape::whole(cell.table.fields, cell.table.field_bytes)
            },
            rate: None,
            warm_up: Duration::from_secs_f64(WARM_UP),
            duration: Duration::from_secs_f64(self.run_seconds(cell)),
            operations: None,
            limit: LIMIT,
            seed: 1,
        })
    }

    /// What is done to Tessera in a cell.
    fn plan_of_tessera(&self, cluster: &Cluster, cell: &Cell) -> anyhow::Result<Plan> {
        let table = cluster.name_of(&cell.table);
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
        match cell.protocol {
            Protocol::Pegasus => self.plan(cell, Route::to_pegasus_table(cluster.pegasus_meta(), &table)?, Vec::new()),
            Protocol::Rethinkdb => {
                let route = Route::to_rethinkdb_table(cluster.reql.clone(), &table, cell.reads.as_deref());
                self.plan(cell, route, Vec::new())
            }
            other @ (Protocol::Memcached | Protocol::Etcd) => bail!("Tessera does not speak {other}"),
            Protocol::Redis | Protocol::RedisCluster => {
                let mut greeting = cluster.greeting.clone();
                greeting.push(words(&["TABLE", &table]));
                greeting.extend(cell.reads.as_deref().map(|reads| words(&["READS", reads])));
                let first = *cluster.redis.first().context("no node of the cluster is heard of")?;
                let route = match cell.protocol {
                    Protocol::RedisCluster => Route::to_redis_cluster(first, None, &greeting)?,
                    _ => Route::Any(cluster.redis.clone()),
                };
                self.plan(cell, route, greeting)
            }
        }
    }

    /// Writes the records of a cell's table; to its peers as well, which it returns. A table whose records expire is left empty,
    /// and has no peers: how it fills is what is measured.
    ///
    /// # Errors
    /// What a server answers.
    pub fn load(
        &self,
        cluster: &Cluster,
        cell: &Cell,
        data_of_peers: &Path,
        stop: &AtomicBool,
    ) -> anyhow::Result<Vec<Peer>> {
        let load = |plan: Plan| {
            // Many clients and a pipeline would queue more than a node takes.
            let plan = Plan { connections: 16, ..plan };
            let (loaded, _) =
                execute(&plan, Execution { is_load: true, core: self.core, ..Execution::default() }, stop, |_| {})?;
            match loaded.last_error {
                Some(error) => bail!("loading: {error}"),
                None => Ok(()),
            }
        };
        if cell.table.expires {
            return Ok(Vec::new());
        }
        load(self.plan_of_tessera(cluster, cell)?)?;
        let peers = Peer::of(cell, &self.peers, data_of_peers)?;
        for peer in &peers {
            load(self.plan(cell, peer.route()?, Vec::new())?).with_context(|| peer.name.clone())?;
        }
        Ok(peers)
    }

    /// Measures a cell, then the same on its peers.
    ///
    /// # Errors
    /// What a server answers.
    pub fn measure(
        &self,
        cluster: &Cluster,
        peers: &[Peer],
        result: &mut CellResult,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let cell = result.cell.clone();
        result.tessera = self.measure_server(&cell, &self.plan_of_tessera(cluster, &cell)?, &cluster.pids, stop)?;
        if cell.table.engine == "rocksdb" {
            let shown = cluster.show(&cell.table)?;
            result.levels = Some(shown["statistics"]["levels"].clone());
            result.stall_seconds = shown["rocksdb"]["stall_micros"].as_f64().map(|micros| micros / 1e6);
            result.cache_hit_rate = shown["cache_hit_rate"].as_f64();
        }
        for peer in peers.iter().filter(|peer| peer.is_for(&cell)) {
            let plan = self.plan(&cell, peer.route()?, Vec::new())?;
            let measured = self.measure_server(&cell, &plan, &peer.pids(), stop);
            result.peers.insert(peer.name.clone(), measured.with_context(|| peer.name.clone())?);
        }
        if result.tessera.runs.is_empty() {
            bail!("no rate that was tried was within the limits: see `attempts`");
        }
        Ok(())
    }

    fn measure_server(&self, cell: &Cell, plan: &Plan, pids: &[u32], stop: &AtomicBool) -> anyhow::Result<Measurement> {
        let mut measured = Measurement::default();
        match cell.kind {
            Loop::Closed => {
                for _ in 0..self.repeats {
                    let (run, network) = self.run(cell, plan, pids, stop)?;
                    measured.runs.push(run);
                    measured.network_bits_per_second = network;
                }
            }
            Loop::Search => {
                let (closed, _) = self.run(cell, plan, pids, stop)?;
                let try_rate = |rate| {
                    let (run, network) = self.run(cell, &Plan { rate: Some(rate), ..plan.clone() }, pids, stop)?;
                    let attempted = attempt(rate, &run, network);
                    measured.attempts.push(attempted);
                    Ok((attempted.is_within(&PUBLISHED), (run, network)))
                };
                let best = search::highest(closed.operations_per_second, self.attempts, try_rate)?;
                if let Some((run, network)) = best {
                    measured.runs.push(run);
                    measured.network_bits_per_second = network;
                }
            }
        }
        Ok(measured)
    }

    /// Runs a plan. Returns the result, and the bits that crossed the network in a second.
    fn run(&self, cell: &Cell, plan: &Plan, pids: &[u32], stop: &AtomicBool) -> anyhow::Result<(RunResult, f64)> {
        let (began, before) = (Instant::now(), loopback_bytes());
        let execution = Execution { server_pids: pids, core: self.core, ..Execution::default() };
        let (measured, server_cpu) = execute(plan, execution, stop, |_| {})?;
        let network = (loopback_bytes() - before) * 8.0 / began.elapsed().as_secs_f64();
        if let Some(error) = &measured.last_error {
            bail!("the server answered with errors, the last one: {error}");
        }
        Ok((RunResult::new(self.settings(cell, plan), &measured, server_cpu), network))
    }

    fn settings(&self, cell: &Cell, plan: &Plan) -> Settings {
        Settings {
            name: cell.id(),
            server: plan.route.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            protocol: Some(plan.route.protocol()),
            table: Some(cell.table.name()),
            mix: cell.mix.clone(),
            distribution: plan.distribution,
            records: plan.records,
            fields: plan.shape.fields,
            field_bytes: plan.shape.field_bytes,
            processes: cell.processes,
            threads: cell.threads,
            pipeline: plan.pipeline,
            batch: plan.batch,
            rate: plan.rate,
            limit_ms: LIMIT.as_secs_f64() * 1e3,
            warm_up_seconds: WARM_UP,
            seed: plan.seed,
            server_cores: self.server_cores.clone(),
            core: self.core,
            command: format!(
                "tessera bench suite published{} --scale {} --only {}",
                cell.cluster.running.iter().map(|url| format!(" --cluster {url}")).collect::<String>(),
                format!("{:?}", self.scale).to_lowercase(),
                cell.id()
            ),
        }
    }
}

fn attempt(rate: f64, run: &RunResult, network_bits_per_second: f64) -> Attempt {
    Attempt {
        rate,
        cpu_share: run.server_cpu_share().unwrap_or(0.0),
        network_bits_per_second,
        slow_share: run.share_over_limit(),
        kept_up: run.kept_up(),
    }
}

/// Bytes that have crossed the loopback interface.
fn loopback_bytes() -> f64 {
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let received = devices.lines().find_map(|line| line.trim().strip_prefix("lo:")?.split_whitespace().next());
    received.and_then(|bytes| bytes.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::experiments;
    use crate::suite::published::Published;
    use crate::suite::report::tests::run;

    /// What had been measured less often, or without a peer, once was taken for done.
    #[test]
    fn what_is_resumed_was_measured_as_often_and_on_all_peers() {
        let published = Published::read();
        let cells: Vec<Cell> = published.versions.iter().map(experiments::version).collect();
        let closed = Cell { kind: Loop::Closed, ..cells[0].clone() };
        let search = Cell { kind: Loop::Search, ..cells[0].clone() };
        let runner = |repeats: usize, attempts: usize, peers: &[&str]| {
            let peers = peers.iter().map(|peer| peer.parse().unwrap()).collect();
            Runner { scale: Scale::Small, repeats, peers, server_cores: None, core: None, attempts, is_quick: false }
        };
        let measured = |cell: &Cell, runs: usize, rates: &[f64]| {
            let one = RunResult { seconds: runner(1, 1, &[]).run_seconds(cell), ..run(cell, 1_000) };
            let attempt = |rate: &f64| Attempt {
                rate: *rate,
                cpu_share: 0.1,
                network_bits_per_second: 0.0,
                slow_share: 0.0,
                kept_up: true,
            };
            let attempts = rates.iter().map(attempt).collect();
            Measurement { runs: vec![one; runs], attempts, network_bits_per_second: 0.0 }
        };
        let result = |cell: &Cell, tessera: Measurement, peers: &[(&str, Measurement)]| CellResult {
            tessera,
            peers: peers.iter().map(|(name, measured)| ((*name).to_string(), measured.clone())).collect(),
            ..CellResult::new(cell.clone())
        };
        // The one in the middle was too high, and was tried again.
        let three = measured(&search, 1, &[50.0, 75.0, 75.0, 62.0]);
        assert!(runner(1, 3, &[]).has_measured(&result(&search, three.clone(), &[])));
        assert!(!runner(1, 4, &[]).has_measured(&result(&search, three, &[])));

        let (once, twice) = (measured(&closed, 1, &[]), measured(&closed, 2, &[]));
        assert!(runner(2, 1, &[]).has_measured(&result(&closed, twice.clone(), &[])));
        assert!(!runner(2, 1, &[]).has_measured(&result(&closed, once.clone(), &[])));
        let (named, name) = (runner(2, 1, &["redis://db:6379"]), "redis at db:6379, as it was set up");
        assert!(!named.has_measured(&result(&closed, twice.clone(), &[("redis-server 8", twice.clone())])));
        assert!(!named.has_measured(&result(&closed, twice.clone(), &[(name, once)])));
        assert!(named.has_measured(&result(&closed, twice.clone(), &[(name, twice.clone())])));
        let reads = Cell { reads: Some("majority".into()), ..closed };
        assert!(named.has_measured(&result(&reads, twice, &[])), "read modes are Tessera's own");
    }
}
