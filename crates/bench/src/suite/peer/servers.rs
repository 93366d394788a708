//! The servers that the suite starts beside Tessera, where they are installed.

use crate::driver::Protocol;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

/// Of the primary; replicas follow.
const REDIS_PORT: u16 = 9_979;
const MEMCACHED_PORT: u16 = 9_978;
/// Of the first member's clients; other members, and members among themselves, follow.
const ETCD_PORT: u16 = 9_970;
const ETCD_MEMBERS: u16 = 3;

/// What the name of servers says that are as many as the nodes.
pub const SPREAD: &str = "one copy over as many processes as nodes";

/// Servers that work together, and do not run yet.
pub(super) struct ServerSet {
    pub(super) protocol: Protocol,
    /// What they are, and how durable.
    pub(super) name: String,
    pub(super) servers: Vec<Server>,
    /// Whether each has a part of the records, which clients find by the hash of a key.
    pub(super) is_spread: bool,
}

/// A server that keeps what it has where it is started.
pub(super) struct Server {
    pub(super) command: Command,
    pub(super) port: u16,
    /// Whether it has no clients, and only what another one tells it.
    pub(super) is_replica: bool,
}

impl Server {
    /// Whether it was started and answers, and has heard from its primary.
    pub(super) fn is_ready(&self) -> bool {
        let Self { port, is_replica, .. } = *self;
        let ask = || -> io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            let mut said = String::new();
            if is_replica {
                stream.set_read_timeout(Some(Duration::from_secs(1)))?;
                stream.write_all(b"INFO replication\r\nQUIT\r\n")?;
                stream.read_to_string(&mut said)?;
            }
            Ok(said)
        };
        ask().is_ok_and(|said| !is_replica || said.contains("master_link_status:up"))
    }
}

fn copies(count: u16) -> String {
    match count {
        1 => "one copy".into(),
        2 => "two copies".into(),
        3 => "three copies".into(),
        more => format!("{more} copies"),
    }
}

/// A server of Redis that keeps its data with a table's durability.
struct Redis {
    version: String,
    append_only: &'static str,
    sync: &'static str,
    durability: &'static str,
}

impl Redis {
    fn find(durability: &str) -> Option<Self> {
        let version = version("redis-server", "v=")?;
        let (append_only, sync, durability) = match durability {
            "none" => ("no", "no", "volatile"),
            "soft" => ("yes", "everysec", "appendfsync everysec"),
            _ => ("yes", "always", "appendfsync always"),
        };
        Some(Self { version, append_only, sync, durability })
    }

    fn server(&self, number: u16, primary: Option<u16>) -> Server {
        let port = REDIS_PORT + number;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--loglevel", "warning"]);
        command.args(["--save", "", "--appendonly", self.append_only, "--appendfsync", self.sync]);
        command.args(["--repl-diskless-sync-delay", "0"]);
        if let Some(primary) = primary {
            command.args(["--replicaof", "127.0.0.1", &primary.to_string()]);
        }
        Server { command, port, is_replica: primary.is_some() }
    }
}

/// A primary and its replicas, which it does not wait for.
pub(super) fn redis(durability: &str, count: u16) -> Option<ServerSet> {
    let redis = Redis::find(durability)?;
    let order = if count > 1 { " (asynchronous)" } else { "" };
    let name = format!("redis-server {}, {}{order}, {}", redis.version, copies(count), redis.durability);
    let servers = (0..count).map(|number| redis.server(number, (number > 0).then_some(REDIS_PORT))).collect();
    Some(ServerSet { protocol: Protocol::Redis, name, servers, is_spread: false })
}

/// Servers that know nothing of each other, over which clients spread keys.
pub(super) fn spread_redis(durability: &str, count: u16) -> Option<ServerSet> {
    let redis = Redis::find(durability)?;
    let name = format!("redis-server {}, {SPREAD}, {}", redis.version, redis.durability);
    let servers = (0..count).map(|number| redis.server(number, None)).collect();
    Some(ServerSet { protocol: Protocol::Redis, name, servers, is_spread: true })
}

pub(super) fn memcached() -> Option<ServerSet> {
    let version = version("memcached", "memcached ")?;
    let mut command = Command::new("memcached");
    // It refuses to run as root unless told who else to be.
    command.args(["-l", "127.0.0.1", "-p", &MEMCACHED_PORT.to_string(), "-m", "4096", "-u", "nobody"]);
    let name = format!("memcached {version}, {}, volatile", copies(1));
    let server = Server { command, port: MEMCACHED_PORT, is_replica: false };
    Some(ServerSet { protocol: Protocol::Memcached, name, servers: vec![server], is_spread: false })
}

/// One member, or as many as tolerate the loss of one.
pub(super) fn etcd(count: u16) -> Option<ServerSet> {
    let version = version("etcd", "etcd Version: ")?;
    let members = if count > 1 { ETCD_MEMBERS } else { 1 };
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let ports = |member: u16| (ETCD_PORT + member, ETCD_PORT + ETCD_MEMBERS + member);
    let cluster: Vec<String> = (0..members).map(|member| format!("m{member}={}", url(ports(member).1))).collect();
    let server = |member: u16| {
        let (port, peers) = ports(member);
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{member}"), "--initial-cluster", &cluster.join(","), "--data-dir", "etcd"]);
        command.args(["--listen-client-urls", &url(port), "--advertise-client-urls", &url(port)]);
        command.args(["--listen-peer-urls", &url(peers), "--initial-advertise-peer-urls", &url(peers)]);
        // It keeps what is written over, and refuses more than 2 GiB unless told so.
        command.args(["--log-level", "error", "--quota-backend-bytes", &(8_u64 << 30).to_string()]);
        Server { command, port, is_replica: false }
    };
    let name = format!("etcd {version}, {}, fsync", copies(members));
    Some(ServerSet { protocol: Protocol::Etcd, name, servers: (0..members).map(server).collect(), is_spread: false })
}

/// The version of a server that is installed, which follows `mark` where it tells.
fn version(program: &str, mark: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(said.split_once(mark)?.1.split_whitespace().next()?.to_string())
}
