//! The start and the end of the face, the threads on which its connections and their queries run, and who may connect.
//!
//! Connections have a thread of their own, and queries run on a bounded number of others, since evaluation may wait and may take
//! long: the threads of the partitions never evaluate queries.

use crate::background::Background;
use crate::connection::Connection;
use crate::expiry;
use crate::indexes::start_building;
use crate::memory::evicted;
use crate::monitor;
use crate::respond::Class;
use crate::route;
use crate::sessions::Sessions;
use crate::shared::{ReqlConfig, Shared, readers};
use crate::turn::Turns;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tessera_face::{Tls, accept_clients};
use tessera_javascript::{Counts, Workers};
use tessera_store::Store;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// The fewest threads that page through partitions, and evaluate there, for the queries of all nodes. Queries wait for these, so they
/// must not share theirs.
const LEAST_SCANNERS: usize = 2;
/// Threads that tell other nodes what happens here, also while queries and scans take up all of theirs.
const TELLERS: usize = 1;
/// Between two looks for streams that nobody asks for more.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(10);
/// How long queries may take to end when the node stops.
const LAST_QUERIES: Duration = Duration::from_secs(1);

/// The ReQL face of a node.
pub struct ReqlServer {
    /// Ends before what it needs.
    _expiry: Background,
    _builder: Background,
    /// Ends the connections when it goes.
    _running: oneshot::Sender<()>,
    shared: Arc<Shared>,
}

impl ReqlServer {
    /// Serves the listener's connections, if there is one, and what other nodes ask for. With `tls`, every connection must speak it.
    ///
    /// # Errors
    /// If threads cannot be started or the listener not used.
    pub fn start(
        store: Store,
        config: ReqlConfig,
        tls: Option<Tls>,
        listener: Option<TcpListener>,
    ) -> std::io::Result<Self> {
        let scanners = std::thread::available_parallelism().map_or(LEAST_SCANNERS, usize::from).max(LEAST_SCANNERS);
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(
                Turns::threads(config.query_threads) + readers(&config, scanners) + scanners + TELLERS,
            )
            .thread_name("reql-query")
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared::new(store, config, tls, runtime.handle().clone(), scanners));
        shared.store.serve_face(route::SERVICE, &shared, |shared, request| {
            Box::pin(async move { route::serve(shared, request).await })
        });
        shared.store.evaluate_for(route::SERVICE, &shared);
        shared.store.serve_face(monitor::SERVICE, &shared, |shared, request| Box::pin(monitor::serve(shared, request)));
        runtime.spawn(monitor::sample(Arc::downgrade(&shared)));
        runtime.spawn(close_idle_streams(Arc::downgrade(&shared)));
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
        Ok(Self {
            _expiry: expiry::start(shared.clone())?,
            _builder: start_building(shared.clone())?,
            _running: running,
            shared,
        })
    }

    /// Carries out no more queries, ends those that run, and waits for a moment until they have. They are told why.
    pub async fn stop(&self) {
        self.shared.stop();
        let _ = tokio::time::timeout(LAST_QUERIES, self.shared.turns.ended()).await;
    }

    /// Connections for clients that come through HTTP.
    pub fn sessions(&self) -> Sessions {
        Sessions::new(self.shared.clone())
    }

    /// To ask for what has happened, also after the face has ended.
    pub fn statistics(&self) -> ReqlStatistics {
        ReqlStatistics { shared: self.shared.clone() }
    }
}

/// What the face has done so far.
#[derive(Clone)]
pub struct ReqlStatistics {
    shared: Arc<Shared>,
}

impl ReqlStatistics {
    /// Connections now, connections so far, and connections refused because there were too many.
    pub fn connection_counts(&self) -> (usize, u64, u64) {
        let counts = &self.shared.counts;
        let now = self.shared.connections.load(Ordering::Relaxed);
        (now, counts.connections.load(Ordering::Relaxed), counts.refused.load(Ordering::Relaxed))
    }

    /// Queries so far, without requests for more rows of a stream.
    pub fn query_count(&self) -> u64 {
        self.shared.counts.queries.load(Ordering::Relaxed)
    }

    /// Queries that are under way now: those that compute, wait for something, or were interrupted.
    pub fn queries_under_way(&self) -> usize {
        self.shared.turns.under_way()
    }

    /// Queries so far that were refused because their users had too many under way.
    pub fn refused_query_count(&self) -> u64 {
        self.shared.turns.users.refused()
    }

    /// What the workers for `r.js` have done so far.
    pub fn script_counts(&self) -> Counts {
        self.shared.config.scripts.as_ref().map(Workers::counts).unwrap_or_default()
    }

    /// Errors answered so far, with their kinds.
    pub fn failure_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.shared.counts.failed.iter().map(|count| count.load(Ordering::Relaxed));
        Class::NAMES.into_iter().zip(counts)
    }
}

/// Closes streams that nobody asks for more, as long as the face is there.
async fn close_idle_streams(shared: Weak<Shared>) {
    while let Some(pause) = shared.upgrade().map(|shared| shared.config.cursor_timeout / 10) {
        tokio::time::sleep(pause.clamp(SHORTEST_LOOK, LONGEST_LOOK)).await;
        if let Some(shared) = shared.upgrade() {
            shared.clients.close_idle(shared.config.cursor_timeout);
        }
    }
}

async fn accept(shared: Arc<Shared>, listener: tokio::net::TcpListener) {
    shared.store.wait_until_tables_are_known().await;
    accept_clients(&listener, |stream, address| serve(shared.clone(), stream, address)).await;
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, address: SocketAddr) {
    let _ = stream.set_nodelay(true);
    shared.counts.connections.fetch_add(1, Ordering::Relaxed);
    if shared.connections.fetch_add(1, Ordering::Relaxed) < shared.config.max_clients {
        let memory = shared.config.client_memory.join();
        tokio::select! {
            // First, so that nothing more is done for whom it strikes.
            biased;
            bytes = evicted(&memory) => tracing::warn!(
                %address,
                bytes,
                "clients hold more than `clients.memory_limit_bytes`, and this one, which holds the most, is closed"
            ),
            outcome = Connection::run(shared.clone(), stream, address, memory.clone()) => {
                match outcome {
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => tracing::warn!(
                        %address,
                        %error,
                        "a connection to the ReQL port was ended: with `tls.certificate` clients have to speak TLS, and without it \
                         they must not"
                    ),
                    Err(error) => tracing::debug!(%address, %error, "a connection of a ReQL client ended"),
                    Ok(()) => {}
                }
            }
        }
    } else {
        shared.counts.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(%address, limit = shared.config.max_clients, "too many connections of ReQL clients");
        if shared.tls.is_none() {
            // In the form in which drivers show the reason, whatever they have greeted with.
            let reason = b"ERROR: This node has too many connections of ReQL clients (`reql.max_clients`).\n\0";
            let _ = stream.try_write(reason);
        }
    }
    shared.connections.fetch_sub(1, Ordering::Relaxed);
}
