//! Accepting connections.

use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long to wait when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits for the next connection. If one cannot be accepted, this is logged, and tried again after a pause.
pub async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                // Out of file descriptors, mostly: the backlog holds the others until some are closed.
                let port = listener.local_addr().ok().map(|address| address.port());
                tracing::warn!(%error, port, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
