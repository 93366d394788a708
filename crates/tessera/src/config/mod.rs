//! The configuration of a node: file, environment, flags, in ascending order of precedence. Unknown keys are refused.

mod check;
mod meant;
mod secret;
mod sizes;
mod user_section;

use crate::exit::ExitError;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use tessera_engine::{MemoryConfig, RocksConfig};
use tessera_reql_wire::Reach;
use tessera_types::Limits;
pub use user_section::UserSection;

/// The commented file that `tessera config init` prints.
pub const TEMPLATE: &str = include_str!("template.toml");

/// Everything that can be set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub data_dir: PathBuf,
    pub port_offset: u16,
    pub workers: usize,
    pub insecure: bool,
    pub redis: RedisSection,
    pub pegasus: PegasusSection,
    pub clients: ClientsSection,
    pub reql: ReqlSection,
    pub admin: AdminSection,
    pub cluster: ClusterSection,
    pub tls: TlsSection,
    pub log: LogSection,
    pub tables: TablesSection,
    pub memory: MemoryConfig,
    pub rocksdb: RocksConfig,
    pub limits: Limits,
    pub logging: LoggingSection,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisSection {
    pub bind: IpAddr,
    pub port: u16,
    pub max_clients: usize,
    pub write_timeout_ms: u64,
    pub slow_log_micros: i64,
    pub slow_log_entries: usize,
    pub transactions: Transactions,
    /// How many databases `SELECT` knows, each a table that is created when it is first selected; 0 if its numbers are those of tables.
    pub databases: u32,
    pub users: Vec<UserSection>,
}

/// Which keys a command, or a transaction, may change at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transactions {
    /// Any keys of a table.
    #[default]
    Any,
    /// Those of one partition.
    Partition,
}

