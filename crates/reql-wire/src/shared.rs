//! What the connections, and the work that they and other nodes ask for, have in common: the store, the settings, turns, and counts.

use crate::clients::Clients;
use crate::feeds::Waiters;
use crate::indexes::ListCache;
use crate::log_book::LogBook;
use crate::logins::Logins;
use crate::meter::DocumentMeter;
use crate::respond::{Class, Reply};
use crate::site::is_at;
use crate::turn::Turns;
use crate::user_share::UserLimits;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tessera_access::Authenticator;
use tessera_face::{ClientMemory, Handshakes, Tls};
use tessera_fetch::{Fetcher, Reach};
use tessera_javascript::Workers;
use tessera_reql::{ErrorKind, Failure, Stage};
use tessera_store::{FaceMeter, Store};
use tessera_types::RequestError;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

/// How long is waited for this node to know what it has changed.
const NEWS: Duration = Duration::from_secs(10);
const NEWS_PAUSE: Duration = Duration::from_millis(5);
/// Clients at one time that have not said yet who they are.
const HANDSHAKES: usize = 1024;

/// The place of queries among what is counted: they are the one command of the face.
pub(crate) const QUERY: usize = 0;

/// Settings of the face.
#[derive(Clone, Debug)]
pub struct ReqlConfig {
    /// Connections at one time; more are closed.
    pub max_clients: usize,
    /// Queries that compute at one time; more wait.
    pub query_threads: usize,
    /// What each user may have of what queries share.
    pub user_limits: UserLimits,
    /// The longest query.
    pub query_bytes: usize,
    /// How long a client may take to greet.
    pub greeting_timeout: Duration,
    /// How long a client may take to read a part of its answers before it is dropped.
    pub write_timeout: Duration,
    /// What the clients of all faces may cost together.
    pub client_memory: Arc<ClientMemory>,
    /// After this time without a CONTINUE a stream is closed.
    pub cursor_timeout: Duration,
    /// Bytes of documents of which this node makes entries of new indexes in a second; zero is as many as it can.
    pub index_bytes_per_second: u64,
    /// Who may come in.
    pub authenticator: Arc<Authenticator>,
    /// Where `r.http` may send requests.
    pub http: Reach,
    /// What runs the programs of `r.js`, if there is to be such.
    pub scripts: Option<Workers>,
    /// The last lines of the node's log, for those who may read them.
    pub log_book: Arc<LogBook>,
}

pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) config: ReqlConfig,
    pub(crate) runtime: Handle,
    /// The turns that queries take to compute.
    pub(crate) turns: Arc<Turns>,
    /// One for each page, and each long query, that may be read at one time.
    pub(crate) readers: Semaphore,
    /// One for each slice that may be evaluated at one time.
    pub(crate) evaluators: Semaphore,
    pub(crate) handshakes: Handshakes,
    pub(crate) tls: Option<Tls>,
    pub(crate) logins: Logins,
    pub(crate) counts: Counts,
    /// The connections, to tell what they have under way.
    pub(crate) clients: Clients,
    /// What clients ask.
    pub(crate) face_meter: Arc<FaceMeter>,
    /// How many documents were read and written here.
    pub(crate) meter: DocumentMeter,
    /// Which indexes partitions keep.
    pub(crate) lists: ListCache,
    /// Polls of feeds that wait here for changes.
    pub(crate) waiters: Waiters,
    /// Makes the requests of `r.http`.
    pub(crate) fetcher: Fetcher,
    /// Told when the node stops.
    pub(crate) stopping: Notify,
    /// When the face was started.
    pub(crate) started: SystemTime,
    /// Connections now.
    pub(crate) connections: AtomicUsize,
    is_stopping: Arc<AtomicBool>,
}

/// What has happened so far.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) queries: AtomicU64,
    pub(crate) failed: [AtomicU64; Class::NAMES.len()],
}

impl Counts {
    pub(crate) fn note(&self, reply: &Reply) {
        if let Some(class) = reply.class {
            self.failed[class as usize].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    /// `runtime` runs the connections and the queries; `scanners` is how many of its threads may evaluate slices at one time.
    pub(crate) fn new(store: Store, config: ReqlConfig, tls: Option<Tls>, runtime: Handle, scanners: usize) -> Self {
        let nodes = store.clone();
        let is_node = move |address: IpAddr| nodes.catalog().nodes().any(|node| is_at(&node.site, address));
        Self {
            turns: Turns::new(runtime.clone(), config.query_threads, config.user_limits),
            readers: Semaphore::new(readers(&config, scanners)),
            evaluators: Semaphore::new(scanners),
            handshakes: Handshakes::new(HANDSHAKES, config.greeting_timeout),
            // A query waits for its request, and others must go on.
            fetcher: Fetcher::new(config.http, (config.query_threads / 2).max(1), is_node),
            logins: Logins::new(config.authenticator.clone()),
            face_meter: store.meter_face("reql", [("query", true)]),
            store,
            config,
            runtime,
            tls,
            counts: Counts::default(),
            clients: Clients::default(),
            meter: DocumentMeter::default(),
            lists: ListCache::default(),
            waiters: Waiters::default(),
            stopping: Notify::new(),
            started: SystemTime::now(),
            connections: AtomicUsize::new(0),
            is_stopping: Arc::default(),
        }
    }

    /// Reads something that may be long, on a thread where it may block, when it is its turn; `None` if it panics.
    pub(crate) async fn read<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let _reader = self.readers.acquire().await.ok()?;
        self.runtime.spawn_blocking(work).await.ok()
    }

    /// Has queries end, and no more be carried out.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.stopping.notify_waiters();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// What says whether the node stops, for work that knows no more of the face.
    pub(crate) fn stopping_flag(&self) -> &Arc<AtomicBool> {
        &self.is_stopping
    }

    /// Why no query is carried out here any more.
    pub(crate) fn refusal(&self) -> Option<Failure> {
        let reason = match () {
            () if self.store.is_removed() => RequestError::Removed,
            () if self.is_stopping() => RequestError::ShuttingDown,
            () => return None,
        };
        Some(failure(ErrorKind::OpFailed, format!("Cannot perform the operation: {reason}.")))
    }

    /// A query's failure, or what is behind it.
    pub(crate) fn explained(&self, failed: Failure) -> Failure {
        match failed.kind {
            ErrorKind::OpFailed if self.store.is_removed() => self.refusal().unwrap_or(failed),
            ErrorKind::Interrupted if self.is_stopping() => {
                let reason = RequestError::ShuttingDown;
                let message = format!("The operation may or may not have been performed: {reason}.");
                failure(ErrorKind::OpIndeterminate, message)
            }
            _ => failed,
        }
    }

    /// Waits until this node knows something that was changed, for a while.
    pub(crate) async fn until(&self, is_known: impl Fn(&Store) -> bool) {
        let began = Instant::now();
        while !is_known(&self.store) && began.elapsed() < NEWS {
            tokio::time::sleep(NEWS_PAUSE).await;
        }
    }
}

/// How many pages, and long queries, are read at one time.
pub(crate) fn readers(config: &ReqlConfig, scanners: usize) -> usize {
    config.query_threads + scanners
}

fn failure(kind: ErrorKind, message: String) -> Failure {
    Failure { stage: Stage::Run, kind, message, backtrace: Vec::new() }
}
