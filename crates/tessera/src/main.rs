//! Tessera: one binary for the node, its administration and its benchmark. Only wiring lives here.

mod admin_client;
mod admin_tls;
mod browser_queries;
mod certificate_end;
mod cluster_users;
mod compaction_command;
mod comparison_command;
mod config;
mod doors;
mod engine_bench;
mod exit;
mod faces;
mod listening;
mod local_command;
mod logging;
mod node;
mod node_command;
mod numbers;
mod password;
mod recover_command;
#[cfg(test)]
mod shown_commands;
mod size;
mod status_command;
mod stop_signals;
mod table_command;
mod traffic_command;
mod trust;
mod user_command;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use exit::ExitError;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tessera_access::{Password, ScramPassword};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The command by which a node starts this binary as a worker.
const JAVASCRIPT_WORKER: &str = "javascript-worker";

/// A distributed database for online services: tables in memory or on RocksDB, replicated over the nodes of a cluster, behind the
/// protocols of Redis, Apache Pegasus and RethinkDB.
#[derive(Parser)]
#[command(
    version,
    max_term_width = 110,
    after_help = "Start a node with `tessera start`, then talk to it: redis-cli -p 6379"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a node
    #[command(after_help = "\
Examples:
  tessera start                                  data in ./data, everything on loopback
  tessera start --data-dir /srv/tessera --config tessera.toml
  tessera start --port-offset 100 --set redis.max_clients=500
  tessera start --port-offset 10 --data-dir data2 --join 127.0.0.1:29015    a second node of the cluster
  tessera start --set tls.certificate=cert.pem --set tls.key=key.pem    TLS for Redis, RethinkDB and admin clients

Exit codes: 0 after a signal, 1 for other errors, 2 for wrong usage, 3 for a refused configuration,
4 for an address in use, 5 for a data directory that cannot be used.")]
    Start(StartArgs),
    /// Start a cluster of several nodes on this machine
    #[command(after_help = "\
Examples:
  tessera local                          three nodes: Redis on 6379, 6389 and 6399, data in ./data
  tessera local --nodes 5 --port-offset 1000 --data-dir /tmp/cluster
  tessera local --set tls.certificate=cert.pem --set tls.key=key.pem    TLS for Redis, RethinkDB and admin clients

Started again with the same --data-dir, the nodes go on with their data; more --nodes join the others. Nodes that were removed from the
cluster are left out.