/// Clients of all faces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientsSection {
    /// What they may cost together; 0 for no limit.
    pub memory_limit_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PegasusSection {
    pub bind: IpAddr,
    /// Where clients send requests for data; 0 for no Pegasus clients at all.
    pub port: u16,
    /// Where clients ask first; 0 for no port of its own, since every port answers everything.
    pub meta_port: u16,
    /// Who may use the face although there are Redis users: addresses, and networks as ADDRESS/BITS.
    pub open_addresses: Vec<String>,
    /// Tables that everybody may use although there are Redis users.
    pub open_tables: Vec<String>,
    pub max_clients: usize,
    pub write_timeout_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReqlSection {
    pub bind: IpAddr,
    /// Where drivers of RethinkDB connect; 0 for none.
    pub port: u16,
    pub max_clients: usize,
    /// Queries that run at one time, each on a thread; more wait.
    pub query_threads: usize,
    /// Queries of one user that are under way at one time; more are refused. 0 for no limit.
    pub user_queries: usize,
    /// The share of the threads on which queries are under way that one user may have, in hundredths; more queries wait.
    pub user_threads_percent: usize,
    /// The longest query.
    pub query_bytes: usize,
    /// How long a client may take to say who it is.
    pub greeting_timeout_ms: u64,
    pub write_timeout_ms: u64,
    /// After so long without being asked for more, a stream is closed.
    pub cursor_timeout_seconds: u64,
    /// Bytes of documents of which this node makes entries of new indexes in a second; zero is as many as it can.
    pub index_bytes_per_second: u64,
    /// Where `r.http` may send requests.
    pub http: Reach,
    /// Processes that run programs of `r.js` at one time; 0 for no such programs.
    pub javascript_workers: usize,
}

impl Default for ReqlSection {
    fn default() -> Self {
        Self {
            bind: LOOPBACK,
            port: 28_015,
            max_clients: 10_000,
            query_threads: 8,
            user_queries: 10_000,
            user_threads_percent: 50,
            query_bytes: 128 << 20,
            greeting_timeout_ms: 10_000,
            write_timeout_ms: 60_000,
            cursor_timeout_seconds: 600,
            index_bytes_per_second: 32 << 20,
            http: Reach::default(),
            javascript_workers: 4,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminSection {
    pub bind: IpAddr,
    pub port: u16,
    /// Empty for none.
    pub token_sha256: String,
    /// Names of this node for which requests may ask, beside `localhost` and addresses.
    pub hosts: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSection {
    pub bind: IpAddr,
    pub port: u16,
    /// Host name or address under which others find this node; empty for `bind`.
    pub advertise: String,
    /// What all nodes of the cluster know and nobody else; empty for none, or for that of the file.
    pub secret: String,
    /// A file with the secret; empty for none.
    pub secret_file: PathBuf,
    pub join: Vec<String>,
    /// Empty for none.
    pub zone: String,
    pub replace_after_seconds: u64,
    pub lead_again_after_seconds: u64,
    /// Bytes of replicas that this node takes in a second while they move here.
    pub move_bytes_per_second: u64,
    /// Zero is never.
    pub balance_interval_seconds: u64,
    /// Zero is never, unless somebody asks.
    pub compare_interval_seconds: u64,
    /// Bytes of records that this node has compared in a second; zero is as many as it can.
    pub compare_bytes_per_second: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSection {
    /// Empty for no TLS.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    pub segment_bytes: u64,
    pub limit_bytes: u64,
    pub soft_sync_interval_ms: u64,
    /// Empty for none.
    pub staging_directory: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TablesSection {
    pub drop_retention_seconds: u64,
    pub flush_age_seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingSection {
    pub filter: String,
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: "data".into(),
            port_offset: 0,
            workers: 0,
            insecure: false,
            redis: RedisSection::default(),
            pegasus: PegasusSection::default(),
            clients: ClientsSection::default(),
            reql: ReqlSection::default(),
            admin: AdminSection::default(),
            cluster: ClusterSection::default(),
            tls: TlsSection::default(),
            log: LogSection::default(),
            tables: TablesSection::default(),
            memory: MemoryConfig::default(),
            rocksdb: RocksConfig::default(),
            limits: Limits::default(),
            logging: LoggingSection::default(),
        }
    }
}

impl Default for ClusterSection {
    fn default() -> Self {
        Self {
            bind: LOOPBACK,
            port: 29_015,
            advertise: String::new(),
            secret: String::new(),
            secret_file: PathBuf::new(),
            join: Vec::new(),
            zone: String::new(),
            replace_after_seconds: 300,
            lead_again_after_seconds: 70,
            move_bytes_per_second: 100 << 20,
            balance_interval_seconds: 60,
            compare_interval_seconds: 7 * 86_400,
            compare_bytes_per_second: 4 << 20,
        }
    }
}

impl Default for RedisSection {
    fn default() -> Self {
        Self {
            bind: LOOPBACK,
            port: 6379,
            max_clients: 10_000,
            write_timeout_ms: 60_000,
            slow_log_micros: 10_000,
            slow_log_entries: 128,
            transactions: Transactions::Any,
            databases: 0,
            users: Vec::new(),
        }
    }
}

impl Default for ClientsSection {
    fn default() -> Self {
        Self { memory_limit_bytes: 1 << 30 }
    }
}

impl Default for PegasusSection {
    fn default() -> Self {
        Self {
            bind: LOOPBACK,
            port: 34_801,
            meta_port: 34_601,
            open_addresses: Vec::new(),
            open_tables: Vec::new(),
            max_clients: 10_000,
            write_timeout_ms: 60_000,
        }
    }
}

impl Default for AdminSection {
    fn default() -> Self {
        Self { bind: LOOPBACK, port: 8080, token_sha256: String::new(), hosts: Vec::new() }
    }
}

impl Default for LogSection {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            limit_bytes: 1 << 30,
            soft_sync_interval_ms: 100,
            staging_directory: PathBuf::from("/dev/shm"),
        }
    }
}

impl Default for TablesSection {
    fn default() -> Self {
        Self { drop_retention_seconds: 86_400, flush_age_seconds: 600 }
    }
}

impl Default for LoggingSection {
    fn default() -> Self {
        Self { filter: "info".into(), format: LogFormat::Text }
    }
}

/// Settings in environment variables: `TESSERA_REDIS__PORT=7000` is `redis.port = 7000`. Variables without a double
/// underscore count only if they name a setting of the top level, since others are for the CLI.
pub fn from_environment(variables: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    variables
        .filter_map(|(name, value)| {
            let key = name.strip_prefix("TESSERA_")?.to_lowercase().replace("__", ".");
            let known = key.contains('.') || ["data_dir", "port_offset", "workers", "insecure"].contains(&key.as_str());
            known.then_some((key, value))
        })
        .collect()
}

/// Reads the file, if there is one, and applies the overrides in order.
///
/// # Errors
/// [`ExitError::Config`] with what is wrong and where.
pub fn load(path: Option<&Path>, overrides: &[(String, String)]) -> Result<Config, ExitError> {
    let mut table = match path {
        None => toml::Table::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| ExitError::Config(format!("{}: {error}", path.display())))?;
            let wrong = |reason: String| ExitError::Config(format!("{}: {reason}", path.display()));
            let text = sizes::read_in_text(&text).map_err(wrong)?;
            // The text itself, because that reports the line of what is wrong.
            let unread = |error: toml::de::Error| wrong(meant::with_question(&error.to_string()));
            toml::from_str::<Config>(&text).map_err(unread)?;
            toml::from_str(&text).map_err(unread)?
        }
    };
    let mut config = parse(&table).map_err(|error| ExitError::Config(error.to_string()))?;
    for (key, value) in overrides {
        set(&mut table, key, value)?;
        sizes::read(&mut table).map_err(ExitError::Config)?;
        // Parsed after each, so that the error names the one that is wrong.
        config = parse(&table).map_err(|error| {
            let reason = error.message();
            let question = meant::question(reason).map_or_else(String::new, |question| format!(". {question}"));
            ExitError::Config(format!("{key}: {reason}; `tessera config init` prints all settings{question}"))
        })?;
    }
    check::check(&config)?;
    Ok(config)
}

fn parse(table: &toml::Table) -> Result<Config, toml::de::Error> {
    toml::Value::Table(table.clone()).try_into()
}

fn set(table: &mut toml::Table, key: &str, value: &str) -> Result<(), ExitError> {
    // What is no TOML value by itself is meant as text.
    let parsed =
        toml::from_str::<toml::Table>(&format!("value = {value}")).ok().and_then(|mut table| table.remove("value"));
    let value = parsed.unwrap_or_else(|| toml::Value::String(value.to_string()));
    let mut place = table;
    let mut parts = key.split('.').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            place.insert(part.to_string(), value);
            return Ok(());
        }
        let next = place.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        place =
            next.as_table_mut().ok_or_else(|| ExitError::Config(format!("'{part}' in '{key}' is not a section")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_names_every_setting_with_its_default() {
        let uncommented: String = TEMPLATE
            .lines()
            .map(|line| {
                line.strip_prefix('#').filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase())).unwrap_or(line)
            })
            .map(|line| format!("{line}\n"))
            .collect();
        let parsed: Config = toml::from_str(&uncommented).unwrap();
        assert_eq!(parsed, Config::default());
        // Nothing is left out: every key of the defaults stands in the template.
        let defaults = toml::Table::try_from(Config::default()).unwrap();
        for (section, value) in defaults {
            let keys: Vec<String> = match value {
                toml::Value::Table(table) => table.keys().cloned().collect(),
                _ => vec![section],
            };
            for key in keys.iter().filter(|key| *key != "users") {
                assert!(TEMPLATE.contains(&format!("#{key} = ")), "{key} is not in the template");
            }
        }
        assert_eq!(toml::from_str::<Config>(TEMPLATE).unwrap(), Config::default());
    }

    #[test]
    fn sizes_have_units_where_bytes_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tessera.toml");
        let text = "[memory]\nlimit_bytes = \"4GB\"\n[rocksdb]\nblock_cache_bytes = \"1.5 GiB\"\n[limits]\nwrite_bytes = 1048576\n";
        std::fs::write(&file, text).unwrap();
        let overrides = [("clients.memory_limit_bytes", "512MiB"), ("log.limit_bytes", "2000000000")];
        let overrides = overrides.map(|(key, value)| (key.to_string(), value.to_string()));
        let config = load(Some(&file), &overrides).unwrap();
        assert_eq!((config.memory.limit_bytes, config.rocksdb.block_cache_bytes), (4_000_000_000, 1536 << 20));
        assert_eq!((config.clients.memory_limit_bytes, config.log.limit_bytes), (512 << 20, 2_000_000_000));
        for wrong in ["much", "-1GB", "4 apples"] {
            let error = load(None, &[("memory.limit_bytes".into(), wrong.into())]).unwrap_err().to_string();
            assert!(error.contains(&format!("memory.limit_bytes: {wrong:?} is no size")), "{error}");
        }
        // Beside a size, an error once had no line.
        for (text, line, reason) in [
            ("[memory]\n\nlimit_byte = 1\n", "line 3", "unknown field `limit_byte`"),
            ("[memory]\nlimit_bytes = \"1GB\"\n[redis]\nprot = 1\n", "line 4", "unknown field `prot`"),
            ("[memory]\nlimit_bytes = \"1GB\"\n[redis]\nport = \"x\"\n", "line 4", "invalid type"),
            ("[log]\n[memory]\nlimit_bytes = \"much\"\n", "line 3", "memory.limit_bytes: \"much\" is no size"),
            ("[redis]\nport = 1\n[memory\n", "line 3", ""),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = load(Some(&file), &[]).unwrap_err().to_string();
            let names_file = error.contains(&file.display().to_string());
            assert!(names_file && error.contains(line) && error.contains(reason), "{error}");
            assert_eq!(error.ends_with("Did you mean `port`?"), text.contains("prot"), "{error}");
        }
    }

    #[test]
    fn later_sources_win_and_unknown_keys_are_refused() {
        let overrides = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect()
        };
        let config = load(None, &overrides(&[("redis.port", "1"), ("redis.port", "2"), ("data_dir", "/x y")])).unwrap();
        assert_eq!((config.redis.port, config.data_dir), (2, "/x y".into()));
        for (key, value, reason) in [
            ("redis.prot", "1", "unknown field `prot`, expected one of `bind`, `port`"),
            ("redis.prot", "1", "prints all settings. Did you mean `port`?"),
            ("nosuch.key", "1", "unknown field `nosuch`"),
            ("redis.port", "none", "invalid type: string \"none\""),
        ] {
            let error = load(None, &overrides(&[("workers", "1"), (key, value)])).unwrap_err().to_string();
            let names_all = error.contains(&format!("{key}: ")) && error.contains("`tessera config init`");
            assert!(names_all && error.contains(reason), "{error}");
        }
        let variables =
            [("TESSERA_REDIS__PORT", "7"), ("TESSERA_WORKERS", "3"), ("TESSERA_ADMIN", "http://x"), ("HOME", "/")];
        let variables = variables.into_iter().map(|(key, value)| (key.to_string(), value.to_string()));
        let config = load(None, &from_environment(variables)).unwrap();
        assert_eq!((config.redis.port, config.workers), (7, 3));
    }
}
