//! The connections of clients that come to a port.

use crate::descriptors::leaves_descriptors;
use std::net::SocketAddr;
use std::time::Duration;
use tessera_transport::accept;
use tokio::net::{TcpListener, TcpStream};

/// How long a listener pauses after a connection that could not be kept.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections as long as clients leave file descriptors to the node, and serves each as a task of the current runtime. Runs until
/// it is dropped.
pub async fn accept_clients<F>(listener: &TcpListener, serve: impl Fn(TcpStream, SocketAddr) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let (stream, address) = accept(listener).await;
        if leaves_descriptors(&stream) {
            tokio::spawn(serve(stream, address));
        } else {
            tracing::warn!(%address, "a connection was closed: the file descriptors that are left (`ulimit -n`) are for the node itself");
            tokio::time::sleep(PAUSE).await;
        }
    }
}
