//! The loops that a worker's thread runs.

use crate::catalog_follower::CatalogNews;
use crate::machine::PartitionsMachine;
use std::sync::Arc;
use tessera_cluster::CatalogMachine;
use tessera_consensus::Worker;
use tessera_transport::Transport;

/// The loop of one worker, to be run on the thread that also runs its core's connections.
pub struct NodeWorker {
    pub(crate) partitions: Worker<PartitionsMachine>,
    /// The first worker also drives the catalog.
    pub(crate) catalog: Option<Worker<CatalogMachine<CatalogNews>>>,
    /// And has the connections to other nodes on its thread: most of what comes there is for the loop.
    pub(crate) peers: Option<(Arc<Transport>, std::net::TcpListener)>,
}

impl NodeWorker {
    /// Runs until [`crate::Node::shut_down`].
    pub async fn run(self) {
        if let Some((transport, listener)) = self.peers {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => _ = tokio::spawn(transport.serve(listener)),
                Err(error) => tracing::error!(%error, "other nodes cannot be heard"),
            }
        }
        match self.catalog {
            Some(catalog) => _ = tokio::join!(self.partitions.run(), catalog.run()),
            None => self.partitions.run().await,
        }
    }
}
