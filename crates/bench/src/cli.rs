//! `tessera bench ...`

use crate::arguments::{MOST_RECORDS, parse_measured_seconds, parse_millis, parse_rate, parse_seconds};
use crate::command;
use crate::cpu;
use crate::driver::{Protocol, Route};
use crate::execute::{Execution, execute};
use crate::in_process::{EngineArgs, OpenEngine};
use crate::null_server;
use crate::plan::Plan;
use crate::report::{self, RunResult, Settings};
use crate::run::Measured;
use crate::search;
use crate::socket::{ClientTls, Trust};
use crate::suite::{self, SuiteArgs};
use crate::workload::{KeyDistribution, Mix, Properties, RecordShape, YcsbServer, YcsbWorkload};
use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Measure a server, or a part of this one
#[derive(Parser)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a workload against a server that speaks the protocol of Redis, memcached, etcd, RethinkDB or Apache Pegasus
    #[command(after_help = "\
Examples:
  tessera bench run --load --records 100000                     load, then read for 10 s
  tessera bench run --mix 1:3 --threads 15 --processes 3        the published Pegasus ratios
  tessera bench run --mix a --fields 10 --field-bytes 100       YCSB workload A
  tessera bench run --mix write --rate 5000 --limit-ms 10       open loop; latency counts from when an operation was due
  tessera bench run --mix write --search-p99-ms 5               the highest rate with a P99 of 5 ms or less
  tessera bench run --protocol pegasus --port 34601 --table temp
  tessera bench run --protocol etcd --port 2379
  tessera bench run --protocol rethinkdb --port 28015 --table test.users --mix a --fields 10 --field-bytes 100
  tessera bench run --protocol rethinkdb --port 28015 --table test.users --mix map-reduce --fields 10 --field-bytes 100
  tessera bench run --protocol redis-cluster --table sessions   straight to the leaders, as a Redis Cluster client
  tessera bench run --load -P workloada -p recordcount=100000 --format ycsb   as YCSB runs it, printed as YCSB prints it
  tessera bench run --tls --cacert ca.pem --user shop --password secret
  tessera bench run --port 6380 --server-pid $(pidof redis-server) --html out.html")]
    Run(Box<RunArgs>),
    /// Run a workload against an engine alone, in this process: no network, no consensus, no log
    #[command(after_help = "\
Examples:
  tessera bench engine --engine memory --mix read
  tessera bench engine --engine rocksdb --mix e                 YCSB workload E: scans of up to 100 records")]
    Engine(EngineArgs),
    /// Measure the published experiments on clusters of this machine, and write a report of them
    #[command(after_help = "\
Examples:
  tessera bench suite quick                                     a few cells of each kind
  tessera bench suite published                                 every published table and figure
  tessera bench suite published --experiment nubase --list      what that would measure
  tessera bench suite published --resume                        go on after Ctrl-C")]
    Suite(SuiteArgs),
    /// Write the report of a suite again, from its files
    Report {
        /// The directory of a suite
        directory: PathBuf,
    },
    /// Show what changed from one suite to another by more than noise
    Compare { before: PathBuf, after: PathBuf },
    /// Print result files as one table
    Table {
        /// Files that `bench run --json` wrote, or of cells of a suite
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Make an HTML page of a result file
    Html {
        /// One that `bench run --json` wrote, or of a cell of a suite
        file: PathBuf,
        #[arg(long)]
        output: PathBuf,
    },
    /// Answer every GET with the same value: what the network costs without a database
    #[command(hide = true)]
    NullServer {
        #[arg(long, default_value_t = 6378)]
        port: u16,
        #[arg(long, default_value_t = 1000)]
        value_bytes: usize,
    },
}

