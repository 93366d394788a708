//! Clusters of real processes.

mod admission;
mod availability;
mod benchmark;
mod chaos;
mod checks;
mod clock;
mod comparison;
mod damage;
mod dropped_tables;
mod expiry;
mod full_disk;
mod large_hashes;
mod linearizability;
mod membership;
mod metrics;
mod net;
mod older_copy;
mod recovery;
mod replicas;
mod routing;
mod rules;
mod slow_disk;
mod split;
mod stop_at_end;
mod traffic;
mod transactions;
mod truncation;
mod users;
mod without_leader;

use crate::disk::DiskWithPower;
use crate::resp_client::Client;
use crate::server::{Node, free_port, http_get_from, tessera, wait_for};
use clock::Clocks;
use net::Net;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a cluster may take to be whole.
const WHOLE: Duration = Duration::from_secs(300);

pub(crate) struct Cluster {
    /// Ports of each: Redis, admin, and for other nodes.
    ports: Vec<(u16, u16, u16)>,
    nodes: Vec<Option<Node>>,
    /// For clients of Apache Pegasus, if there are any.
    pegasus_ports: Vec<u16>,
    /// For drivers of RethinkDB, if there are any.
    reql_ports: Vec<u16>,
    /// The setting that says who may come in; else everybody may.
    users: Option<String>,
    /// Nodes are hosts of their own there; else all are on loopback.
    net: Option<Net>,
    /// Nodes have clocks of their own; else all have the machine's.
    clocks: Option<Clocks>,
    /// Nodes have disks of their own; else all have the machine's.
    disks: Vec<DiskWithPower>,
    /// Settings of every node beside those of all tests.
    settings: &'static [&'static str],
    /// Where nodes write what they have to say; else that is where the tests do.
    logs: Option<PathBuf>,
    data: TempDir,
}

impl Cluster {
    /// Starts a cluster and waits until every node knows every other one.
    pub(crate) fn start(count: usize) -> Self {
        Self::start_in(None, count)
    }

    fn start_in(net: Option<Net>, count: usize) -> Self {
        Self::start_at(TempDir::new().unwrap(), net, count)
    }

    /// Starts a cluster of nodes that clients of Apache Pegasus can use.
    pub(crate) fn start_with_pegasus(count: usize) -> Self {
        let ports = (0..count).map(|_| free_port()).collect();
        Self::start_all(TempDir::new().unwrap(), None, count, ports)
    }

    /// Starts a cluster of nodes that drivers of RethinkDB can use.
    pub(crate) fn start_with_reql(count: usize) -> Self {
        let reql_ports = (0..count).map(|_| free_port()).collect();
        Self { reql_ports, ..Self::planned(TempDir::new().unwrap(), count) }.started()
    }

    /// The same, with nodes that log what they do.
    pub(crate) fn start_with_reql_and_logs(count: usize) -> Self {
        let (data, reql_ports) = (TempDir::new().unwrap(), (0..count).map(|_| free_port()).collect());
        Self { logs: Some(data.path().to_path_buf()), reql_ports, ..Self::planned(data, count) }.started()
    }

    /// Starts a cluster that only these users may use: the setting `redis.users`.
    pub(crate) fn start_with_users(count: usize, users: &str) -> Self {
        let users = Some(format!("redis.users={users}"));
        Self { users, ..Self::planned(TempDir::new().unwrap(), count) }.started()
    }

    /// The same for drivers of RethinkDB.
    pub(crate) fn start_with_reql_users(count: usize, users: &str) -> Self {
        let reql_ports = (0..count).map(|_| free_port()).collect();
        let users = Some(format!("redis.users={users}"));
        Self { reql_ports, users, ..Self::planned(TempDir::new().unwrap(), count) }.started()
    }

    pub(crate) fn reql_ports(&self) -> Vec<u16> {
        self.reql_ports.clone()
    }

    /// With data directories that are numbers in `data`.
    fn start_at(data: TempDir, net: Option<Net>, count: usize) -> Self {
        Self::start_all(data, net, count, Vec::new())
    }

    fn start_all(data: TempDir, net: Option<Net>, count: usize, pegasus_ports: Vec<u16>) -> Self {
        Self { pegasus_ports, net, ..Self::planned(data, count) }.started()
    }

