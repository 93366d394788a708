//! Clusters that are measured: of this machine, for as long as that takes, or running already.

use super::cell::{ClusterSpec, TableSpec};
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tessera_types::Partitioner;

/// Away from the ports of a cluster that somebody uses.
const PORT_OFFSET: u16 = 3_000;
const REDIS_PORT: u16 = 6_379;
const PEGASUS_META_PORT: u16 = 34_601;
const REQL_PORT: u16 = 28_015;
/// Ports of neighbouring nodes are so far apart.
const PORT_STEP: u16 = 10;

/// What is before the names of tables on a cluster that others use.
const PREFIX: &str = "tessera_bench_";
/// The database of tables of documents.
const DATABASE: &str = "test";

pub struct Cluster {
    /// How commands of the CLI name one of its nodes.
    node: [String; 2],
    pub redis: Vec<SocketAddr>,
    /// Where nodes that the suite started listen for clients of RethinkDB.
    pub reql: Vec<SocketAddr>,
    /// What clients say first.
    pub greeting: Vec<Vec<String>>,
    prefix: &'static str,
    /// Its processes, if they are the suite's.
    pub pids: Vec<u32>,
    _local: Option<Local>,
}

/// `tessera local`, with its nodes. They end with this.
struct Local {
    process: Child,
    data: PathBuf,
}

fn tessera() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("this program cannot be found")?))
}

impl Cluster {
    /// Starts a cluster with its data in a directory that must not be there, and waits until it serves.
    ///
    /// # Errors
    /// If it does not.
    pub fn start(spec: &ClusterSpec, data: &Path) -> anyhow::Result<Self> {
        let mut command = tessera()?;
        command.args(["local", "--nodes", &spec.nodes.to_string(), "--port-offset", &PORT_OFFSET.to_string()]);
        command.arg("--data-dir").arg(data).args(["--set", "workers=1", "--set", "logging.filter=warn"]);
        spec.settings.iter().for_each(|setting| _ = command.args(["--set", setting]));
        // Ctrl-C is for the suite, which stops the cluster when it has written what it knows.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        end_with_parent(&mut command);
        let mut process = command.spawn().context("a cluster cannot be started")?;
        let output = process.stdout.take().context("the cluster says nothing")?;
        let pid = process.id();
        let at = |port: u16| {
            (0..spec.nodes).map(move |node| SocketAddr::from(([127, 0, 0, 1], port + PORT_OFFSET + PORT_STEP * node)))
        };
        let mut cluster = Self {
            node: ["--port-offset".into(), PORT_OFFSET.to_string()],
            redis: at(REDIS_PORT).collect(),
            reql: at(REQL_PORT).collect(),
            greeting: Vec::new(),
            prefix: "",
            pids: Vec::new(),
            _local: Some(Local { process, data: data.to_path_buf() }),
        };
        let mut lines = BufReader::new(output).lines();
        let mut said = Vec::new();
        loop {
            match lines.next() {
                Some(Ok(line)) if line.starts_with("ready") => break,
                Some(Ok(line)) => said.push(line),
                _ => bail!("a cluster of {} nodes did not start: {}", spec.nodes, said.join("; ")),
            }
        }
        // Whatever it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        cluster.pids = children.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        Ok(cluster)
    }

    /// A cluster that runs already, by the address of a node's admin API.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn find(admin: &str, password: Option<&str>) -> anyhow::Result<Self> {
        let greeting = password.map(|password| vec!["AUTH".to_string(), password.to_string()]);
        let mut cluster = Self {
            node: ["--admin".into(), admin.into()],
            redis: Vec::new(),
            reql: Vec::new(),
            greeting: greeting.into_iter().collect(),
            prefix: PREFIX,
            pids: Vec::new(),
            _local: None,
        };
        let status: Value = serde_json::from_slice(&cluster.command(&["status", "--json"])?)?;
        let nodes = status["cluster"]["nodes"].as_array().context("the cluster does not tell its nodes")?;
        for node in nodes.iter().filter(|node| node["is_silent"] != true) {
            let address = node["redis"].as_str().context("a node does not tell its address")?;
            let address = address.to_socket_addrs().with_context(|| address.to_string())?.next();
            cluster.redis.extend(address);
        }
        Ok(cluster)
    }

    fn command(&self, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
        let output = tessera()?.args(arguments).args(&self.node).output()?;
        if !output.status.success() {
            bail!("{}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(output.stdout)
    }

    /// What a table is called on the cluster.
    pub fn name_of(&self, table: &TableSpec) -> String {
        let name = self.own_name_of(table);
        if table.is_document { format!("{DATABASE}.{name}") } else { name }
    }

    /// What it is called in its database.
    fn own_name_of(&self, table: &TableSpec) -> String {
        format!("{}{}", self.prefix, table.name())
    }

    /// Creates a table, of records that expire after so many seconds; 0 is never.
    pub fn create(&self, table: &TableSpec, ttl_seconds: u64) -> anyhow::Result<()> {
        let TableSpec { engine, durability, partitions, replicas, partitioner, .. } = table;
        let (partitions, replicas) = (partitions.to_string(), replicas.to_string());
        let partitioner = if *partitioner == Partitioner::RedisSlots { "redis-slots" } else { "crc64" };
        let name = self.own_name_of(table);
        let arguments = ["table", "create", &name, "--engine", engine, "--durability", durability];
        let model: &[&str] = if table.is_document { &["--model", "document", "--database", DATABASE] } else { &[] };
        let ttl = ttl_seconds.to_string();
        let spread =
            ["--partitions", &partitions, "--replicas", &replicas, "--partitioner", partitioner, "--ttl", &ttl];
        self.command(&[&arguments[..], &spread, model].concat())?;
        Ok(())
    }

    pub fn drop_table(&self, table: &TableSpec) -> anyhow::Result<()> {
        self.command(&["table", "drop", &self.name_of(table)]).map(drop)
    }

    /// What `table show` says, on the first node.
    pub fn show(&self, table: &TableSpec) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&self.command(&["table", "show", &self.name_of(table), "--json"])?)?)
    }

    /// The meta server of one that the suite started.
    pub fn pegasus_meta(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], PEGASUS_META_PORT + PORT_OFFSET))
    }
}

/// The process gets SIGTERM when this one ends, however it ends.
#[expect(unsafe_code, reason = "what runs between fork and exec must not allocate or lock")]
fn end_with_parent(command: &mut Command) {
    // SAFETY: it makes one plain system call.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?)) };
}

impl Drop for Local {
    fn drop(&mut self) {
        // One that has ended already needs no signal.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        // It stops its nodes, which takes a while.
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}
