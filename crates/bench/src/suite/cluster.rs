//! Clusters of this machine that live as long as they are measured.

use super::cell::{ClusterSpec, TableSpec};
use anyhow::{Context, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Away from the ports of a cluster that somebody uses.
const PORT_OFFSET: u16 = 3_000;
const REDIS_PORT: u16 = 6_379;
const PEGASUS_META_PORT: u16 = 34_601;
/// Ports of neighbouring nodes are so far apart.
const PORT_STEP: u16 = 10;

/// `tessera local`, with its nodes.
pub struct Cluster {
    local: Child,
    nodes: u16,
    data: PathBuf,
    pub pids: Vec<u32>,
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
        // SAFETY: prctl is a plain system call, which may be made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        let mut local = command.spawn().context("a cluster cannot be started")?;
        let output = local.stdout.take().context("the cluster says nothing")?;
        let mut cluster = Self { local, nodes: spec.nodes, data: data.to_path_buf(), pids: Vec::new() };
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
        let local = cluster.local.id();
        let children = std::fs::read_to_string(format!("/proc/{local}/task/{local}/children"))?;
        cluster.pids = children.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        Ok(cluster)
    }

    fn table_command(&self, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
        let offset = PORT_OFFSET.to_string();
        let output = tessera()?.arg("table").args(arguments).args(["--port-offset", &offset]).output()?;
        if !output.status.success() {
            bail!("table {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(output.stdout)
    }

    pub fn create(&self, table: &TableSpec) -> anyhow::Result<()> {
        let TableSpec { engine, durability, partitions, replicas, .. } = table;
        let (partitions, replicas) = (partitions.to_string(), replicas.to_string());
        let name = table.name();
        let arguments = ["create", &name, "--engine", engine, "--durability", durability];
        self.table_command(&[&arguments[..], &["--partitions", &partitions, "--replicas", &replicas]].concat())?;
        Ok(())
    }

    pub fn drop_table(&self, table: &TableSpec) -> anyhow::Result<()> {
        self.table_command(&["drop", &table.name()]).map(drop)
    }

    /// What `table show` says, on the first node.
    pub fn show(&self, table: &TableSpec) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&self.table_command(&["show", &table.name(), "--json"])?)?)
    }

    pub fn redis(&self) -> Vec<SocketAddr> {
        let port = |node| REDIS_PORT + PORT_OFFSET + PORT_STEP * node;
        (0..self.nodes).map(|node| SocketAddr::from(([127, 0, 0, 1], port(node)))).collect()
    }

    pub fn pegasus_meta(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], PEGASUS_META_PORT + PORT_OFFSET))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: a plain system call on a child that was not waited for yet.
        unsafe { libc::kill(libc::pid_t::try_from(self.local.id()).expect("process ids fit"), libc::SIGTERM) };
        // It stops its nodes, which takes a while.
        let _ = self.local.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}
