//! Other servers beside Tessera: the same workloads through the same driver, in the same run.

mod servers;

use super::cell::Cell;
use super::experiments;
use crate::driver::{Protocol, Route};
use crate::workload::RecordShape;
use anyhow::{Context, bail};
use clap::ValueEnum;
pub use servers::SPREAD;
use servers::{Server, ServerSet};
use std::fs::File;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

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
        let protocol = <Protocol as ValueEnum>::from_str(protocol, false).map_err(|_| shape)?;
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

impl PeerAddress {
    fn name(&self) -> String {
        format!("{} at {}, as it was set up", self.protocol, self.addresses.join(","))
    }
}

/// A server that is measured beside Tessera.
pub struct Peer {
    /// What it is, and how durable.
    pub name: String,
    at: PeerAddress,
    /// Whether clients spread keys over its addresses.
    is_spread: bool,
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
            let copies = cell.cluster.nodes.min(cell.table.replicas.into());
            let mut sets = vec![servers::redis(&cell.table.durability, copies)];
            if is_for_memcached(cell) {
                sets.push(servers::memcached());
            }
            if is_for_etcd(cell) {
                sets.push(servers::etcd(copies));
            }
            for set in sets.into_iter().flatten() {
                peers.push(Self::start(set, data)?);
            }
        }
        if has_control(cell) {
            let set = servers::spread_redis(&cell.table.durability, cell.cluster.nodes);
            peers.extend(set.map(|set| Self::start(set, data)).transpose()?);
        }
        let named = named.iter().filter(|at| takes(at.protocol, cell));
        peers.extend(named.map(|at| Self { name: at.name(), at: at.clone(), is_spread: false, processes: None }));
        Ok(peers)
    }

    /// Starts servers with their data in a directory.
    fn start(set: ServerSet, data: &Path) -> anyhow::Result<Self> {
        let ServerSet { protocol, name, mut servers, is_spread } = set;
        let data = data.join(protocol.to_string());
        let place = |server: &Server| data.join(server.port.to_string());
        let mut processes = Processes { children: Vec::new(), data: data.clone() };
        for server in &mut servers {
            let directory = place(server);
            std::fs::create_dir_all(&directory)?;
            // What it says matters only if it does not start.
            let said = directory.join("said");
            let log = File::create(&said).with_context(|| said.display().to_string())?;
            let command = &mut server.command;
            command.current_dir(&directory).process_group(0);
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            processes.children.push(command.spawn().with_context(|| format!("{name} cannot be started"))?);
        }
        let began = Instant::now();
        for server in &servers {
            while !server.is_ready() {
                if began.elapsed() >= READY {
                    let said = std::fs::read_to_string(place(server).join("said")).unwrap_or_default();
                    let last = said.lines().next_back().unwrap_or("nothing was said");
                    bail!("{name} does not answer at port {}: {last}", server.port);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let primaries = servers.iter().filter(|server| !server.is_replica);
        let addresses = primaries.map(|server| format!("127.0.0.1:{}", server.port)).collect();
        let at = PeerAddress { protocol, addresses, table: String::new() };
        Ok(Self { name, at, is_spread, processes: Some(processes) })
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
            Protocol::Redis if self.is_spread => Ok(Route::over_redis_servers(addresses)),
            Protocol::Redis => Ok(Route::Any(addresses)),
            Protocol::RedisCluster => Route::to_redis_cluster(addresses[0], None, &[]),
            Protocol::Memcached => Ok(Route::Memcached(addresses)),
            Protocol::Etcd => Ok(Route::Etcd(addresses)),
            Protocol::Rethinkdb => Ok(Route::to_rethinkdb_table(addresses, table, None)),
            Protocol::Pegasus => Route::to_pegasus_table(addresses[0], table),
        }
    }

    /// Whether the cell is measured on it. Of the cells that share a table, a control is for those that show what more nodes cost.
    pub fn is_for(&self, cell: &Cell) -> bool {
        // Read modes are Tessera's own.
        cell.reads.is_none() && (!self.is_spread || is_of_one_kind(cell))
    }

    /// Its processes, if they are on this machine and the suite's.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().flat_map(|processes| &processes.children).map(Child::id).collect()
    }
}

/// # Errors
/// If no cell would be measured on one that the user has named, with the protocols of those on which some would be.
pub fn check_used(cells: &[Cell], named: &[PeerAddress]) -> anyhow::Result<()> {
    let is_used = |protocol| cells.iter().any(|cell| is_measured(cell) && takes(protocol, cell));
    let Some(unused) = named.iter().find(|at| !is_used(at.protocol)) else { return Ok(()) };
    let PeerAddress { protocol, addresses, .. } = unused;
    let others: Vec<String> =
        Protocol::value_variants().iter().filter(|other| is_used(**other)).map(ToString::to_string).collect();
    let others = if others.is_empty() { "no protocol".into() } else { others.join(", ") };
    bail!(
        "none of the cells can be measured on the peer {protocol}://{}, only on peers of {others}: leave it out, or choose other cells",
        addresses.join(",")
    )
}

/// Whether a cell is measured on peers: read modes are Tessera's own, and a table whose records expire is not filled before.
fn is_measured(cell: &Cell) -> bool {
    cell.reads.is_none() && !cell.table.expires
}

/// What those are called that the user has named, and that a cell is measured on.
pub fn names(cell: &Cell, named: &[PeerAddress]) -> impl Iterator<Item = String> {
    let has_any = is_measured(cell);
    named.iter().filter(move |at| has_any && takes(at.protocol, cell)).map(PeerAddress::name)
}

