//! How clients come to the face, and what other nodes ask for theirs.

use crate::connection::{Connection, carry_out};
use crate::server::{RedisConfig, RedisServer, SERVICE};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tessera_face::{Stream, Tls};
use tessera_store::Store;
use tokio::net::TcpStream;

impl RedisServer {
    /// The face of a node whose records are in `store`. It takes what other nodes ask of this face from now on. With `tls`, every
    /// connection must speak it.
    pub fn start(store: Store, config: RedisConfig, tls: Option<Tls>) -> Arc<Self> {
        let server = Arc::new(Self::new(store, config, tls));
        server.store.serve_face(SERVICE, &server, carry_out);
        server.store.evaluate_for(SERVICE, &server);
        server
    }

    /// Serves a connection until it ends.
    pub async fn handle(self: Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let Ok(local_address) = stream.local_addr() else { return };
        // Replies are written whole; waiting to fill packets would only delay them.
        let _ = stream.set_nodelay(true);
        let limit = self.max_clients.load(Ordering::Relaxed);
        let Some(client) = self.clients.connect(address, local_address, limit) else {
            let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
            return;
        };
        match Stream::accept_as_one_of(&self.handshakes, stream, self.tls.as_ref()).await {
            Ok(stream) => Connection::new(self.clone(), client.clone(), Some(stream)).run().await,
            Err(error) => tracing::debug!(%address, %error, "a TLS handshake of a Redis client failed"),
        }
        self.clients.disconnect(client.id);
    }
}
