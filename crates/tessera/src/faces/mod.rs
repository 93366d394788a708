//! The faces of the node. A further one is a module here, with what it needs of the configuration, its start and its metrics, and an
//! entry of [`FACES`]. (Besides, it has its section of the configuration, whatever [doors](crate::doors) has to say of it, and a field of
//! [`Site`], if others must know its address.)

mod pegasus;
mod redis;
mod reql;

use crate::config::Config;
use crate::exit::ExitError;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use tessera_access::Authenticator;
use tessera_admin::{QuerySessions, Scrape};
use tessera_cluster::Site;
use tessera_face::{ClientMemory, Tls};
use tessera_reql_wire::LogBook;
use tessera_store::Store;

/// How each face opens its ports.
const FACES: &[Open] = &[redis::open, pegasus::open, reql::open];

/// Opens the ports of a face, for this number of workers, and notes its address in the site of the node.
type Open = fn(&Config, usize, &mut Site) -> Result<Opened, ExitError>;

/// A face whose ports are open: nobody else has them, and nobody is served yet. Starts it.
pub type Opened = Box<dyn FnOnce(&Foundation<'_>) -> Result<Box<dyn Face>, ExitError>>;

/// Adds the metrics of a face.
pub type Metrics = Box<dyn Fn(&mut Scrape) + Send + Sync>;

/// What faces stand on.
pub struct Foundation<'a> {
    pub config: &'a Config,
    pub store: Store,
    /// Where the node is: the addresses that others are told.
    pub site: Site,
    pub tls: Option<Tls>,
    pub client_memory: Arc<ClientMemory>,
    pub authenticator: Arc<Authenticator>,
    pub log_book: Arc<LogBook>,
}

/// A face that serves clients, until it is dropped.
pub trait Face: Send + Sync {
    /// Begins to serve the clients that come through the listeners of a worker, on whose thread this is called. A face that has
    /// threads of its own has no such listeners.
    fn serve_on(&self, _worker: usize) {}

    /// What it has done so far, also after it was dropped.
    fn metrics(&self) -> Metrics;

    /// How it carries out queries that come through the admin port, if it does.
    fn query_sessions(&self) -> Option<Arc<dyn QuerySessions>> {
        None
    }

    /// Ends what clients have it do, before the node stops.
    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(std::future::ready(()))
    }
}

/// Opens the ports of all faces.
///
/// # Errors
/// If another process has one of them.
pub fn open_all(config: &Config, workers: usize, site: &mut Site) -> Result<Vec<Opened>, ExitError> {
    FACES.iter().map(|open| open(config, workers, site)).collect()
}

/// An address as other nodes and clients are told it.
pub fn advertised(config: &Config, address: SocketAddr) -> String {
    let host = match config.cluster.advertise.as_str() {
        "" => address.ip().to_string(),
        host => host.to_string(),
    };
    let port = address.port();
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
