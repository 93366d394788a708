//! The running node: threads, listeners, signals.

use crate::certificate_end::certificate_door;
use crate::cluster_users::ClusterUsers;
use crate::config::Config;
use crate::doors::{Door, doors};
use crate::exit::ExitError;
use crate::faces::{self, Face, Foundation, advertised};
use crate::listening::{address, listen};
use crate::stop_signals::StopSignals;
use bytesize::ByteSize;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tessera_access::{Authenticator, Token};
use tessera_admin::{AdminListener, AdminServer};
use tessera_cluster::Site;
use tessera_face::{ClientMemory, Tls};
use tessera_node::{Node, NodeConfig, NodeWorker, OpenError};
use tessera_store::Store;
use tessera_transport::Secret;
use tokio::runtime::Runtime;

/// How long recovery may take before the node logs that it is still recovering.
const SERVING_NOTE: Duration = Duration::from_secs(10);
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
    raise_limits();
    let_large_writes_fail();
    let tls = tls(config)?;
    let certificate_ends = tls.as_ref().and_then(Tls::ends);
    let workers =
        if config.workers == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { config.workers };
    // All listeners before the data directory: a second node on the same ports must not touch anything.
    let mut site =
        Site { version: env!("CARGO_PKG_VERSION").into(), zone: config.cluster.zone.clone(), ..Site::default() };
    let opened = faces::open_all(config, workers, &mut site)?;
    let admin_address = address(config.admin.bind, config.admin.port, config.port_offset)?;
    let admin_listener = listen(admin_address, false)?;
    site.admin = advertised(config, admin_address);
    let peer_address = address(config.cluster.bind, config.cluster.port, config.port_offset)?;
    let peer_listener = listen(peer_address, false)?;
    site.peer = advertised(config, peer_address);
    let secret = Secret::new(&config.cluster_secret()?);
    let client_memory = ClientMemory::new(config.clients.memory_limit_bytes);
    let node_config = NodeConfig { secret, accept_older_data, ..node_config(config, workers, site.clone()) };

    let mut signals = StopSignals::take().map_err(other)?;
    let (node, node_workers) = Node::open(node_config, peer_listener).map_err(|error| match error {
        OpenError::DataDirectory(error) => ExitError::DataDirectory(error.to_string()),
        error @ (OpenError::Join(_) | OpenError::Transport(_) | OpenError::Thread(_)) => {
            ExitError::Other(error.to_string())
        }
        other => ExitError::DataDirectory(format!("{}: {other}", config.data_dir.display())),
    })?;
    let store = node.store().clone();
    let authenticator = authenticator(config, store.clone())?;
    let foundation = Foundation { config, store, site, tls, client_memory, authenticator, log_book };
    let faces = opened.into_iter().map(|start| start(&foundation)).collect::<Result<Vec<_>, _>>()?;
    let Foundation { store, site, tls, client_memory, authenticator, .. } = foundation;
    let faces: Arc<[Box<dyn Face>]> = faces.into();
    let start = |(number, worker)| start_worker(number, worker, faces.clone());
    let threads: Vec<JoinHandle<()>> = node_workers.into_iter().enumerate().map(start).collect::<Result<_, _>>()?;

    let outcome = runtime()?.block_on(async {
        tracing::info!(node = %store.node(), redis = %site.redis, admin = %admin_address, peers = %peer_address, data = %config.data_dir.display(), workers, "starting");
        for door in &all_doors(config, authenticator.is_closed_by_admin(), certificate_ends) {
            match door.is_risky {
                true => tracing::warn!("{}", door.words),
                false => tracing::info!("{}", door.words),
            }
        }
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let metrics = metrics(&faces, client_memory.clone());
        let admin = AdminServer::new(
            node.clone(),
            Token::from_hex(&config.admin.token_sha256),
            authenticator.clone(),
            admin_hosts(config),
            doors_now(config, authenticator.clone(), certificate_ends),
            metrics,
        );
        let admin = match faces.iter().find_map(|face| face.query_sessions()) {
            Some(queries) => admin.with_queries(queries),
            None => admin,
        };
        let listener = tokio::net::TcpListener::from_std(admin_listener).map_err(other)?;
        let admin = tokio::spawn(admin.serve(AdminListener::new(listener, tls), async { _ = stopped.await }));
        signals.note_started();
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
            word = signals.told() => tracing::info!("{word}, stopping"),
        }
        if !starts_again {
            node.transfer_leaderships().await;
        }
        for face in faces.iter() {
            face.stop().await;
        }
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
    drop(faces);
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
fn start_worker(number: usize, worker: NodeWorker, faces: Arc<[Box<dyn Face>]>) -> Result<JoinHandle<()>, ExitError> {
    let runtime = runtime()?;
    let run = move || {
        let _abort_on_panic = AbortOnPanic;
        runtime.block_on(async move {
            faces.iter().for_each(|face| face.serve_on(number));
            worker.run().await;
            tokio::time::sleep(LAST_REPLIES).await;
        });
    };
    std::thread::Builder::new().name(format!("worker-{number}")).spawn(run).map_err(other)
}

/// Raises the limits of file descriptors, of which each connection needs one, and of the size of files to what the system allows.
fn raise_limits() {
    for resource in [Resource::Nofile, Resource::Fsize] {
        let limit = getrlimit(resource);
        // A node that may not raise it works with what it has.
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
    }
    if let Some(bytes) = getrlimit(Resource::Fsize).current {
        tracing::warn!(
            "files of this process may have no more than {} (`ulimit -f`): writes beyond that are refused as on a full disk",
            ByteSize(bytes).display().iec()
        );
    }
}

/// Lets a write that makes a file larger than the limit (`ulimit -f`) fail with EFBIG. The signal that comes with it would end the
/// process without a word.
#[expect(unsafe_code, reason = "the standard library has no call for ignoring a signal")]
fn let_large_writes_fail() {
    // SAFETY: it sets what a signal does, and no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
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

/// Which doors are open to whom, whenever somebody asks.
fn doors_now(
    config: &Config,
    authenticator: Arc<Authenticator>,
    certificate_ends: Option<SystemTime>,
) -> tessera_admin::Doors {
    let config = config.clone();
    Arc::new(move || {
        let doors = all_doors(&config, authenticator.is_closed_by_admin(), certificate_ends);
        doors.into_iter().map(|door| door.words).collect()
    })
}

fn all_doors(config: &Config, is_closed: bool, certificate_ends: Option<SystemTime>) -> Vec<Door> {
    let of_certificate = certificate_ends.and_then(|ends| certificate_door(ends, SystemTime::now()));
    doors(config, is_closed).into_iter().chain(of_certificate).collect()
}

/// Host names under which the admin API accepts requests.
fn admin_hosts(config: &Config) -> Vec<String> {
    let names = config.admin.hosts.iter().chain(Some(&config.cluster.advertise));
    names.filter(|name| !name.is_empty()).cloned().collect()
}

fn metrics(faces: &[Box<dyn Face>], client_memory: Arc<ClientMemory>) -> tessera_admin::ExtraMetrics {
    let of_faces: Vec<_> = faces.iter().map(|face| face.metrics()).collect();
    Arc::new(move |gauges| {
        of_faces.iter().for_each(|add| add(gauges));
        let (used, evicted) = (client_memory.used() as f64, client_memory.evicted() as f64);
        gauges.set("tessera_clients_memory_bytes", "Requests and replies that clients hold up", &[], used);
        gauges.set("tessera_clients_evicted_total", "Clients closed since they held the most memory", &[], evicted);
    })
}