#[derive(Args)]
struct RunArgs {
    /// Name of this run in tables
    #[arg(long, default_value = "tessera")]
    name: String,
    #[arg(long, value_enum, default_value = "redis")]
    protocol: Protocol,
    #[arg(long, help = "Name or address of the server [default: 127.0.0.1]")]
    host: Option<String>,
    #[arg(long, help = "Given more than once, connections go to one after the other [default: 6379]")]
    port: Vec<u16>,
    /// Table to choose on a Tessera server, or of a Pegasus or RethinkDB server
    #[arg(long)]
    table: Option<String>,
    /// How sure reads of a Tessera server are to be: single, majority or outdated
    #[arg(long)]
    reads: Option<String>,
    /// Database to choose on a Redis server
    #[arg(long)]
    select: Option<u32>,
    /// User whose password it is; the default user if this is left out
    #[arg(long)]
    user: Option<String>,
    #[arg(long, env = "TESSERA_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Speak TLS to the server; its certificate must have the name, or the address, that --host gives
    #[arg(long)]
    tls: bool,
    /// PEM file with the certificates to trust instead of those that this machine trusts (`SSL_CERT_FILE`, or the system's file): that
    /// of the authority that signed the server's certificate, or the server's own
    #[arg(long, requires = "tls", value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// read, write, a ratio of reads to writes such as 1:3, a YCSB core workload (a, b, c, d, f), or map-reduce: a query of
    /// ReQL over the whole table
    #[arg(long, default_value = "read")]
    mix: String,
    #[arg(long, value_enum, default_value = "zipfian")]
    distribution: KeyDistribution,
    /// Records of the table
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=MOST_RECORDS))]
    records: u64,
    /// Fields of a record; with one a record is a string, with more a hash
    #[arg(long, default_value_t = 1)]
    fields: usize,
    /// Bytes of each field
    #[arg(long, default_value_t = 1_000)]
    field_bytes: usize,
    /// Client processes as the published tables count them; connections are processes times threads
    #[arg(long, default_value_t = 1)]
    processes: usize,
    /// Threads per client process, each with a connection of its own
    #[arg(long, default_value_t = 50)]
    threads: usize,
    /// Requests under way on a connection
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Records that one operation reads (MGET) or writes (MSET)
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Operations per second in an open loop; without it the loop is closed
    #[arg(long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// Find the highest rate of an open loop at which 99 of 100 reads, and writes, take no longer than so many milliseconds, and
    /// measure that: a run in a closed loop, then some at rates below
    #[arg(long, value_name = "MS", conflicts_with = "rate", value_parser = parse_millis)]
    search_p99_ms: Option<f64>,
    /// Write all records first
    #[arg(long)]
    load: bool,
    /// Stop after the load
    #[arg(long)]
    load_only: bool,
    /// Seconds before measuring begins
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds)]
    warm_up: Duration,
    /// Seconds to measure, 0.1 at least
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_measured_seconds)]
    duration: Duration,
    /// Stop after so many operations, if that comes first
    #[arg(long)]
    operations: Option<u64>,
    /// Report the share of operations that took longer
    #[arg(long, default_value = "10", value_parser = parse_millis)]
    limit_ms: f64,
    /// Server processes whose CPU time counts; may be repeated
    #[arg(long)]
    server_pid: Vec<u32>,
    /// Core on which to generate load
    #[arg(long)]
    core: Option<usize>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A YCSB property file, or one of YCSB's own by name: workloada to workloadf. May be repeated; what it says goes before
    /// other options. Besides the workload, redis.host, redis.port, redis.password and redis.cluster are read; the first two are
    /// not given together with --host and --port
    #[arg(short = 'P', long = "properties", value_name = "FILE")]
    properties: Vec<String>,
    /// A YCSB property; may be repeated, and goes before those of files
    #[arg(short = 'p', long = "property", value_name = "KEY=VALUE")]
    property: Vec<String>,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Write the latencies as a log of HDR histograms (V2), one of reads and one of writes
    #[arg(long)]
    hdr_log: Option<PathBuf>,
    /// Write the result as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the result as a self-contained HTML page
    #[arg(long)]
    html: Option<PathBuf>,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Table,
    /// YCSB's own, for scripts that read that
    Ycsb,
}

const DEFAULT_HOST: &str = "127.0.0.1";
const DEFAULT_PORT: u16 = 6_379;
/// How long a run with a number of operations may take.
const A_DAY: Duration = Duration::from_secs(86_400);

impl Cli {
    /// Carries out the command. `trust` says whose certificates are taken.
    ///
    /// # Errors
    /// What kept it from being carried out, in words for people.
    pub fn run(self, open_engine: OpenEngine, trust: Trust) -> anyhow::Result<()> {
        match self.command {
            Command::Engine(args) => args.run(open_engine),
            Command::Run(mut args) => args.run(trust),
            Command::Suite(args) => args.run(),
            Command::Report { directory } => suite::write_report(&directory).map(|page| println!("{}", page.display())),
            Command::Compare { before, after } => suite::compare(&before, &after).map(|text| print!("{text}")),
            Command::Table { files } => {
                let runs = files.iter().map(|file| suite::runs_of(file)).collect::<anyhow::Result<Vec<_>>>()?;
                print!("{}", report::table(&runs.concat()));
                Ok(())
            }
            Command::Html { file, output } => {
                let runs = suite::runs_of(&file)?;
                let first = runs.first().with_context(|| format!("{} has no run", file.display()))?;
                std::fs::write(&output, report::html(first)).with_context(|| output.display().to_string())
            }
            Command::NullServer { port, value_bytes } => Ok(null_server::run(port, value_bytes)?),
        }
    }
}

