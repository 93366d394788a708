//! The in-process driver: a workload against an engine alone, without network, consensus or log.

use crate::arguments::{parse_measured_seconds, parse_seconds};
use crate::measure::{Latencies, Second};
use crate::report::{self, RunResult, Settings};
use crate::run::Measured;
use crate::workload::{KeyChooser, KeyDistribution, KeyNames, Mix, Operation, Values};
use crate::{command, cpu};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// An engine as the driver sees it. Keys are hash keys.
pub trait EngineUnderTest {
    /// Returns the length of the value, if there is one.
    ///
    /// # Errors
    /// What the engine reports.
    fn read(&mut self, key: &[u8]) -> anyhow::Result<Option<usize>>;

    /// # Errors
    /// What the engine reports.
    fn write(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()>;

    /// Visits up to `records` records in order, from `key` on. Returns how many.
    ///
    /// # Errors
    /// What the engine reports.
    fn scan(&mut self, key: &[u8], records: usize) -> anyhow::Result<usize>;

    /// All records are written; what that leaves behind may be tidied up.
    ///
    /// # Errors
    /// What the engine reports.
    fn loaded(&mut self) -> anyhow::Result<()>;
}

/// Which engine.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EngineName {
    /// The memory engine.
    Memory,
    /// RocksDB.
    Rocksdb,
}

/// Opens an empty engine.
pub type OpenEngine = fn(EngineName) -> anyhow::Result<Box<dyn EngineUnderTest>>;

#[derive(Args)]
pub struct EngineArgs {
    #[arg(long, value_enum, default_value = "memory")]
    engine: EngineName,
    /// read, write, a ratio of reads to writes such as 1:3, or a YCSB core workload, a to f
    #[arg(long, default_value = "read")]
    mix: String,
    #[arg(long, value_enum, default_value = "zipfian")]
    distribution: KeyDistribution,
    #[arg(long, default_value_t = 100_000)]
    records: u64,
    /// Records of the longest scan of workload E; lengths are uniform from one to this
    #[arg(long, default_value_t = 100)]
    scan_records: usize,
    /// Bytes of each value
    #[arg(long, default_value_t = 1_000)]
    value_bytes: usize,
    /// Seconds before measuring begins
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    warm_up: Duration,
    /// Seconds to measure, 0.1 at least
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_measured_seconds)]
    duration: Duration,
    /// Core to run on
    #[arg(long)]
    core: Option<usize>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the result as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

impl EngineArgs {
    pub(crate) fn run(&self, open: OpenEngine) -> anyhow::Result<()> {
        if self.records == 0 || self.scan_records == 0 {
            bail!("--records and --scan-records are above 0");
        }
        cpu::check(self.core.as_slice())?;
        self.core.map_or(Ok(()), cpu::pin_to).context("cannot run on that core")?;
        let mix = Mix::parse(&self.mix)?;
        if mix.map_reduces() {
            bail!(
                "an engine alone has no queries: `tessera bench run --protocol rethinkdb --mix map-reduce` measures them"
            );
        }
        let mut engine = open(self.engine)?;
        let mut values = Values::new(self.seed);
        let mut key = Vec::new();
        for record in 0..self.records {
            KeyNames::default().write(record, &mut key);
            engine.write(&key, values.next(self.value_bytes))?;
        }
        engine.loaded()?;
        let process_cpu = || cpu::of_process(std::process::id());
        let (measured, cpu_before) = self.measure(&mix, engine.as_mut(), &mut values, process_cpu)?;
        let server_cpu = process_cpu().zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
        let result = RunResult::new(self.settings(&mix), &measured, server_cpu);
        if let Some(path) = &self.json {
            std::fs::write(path, serde_json::to_vec_pretty(&result)?).with_context(|| path.display().to_string())?;
        }
        print!("{}", report::table(std::slice::from_ref(&result)));
        Ok(())
    }

    fn measure<C>(
        &self,
        mix: &Mix,
        engine: &mut dyn EngineUnderTest,
        values: &mut Values,
        on_measure: impl FnOnce() -> C,
    ) -> anyhow::Result<(Measured, C)> {
        let limit = Duration::from_millis(10);
        let mut chooser = KeyChooser::new(self.distribution, self.records, 0);
        let mut random = SmallRng::seed_from_u64(self.seed);
        let (mut reads, mut writes) = (Latencies::new(limit), Latencies::new(limit));
        let mut records = self.records;
        let mut key = Vec::new();
        let mut step = |reads: &mut Latencies, writes: &mut Latencies, began: Instant| -> anyhow::Result<Instant> {
            let operation = mix.next(&mut random);
            let record = if operation == Operation::Insert { records } else { chooser.next(records, &mut random) };
            KeyNames::default().write(record, &mut key);
            match operation {
                Operation::Read => reads.looked_up(1, u64::from(engine.read(&key)?.is_none())),
                Operation::MapReduce => unreachable!("refused before the engine was opened"),
                Operation::Scan => _ = engine.scan(&key, random.random_range(1..=self.scan_records))?,
                Operation::Update | Operation::Insert => engine.write(&key, values.next(self.value_bytes))?,
                Operation::ReadModifyWrite => {
                    writes.looked_up(1, u64::from(engine.read(&key)?.is_none()));
                    engine.write(&key, values.next(self.value_bytes))?;
                }
            }
            records += u64::from(operation == Operation::Insert);
            let now = Instant::now();
            let latencies = if operation.only_reads() { reads } else { writes };
            latencies.record(now - began, 1);
            Ok(now)
        };
        let mut now = Instant::now();
        let warm = now + self.warm_up;
        while now < warm {
            now = step(&mut reads, &mut writes, now)?;
        }
        reads.clear();
        writes.clear();
        let told = on_measure();
        let began = Instant::now();
        let end = began + self.duration;
        now = began;
        while now < end {
            now = step(&mut reads, &mut writes, now)?;
        }
        let seconds: Vec<Second> = Vec::new();
        // The engine runs on this thread, which is no load generator.
        let cpu = Duration::ZERO;
        Ok((Measured { reads, writes, seconds, elapsed: now - began, cpu, last_error: None, machine: None }, told))
    }

    fn settings(&self, mix: &Mix) -> Settings {
        Settings {
            protocol: None,
            name: format!("{:?} engine alone", self.engine).to_lowercase(),
            server: "in-process".into(),
            table: None,
            mix: mix.name.clone(),
            distribution: self.distribution,
            records: self.records,
            fields: 1,
            field_bytes: self.value_bytes,
            processes: 1,
            threads: 1,
            pipeline: 1,
            batch: 1,
            rate: None,
            limit_ms: 10.0,
            warm_up_seconds: self.warm_up.as_secs_f64(),
            seed: self.seed,
            server_cores: None,
            core: self.core,
            command: command::of_this_process(),
        }
    }
}
