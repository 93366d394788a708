//! Other servers beside Tessera: the same workloads through the same driver, in the same run.

use super::cell::Cell;
use crate::driver::{Protocol, Route};
use anyhow::{Context, bail};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

const REDIS_PORT: u16 = 9_979;
const MEMCACHED_PORT: u16 = 9_978;
const READY: Duration = Duration::from_secs(10);
/// One process is nobody's peer in a large cluster.
const MOST_NODES: u16 = 3;

/// A server that runs somewhere: `redis://HOST:PORT`, or with `redis-cluster`, `memcached`, or `pegasus://HOST:PORT/TABLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    protocol: Protocol,
    address: String,
    /// Of a Pegasus server.
    table: String,
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = "a peer is given as redis://HOST:PORT, redis-cluster://HOST:PORT, memcached://HOST:PORT or pegasus://HOST:PORT/TABLE";
        let (protocol, rest) = text.split_once("://").ok_or(shape)?;
        let protocol = <Protocol as clap::ValueEnum>::from_str(protocol, false).map_err(|_| shape)?;
        let (address, table) = rest.split_once('/').unwrap_or((rest, ""));
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !has_port || table.is_empty() == (protocol == Protocol::Pegasus) {
            return Err(shape.into());
        }
        Ok(Self { protocol, address: address.into(), table: table.into() })
    }
}

/// A server that is measured beside Tessera.
pub struct Peer {
    /// What it is, and how durable.
    pub name: String,
    at: PeerAddress,
    process: Option<Process>,
}

/// A server that the suite started. It ends with this.
struct Process {
    child: Child,
    data: PathBuf,
}

impl Peer {
    /// The peers of a cell: those that the suite can start, with their data in a directory, and those of the user.
    ///
    /// # Errors
    /// If one that was started does not answer.
    pub fn of(cell: &Cell, named: &[PeerAddress], data: &Path) -> anyhow::Result<Vec<Self>> {
        let mut peers = Vec::new();
        if is_comparable(cell) {
            peers.extend(redis_server(&cell.table.durability, &data.join("redis"))?);
            if is_for_memcached(cell) {
                peers.extend(memcached(&data.join("memcached"))?);
            }
        }
        let named = named.iter().filter(|at| at.protocol != Protocol::Memcached || cell.table.fields == 1);
        peers.extend(named.map(|at| {
            let protocol = format!("{:?}", at.protocol).to_lowercase();
            Self { name: format!("{protocol} at {}, as it was set up", at.address), at: at.clone(), process: None }
        }));
        Ok(peers)
    }

    /// Where its requests go.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub fn route(&self) -> anyhow::Result<Route> {
        let PeerAddress { protocol, address, table } = &self.at;
        let address: SocketAddr = address.to_socket_addrs()?.next().with_context(|| format!("{address} is nowhere"))?;
        match protocol {
            Protocol::Redis => Ok(Route::Any(vec![address])),
            Protocol::RedisCluster => Route::to_redis_cluster(address, &[]),
            Protocol::Memcached => Ok(Route::Memcached(vec![address])),
            Protocol::Pegasus => Route::to_pegasus_table(address, table),
        }
    }

    /// Its process, if it is on this machine and the suite's.
    pub fn pids(&self) -> Vec<u32> {
        self.process.iter().map(|process| process.child.id()).collect()
    }
}

/// How many servers the suite starts beside Tessera for a cell, if they are installed.
pub fn count(cell: &Cell, named: &[PeerAddress]) -> usize {
    let started = if is_comparable(cell) { 1 + usize::from(is_for_memcached(cell)) } else { 0 };
    if cell.reads.is_some() || cell.table.expires { 0 } else { started + named.len() }
}

/// Whether one process that is no Pegasus server can be compared with what the cell measures.
fn is_comparable(cell: &Cell) -> bool {
    cell.protocol != Protocol::Pegasus && cell.cluster.nodes <= MOST_NODES && cell.cluster.running.is_none()
}

fn is_for_memcached(cell: &Cell) -> bool {
    cell.table.durability == "none" && cell.table.fields == 1
}

fn redis_server(durability: &str, data: &Path) -> anyhow::Result<Option<Peer>> {
    let Some(version) = version("redis-server", "v=") else { return Ok(None) };
    let (append_only, sync, durability) = match durability {
        "none" => ("no", "no", "volatile"),
        "soft" => ("yes", "everysec", "appendfsync everysec"),
        _ => ("yes", "always", "appendfsync always"),
    };
    let mut command = Command::new("redis-server");
    command.args(["--port", &REDIS_PORT.to_string(), "--save", "", "--appendonly", append_only, "--appendfsync", sync]);
    command.arg("--dir").arg(data).args(["--bind", "127.0.0.1", "--loglevel", "warning"]);
    let name = format!("redis-server {version}, one copy, {durability}");
    start(command, Protocol::Redis, REDIS_PORT, name, data).map(Some)
}

fn memcached(data: &Path) -> anyhow::Result<Option<Peer>> {
    let Some(version) = version("memcached", "memcached ") else { return Ok(None) };
    let mut command = Command::new("memcached");
    // It refuses to run as root unless told who else to be.
    command.args(["-l", "127.0.0.1", "-p", &MEMCACHED_PORT.to_string(), "-m", "4096", "-u", "nobody"]);
    let name = format!("memcached {version}, one copy, volatile");
    start(command, Protocol::Memcached, MEMCACHED_PORT, name, data).map(Some)
}

/// The version of a server that is installed, which follows `mark` where it tells.
fn version(program: &str, mark: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(said.split_once(mark)?.1.split_whitespace().next()?.to_string())
}

fn start(mut command: Command, protocol: Protocol, port: u16, name: String, data: &Path) -> anyhow::Result<Peer> {
    std::fs::create_dir_all(data)?;
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
    let process = Some(Process { child, data: data.to_path_buf() });
    let address = format!("127.0.0.1:{port}");
    let peer = Peer { name, at: PeerAddress { protocol, address, table: String::new() }, process };
    let began = Instant::now();
    while TcpStream::connect(&peer.at.address).is_err() {
        if began.elapsed() >= READY {
            bail!("{} does not answer on port {port}", peer.name);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(peer)
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_named_by_protocol_and_address() {
        let peer: PeerAddress = "pegasus://db:34601/temp".parse().unwrap();
        assert_eq!(peer, PeerAddress { protocol: Protocol::Pegasus, address: "db:34601".into(), table: "temp".into() });
        assert!("redis-cluster://127.0.0.1:7000".parse::<PeerAddress>().is_ok());
        for wrong in ["redis://host", "redis://host:1/table", "pegasus://host:1", "host:1", "mysql://host:1", ""] {
            assert!(wrong.parse::<PeerAddress>().unwrap_err().contains("redis://HOST:PORT"), "{wrong}");
        }
    }
}
