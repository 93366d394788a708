//! Other servers beside Tessera: the same workloads through the same driver, in the same run.

use super::cell::Cell;
use crate::driver::{Protocol, Route};
use crate::workload::RecordShape;
use anyhow::{Context, bail};
use std::fs::File;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

const REDIS_PORT: u16 = 9_979;
const MEMCACHED_PORT: u16 = 9_978;
/// Of the first member's clients; other members, and members among themselves, follow.
const ETCD_PORT: u16 = 9_970;
const ETCD_MEMBERS: u16 = 3;
const READY: Duration = Duration::from_secs(10);
/// One process is nobody's peer in a large cluster.
const MOST_NODES: u16 = 3;

/// A server that runs somewhere: `redis://HOST:PORT`, or with `redis-cluster`, `memcached` or `etcd`, or
/// `pegasus://HOST:PORT/TABLE`, or with `rethinkdb`. Several `HOST:PORT` are parted by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    protocol: Protocol,
    addresses: Vec<String>,
    /// Of a Pegasus or RethinkDB server.
    table: String,
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = "a peer is given as redis://HOST:PORT, redis-cluster://HOST:PORT, memcached://HOST:PORT, etcd://HOST:PORT, \
                     rethinkdb://HOST:PORT/DATABASE.TABLE or pegasus://HOST:PORT/TABLE";
        let (protocol, rest) = text.split_once("://").ok_or(shape)?;
        let protocol = <Protocol as clap::ValueEnum>::from_str(protocol, false).map_err(|_| shape)?;
        let (addresses, table) = rest.split_once('/').unwrap_or((rest, ""));
        let addresses: Vec<String> = addresses.split(',').map(String::from).collect();
        let has_port = |address: &String| address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let has_table = matches!(protocol, Protocol::Pegasus | Protocol::Rethinkdb);
        if !addresses.iter().all(has_port) || table.is_empty() == has_table {
            return Err(shape.into());
        }
        Ok(Self { protocol, addresses, table: table.into() })
    }
}

/// A server that is measured beside Tessera.
pub struct Peer {
    /// What it is, and how durable.
    pub name: String,
    at: PeerAddress,
    processes: Option<Processes>,
}

/// What the suite started. They end with this, and their data goes.
struct Processes {
    children: Vec<Child>,
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
            if is_for_etcd(cell) {
                let is_replicated = cell.table.replicas > 1 && cell.cluster.nodes > 1;
                peers.extend(etcd(if is_replicated { ETCD_MEMBERS } else { 1 }, &data.join("etcd"))?);
            }
        }
        peers.extend(named.iter().filter(|at| takes(at.protocol, cell)).map(|at| {
            let name = format!("{} at {}, as it was set up", at.protocol, at.addresses.join(","));
            Self { name, at: at.clone(), processes: None }
        }));
        Ok(peers)
    }

    /// Starts processes, each of which listens on a port.
    fn start(protocol: Protocol, name: String, commands: Vec<(Command, u16)>, data: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(data)?;
        let addresses = commands.iter().map(|(_, port)| format!("127.0.0.1:{port}")).collect();
        let mut processes = Processes { children: Vec::new(), data: data.to_path_buf() };
        // What they say matters only if they do not start.
        let said = data.join("said");
        let log = File::create(&said).with_context(|| said.display().to_string())?;
        for (mut command, _) in commands {
            command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
            processes.children.push(command.spawn().with_context(|| format!("{name} cannot be started"))?);
        }
        let at = PeerAddress { protocol, addresses, table: String::new() };
        let peer = Self { name, at, processes: Some(processes) };
        let began = Instant::now();
        while !peer.at.addresses.iter().all(|address| TcpStream::connect(address).is_ok()) {
            if began.elapsed() >= READY {
                let said = std::fs::read_to_string(&said).unwrap_or_default();
                let last = said.lines().next_back().unwrap_or("nothing was said");
                bail!("{} does not answer at {}: {last}", peer.name, peer.at.addresses.join(","));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(peer)
    }

    /// Where its requests go.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub fn route(&self) -> anyhow::Result<Route> {
        let PeerAddress { protocol, addresses, table } = &self.at;
        let resolve = |address: &String| -> anyhow::Result<SocketAddr> {
            address.to_socket_addrs()?.next().with_context(|| format!("{address} is nowhere"))
        };
        let addresses = addresses.iter().map(resolve).collect::<anyhow::Result<Vec<_>>>()?;
        match protocol {
            Protocol::Redis => Ok(Route::Any(addresses)),
            Protocol::RedisCluster => Route::to_redis_cluster(addresses[0], &[]),
            Protocol::Memcached => Ok(Route::Memcached(addresses)),
            Protocol::Etcd => Ok(Route::Etcd(addresses)),
            Protocol::Rethinkdb => Ok(Route::to_rethinkdb_table(addresses, table)),
            Protocol::Pegasus => Route::to_pegasus_table(addresses[0], table),
        }
    }

    /// Its processes, if they are on this machine and the suite's.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().flat_map(|processes| &processes.children).map(Child::id).collect()
    }
}

