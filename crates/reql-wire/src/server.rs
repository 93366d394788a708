//! What all connections share: the threads on which they and their queries run, and limits.
//!
//! Connections have a thread of their own, and queries run on a bounded number of others, since evaluation may wait and may take
//! long: the threads of the partitions never evaluate queries.

use crate::connection::Connection;
use crate::route;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tessera_store::{Face, Store};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};

/// How long is waited for this node to know what it has changed.
const NEWS: Duration = Duration::from_secs(10);
const NEWS_PAUSE: Duration = Duration::from_millis(5);
/// After a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Threads that page through partitions for the queries of all nodes. Queries wait for these, so they must not share theirs.
const SCANNERS: usize = 2;

/// Settings of the face.
#[derive(Clone, Debug)]
pub struct ReqlConfig {
    /// Connections at one time; more are closed.
    pub max_clients: usize,
    /// Queries that run at one time; more wait.
    pub query_threads: usize,
    /// The longest query.
    pub query_bytes: usize,
    /// How long a client may take to greet.
    pub greeting_timeout: Duration,
    /// After this time without a CONTINUE a stream is closed.
    pub cursor_timeout: Duration,
    /// Whether clients may come in without a password.
    pub is_open: bool,
}

pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) config: ReqlConfig,
    pub(crate) runtime: Handle,
    /// One for each query that may run.
    pub(crate) turns: Arc<Semaphore>,
    connections: AtomicUsize,
}

impl Shared {
    /// Waits until this node knows something that was changed, for a while.
    pub(crate) async fn until(&self, is_known: impl Fn(&Store) -> bool) {
        let began = Instant::now();
        while !is_known(&self.store) && began.elapsed() < NEWS {
            tokio::time::sleep(NEWS_PAUSE).await;
        }
    }
}

/// The ReQL face of a node.
pub struct ReqlServer {
    /// Ends the connections when it goes.
    _running: oneshot::Sender<()>,
    shared: Arc<Shared>,
}

impl ReqlServer {
    /// Serves the listener's connections, if there is one, and what other nodes ask for.
    ///
    /// # Errors
    /// If threads cannot be started or the listener not used.
    pub fn start(store: Store, config: ReqlConfig, listener: Option<TcpListener>) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(config.query_threads + SCANNERS)
            .thread_name("reql-query")
            .enable_all()
            .build()?;
        let turns = Arc::new(Semaphore::new(config.query_threads));
        let handle = runtime.handle().clone();
        let shared = Arc::new(Shared { store, config, runtime: handle, turns, connections: AtomicUsize::new(0) });
        shared.store.serve_face(Face::Reql, &shared, |shared, request| {
            Box::pin(async move { route::serve(shared, request).await })
        });
        if let Some(listener) = listener {
            let _entered = runtime.enter();
            let listener = tokio::net::TcpListener::from_std(listener)?;
            runtime.spawn(accept(shared.clone(), listener));
        }
        let (running, ended) = oneshot::channel();
        std::thread::Builder::new().name("reql".into()).spawn(move || {
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok(Self { _running: running, shared })
    }

    /// Connections now.
    pub fn connection_count(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

async fn accept(shared: Arc<Shared>, listener: tokio::net::TcpListener) {
    shared.store.wait_until_tables_are_known().await;
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                tokio::spawn(serve(shared.clone(), stream, address));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, address: SocketAddr) {
    let _ = stream.set_nodelay(true);
    if shared.connections.fetch_add(1, Ordering::Relaxed) < shared.config.max_clients {
        if let Err(error) = Connection::run(shared.clone(), stream).await {
            tracing::debug!(%address, %error, "a connection of a ReQL client ended");
        }
    } else {
        tracing::warn!(limit = shared.config.max_clients, "too many connections of ReQL clients");
    }
    shared.connections.fetch_sub(1, Ordering::Relaxed);
}
