//! How clients come to the face, and what other nodes ask for theirs.

use crate::access::Access;
use crate::connection::Connection;
use crate::forward;
use crate::server::{PegasusConfig, PegasusServer, SERVICE};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tessera_face::Stream;
use tessera_store::Store;
use tokio::net::TcpStream;

impl PegasusServer {
    /// The face of a node whose records are in `store`. It takes what other nodes ask of this face from now on.
    pub fn start(store: Store, config: PegasusConfig) -> Arc<Self> {
        let server = Arc::new(Self::new(store, config));
        server.store.serve_face(SERVICE, &server, |server, request| {
            Box::pin(async move { forward::carry_out(&server, request).await })
        });
        server
    }

    /// What who comes from an address may do now.
    pub(crate) fn access(&self, address: SocketAddr) -> Option<Access> {
        self.config.open_to.access(address.ip(), self.store.catalog().users().is_closed())
    }

    /// Serves a connection until it ends.
    pub async fn handle(self: Arc<Self>, stream: TcpStream, address: SocketAddr) {
        // Replies are written whole; waiting to fill packets would only delay them.
        let _ = stream.set_nodelay(true);
        // Read first: what changes afterwards is noticed by the connection.
        let known_users = self.store.user_changes();
        let Some(access) = self.access(address) else {
            tracing::debug!(%address, "the Pegasus face is closed to a client");
            return;
        };
        if self.connections.fetch_add(1, Ordering::Relaxed) < self.config.max_clients {
            let memory = self.config.client_memory.join();
            // The clients know no TLS.
            let stream = Stream::Plain(stream);
            tokio::select! {
                outcome = Connection::new(self.clone(), stream, (address, access, known_users), memory.clone()).run() => {
                    if let Err(error) = outcome {
                        tracing::debug!(%address, %error, "a connection of a Pegasus client ended");
                    }
                }
                () = memory.evicted() => tracing::warn!(
                    %address,
                    bytes = memory.bytes(),
                    "clients hold more than `clients.memory_limit_bytes`, and this one, which holds the most, is closed"
                ),
            }
        } else {
            tracing::warn!(%address, limit = self.config.max_clients, "too many connections of Pegasus clients");
        }
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
