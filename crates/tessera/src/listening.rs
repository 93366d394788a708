//! Ports of the node: listening, and taking the connections of clients.

use crate::exit::ExitError;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Mutex;
use tessera_face::accept_clients;
use tessera_store::Store;
use tokio::net::TcpStream;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listeners that share their ports: each worker's thread has its own, and serves the connections that come through them.
pub struct SharedListeners {
    of_workers: Vec<Mutex<Vec<TcpListener>>>,
}

impl SharedListeners {
    /// Listens on these addresses, for this number of workers.
    ///
    /// # Errors
    /// If another process has one of the addresses.
    pub fn listen(addresses: &[SocketAddr], workers: usize) -> Result<Self, ExitError> {
        addresses.iter().try_for_each(|address| refuse_if_taken(*address))?;
        let of_worker = |_| {
            let listeners = addresses.iter().map(|address| listen(*address, true)).collect::<Result<Vec<_>, _>>();
            listeners.map(Mutex::new)
        };
        let of_workers = (0..workers).map(of_worker).collect::<Result<_, _>>()?;
        Ok(Self { of_workers })
    }

    /// Begins to take connections through the listeners of a worker, each of which is served as a task of the current runtime. To be
    /// called once for each worker.
    pub fn accept<F>(
        &self,
        worker: usize,
        store: &Store,
        handle: impl Fn(TcpStream, SocketAddr) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let listeners = std::mem::take(&mut *self.of_workers[worker].lock().expect("nobody panics who holds it"));
        for listener in listeners {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => _ = tokio::spawn(accept(store.clone(), listener, handle.clone())),
                Err(error) => tracing::error!(%error, "a listener could not be used"),
            }
        }
    }
}

/// Accepts connections once the tables are known, and serves each as a task of the current runtime. Runs until it is dropped.
async fn accept<F>(store: Store, listener: tokio::net::TcpListener, handle: impl Fn(TcpStream, SocketAddr) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    store.wait_until_tables_are_known().await;
    accept_clients(&listener, handle).await;
}

pub fn address(bind: IpAddr, port: u16, offset: u16) -> Result<SocketAddr, ExitError> {
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

/// Listens on an address; if it is `shared`, other listeners of this user may do so too.
pub fn listen(address: SocketAddr, shared: bool) -> Result<TcpListener, ExitError> {
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