/// How many servers the suite starts beside Tessera for a cell, if they are installed.
pub fn count(cell: &Cell, named: &[PeerAddress]) -> usize {
    let others = usize::from(is_for_memcached(cell)) + usize::from(is_for_etcd(cell));
    let started = if is_comparable(cell) { 1 + others } else { 0 };
    let named = named.iter().filter(|at| takes(at.protocol, cell)).count();
    if cell.reads.is_some() || cell.table.expires { 0 } else { started + named }
}

/// Whether one process that is no Pegasus server can be compared with what the cell measures.
fn is_comparable(cell: &Cell) -> bool {
    cell.protocol != Protocol::Pegasus && cell.cluster.nodes <= MOST_NODES && cell.cluster.running.is_none()
}

/// Whether the cell's records can be had over a protocol.
fn takes(protocol: Protocol, cell: &Cell) -> bool {
    protocol.check(&RecordShape::whole(cell.table.fields, cell.table.field_bytes), 1).is_ok()
}

fn is_for_memcached(cell: &Cell) -> bool {
    cell.table.durability == "none" && takes(Protocol::Memcached, cell)
}

/// It has no other durability.
fn is_for_etcd(cell: &Cell) -> bool {
    cell.table.durability == "hard" && takes(Protocol::Etcd, cell)
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
    Peer::start(Protocol::Redis, name, vec![(command, REDIS_PORT)], data).map(Some)
}

fn memcached(data: &Path) -> anyhow::Result<Option<Peer>> {
    let Some(version) = version("memcached", "memcached ") else { return Ok(None) };
    let mut command = Command::new("memcached");
    // It refuses to run as root unless told who else to be.
    command.args(["-l", "127.0.0.1", "-p", &MEMCACHED_PORT.to_string(), "-m", "4096", "-u", "nobody"]);
    let name = format!("memcached {version}, one copy, volatile");
    Peer::start(Protocol::Memcached, name, vec![(command, MEMCACHED_PORT)], data).map(Some)
}

fn etcd(members: u16, data: &Path) -> anyhow::Result<Option<Peer>> {
    let Some(version) = version("etcd", "etcd Version: ") else { return Ok(None) };
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let ports = |member: u16| (ETCD_PORT + member, ETCD_PORT + ETCD_MEMBERS + member);
    let cluster: Vec<String> = (0..members).map(|member| format!("m{member}={}", url(ports(member).1))).collect();
    let command = |member: u16| {
        let (clients, peers) = ports(member);
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{member}"), "--initial-cluster", &cluster.join(",")]);
        command.args(["--listen-client-urls", &url(clients), "--advertise-client-urls", &url(clients)]);
        command.args(["--listen-peer-urls", &url(peers), "--initial-advertise-peer-urls", &url(peers)]);
        // It keeps what is written over, and refuses more than 2 GiB unless told so.
        command.args(["--log-level", "error", "--quota-backend-bytes", &(8_u64 << 30).to_string()]);
        command.arg("--data-dir").arg(data.join(member.to_string()));
        (command, clients)
    };
    let copies = if members == 1 { "one copy" } else { "three copies" };
    let name = format!("etcd {version}, {copies}, fsync");
    Peer::start(Protocol::Etcd, name, (0..members).map(command).collect(), data).map(Some)
}

/// The version of a server that is installed, which follows `mark` where it tells.
fn version(program: &str, mark: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(said.split_once(mark)?.1.split_whitespace().next()?.to_string())
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_named_by_protocol_and_address() {
        let peer: PeerAddress = "pegasus://db:34601/temp".parse().unwrap();
        let (protocol, addresses) = (Protocol::Pegasus, vec!["db:34601".to_string()]);
        assert_eq!(peer, PeerAddress { protocol, addresses, table: "temp".into() });
        assert_eq!("etcd://a:1,b:2".parse::<PeerAddress>().unwrap().addresses, ["a:1", "b:2"]);
        assert!("redis-cluster://127.0.0.1:7000".parse::<PeerAddress>().is_ok());
        for wrong in [
            "redis://host",
            "redis://host:1/table",
            "etcd://a:1,b",
            "rethinkdb://host:1",
            "pegasus://host:1",
            "host:1",
            "mysql://host:1",
            "",
        ] {
            assert!(wrong.parse::<PeerAddress>().unwrap_err().contains("redis://HOST:PORT"), "{wrong}");
        }
    }
}
