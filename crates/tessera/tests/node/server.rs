//! Real servers for the time of a test.

use crate::resp_client::{Client, Value};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to begin.
const START: Duration = Duration::from_secs(60);

/// A port that is free and that no outgoing connection will take: it lies below the range from which the system
/// chooses theirs, and not among those of the nodes that `tessera local` starts in tests.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 11_000;
    const COUNT: u32 = 19_000;
    loop {
        // Test runs beside this one begin elsewhere.
        let number = NEXT.fetch_add(1, Ordering::Relaxed) + std::process::id() * 64;
        let port = u16::try_from(FIRST + number % COUNT).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Asks again until there is an answer or the time is over. Waits by yielding to the process that is asked.
pub fn wait_for<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Makes a certificate for this machine, which its own key has signed. Returns the files of both.
pub fn self_signed(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (certificate, key) =
        (directory.join(format!("{name}.certificate.pem")), directory.join(format!("{name}.key.pem")));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    openssl.args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=CA:FALSE", "-keyout"]).arg(&key).arg("-out").arg(&certificate);
    let made = openssl.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (certificate, key)
}

/// A process that ends with its handle.
pub struct Process {
    child: Child,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Self { child: child.unwrap_or_else(|error| panic!("{command:?}: {error}")) }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn terminate(&mut self) -> Option<i32> {
        Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        self.wait()
    }

    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Tessera node.
pub struct Node {
    pub process: Process,
    pub redis_port: u16,
    pub admin_port: u16,
}

pub fn tessera() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tessera"))
}

/// The default ports of the Pegasus face are among those that the system gives to outgoing connections: it is off.
pub fn set_ports(command: &mut Command, redis: u16, admin: u16) {
    let peers = free_port();
    for setting in [format!("redis.port={redis}"), format!("admin.port={admin}"), format!("cluster.port={peers}")] {
        command.args(["--set", &setting]);
    }
    command.args(["--set", "pegasus.port=0", "--set", "pegasus.meta_port=0", "--set", "reql.port=0"]);
}

impl Node {
    pub fn start(data: &Path, settings: &[&str]) -> Self {
        let (redis_port, admin_port) = (free_port(), free_port());
        Self::start_on(data, redis_port, admin_port, settings)
    }

    pub fn start_on(data: &Path, redis_port: u16, admin_port: u16, settings: &[&str]) -> Self {
        let mut node = Self::spawn(data, redis_port, admin_port, settings);
        wait_for("the node serves", START, || {
            assert!(!node.process.has_ended(), "the node ended");
            node.is_serving().then_some(())
        });
        node
    }

    pub fn spawn(data: &Path, redis_port: u16, admin_port: u16, settings: &[&str]) -> Self {
        let mut command = tessera();
        command.arg("start");
        Self::spawn_with(command, data, redis_port, admin_port, settings)
    }

    /// `command` ends with `start`.
    pub fn spawn_with(mut command: Command, data: &Path, redis_port: u16, admin_port: u16, settings: &[&str]) -> Self {
        command.arg("--data-dir").arg(data);
        // Nobody would remove what a killed node leaves in memory.
        command.arg("--set").arg(format!("log.staging_directory={}", data.display()));
        // Small enough that segments end and checkpoints happen during tests.
        for setting in ["logging.filter=warn", "log.segment_bytes=4194304", "rocksdb.block_cache_bytes=33554432"] {
            command.args(["--set", setting]);
        }
        set_ports(&mut command, redis_port, admin_port);
        for setting in settings {
            command.args(["--set", setting]);
        }
        Self { process: Process::start(&mut command), redis_port, admin_port }
    }

    pub fn is_serving(&self) -> bool {
        let loaded = |mut client: Client| client.call(&crate::resp_client::words("INFO persistence")).ok();
        let info = Client::connect(self.redis_port).ok().and_then(loaded);
        matches!(info, Some(Value::Bulk(text)) if text.windows(9).any(|part| part == b"loading:0"))
    }

    pub fn client(&self) -> Client {
        Client::connect(self.redis_port).unwrap()
    }

    /// Runs the CLI against this node and returns what it printed.
    pub fn cli(&self, arguments: &str) -> String {
        self.try_cli(arguments, "").unwrap_or_else(|error| panic!("{arguments}: {error}"))
    }

    /// Runs the CLI against this node with something on its standard input.
    ///
    /// # Errors
    /// What it complains about.
    pub fn try_cli(&self, arguments: &str, input: &str) -> Result<String, String> {
        let mut command = tessera();
        command.args(arguments.split(' ')).args(["--admin", &format!("http://127.0.0.1:{}", self.admin_port)]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that reads nothing has perhaps ended already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        if output.status.success() { Ok(out) } else { Err(error) }
    }
}

/// The peer to compare with: redis-server of the system.
pub struct RedisPeer {
    _process: Process,
    _directory: TempDir,
    pub port: u16,
}

impl RedisPeer {
    pub fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--loglevel", "warning"]);
        command.current_dir(directory.path());
        let process = Process::start(&mut command);
        wait_for("redis-server answers", START, || Client::connect(port).ok());
        Self { _process: process, _directory: directory, port }
    }
}

/// What an admin port answers, with its head.
/// Waits until so much more has been counted.
pub fn wait_for_more(counted: &AtomicU64, more: u64, limit: Duration) {
    let before = counted.load(Ordering::Relaxed);
    wait_for("more is counted", limit, || (counted.load(Ordering::Relaxed) >= before + more).then_some(()));
}

pub fn http_get(port: u16, path: &str) -> Option<String> {
    http_get_from("127.0.0.1", port, path)
}

pub fn http_get_from(host: &str, port: u16, path: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect((host, port)).ok()?;
    // In one piece: who closes the connection after the first would reset it at the second.
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}