Exit codes are those of `tessera start`.")]
    Local(local_command::LocalArgs),
    /// Create, list, change and drop tables of a running node
    Table {
        #[command(subcommand)]
        command: table_command::TableCommand,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Make, change and drop users of the cluster, and say what each of them may do
    User {
        #[command(subcommand)]
        command: user_command::UserCommand,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// List, drain and remove nodes of a cluster
    Node {
        #[command(subcommand)]
        command: node_command::NodeCommand,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Show what a running node holds and what is wrong with it
    Status {
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Continue without nodes that are lost for good, when too few nodes are left to elect a leader
    #[command(after_help = recover_command::HELP)]
    Recover(recover_command::RecoverArgs),
    /// Write or show the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Measure a server, or a part of this one
    Bench(tessera_bench::Cli),
    /// Hash a password for the configuration, which keeps only the hash
    #[command(after_help = "\
The password is read from the standard input, up to the end of its first line.

Example:
  printf %s PASSWORD | tessera hash-password    prints $argon2id$..., the password_hash of a user under redis.users")]
    HashPassword {
        /// Make a SCRAM-SHA-256 hash, which drivers of RethinkDB need. Redis clients can use such a password too. The Argon2 hash
        /// that is made without this option protects the password better from somebody who sees the configuration
        #[arg(long)]
        scram: bool,
    },
    /// Run JavaScript for a node, which starts this by itself
    #[command(hide = true, name = JAVASCRIPT_WORKER)]
    JavascriptWorker,
    /// Print the table of Redis commands as Markdown
    #[command(hide = true)]
    Commands,
}

#[derive(Args, Default)]
struct StartArgs {
    /// Configuration file; `tessera config init` prints a commented one
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where data is kept [default: data]
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Added to every default port, so that several nodes fit on one machine
    #[arg(long)]
    port_offset: Option<u16>,
    /// Join the cluster of the node at this cluster address; only at the first start. May be repeated
    #[arg(long, value_name = "HOST:PORT")]
    join: Vec<String>,
    /// Allow addresses other than loopback without authentication
    #[arg(long)]
    insecure: bool,
    /// Use the data directory although it is older than the data that this node had. What the node has acknowledged since then
    /// is lost, unless another node has it. Give this option once only
    #[arg(long)]
    accept_older_data: bool,
    /// Override one setting, e.g. --set memory.limit_bytes=4GB; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// For how long a command waits for a node if the user does not say.
const TIMEOUT_SECONDS: u64 = 60;

/// How to reach a node.
#[derive(Args, Clone)]
struct NodeArgs {
    /// Port offset that the node was started with
    #[arg(long, default_value_t = 0, global = true)]
    port_offset: u16,
    /// Address of the node's admin API [default: http://127.0.0.1:8080, moved by --port-offset]
    #[arg(long, global = true, env = "TESSERA_ADMIN")]
    admin: Option<String>,
    /// Token of the admin API
    #[arg(long, global = true, env = "TESSERA_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The name of a user with the right `config`, in the place of a token
    #[arg(long, global = true, env = "TESSERA_ADMIN_USER", value_name = "NAME")]
    user: Option<String>,
    /// The password of that user. Other processes of this machine see what stands in a command: set the variable instead
    #[arg(long, global = true, env = "TESSERA_ADMIN_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// PEM file with the certificates to trust instead of those that this machine trusts (`SSL_CERT_FILE`, or the system's file): that
    /// of the authority that signed the node's certificate, or the node's own
    #[arg(long, global = true, env = "TESSERA_ADMIN_CACERT", value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// PEM file with the certificate that this process has given to the node, which is all that it has to show.
    #[arg(skip)]
    own_certificate: Option<PathBuf>,
    /// For how many seconds a node may be waited for before the command gives up. The connection may take five of them at most. What
    /// takes as long as its work (`table compact`, `table compare`, `table hot-keys`) is waited for without a limit
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = TIMEOUT_SECONDS, value_parser = numbers::from_one)]
    timeout: u64,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

impl NodeArgs {
    /// A node that this process has started, asked by who stands in the environment, if anybody does.
    fn of_own(admin: String, own_certificate: Option<PathBuf>) -> Self {
        let [token, user, password] =
            ["TOKEN", "USER", "PASSWORD"].map(|it| std::env::var(format!("TESSERA_ADMIN_{it}")).ok());
        let admin = Some(admin);
        let (port_offset, cacert, timeout, json) = (0, None, TIMEOUT_SECONDS, false);
        Self { port_offset, admin, token, user, password, cacert, own_certificate, timeout, json }
    }
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print a configuration file with every setting, its meaning and its default
    Init,
    /// Print the settings that a node would start with
    Show(StartArgs),
}

impl StartArgs {
    fn load(&self) -> Result<config::Config, ExitError> {
        let mut overrides = config::from_environment(std::env::vars());
        for text in &self.overrides {
            let pair =
                text.split_once('=').ok_or_else(|| ExitError::Usage(format!("--set {text}: expected KEY=VALUE")))?;
            overrides.push((pair.0.to_string(), pair.1.to_string()));
        }
        if let Some(directory) = &self.data_dir {
            overrides.push(("data_dir".into(), directory.display().to_string()));
        }
        if let Some(offset) = self.port_offset {
            overrides.push(("port_offset".into(), offset.to_string()));
        }
        if !self.join.is_empty() {
            overrides.push(("cluster.join".into(), format!("{:?}", self.join)));
        }
        if self.insecure {
            overrides.push(("insecure".into(), "true".into()));
        }
        config::load(self.config.as_deref(), &overrides)
    }
}

/// Reads a password and prints its hash.
fn hash_password(is_scram: bool) -> Result<(), ExitError> {
    let password = password::read_password()?;
    if is_scram {
        println!("{}", ScramPassword::new(password.as_bytes(), ScramPassword::ITERATIONS));
        return Ok(());
    }
    println!("{}", Password::hash(password.as_bytes()).map_err(ExitError::Other)?);
    Ok(())
}

/// Lets SIGPIPE end a command whose output is closed, as is usual for commands; a node ignores the signal.
#[expect(unsafe_code, reason = "the standard library has no call for the default action of a signal")]
fn end_with_reader(command: &Command) {
    if !matches!(command, Command::Start(_) | Command::Local(_)) {
        // SAFETY: sets a signal's default action before any thread is started.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
}

fn main() -> ExitCode {
    let matches = numbers::take_negative_numbers(Cli::command()).get_matches();
    let command = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command;
    end_with_reader(&command);
    let outcome = match command {
        Command::Start(args) => args.load().and_then(|config| node::run(&config, args.accept_older_data)),
        Command::Local(args) => local_command::run(&args),
        Command::Table { command, node } => table_command::run(&command, &node),
        Command::User { command, node } => user_command::run(&command, &node),
        Command::Node { command, node } => node_command::run(&command, &node),
        Command::Status { node } => status_command::run(&node),
        Command::Recover(args) => recover_command::run(&args),
        Command::Config { command: ConfigCommand::Init } => {
            print!("{}", config::TEMPLATE);
            Ok(())
        }
        Command::Config { command: ConfigCommand::Show(args) } => args
            .load()
            .map(|config| print!("{}", toml::to_string(&config.without_secrets()).expect("settings have a TOML form"))),
        Command::Bench(cli) => {
            let trust = |path: Option<&Path>| Ok(trust::client_config(path)?);
            cli.run(engine_bench::open, trust).map_err(|error| ExitError::Other(format!("{error:#}")))
        }
        Command::HashPassword { scram } => hash_password(scram),
        Command::JavascriptWorker => return tessera_javascript::serve(),
        Command::Commands => {
            print!("{}", tessera_redis::commands::table::to_markdown());
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.code()
        }
    }
}