impl RunArgs {
    /// YCSB's properties, if any are given.
    fn given_properties(&self) -> anyhow::Result<Option<Properties>> {
        if self.properties.is_empty() && self.property.is_empty() {
            return Ok(None);
        }
        let mut properties = Properties::default();
        self.properties.iter().try_for_each(|file| properties.add_file(file))?;
        self.property.iter().for_each(|property| properties.add(property));
        Ok(Some(properties))
    }

    /// Goes to the server that the properties name.
    ///
    /// # Errors
    /// If options name one too, or a protocol that is not Redis'.
    fn go_to(&mut self, YcsbServer { host, port, password, is_cluster }: YcsbServer) -> anyhow::Result<()> {
        let is_port_given = !self.port.is_empty();
        let given_twice = [
            ("redis.host", "--host", host.is_some() && self.host.is_some()),
            ("redis.port", "--port", port.is_some() && is_port_given),
        ];
        if let Some((property, option, _)) = given_twice.iter().find(|(_, _, is_twice)| *is_twice) {
            bail!("both the property {property} and the option {option} say where the server is: leave one out");
        }
        self.host = host.or(self.host.take());
        self.port.extend(port);
        self.password = password.or(self.password.take());
        match self.protocol {
            Protocol::Redis if is_cluster => self.protocol = Protocol::RedisCluster,
            Protocol::Redis | Protocol::RedisCluster => {}
            other if is_cluster => bail!("the property redis.cluster is not for --protocol {other}"),
            _ => {}
        }
        Ok(())
    }

    fn host(&self) -> &str {
        self.host.as_deref().unwrap_or(DEFAULT_HOST)
    }

    /// How TLS is spoken, if it is.
    fn tls(&self, trust: Trust) -> anyhow::Result<Option<ClientTls>> {
        if !self.tls {
            return Ok(None);
        }
        if !self.protocol.has_tls() {
            bail!("--tls is for the protocols of Redis, memcached and RethinkDB");
        }
        let host = self.host();
        let name = host.to_string().try_into().with_context(|| format!("no certificate has the name {host}"))?;
        Ok(Some(ClientTls { config: trust(self.cacert.as_deref())?, name }))
    }

    fn plan(&self, trust: Trust) -> anyhow::Result<Plan> {
        if self.batch > 1 && self.fields > 1 {
            bail!("--batch is for records that are strings, --fields above 1 makes them hashes");
        }
        for (name, number) in [
            ("processes", self.processes),
            ("threads", self.threads),
            ("pipeline", self.pipeline),
            ("batch", self.batch),
            ("fields", self.fields),
        ] {
            if number == 0 {
                bail!("--{name} is at least 1");
            }
        }
        if self.user.is_some() && self.password.is_none() {
            bail!("--user needs --password, or redis.password among the properties");
        }
        let address = |port: &u16| -> anyhow::Result<SocketAddr> {
            let mut addresses = (self.host(), *port).to_socket_addrs().context(self.host().to_string())?;
            addresses.next().context("the host has no address")
        };
        let ports = if self.port.is_empty() { &[DEFAULT_PORT][..] } else { &self.port };
        let addresses = ports.iter().map(address).collect::<anyhow::Result<_>>()?;
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
        let mut greeting = Vec::new();
        greeting.extend(self.password.as_deref().map(|password| match &self.user {
            Some(user) => words(&["AUTH", user, password]),
            None => words(&["AUTH", password]),
        }));
        greeting.extend(self.table.as_deref().map(|table| words(&["TABLE", table])));
        greeting.extend(self.reads.as_deref().map(|mode| words(&["READS", mode])));
        greeting.extend(self.select.map(|number| words(&["SELECT", &number.to_string()])));
        let mix = Mix::parse(&self.mix)?;
        self.protocol.check_mix(&mix).map_err(anyhow::Error::msg)?;
        // Workload D reads what was inserted last.
        let latest = self.mix.to_lowercase().trim_start_matches("workload") == "d";
        let shape = RecordShape::whole(self.fields, self.field_bytes);
        self.protocol.check(&shape, self.batch).map_err(anyhow::Error::msg)?;
        let table = || self.table.as_deref().context("--table names the table of a RethinkDB or Pegasus server");
        let tls = self.tls(trust)?;
        let route = match self.protocol {
            Protocol::Redis => Route::Any(addresses),
            Protocol::Memcached => Route::Memcached(addresses),
            Protocol::Etcd => Route::Etcd(addresses),
            Protocol::Rethinkdb => Route::to_rethinkdb_table(addresses, table()?, self.reads.as_deref()),
            Protocol::RedisCluster => Route::to_redis_cluster(addresses[0], tls.as_ref(), &greeting)?,
            Protocol::Pegasus => Route::to_pegasus_table(addresses[0], table()?)?,
        };
        if !matches!(self.protocol, Protocol::Redis | Protocol::RedisCluster) {
            if self.user.is_some() {
                bail!("--user is for the Redis protocol");
            }
            greeting.clear();
        }
        Ok(Plan {
            route,
            tls,
            greeting,
            connections: self.processes * self.threads,
            pipeline: self.pipeline,
            batch: self.batch,
            mix,
            distribution: if latest { KeyDistribution::Latest } else { self.distribution },
            records: self.records,
            shape,
            rate: self.rate,
            warm_up: self.warm_up,
            duration: self.duration,
            operations: self.operations,
            limit: Duration::from_secs_f64(self.limit_ms / 1e3),
            seed: self.seed,
        })
    }

