//! `tessera local`: a cluster of processes on this machine.

use crate::admin_client::call;
use crate::config::Config;
use crate::exit::ExitError;
use crate::listening::address;
use crate::{NodeArgs, StartArgs, node_command};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tessera_engine::{MemoryBudget, MemoryConfig};
use tokio::signal::unix::{SignalKind, signal};

/// The distance between the ports of neighbouring nodes.
const PORT_STEP: u16 = 10;
/// Each block of so many nodes leaves room for another one before the next: a Pegasus client's first port is 200 below the other.
const PORT_BLOCK: u16 = 20;
/// The ports before any offset: for other nodes, and for clients.
const PEER_PORT: u16 = 29_015;
const REDIS_PORT: u16 = 6_379;
const PEGASUS_PORT: u16 = 34_801;
const PEGASUS_META_PORT: u16 = 34_601;
/// The tables that the test suites of Pegasus' clients use, with their partitions.
const ONEBOX_TABLES: [(&str, u32); 2] = [("temp", 8), ("stat", 4)];
const READY: Duration = Duration::from_secs(120);
/// The file of the secret that the nodes share, in the directory of all data.
const SECRET: &str = "cluster-secret";
/// The file in a node's folder that tells who it is, once it has founded the cluster or joined it.
const IDENTITY: &str = "node.json";
const POLL: Duration = Duration::from_millis(50);
/// Pause before a node that has ended is started again, long enough to see that the other nodes continue.
const RESTART: Duration = Duration::from_secs(5);
/// How long nodes may take to stop.
const STOP: Duration = Duration::from_secs(20);

#[derive(Args)]
pub struct LocalArgs {
    /// Number of nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// Where data is kept, with a folder and a log file for each node: `node-1` and `node-1.log`, and so on
    #[arg(long, default_value = "data")]
    data_dir: PathBuf,
    /// Added to every default port; node i, counted from 0, adds 10 times i more, and 200 more for every 20 nodes before it
    #[arg(long, default_value_t = 0)]
    port_offset: u16,
    /// Set up what the test suites of Apache Pegasus' clients expect: three nodes with meta ports 34601 to 34603 and data
    /// ports 34801 to 34803, and the tables `temp` (8 partitions) and `stat` (4)
    #[arg(long, conflicts_with_all = ["nodes", "port_offset"])]
    pegasus_onebox: bool,
    /// Override one setting of every node, e.g. --set logging.filter=warn; may be repeated. Unless they are set, `workers` is the
    /// machine's cores over the number of nodes, and `memory.limit_bytes` half of its memory over the number of nodes
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

struct Node {
    number: u16,
    child: Child,
    admin: NodeArgs,
    directory: PathBuf,
    log: PathBuf,
}

/// What a node adds to every default port, before what all of them add.
fn port_offset(number: u16) -> u16 {
    PORT_STEP * (number + number / PORT_BLOCK * PORT_BLOCK)
}

/// Runs the nodes until SIGINT or SIGTERM. A node that ends by itself is started again.
///
/// # Errors
/// Why a node could not start, or that one ended before all served.
pub fn run(args: &LocalArgs) -> Result<(), ExitError> {
    let other = |error: std::io::Error| ExitError::Other(error.to_string());
    std::fs::create_dir_all(&args.data_dir).map_err(|error| ExitError::DataDirectory(error.to_string()))?;
    make_secret(&args.data_dir.join(SECRET)).map_err(|error| ExitError::DataDirectory(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(other)?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(other)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(other)?;
        let mut nodes = Vec::new();
        let outcome = tokio::select! {
            outcome = watch(args, &mut nodes) => outcome,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        };
        stop(&mut nodes).await;
        outcome
    })
}

/// Makes a secret for the nodes, unless the file exists already.
fn make_secret(path: &Path) -> std::io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    if path.exists() {
        return Ok(());
    }
    let secret: String = rand::random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
    writeln!(file, "{secret}").and_then(|()| file.sync_all())?;
    std::fs::rename(unfinished, path)
}

/// What a node's folder and log file are called. An earlier version began to count at 0; the folders that it made are used on.
fn name_of(data_dir: &Path, number: u16) -> String {
    let first = if data_dir.join("node-0").is_dir() { 0 } else { 1 };
    format!("node-{}", first + number)
}

/// The nodes in the order in which they are started: those that are members already come first, since the others ask them to be let in.
fn in_order(args: &LocalArgs) -> Vec<u16> {
    let mut numbers: Vec<u16> = (0..args.nodes).collect();
    numbers.sort_by_key(|number| !is_member(args, *number));
    numbers
}

