//! The running node: threads, listeners, signals.

use crate::browser_queries::BrowserQueries;
use crate::cluster_users::ClusterUsers;
use crate::config::{Config, Transactions};
use crate::doors::doors;
use crate::exit::ExitError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tessera_access::{Authenticator, Token};
use tessera_admin::{AdminListener, AdminServer};
use tessera_cluster::Site;
use tessera_face::{ClientMemory, Tls};
use tessera_javascript::{Launch, Workers};
use tessera_node::{Node, NodeConfig, NodeWorker, OpenError};
use tessera_pegasus::{Openings, PegasusConfig, PegasusServer};
use tessera_redis::{RedisConfig, RedisServer};
use tessera_reql_wire::{LogBook, ReqlConfig, ReqlServer, ReqlStatistics};
use tessera_store::Store;
use tessera_transport::Secret;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// How long recovery may take before the node logs that it is still recovering.
const SERVING_NOTE: Duration = Duration::from_secs(10);
/// How long a listener pauses after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long what clients have asked may take to be answered after a signal.
const LAST_ANSWERS: Duration = Duration::from_secs(3);
/// How long connections may stay open after that, to write the replies to requests that were carried out.
const LAST_REPLIES: Duration = Duration::from_millis(100);

/// Runs a node until SIGINT or SIGTERM.
///
/// # Errors
/// Why it could not start.
pub fn run(config: &Config, accept_older_data: bool) -> Result<(), ExitError> {
    let log_book = crate::logging::start(config)?;
    raise_file_limit();
    let tls = tls(config)?;
    let workers =
        if config.workers == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { config.workers };
    // All listeners before the data directory: a second node on the same ports must not touch anything.
    let redis_address = address(config.redis.bind, config.redis.port, config.port_offset)?;
    let admin_address = address(config.admin.bind, config.admin.port, config.port_offset)?;
    refuse_if_taken(redis_address)?;
    let redis_listeners = (0..workers).map(|_| listen(redis_address, true)).collect::<Result<Vec<_>, _>>()?;
    let admin_listener = listen(admin_address, false)?;
    let pegasus_addresses = pegasus_addresses(config)?;
    pegasus_addresses.iter().try_for_each(|address| refuse_if_taken(*address))?;
    let listen_for_pegasus = |_| pegasus_addresses.iter().map(|address| listen(*address, true)).collect();
    let pegasus_listeners: Vec<Vec<TcpListener>> = (0..workers).map(listen_for_pegasus).collect::<Result<_, _>>()?;
    let reql_listener = match config.reql.port {
        0 => None,
        port => Some(listen(address(config.reql.bind, port, config.port_offset)?, false)?),
    };
    let peer_address = address(config.cluster.bind, config.cluster.port, config.port_offset)?;
    let peer_listener = listen(peer_address, false)?;
    let secret = Secret::new(&config.cluster_secret()?);
    let site = site(config, peer_address.port(), redis_address.port(), admin_address.port(), &pegasus_addresses);
    let client_memory = ClientMemory::new(config.clients.memory_limit_bytes);
    let pegasus_config = pegasus_config(config, &site, client_memory.clone());

    let (node, node_workers) =
        Node::open(NodeConfig { secret, accept_older_data, ..node_config(config, workers, site) }, peer_listener)
            .map_err(|error| match error {
                OpenError::DataDirectory(error) => ExitError::DataDirectory(error.to_string()),
                error @ (OpenError::Join(_) | OpenError::Transport(_) | OpenError::Thread(_)) => {
                    ExitError::Other(error.to_string())
                }
                other => ExitError::DataDirectory(format!("{}: {other}", config.data_dir.display())),
            })?;
    let store = node.store().clone();
    let authenticator = authenticator(config, store.clone())?;
    let redis = RedisServer::start(
        store.clone(),
        redis_config(config, redis_address.port(), client_memory.clone(), authenticator.clone()),
        tls.clone(),
    );
    let pegasus = PegasusServer::start(store.clone(), pegasus_config);
    let reql_config = reql_config(config, client_memory.clone(), authenticator.clone(), log_book);
    let reql = ReqlServer::start(store.clone(), reql_config, tls.clone(), reql_listener).map_err(other)?;
    let threads: Vec<JoinHandle<()>> = node_workers
        .into_iter()
        .zip(redis_listeners.into_iter().zip(pegasus_listeners))
        .enumerate()
        .map(|(number, (worker, (redis_listener, pegasus_listeners)))| {
            let (redis, pegasus) = (redis.clone(), pegasus.clone());
            start_worker(number, store.clone(), worker, (redis, redis_listener), (pegasus, pegasus_listeners))
        })
        .collect::<Result<_, _>>()?;

    let outcome = runtime()?.block_on(async {
        tracing::info!(node = %store.node(), redis = %redis_address, admin = %admin_address, peers = %peer_address, data = %config.data_dir.display(), workers, "starting");
        for door in &doors(config, authenticator.is_closed_by_admin()) {
            match door.is_risky {
                true => tracing::warn!("{}", door.words),
                false => tracing::info!("{}", door.words),
            }
        }
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let metrics = face_metrics(redis.clone(), pegasus.clone(), reql.statistics(), client_memory.clone());
        let admin = AdminServer::new(
            node.clone(),
            Token::from_hex(&config.admin.token_sha256),
            authenticator.clone(),
            admin_hosts(config),
            doors_now(config, authenticator.clone()),
            metrics,
        );
        let admin = match config.reql.port {
            0 => admin,
            _ => admin.with_queries(Arc::new(BrowserQueries(reql.sessions()))),
        };
        let listener = tokio::net::TcpListener::from_std(admin_listener).map_err(other)?;
        let admin = tokio::spawn(admin.serve(AdminListener::new(listener, tls), async { _ = stopped.await }));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(other)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(other)?;
        let serving = async {
            while !store.wait_until_serving(SERVING_NOTE).await {
                // Of a node that was removed that was said already.
                if !store.is_removed() {
                    tracing::info!("still recovering");
                }
            }
            tracing::info!("ready");
            std::future::pending::<()>().await;
        };
        let mut starts_again = false;
        tokio::select! {
            () = serving => {}
            () = node.must_start_again() => starts_again = true,
            _ = interrupt.recv() => tracing::info!("interrupted, stopping"),
            _ = terminate.recv() => tracing::info!("told to terminate, stopping"),
        }
        if !starts_again {
            node.transfer_leaderships().await;
        }
        reql.stop().await;
        // This node leads nothing now, so what its clients write is under way to other nodes.
        client_memory.end(LAST_ANSWERS).await;
        node.shut_down();
        let _ = stop.send(());
        // An admin request that does not end must not keep the node.
        let _ = tokio::time::timeout(Duration::from_secs(1), admin).await;
        Ok(starts_again)
    });
    for thread in threads {
        let _ = thread.join();
    }
    drop(reql);
    node.close();
    tracing::info!("stopped");
    if outcome? { Err(start_again()) } else { Ok(()) }
}