/// How many servers the suite starts beside Tessera for a cell, if they are installed.
pub fn count(cell: &Cell, named: &[PeerAddress]) -> usize {
    let others = usize::from(is_for_memcached(cell)) + usize::from(is_for_etcd(cell));
    let control = has_control(cell) && is_of_one_kind(cell);
    let started = if is_comparable(cell) { 1 + others } else { usize::from(control) };
    let named = named.iter().filter(|at| takes(at.protocol, cell)).count();
    if is_measured(cell) { started + named } else { 0 }
}

/// Whether one process that speaks Redis' protocol or a simpler one can be compared with what the cell measures.
fn is_comparable(cell: &Cell) -> bool {
    let is_alike = !matches!(cell.protocol, Protocol::Pegasus | Protocol::Rethinkdb);
    is_alike && cell.cluster.nodes <= MOST_NODES && cell.cluster.running.is_none()
}

/// Whether the cell's table is the one on which it is measured what more nodes cost. All nodes share a machine, so more processes cost
/// something whatever they are: as many plain servers show how much.
fn has_control(cell: &Cell) -> bool {
    experiments::is_scaled(cell)
}

/// Whether all operations are reads, or all are writes.
fn is_of_one_kind(cell: &Cell) -> bool {
    matches!(cell.mix.as_str(), "read" | "write")
}

/// Whether a peer of that name is as many plain servers as there are nodes.
pub fn is_control(name: &str) -> bool {
    name.contains(SPREAD)
}

/// Whether the cell's records can be had over a protocol. What goes through ReQL here is compared with other servers of ReQL only.
fn takes(protocol: Protocol, cell: &Cell) -> bool {
    let is_alike = cell.protocol != Protocol::Rethinkdb || protocol == Protocol::Rethinkdb;
    is_alike && protocol.check(&RecordShape::whole(cell.table.fields, cell.table.field_bytes), 1).is_ok()
}

fn is_for_memcached(cell: &Cell) -> bool {
    cell.table.durability == "none" && takes(Protocol::Memcached, cell)
}

/// It has no other durability.
fn is_for_etcd(cell: &Cell) -> bool {
    cell.table.durability == "hard" && takes(Protocol::Etcd, cell)
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
    use crate::suite::experiments::Experiment;
    use crate::suite::published::Published;
    use std::collections::BTreeSet;

    /// One test, since both kinds have the same ports.
    #[test]
    fn servers_of_redis_are_a_primary_with_replicas_or_have_a_part_each() {
        let data = tempfile::TempDir::new().unwrap();
        let peer = Peer::start(servers::redis("none", 2).expect("redis-server is installed"), data.path()).unwrap();
        assert!(peer.name.contains("two copies (asynchronous), volatile"), "{}", peer.name);
        assert_eq!((peer.pids().len(), peer.at.addresses.len()), (2, 1));
        assert!(!is_control(&peer.name));
        drop(peer);
        assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 0, "its data goes with it");

        let peer = Peer::start(servers::spread_redis("none", 3).unwrap(), data.path()).unwrap();
        assert!(is_control(&peer.name));
        assert_eq!((peer.pids().len(), peer.at.addresses.len()), (3, 3));
        let route = peer.route().unwrap();
        assert_eq!(route.links(0).len(), 3, "each client has a connection to each server");
        let mut encoder = route.encoder(RecordShape::whole(1, 10), 1);
        let used: BTreeSet<usize> = (0..100).map(|record| encoder.link_of(record)).collect();
        assert_eq!(used.len(), 3);
    }

    #[test]
    fn the_cells_of_the_size_of_the_cluster_have_a_control() {
        let published = Published::read();
        for cell in Experiment::Scale.cells(&published) {
            assert_eq!(count(&cell, &[]), 1, "{}", cell.id());
        }
        let mixed = published.versions.iter().map(experiments::version).find(|cell| cell.mix == "1:1").unwrap();
        let limited = experiments::limiter("no limit");
        assert_eq!([count(&mixed, &[]), count(&limited, &[])], [0, 0]);
    }

    /// Such a peer was once left out without a word.
    #[test]
    fn a_peer_that_no_cell_is_measured_on_is_refused() {
        let published = Published::read();
        let check = |experiment: Experiment, peers: &[&str]| {
            let named: Vec<PeerAddress> = peers.iter().map(|peer| peer.parse().unwrap()).collect();
            check_used(&experiment.cells(&published), &named).map_err(|error| error.to_string())
        };
        let (redis, rethinkdb) = ("redis://db:6379", "rethinkdb://db:28015/test.t");
        assert_eq!(check(Experiment::MapReduce, &[rethinkdb]), Ok(()));
        let error = check(Experiment::MapReduce, &[rethinkdb, redis]).unwrap_err();
        assert!(error.contains("the peer redis://db:6379, only on peers of rethinkdb:"), "{error}");
        assert_eq!(check(Experiment::Rethinkdb, &[rethinkdb, redis]), Ok(()));
        assert!(check(Experiment::Rethinkdb, &["memcached://db:11211"]).unwrap_err().contains("etcd"));
        let filling = check_used(&[experiments::nubase_steady()], &[redis.parse().unwrap()]);
        assert!(filling.unwrap_err().to_string().contains("only on peers of no protocol"));
    }

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