/// Whether a node has founded the cluster, or joined it.
fn is_member(args: &LocalArgs, number: u16) -> bool {
    args.data_dir.join(name_of(&args.data_dir, number)).join(IDENTITY).exists()
}

/// The cluster addresses of the other nodes that a new one can ask to be let in; `None` if a port is too large.
fn seeds(args: &LocalArgs, number: u16) -> Option<Vec<String>> {
    let others = (0..args.nodes).filter(|other| *other != number && is_member(args, *other));
    let address = |other| {
        let port = PEER_PORT.checked_add(args.port_offset)?.checked_add(port_offset(other))?;
        Some(format!("127.0.0.1:{port}"))
    };
    others.map(address).collect()
}

/// What a node is started with.
fn start_args(args: &LocalArgs, number: u16) -> Result<StartArgs, ExitError> {
    let usage =
        || ExitError::Usage(format!("--port-offset {} is too large for {} nodes", args.port_offset, args.nodes));
    let offset = args.port_offset.checked_add(port_offset(number)).ok_or_else(usage)?;
    let mut overrides = Vec::new();
    if args.pegasus_onebox {
        // Neighbouring ports, whatever the offset.
        let port = |first: u16| (first + number).wrapping_sub(offset);
        for (name, first) in [("port", PEGASUS_PORT), ("meta_port", PEGASUS_META_PORT)] {
            overrides.push(format!("pegasus.{name}={}", port(first)));
        }
    }
    // The nodes share the cores. Two threads of a node that take turns on one only make smaller batches.
    if !is_set(args, "workers") {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        overrides.push(format!("workers={}", cores.div_ceil(usize::from(args.nodes))));
    }
    // So do they the memory.
    if !is_set(args, "memory.limit_bytes") {
        let of_machine = MemoryBudget::new(&MemoryConfig::default()).limit_bytes();
        overrides.push(format!("memory.limit_bytes={}", of_machine / u64::from(args.nodes)));
    }
    if !is_set(args, "cluster.secret") {
        overrides.push(format!("cluster.secret_file={}", args.data_dir.join(SECRET).display()));
    }
    // All of them start at the same time, and no client is left from before.
    if !is_set(args, "cluster.lead_again_after_seconds") {
        overrides.push("cluster.lead_again_after_seconds=0".into());
    }
    // What is tried here expects as many databases as Redis has.
    if !is_set(args, "redis.databases") {
        overrides.push("redis.databases=16".into());
    }
    overrides.extend(args.overrides.iter().cloned());
    Ok(StartArgs {
        data_dir: Some(args.data_dir.join(name_of(&args.data_dir, number))),
        port_offset: Some(offset),
        join: seeds(args, number).ok_or_else(usage)?,
        overrides,
        ..StartArgs::default()
    })
}

/// How a node with this configuration is asked: with TLS if it has a certificate, which it is known by whatever name stands in it.
fn admin(config: &Config) -> Result<NodeArgs, ExitError> {
    let mut address = address(config.admin.bind, config.admin.port, config.port_offset)?;
    if address.ip().is_unspecified() {
        let loopback = if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        address.set_ip(loopback);
    }
    let (scheme, own_certificate) = match config.has_tls() {
        true => ("https", Some(config.tls.certificate.clone())),
        false => ("http", None),
    };
    Ok(NodeArgs::of_own(format!("{scheme}://{address}"), own_certificate))
}