    fn start_with_clocks(clocks: Clocks, count: usize) -> Self {
        Self { clocks: Some(clocks), ..Self::planned(TempDir::new().unwrap(), count) }.started()
    }

    /// `None` without the right to mount disks.
    fn start_with_power(count: usize, settings: &'static [&'static str]) -> Option<Self> {
        let data = TempDir::new().unwrap();
        let disks = DiskWithPower::mount_all(data.path(), count)?;
        Some(Self { disks, settings, ..Self::planned(data, count) }.started())
    }

    /// The same for drivers of RethinkDB.
    fn start_with_reql_and_power(count: usize) -> Option<Self> {
        let (data, reql_ports) = (TempDir::new().unwrap(), (0..count).map(|_| free_port()).collect());
        let disks = DiskWithPower::mount_all(data.path(), count)?;
        Some(Self { disks, reql_ports, ..Self::planned(data, count) }.started())
    }

    /// One of which no node runs yet.
    fn planned(data: TempDir, count: usize) -> Self {
        let ports = (0..count).map(|_| (free_port(), free_port(), free_port())).collect();
        let nodes = (0..count).map(|_| None).collect();
        let (pegasus_ports, reql_ports, disks) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            data,
            ports,
            nodes,
            pegasus_ports,
            reql_ports,
            users: None,
            net: None,
            clocks: None,
            disks,
            settings: &[],
            logs: None,
        }
    }

    fn set_clocks(&self, seconds: i64) {
        let clocks = self.clocks.as_ref().expect("nodes have clocks of their own");
        (0..self.nodes.len()).for_each(|at| clocks.set(&self.data_directory(at), seconds));
    }

    fn started(mut self) -> Self {
        for at in 0..self.nodes.len() {
            self.start_node(at);
            // One after the other, so that node numbers follow.
            wait_for("the node joins", WHOLE, || (self.known_nodes(at)? == at + 1).then_some(()));
        }
        self
    }

    /// Where nodes run.
    fn running(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|at| self.nodes[*at].is_some()).collect()
    }

    /// Where nodes have ended by themselves.
    fn ended(&mut self) -> Vec<usize> {
        let ended = |node: &mut Option<Node>| node.as_mut().is_some_and(|node| node.process.has_ended());
        (0..self.nodes.len()).filter(|at| ended(&mut self.nodes[*at])).collect()
    }

    pub(crate) fn redis_ports(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().map(|(redis, ..)| *redis)
    }

    /// The number that a node was given, if it has one yet.
    fn number(&self, at: usize) -> Option<u64> {
        let identity = std::fs::read(self.data_directory(at).join("node.json")).ok()?;
        serde_json::from_slice::<serde_json::Value>(&identity).ok()?["node"].as_u64()
    }

    /// Starts one more node, which joins by itself, and returns where it runs: not where nodes are `down` that come back.
    fn add_node(&mut self, down: &[usize]) -> usize {
        let is_free = |at: &usize| self.nodes[*at].is_none() && !down.contains(at);
        let at = (0..self.nodes.len()).find(is_free).unwrap_or(self.nodes.len());
        if at == self.nodes.len() {
            self.nodes.push(None);
            self.ports.push((0, 0, 0));
        }
        self.change_ports(at);
        self.start_node(at);
        at
    }

    /// Gives a node that does not run other addresses.
    fn change_ports(&mut self, at: usize) {
        self.ports[at] = (free_port(), free_port(), free_port());
    }

    /// Keeps a copy of all that a node has which does not run.
    fn copy_disk(&self, at: usize) {
        let copy = self.copy_of(at);
        let _ = std::fs::remove_dir_all(&copy);
        assert!(Command::new("cp").arg("-r").arg(self.data_directory(at)).arg(copy).status().unwrap().success());
    }

    /// Puts that copy in the place of what the node has now.
    fn put_copy_back(&self, at: usize) {
        self.lose_disk(at);
        // It may be on another disk, and is to survive a power cut as a whole.
        let there = self.data_directory(at);
        assert!(Command::new("mv").arg(self.copy_of(at)).arg(&there).status().unwrap().success());
        assert!(Command::new("sync").arg("-f").arg(there).status().unwrap().success());
    }

    fn copy_of(&self, at: usize) -> PathBuf {
        self.data.path().join(format!("copy-{at}"))
    }

    /// Removes all that a node has which does not run.
    fn lose_disk(&self, at: usize) {
        assert!(self.nodes[at].is_none(), "its files are in use");
        let _ = std::fs::remove_dir_all(self.data_directory(at));
    }

    pub(crate) fn start_node(&mut self, at: usize) {
        self.start_node_with(at, &[]);
    }

    fn start_node_with(&mut self, at: usize, arguments: &[&str]) {
        let (redis, admin, peer) = self.ports[at];
        let mut settings = vec![format!("cluster.port={peer}"), "workers=1".into(), "log.limit_bytes=8388608".into()];
        settings.push("cluster.move_bytes_per_second=8388608".into());
        settings.push("cluster.balance_interval_seconds=5".into());
        settings.push("cluster.lead_again_after_seconds=0".into());
        settings.extend(self.settings.iter().map(|setting| (*setting).to_string()));
        if !self.disks.is_empty() {
            settings.push(format!("log.staging_directory={}", self.memory_of(at).display()));
        }
        settings.extend(self.users.clone());
        settings.extend(self.reql_ports.get(at).map(|port| format!("reql.port={port}")));
        settings.extend(self.pegasus_ports.get(at).map(|port| format!("pegasus.port={port}")));
        // Whoever knows who he is looks at none of them.
        let others = self.running().into_iter().filter(|other| *other != at);
        let others: Vec<String> =
            others.map(|other| format!("\"{}:{}\"", self.host(other), self.ports[other].2)).collect();
        if !others.is_empty() {
            settings.push(format!("cluster.join=[{}]", others.join(",")));
        }
        let mut command = tessera();
        if let Some(net) = &self.net {
            for face in ["redis", "admin", "cluster"] {
                settings.push(format!("{face}.bind=\"{}\"", self.host(at)));
            }
            if !self.reql_ports.is_empty() {
                settings.push(format!("reql.bind=\"{}\"", self.host(at)));
            }
            settings.push("insecure=true".into());
            settings.push("cluster.secret=known to all nodes of this test".into());
            command = Command::new("ip");
            command.args(["netns", "exec", &net.name(at), env!("CARGO_BIN_EXE_tessera")]);
        }
        command.arg("start").args(arguments);
        let mut settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let directory = self.data_directory(at);
        if let Some(clocks) = &self.clocks {
            clocks.give(&mut command, &directory);
        }
        if let Some(logs) = &self.logs {
            let log = File::options().create(true).append(true).open(logs.join(format!("node-{at}.log"))).unwrap();
            command.stderr(log);
            settings.push("logging.filter=info");
        }
        self.nodes[at] = Some(Node::spawn_with(command, &directory, redis, admin, &settings));
    }

    fn data_directory(&self, at: usize) -> std::path::PathBuf {
        self.disks.get(at).map_or(self.data.path().join(at.to_string()), |disk| disk.path().join("data"))
    }

    /// What a node stages is lost with the power.
    fn memory_of(&self, at: usize) -> std::path::PathBuf {
        let place = self.data.path().join(format!("memory-{at}"));
        std::fs::create_dir_all(&place).unwrap();
        place
    }

    /// Cuts the power of some nodes at once. They are not started again.
    fn cut_power(&mut self, of: &[usize]) {
        of.iter().for_each(|at| self.disks[*at].cut_power());
        for at in of {
            self.kill(*at);
            std::fs::remove_dir_all(self.memory_of(*at)).unwrap();
            self.disks[*at].power_up();
        }
    }

    fn host(&self, at: usize) -> String {
        self.net.as_ref().map_or("127.0.0.1".into(), |net| net.address(at))
    }

    fn admin(&self, at: usize) -> String {
        format!("http://{}:{}", self.host(at), self.ports[at].1)
    }

    pub(crate) fn status(&self, at: usize) -> Option<serde_json::Value> {
        let output = tessera().args(["status", "--json", "--admin", &self.admin(at)]).output();
        serde_json::from_slice(&output.unwrap().stdout).ok()
    }

    /// Where clients of Apache Pegasus ask.
    pub(crate) fn pegasus_addresses(&self) -> Vec<String> {
        self.pegasus_ports.iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    pub(crate) fn pegasus_ports(&self) -> &[u16] {
        &self.pegasus_ports
    }

    /// What a metric is on a node. `name` has its labels, if it has any.
    fn metric(&self, at: usize, name: &str) -> Option<f64> {
        let text = http_get_from(&self.host(at), self.ports[at].1, "/metrics")?;
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
        let value = values.find_map(|value| value.strip_prefix("{} ").or_else(|| value.strip_prefix(' ')))?;
        value.parse().ok()
    }

    /// Nodes that have arrived, as a node knows.
    fn known_nodes(&self, at: usize) -> Option<usize> {
        let status = self.status(at)?;
        Some(status["cluster"]["nodes"].as_array()?.iter().filter(|node| node["is_expected"] == false).count())
    }

    pub(crate) fn cli(&self, at: usize, arguments: &str) -> Result<String, String> {
        let output = tessera().args(arguments.split(' ')).args(["--admin", &self.admin(at)]).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Who is wanted as replicas of a table, as a node knows that is up.
    fn replicas_of(&self, at: usize, table: &str) -> Vec<serde_json::Value> {
        let placement = self.cli(at, &format!("table placement {table} --json")).unwrap();
        let placement: Vec<serde_json::Value> = serde_json::from_str(&placement).unwrap();
        placement.into_iter().map(|partition| partition["wanted"].clone()).collect()
    }

    /// Waits until nothing is wrong, nothing moves, and nothing is being split.
    pub(crate) fn wait_until_whole(&self) {
        self.wait_for("the cluster is whole", WHOLE, || self.running().into_iter().all(|at| self.is_whole(at)));
    }

    /// Waits for something that nodes are at. If it takes half of the time, it tells how far they are.
    fn wait_for(&self, what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        let mut is_told = false;
        wait_for(what, limit, || {
            let is_late = began.elapsed() > limit / 2;
            if is_late && !std::mem::replace(&mut is_told, true) {
                self.running().into_iter().for_each(|at| eprintln!("not yet, {what}: {}", self.describe(at)));
            }
            is_so().then_some(())
        });
    }

    /// What a node knows of nodes, and of partitions that move or have no leader.
    fn describe(&self, at: usize) -> String {
        let mut text = format!("node {:?}: {}", self.number(at), self.cli(at, "status").unwrap_or_else(|error| error));
        for table in text.clone().lines().filter_map(|line| line.split_whitespace().nth(1).map(str::to_string)) {
            let placement = self.cli(at, &format!("table placement {table} --json")).unwrap_or_default();
            let partitions: Vec<serde_json::Value> = serde_json::from_str(&placement).unwrap_or_default();
            let is_odd = |it: &&serde_json::Value| it["is_moving"] == true || it["leader"].is_null();
            partitions.iter().filter(is_odd).for_each(|odd| text += &format!("\n{table}: {odd}"));
        }
        text
    }

    /// Whether nothing needs attention, as a node knows.
    fn lacks_nothing(&self, at: usize) -> bool {
        self.status(at).is_some_and(|status| status["issues"].as_array().is_some_and(Vec::is_empty))
    }

    fn is_whole(&self, at: usize) -> bool {
        let Some(status) = self.status(at) else { return false };
        status["issues"].as_array().is_some_and(Vec::is_empty) && is_settled(&status)
    }

    /// Waits until every node has its share of the replicas of every table, and nothing moves. With fewer nodes than replicas
    /// that is all there can be.
    fn wait_until_no_more_moves(&self) {
        let shares = |status: &serde_json::Value| {
            let nodes = status["cluster"]["nodes"].as_array().unwrap();
            nodes.iter().all(|node| node["replicas"] == nodes[0]["replicas"])
        };
        self.wait_for("nothing moves", WHOLE, || self.status(0).is_some_and(|it| is_settled(&it) && shares(&it)));
    }

    pub(crate) fn node(&self, at: usize) -> &Node {
        self.nodes[at].as_ref().expect("it runs")
    }

    pub(crate) fn kill(&mut self, at: usize) {
        self.nodes[at].take().expect("it runs").process.kill();
    }

    fn signal(&self, at: usize, signal: &str) {
        let id = self.nodes[at].as_ref().expect("it runs").process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    pub(crate) fn client(&self, at: usize) -> Client {
        Client::connect_to(&self.host(at), self.ports[at].0).unwrap()
    }
}

/// Whether nothing moves and nothing is being split.
fn is_settled(status: &serde_json::Value) -> bool {
    let is_settled = |table: &serde_json::Value| table["moving"] == 0 && table["split"].is_null();
    status["cluster"]["tables"].as_array().unwrap().iter().all(is_settled)
}