/// Restarts this program in the same process (exec). Returns only if that failed, with the reason.
fn start_again() -> ExitError {
    tracing::info!("starting again");
    let program = std::env::current_exe();
    let error = match program {
        Ok(program) => Command::new(program).args(std::env::args_os().skip(1)).exec(),
        Err(error) => error,
    };
    ExitError::DataDirectory(format!(
        "the data is older than what this node had, and it cannot start itself again: {error}"
    ))
}

fn other(error: impl std::fmt::Display) -> ExitError {
    ExitError::Other(error.to_string())
}

fn runtime() -> Result<Runtime, ExitError> {
    tessera_node::runtime().map_err(other)
}

/// Ends the process when a worker panics. Otherwise the node would keep leading the worker's partitions, which nobody could use,
/// while other nodes see it alive. When the process has ended, other nodes take over, and a supervisor can start it again.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// One thread per core: the loop of its partitions, its own listeners, and the connections that came through them.
fn start_worker(
    number: usize,
    store: Store,
    worker: NodeWorker,
    (redis, redis_listener): (Arc<RedisServer>, TcpListener),
    (pegasus, pegasus_listeners): (Arc<PegasusServer>, Vec<TcpListener>),
) -> Result<JoinHandle<()>, ExitError> {
    let runtime = runtime()?;
    let run = move || {
        let _abort_on_panic = AbortOnPanic;
        runtime.block_on(async move {
            let listener = |listener| {
                let listener = tokio::net::TcpListener::from_std(listener);
                listener.inspect_err(|error| tracing::error!(%error, "a listener could not be used")).ok()
            };
            if let Some(listener) = listener(redis_listener) {
                tokio::spawn(accept(store.clone(), listener, move |stream, address| {
                    redis.clone().handle(stream, address)
                }));
            }
            for listener in pegasus_listeners.into_iter().filter_map(listener) {
                let pegasus = pegasus.clone();
                tokio::spawn(accept(store.clone(), listener, move |stream, address| {
                    pegasus.clone().handle(stream, address)
                }));
            }
            worker.run().await;
            tokio::time::sleep(LAST_REPLIES).await;
        });
    };
    std::thread::Builder::new().name(format!("worker-{number}")).spawn(run).map_err(other)
}