fn start(args: &LocalArgs, number: u16) -> Result<Node, ExitError> {
    let start = start_args(args, number)?;
    let config = start.load()?;
    let log = args.data_dir.join(format!("{}.log", name_of(&args.data_dir, number)));
    let describe = |path: &Path, error| ExitError::DataDirectory(format!("{}: {error}", path.display()));
    let output = File::options().create(true).append(true).open(&log).map_err(|error| describe(&log, error))?;
    let program = std::env::current_exe().map_err(|error| ExitError::Other(error.to_string()))?;
    let mut command = Command::new(program);
    command.arg("start").arg("--data-dir").arg(&config.data_dir);
    command.args(["--port-offset", &config.port_offset.to_string()]);
    for (option, values) in [("--join", &start.join), ("--set", &start.overrides)] {
        values.iter().for_each(|value| _ = command.arg(option).arg(value));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    // Nodes that nobody watches any more should not stay behind. They get a group of their own, so that Ctrl-C reaches
    // them through this process, once.
    command.process_group(0);
    end_with_parent(&mut command);
    let child = command.spawn().map_err(|error| ExitError::Other(format!("a node cannot be started: {error}")))?;
    Ok(Node { number, child, admin: admin(&config)?, directory: config.data_dir, log })
}

/// Whether the user has set something whose name begins so, by an option or in the environment.
fn is_set(args: &LocalArgs, name: &str) -> bool {
    let variable = format!("TESSERA_{}", name.to_uppercase().replace('.', "__"));
    args.overrides.iter().any(|setting| setting.starts_with(name))
        || std::env::vars().any(|(name, _)| name.starts_with(&variable))
}

/// Starts the nodes, waits until all of them serve, prints that, and then restarts each node that ends. Nodes that were removed from the
/// cluster are left out.
async fn watch(args: &LocalArgs, nodes: &mut Vec<Node>) -> Result<(), ExitError> {
    // Since the last one was started.
    let mut began = Instant::now();
    let mut is_ready = false;
    let mut to_start = in_order(args).into_iter();
    loop {
        // New nodes join one after the other, so that the second one gets the number 2.
        while nodes.iter().all(|node| identity(node).is_some())
            && let Some(number) = to_start.next()
        {
            nodes.push(start(args, number)?);
            began = Instant::now();
        }
        for node in nodes.iter_mut() {
            let Ok(Some(status)) = node.child.try_wait() else { continue };
            let (port, log) = (REDIS_PORT + args.port_offset + port_offset(node.number), node.log.display());
            let ended = format!("the node with port {port} ended by itself ({status}); its last words are in {log}");
            if !is_ready {
                let words = last_words(&node.log).unwrap_or_default();
                let words = words.strip_prefix("error: ").unwrap_or(&words);
                return Err(ExitError::of_node(status.code(), format!("{ended}: {words}")));
            }
            println!("{ended}; it is started again in {} seconds", RESTART.as_secs());
            tokio::time::sleep(RESTART).await;
            *node = start(args, node.number)?;
        }
        if !is_ready {
            let (is_complete, count) = (to_start.as_slice().is_empty(), nodes.len());
            let standing = |node: &Node| match is_complete {
                true => standing(node, count),
                // The others are started when this one has joined.
                false if identity(node).is_none() => Standing::Starts,
                false => Standing::Serves,
            };
            let standings: Vec<Standing> = nodes.iter().map(standing).collect();
            if let Some(at) = standings.iter().position(|standing| *standing == Standing::Removed) {
                let mut removed = nodes.remove(at);
                stop(std::slice::from_mut(&mut removed)).await;
                println!("{}", left_out(&removed.directory));
                if nodes.is_empty() {
                    return Err(ExitError::DataDirectory("no node is left that is part of a cluster".into()));
                }
                continue;
            }
            if is_complete && standings.iter().all(|standing| *standing == Standing::Serves) {
                is_ready = true;
                if args.pegasus_onebox {
                    create_onebox_tables(&nodes[0].admin)?;
                }
                show_ready(&nodes[0].admin)?;
            } else if began.elapsed() >= READY {
                let waiting = nodes.iter().zip(&standings).filter(|(_, standing)| **standing == Standing::Starts);
                let logs: Vec<_> = waiting.map(|(node, _)| node.log.display().to_string()).collect();
                return Err(ExitError::Other(format!("not ready within {READY:?}; see {}", logs.join(" and "))));
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// What to say of a node that was removed from the cluster.
fn left_out(directory: &Path) -> String {
    let directory = directory.display();
    format!(
        "the node in {directory} was removed from the cluster and is left out; to have a new node in its place, stop all, move \
         {directory} away, and start again"
    )
}

/// Prints that all nodes serve, and who they are.
fn show_ready(admin: &NodeArgs) -> Result<(), ExitError> {
    match call(admin, "GET", "/v1/cluster", None) {
        Ok(cluster) => node_command::print_nodes(&cluster),
        Err(ExitError::Unauthorized(error)) => println!("the nodes are not shown here: {error}"),
        Err(error) => return Err(error),
    }
    let tls = if admin.own_certificate.is_some() { "--tls --cacert FILE " } else { "" };
    println!("\nready: any node answers, e.g. redis-cli {tls}-p PORT; Ctrl-C stops all");
    Ok(())
}

/// Creates the tables that do not exist yet.
fn create_onebox_tables(admin: &NodeArgs) -> Result<(), ExitError> {
    let tables = call(admin, "GET", "/v1/tables", None)?;
    let is_there = |name: &str| tables.as_array().is_some_and(|all| all.iter().any(|table| table["name"] == name));
    for (name, partitions) in ONEBOX_TABLES.iter().filter(|(name, _)| !is_there(name)) {
        let table = serde_json::json!({ "name": name, "engine": "rocksdb", "partitions": partitions });
        call(admin, "POST", "/v1/tables", Some(&table))?;
    }
    Ok(())
}

/// The last line that a node has written to its log.
fn last_words(log: &Path) -> Option<String> {
    let text = std::fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(4 << 10)..]).into_owned();
    text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_string)
}

/// What the node was given when it founded the cluster or joined it.
fn identity(node: &Node) -> Option<serde_json::Value> {
    let text = std::fs::read_to_string(node.directory.join(IDENTITY)).ok()?;
    serde_json::from_str(&text).ok()
}

/// How far a node is with its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Starts,
    /// It knows all others and a leader for every partition.
    Serves,
    /// It is not part of its cluster any more.
    Removed,
}

/// How far one of `nodes` nodes is. On its port another cluster may answer, as long as the node has not noticed that the port is taken.
fn standing(node: &Node, nodes: usize) -> Standing {
    let serves_if = |it_does| if it_does { Standing::Serves } else { Standing::Starts };
    let status = match call(&node.admin, "GET", "/v1/status", None) {
        Ok(status) => status,
        // Everybody is told this much.
        Err(ExitError::Unauthorized(_)) => {
            return match call(&node.admin, "GET", "/readyz", None) {
                Err(error) if error.to_string().contains("removed: ") => Standing::Removed,
                answer => serves_if(answer.is_ok()),
            };
        }
        Err(_) => return Standing::Starts,
    };
    let is_it = |identity: &serde_json::Value| {
        identity["cluster"] == status["cluster"]["cluster"] && identity["node"] == status["cluster"]["node"]
    };
    if !identity(node).as_ref().is_some_and(is_it) {
        return Standing::Starts;
    }
    if status["is_removed"] == true {
        return Standing::Removed;
    }
    let known = status["cluster"]["nodes"].as_array().map_or(0, Vec::len);
    serves_if(known >= nodes && status["partitions"] == status["serving_partitions"])
}

/// Has the child process receive SIGTERM when this process ends, however it ends.
#[expect(unsafe_code, reason = "what runs between fork and exec must not allocate or lock")]
fn end_with_parent(command: &mut Command) {
    // SAFETY: it makes one plain system call.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?)) };
}

async fn stop(nodes: &mut [Node]) {
    for node in nodes.iter() {
        // One that has ended already needs no signal.
        let _ = kill_process(Pid::from_child(&node.child), Signal::TERM);
    }
    let began = Instant::now();
    while nodes.iter_mut().any(|node| matches!(node.child.try_wait(), Ok(None))) {
        if began.elapsed() >= STOP {
            nodes.iter_mut().for_each(|node| _ = node.child.kill());
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Where the first node's folder had been moved away, the node once founded another cluster.
    #[test]
    fn new_nodes_are_started_last_and_join_those_that_are_there() {
        let directory = tempfile::tempdir().unwrap();
        let args = LocalArgs {
            nodes: 3,
            data_dir: directory.path().into(),
            port_offset: 100,
            pegasus_onebox: false,
            overrides: Vec::new(),
        };
        let seeds = |number: u16| start_args(&args, number).unwrap().join;
        assert_eq!((in_order(&args), seeds(0)), (vec![0, 1, 2], Vec::new()), "it founds the cluster");
        for number in 2..=3 {
            let folder = directory.path().join(format!("node-{number}"));
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(IDENTITY), "{}").unwrap();
        }
        assert_eq!(in_order(&args), [1, 2, 0]);
        assert_eq!(seeds(0), ["127.0.0.1:29125", "127.0.0.1:29135"]);
        assert_eq!(seeds(1), ["127.0.0.1:29135"]);
    }

    /// With 21 nodes, the first port of the last one for clients of Pegasus once was the second port of the first one.
    #[test]
    fn no_two_of_64_nodes_have_a_port_in_common() {
        let config = crate::config::Config::default();
        let ports = [
            config.redis.port,
            config.admin.port,
            config.reql.port,
            config.cluster.port,
            config.pegasus.port,
            config.pegasus.meta_port,
        ];
        assert!([REDIS_PORT, PEER_PORT, PEGASUS_PORT, PEGASUS_META_PORT].iter().all(|port| ports.contains(port)));
        let all: Vec<u16> = (0..64).flat_map(|number| ports.map(|port| port + port_offset(number))).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert_eq!((port_offset(2), port_offset(19), port_offset(20)), (20, 190, 400));
    }
}