    /// The workload that YCSB's properties describe, in the place of what other options say.
    fn with_workload(plan: Plan, properties: &Properties) -> anyhow::Result<Plan> {
        let YcsbWorkload { mix, distribution, records, operations, shape, threads, target, seconds } =
            properties.workload()?;
        plan.route.protocol().check_mix(&mix).map_err(anyhow::Error::msg)?;
        let until_done = if operations.is_some() { A_DAY } else { plan.duration };
        Ok(Plan {
            mix,
            distribution,
            records,
            operations: operations.or(plan.operations),
            shape,
            connections: threads.unwrap_or(plan.connections),
            rate: target.or(plan.rate),
            duration: seconds.map_or(until_done, Duration::from_secs_f64),
            ..plan
        })
    }

    fn run(&mut self, trust: Trust) -> anyhow::Result<()> {
        cpu::check(self.core.as_slice())?;
        let plan = match self.given_properties()? {
            None => self.plan(trust)?,
            Some(properties) => {
                let ignored: Vec<_> = properties.ignored().collect();
                if !ignored.is_empty() {
                    eprintln!("note: these properties mean nothing here and are ignored: {}", ignored.join(", "));
                }
                self.go_to(properties.server()?)?;
                Self::with_workload(self.plan(trust)?, &properties)?
            }
        };
        if self.load || self.load_only {
            let began = Instant::now();
            let (loaded, _) = self.drive(&plan, true)?;
            check_errors(&loaded)?;
            if !self.quiet {
                let rate = loaded.writes.summary().operations as f64 / began.elapsed().as_secs_f64();
                eprintln!("loaded {} records, {rate:.0} writes/s", plan.records);
            }
        }
        if self.load_only {
            return Ok(());
        }
        let (measured, result) = match self.search_p99_ms {
            Some(limit) => self.search(&plan, limit)?,
            None => self.measure(&plan)?,
        };
        if let Some(path) = &self.json {
            std::fs::write(path, serde_json::to_vec_pretty(&result)?).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.html {
            std::fs::write(path, report::html(&result)).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.hdr_log {
            std::fs::write(path, measured.hdr_log()?).with_context(|| path.display().to_string())?;
        }
        result.warnings.iter().for_each(|warning| eprintln!("note: {warning}"));
        match self.format {
            Format::Table => print!("{}", report::table(std::slice::from_ref(&result))),
            Format::Ycsb => print!("{}", report::ycsb(&result, plan.mix.write_name())),
        }
        check_errors(&measured)
    }

    fn measure(&self, plan: &Plan) -> anyhow::Result<(Measured, RunResult)> {
        let (measured, server_cpu) = self.drive(plan, false)?;
        let result = RunResult::new(self.settings(plan), &measured, server_cpu);
        Ok((measured, result))
    }

    /// The run at the highest rate whose P99 was within the limit.
    fn search(&self, plan: &Plan, p99_ms: f64) -> anyhow::Result<(Measured, RunResult)> {
        let (measured, closed) = self.measure(&Plan { rate: None, ..plan.clone() })?;
        check_errors(&measured)?;
        let best = search::highest(closed.operations_per_second, search::ATTEMPTS, |rate| {
            let (measured, result) = self.measure(&Plan { rate: Some(rate), ..plan.clone() })?;
            check_errors(&measured)?;
            let slowest = f64::max(result.reads.p99_ms, result.writes.p99_ms);
            let is_good = slowest <= p99_ms && result.kept_up();
            if !self.quiet {
                eprintln!("{rate:.0} operations/s: P99 {slowest:.2} ms{}", if is_good { "" } else { ", too much" });
            }
            Ok((is_good, (measured, result)))
        })?;
        best.with_context(|| format!("at no rate that was tried the P99 was {p99_ms} ms or less"))
    }

    fn settings(&self, plan: &Plan) -> Settings {
        Settings {
            name: self.name.clone(),
            server: plan.route.addresses().iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" "),
            protocol: Some(self.protocol),
            table: self.table.clone(),
            mix: plan.mix.name.clone(),
            distribution: plan.distribution,
            records: plan.records,
            fields: plan.shape.fields,
            field_bytes: plan.shape.field_bytes,
            // YCSB's property `threadcount` knows no processes.
            processes: if plan.connections == self.processes * self.threads { self.processes } else { 1 },
            threads: if plan.connections == self.processes * self.threads { self.threads } else { plan.connections },
            pipeline: plan.pipeline,
            batch: plan.batch,
            rate: plan.rate,
            limit_ms: self.limit_ms,
            warm_up_seconds: self.warm_up.as_secs_f64(),
            seed: plan.seed,
            server_cores: None,
            core: self.core,
            command: command::of_this_process(),
        }
    }

    /// Carries out the plan and shows how it goes on. Returns the server's CPU time as well.
    fn drive(&self, plan: &Plan, is_load: bool) -> anyhow::Result<(Measured, Option<Duration>)> {
        let bar = self.bar(plan, is_load);
        let (mut last, mut last_at) = (0, Instant::now());
        let execution = Execution { is_load, core: self.core, server_pids: &self.server_pid };
        let outcome = execute(plan, execution, &AtomicBool::new(false), |done| {
            let rate = done.saturating_sub(last) as f64 / last_at.elapsed().as_secs_f64();
            bar.set_message(format!("{rate:.0} operations/s"));
            bar.set_position(if is_load { done } else { bar.elapsed().as_millis() as u64 });
            (last, last_at) = (done, Instant::now());
        });
        bar.finish_and_clear();
        outcome
    }

    fn bar(&self, plan: &Plan, is_load: bool) -> ProgressBar {
        if self.quiet {
            return ProgressBar::hidden();
        }
        let total = if is_load { plan.records } else { plan.duration.as_millis() as u64 };
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {eta} left, {msg}").expect("a constant template");
        ProgressBar::new(total).with_style(style).with_prefix(if is_load { "loading" } else { "measuring" })
    }
}

fn check_errors(measured: &Measured) -> anyhow::Result<()> {
    match &measured.last_error {
        Some(error) => bail!("the server answered with errors, the last one: {error}"),
        None if measured.reads.summary().operations + measured.writes.summary().operations == 0 => {
            bail!("nothing was measured: no operation was answered in the time that was given")
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the run goes: host, ports and protocol.
    fn server(arguments: &[&str]) -> anyhow::Result<(String, Vec<u16>, Protocol)> {
        let cli = Cli::try_parse_from(["bench", "run"].iter().chain(arguments))?;
        let Command::Run(mut args) = cli.command else { bail!("another command") };
        let properties = args.given_properties()?.unwrap_or_default();
        args.go_to(properties.server()?)?;
        Ok((args.host().to_string(), args.port.clone(), args.protocol))
    }

    /// A property once took the place of the option without a word.
    #[test]
    fn properties_and_options_do_not_both_say_where_the_server_is() {
        let of_properties = server(&["-p", "redis.host=db", "-p", "redis.port=7000", "-p", "redis.cluster=true"]);
        assert_eq!(of_properties.unwrap(), ("db".into(), vec![7_000], Protocol::RedisCluster));
        let of_both = server(&["-p", "redis.host=db", "--port", "7000", "--port", "7001"]);
        assert_eq!(of_both.unwrap(), ("db".into(), vec![7_000, 7_001], Protocol::Redis));
        let refused = |arguments: &[&str]| server(arguments).unwrap_err().to_string();
        assert!(refused(&["-p", "redis.port=1", "--port", "6379"]).contains("redis.port and the option --port"));
        assert!(refused(&["-p", "redis.host=a", "--host", "b"]).contains("redis.host and the option --host"));
        assert!(refused(&["-p", "redis.cluster=true", "--protocol", "etcd"]).contains("not for --protocol etcd"));
    }
}