/// Accepts connections once the tables are known, and serves each as a task of the current runtime. Runs until it is dropped.
async fn accept<F>(store: Store, listener: tokio::net::TcpListener, handle: impl Fn(TcpStream, SocketAddr) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    store.wait_until_tables_are_known().await;
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                tokio::spawn(handle(stream, address));
            }
            Err(error) => {
                // Out of file descriptors, mostly: the backlog holds the others until some are closed.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The addresses for Pegasus clients: first the data port, then the meta port.
fn pegasus_addresses(config: &Config) -> Result<Vec<SocketAddr>, ExitError> {
    let section = &config.pegasus;
    let ports = [section.port, section.meta_port]
        .into_iter()
        .filter(|port| *port != 0 && !config.is_pegasus_closed(config.has_users()));
    ports.map(|port| address(section.bind, port, config.port_offset)).collect()
}

fn address(bind: IpAddr, port: u16, offset: u16) -> Result<SocketAddr, ExitError> {
    let port =
        port.checked_add(offset).ok_or_else(|| ExitError::Config(format!("port {port} + {offset} is above 65535")))?;
    Ok(SocketAddr::new(bind, port))
}

fn socket(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// Listeners that share a port would also share it with another process of the same user; this one does not.
fn refuse_if_taken(address: SocketAddr) -> Result<(), ExitError> {
    socket(address).and_then(|socket| socket.bind(&address.into())).map_err(|error| in_use(address, &error))
}

fn listen(address: SocketAddr, shared: bool) -> Result<TcpListener, ExitError> {
    let bound = || -> std::io::Result<Socket> {
        let socket = socket(address)?;
        socket.set_reuse_port(shared)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket)
    };
    bound().map(TcpListener::from).map_err(|error| in_use(address, &error))
}

fn in_use(address: SocketAddr, error: &std::io::Error) -> ExitError {
    let port = address.port();
    ExitError::AddressInUse(format!(
        "cannot listen on {address}: {error}. `ss -tanp 'sport = :{port}'` shows who uses it; it may also be an outgoing \
         connection. Choose other ports with --port-offset"
    ))
}

/// Raises the limit of file descriptors to what the system allows, because each connection needs one.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // A node that may not raise it works with what it has.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The addresses and the zone that other nodes and clients get for this node.
fn site(config: &Config, peer: u16, redis: u16, admin: u16, pegasus: &[SocketAddr]) -> Site {
    let at = |bind: IpAddr, port: u16| {
        let host =
            if config.cluster.advertise.is_empty() { bind.to_string() } else { config.cluster.advertise.clone() };
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    };
    let for_pegasus =
        |address: Option<&SocketAddr>| address.map(|it| at(config.pegasus.bind, it.port())).unwrap_or_default();
    Site {
        peer: at(config.cluster.bind, peer),
        redis: at(config.redis.bind, redis),
        admin: at(config.admin.bind, admin),
        pegasus: for_pegasus(pegasus.first()),
        pegasus_meta: for_pegasus(pegasus.last()),
        reql: reql_port(config).map(|port| at(config.reql.bind, port)).unwrap_or_default(),
        version: env!("CARGO_PKG_VERSION").into(),
        zone: config.cluster.zone.clone(),
    }
}

fn node_config(config: &Config, workers: usize, site: Site) -> NodeConfig {
    NodeConfig {
        workers,
        site,
        join: config.cluster.join.clone(),
        move_bytes_per_second: config.cluster.move_bytes_per_second,
        balance_interval: Duration::from_secs(config.cluster.balance_interval_seconds),
        compare_interval: Duration::from_secs(config.cluster.compare_interval_seconds),
        compare_bytes_per_second: config.cluster.compare_bytes_per_second,
        replace_after: Duration::from_secs(config.cluster.replace_after_seconds),
        lead_again_after: Duration::from_secs(config.cluster.lead_again_after_seconds),
        limits: config.limits.clone(),
        memory: config.memory.clone(),
        rocksdb: config.rocksdb.clone(),
        log_segment_bytes: config.log.segment_bytes,
        log_limit_bytes: config.log.limit_bytes,
        soft_sync_interval: Duration::from_millis(config.log.soft_sync_interval_ms),
        staging_directory: Some(config.log.staging_directory.clone()).filter(|place| !place.as_os_str().is_empty()),
        drop_retention: Duration::from_secs(config.tables.drop_retention_seconds),
        flush_age: Duration::from_secs(config.tables.flush_age_seconds),
        ..NodeConfig::new(&config.data_dir)
    }
}

/// The certificate and key for TLS on the client ports, if the configuration names them.
fn tls(config: &Config) -> Result<Option<Tls>, ExitError> {
    if !config.has_tls() {
        return Ok(None);
    }
    let tls = Tls::load(&config.tls.certificate, &config.tls.key);
    tls.map(Some).map_err(|error| ExitError::Config(format!("tls: {error}")))
}

/// What all faces that log users in have in common.
fn authenticator(config: &Config, store: Store) -> Result<Arc<Authenticator>, ExitError> {
    for user in config.redis.users.iter().filter(|user| user.password_sha256.is_some()) {
        tracing::warn!(
            user = user.name,
            "password_sha256 is soon guessed by whoever sees the configuration: use the password_hash that `tessera \
             hash-password` prints"
        );
    }
    let users = config.users().map_err(ExitError::Config)?;
    Ok(Arc::new(Authenticator::new(users).with_directory(ClusterUsers(store))))
}

fn redis_config(
    config: &Config,
    port: u16,
    client_memory: Arc<ClientMemory>,
    authenticator: Arc<Authenticator>,
) -> RedisConfig {
    RedisConfig {
        max_clients: config.redis.max_clients,
        write_timeout: Duration::from_millis(config.redis.write_timeout_ms),
        slow_log_micros: config.redis.slow_log_micros,
        slow_log_entries: config.redis.slow_log_entries,
        client_memory,
        authenticator,
        transactions_over_partitions: config.redis.transactions == Transactions::Any,
        port,
    }
}

fn pegasus_config(config: &Config, site: &Site, client_memory: Arc<ClientMemory>) -> PegasusConfig {
    PegasusConfig {
        max_clients: config.pegasus.max_clients,
        write_timeout: Duration::from_millis(config.pegasus.write_timeout_ms),
        client_memory,
        write_bytes: config.limits.write_bytes,
        address: site.pegasus.clone(),
        data_directory: config.data_dir.clone(),
        open_to: openings(config),
    }
}

/// The port for drivers of RethinkDB, if there is one.
fn reql_port(config: &Config) -> Option<u16> {
    (config.reql.port != 0).then(|| config.reql.port.saturating_add(config.port_offset))
}

fn reql_config(
    config: &Config,
    client_memory: Arc<ClientMemory>,
    authenticator: Arc<Authenticator>,
    log_book: Arc<LogBook>,
) -> ReqlConfig {
    let section = &config.reql;
    ReqlConfig {
        max_clients: section.max_clients,
        query_threads: section.query_threads,
        query_bytes: section.query_bytes,
        greeting_timeout: Duration::from_millis(section.greeting_timeout_ms),
        write_timeout: Duration::from_millis(section.write_timeout_ms),
        client_memory,
        cursor_timeout: Duration::from_secs(section.cursor_timeout_seconds),
        authenticator,
        http: section.http,
        scripts: (section.javascript_workers > 0).then(|| {
            let launch = Launch::itself(&[crate::JAVASCRIPT_WORKER]);
            Workers::new(launch, section.javascript_workers)
        }),
        log_book,
    }
}

fn openings(config: &Config) -> Openings {
    // The settings have been checked.
    let networks = config.pegasus.open_addresses.iter().filter_map(|text| text.parse().ok());
    let tables = config.pegasus.open_tables.clone().into();
    Openings { has_users: config.has_users(), networks: networks.collect(), tables }
}

/// Which doors are open to whom, whenever somebody asks.
fn doors_now(config: &Config, authenticator: Arc<Authenticator>) -> tessera_admin::Doors {
    let config = config.clone();
    Arc::new(move || doors(&config, authenticator.is_closed_by_admin()).into_iter().map(|door| door.words).collect())
}

/// Host names under which the admin API accepts requests.
fn admin_hosts(config: &Config) -> Vec<String> {
    let names = config.admin.hosts.iter().chain(Some(&config.cluster.advertise));
    names.filter(|name| !name.is_empty()).cloned().collect()
}

fn face_metrics(
    redis: Arc<RedisServer>,
    pegasus: Arc<PegasusServer>,
    reql: ReqlStatistics,
    client_memory: Arc<ClientMemory>,
) -> tessera_admin::ExtraMetrics {
    Arc::new(move |gauges| {
        let (now, total, refused) = redis.connection_counts();
        gauges.set("tessera_redis_connections", "Open connections", &[], now as f64);
        gauges.set("tessera_redis_connections_total", "Connections so far", &[], total as f64);
        gauges.set("tessera_redis_connections_refused_total", "Connections refused", &[], refused as f64);
        gauges.set("tessera_redis_commands_total", "Commands carried out", &[], redis.command_count() as f64);
        let forwarded = redis.forwarded_count() as f64;
        gauges.set(
            "tessera_redis_forwarded_total",
            "Requests to nodes that lead, each of some commands",
            &[],
            forwarded,
        );
        let (requests, forwarded) = pegasus.request_counts();
        let connections = pegasus.connection_count() as f64;
        gauges.set("tessera_pegasus_connections", "Open connections", &[], connections);
        gauges.set("tessera_pegasus_requests_total", "Requests so far", &[], requests as f64);
        gauges.set("tessera_pegasus_forwarded_total", "Requests to nodes that lead", &[], forwarded as f64);
        let (now, total, refused) = reql.connection_counts();
        gauges.set("tessera_reql_connections", "Open connections", &[], now as f64);
        gauges.set("tessera_reql_connections_total", "Connections so far", &[], total as f64);
        gauges.set("tessera_reql_connections_refused_total", "Connections refused", &[], refused as f64);
        gauges.set("tessera_reql_queries_total", "Queries so far", &[], reql.query_count() as f64);
        for (class, count) in reql.failure_counts() {
            let help = "Errors answered to queries, and to what is no query";
            gauges.set("tessera_reql_errors_total", help, &[("class", class)], count as f64);
        }
        let scripts = reql.script_counts();
        gauges.set("tessera_reql_javascript_workers", "Processes for r.js", &[], scripts.workers as f64);
        let help = "Programs of r.js that were run, and calls of their functions";
        gauges.set("tessera_reql_javascript_calls_total", help, &[], scripts.calls as f64);
        let help = "Processes for r.js that took too long, or ended without an answer";
        gauges.set("tessera_reql_javascript_killed_total", help, &[], scripts.killed as f64);
        let (used, evicted) = (client_memory.used() as f64, client_memory.evicted() as f64);
        gauges.set("tessera_clients_memory_bytes", "Requests and replies that clients hold up", &[], used);
        gauges.set("tessera_clients_evicted_total", "Clients closed since they held the most memory", &[], evicted);
    })
}
