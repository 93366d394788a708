//! redis-server beside Tessera: the same workloads through the same driver, in the same run.

use super::cell::TableSpec;
use anyhow::{Context, bail};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PORT: u16 = 9_979;
const READY: Duration = Duration::from_secs(10);

/// One process with one copy of the records, as durable as a table.
pub struct RedisServer {
    child: Child,
    data: PathBuf,
    /// Its version, and how durable it is.
    pub name: String,
}

impl RedisServer {
    /// Starts the one that is installed; `None` if none is.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn start(table: &TableSpec, data: &Path) -> anyhow::Result<Option<Self>> {
        let Ok(version) = Command::new("redis-server").arg("--version").output() else { return Ok(None) };
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let version = version.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("?").to_string();
        let (append_only, sync, durability) = match table.durability.as_str() {
            "none" => ("no", "no", "volatile"),
            "soft" => ("yes", "everysec", "appendfsync everysec"),
            _ => ("yes", "always", "appendfsync always"),
        };
        std::fs::create_dir_all(data)?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &PORT.to_string(), "--save", "", "--appendonly", append_only, "--appendfsync", sync]);
        command.arg("--dir").arg(data).args(["--bind", "127.0.0.1", "--loglevel", "warning"]);
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().context("redis-server cannot be started")?;
        let name = format!("redis-server {version}, one copy, {durability}");
        let server = Self { child, data: data.to_path_buf(), name };
        let began = Instant::now();
        while TcpStream::connect(server.address()).is_err() {
            if began.elapsed() >= READY {
                bail!("redis-server does not answer on port {PORT}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(server))
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], PORT))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}
