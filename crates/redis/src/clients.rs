//! The connections of a node, as CLIENT LIST shows them.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::Notify;

/// What others may know of a connection.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) local_address: SocketAddr,
    pub(crate) since: Instant,
    pub(crate) commands: AtomicU64,
    pub(crate) shown: Mutex<Shown>,
    killed: AtomicBool,
    /// Told when the connection is to end, also by [the memory that clients share](tessera_face::ClientMemory).
    pub(crate) end: Arc<Notify>,
}

/// The part that the connection itself changes now and then.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    pub(crate) name: String,
    pub(crate) user: String,
    pub(crate) table: u32,
    pub(crate) library: String,
    pub(crate) library_version: String,
    pub(crate) resp: u8,
}

impl Client {
    fn new(id: u64, address: SocketAddr, local_address: SocketAddr) -> Self {
        Self {
            id,
            address,
            local_address,
            since: Instant::now(),
            commands: AtomicU64::new(0),
            shown: Mutex::new(Shown { resp: 2, ..Shown::default() }),
            killed: AtomicBool::new(false),
            end: Arc::default(),
        }
    }

    /// Stands for the clients of another node. Not listed.
    pub(crate) fn of_another_node() -> Self {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        Self::new(0, nowhere, nowhere)
    }

    pub(crate) fn end(&self) {
        self.killed.store(true, Ordering::Release);
        self.end.notify_one();
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// One line of CLIENT LIST.
    pub(crate) fn describe(&self) -> String {
        let shown = self.shown.lock().clone();
        format!(
            "id={} addr={} laddr={} fd=-1 name={} age={} idle=0 flags=N db={} sub=0 psub=0 ssub=0 multi=-1 cmd=unknown \
             user={} lib-name={} lib-ver={} resp={} tot-cmds={}",
            self.id,
            self.address,
            self.local_address,
            shown.name,
            self.since.elapsed().as_secs(),
            shown.table,
            shown.user,
            shown.library,
            shown.library_version,
            shown.resp,
            self.commands.load(Ordering::Relaxed),
        )
    }
}

/// All connections, by number.
#[derive(Default)]
pub(crate) struct Clients {
    connected: Mutex<BTreeMap<u64, Arc<Client>>>,
    next_id: AtomicU64,
    pub(crate) total: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Clients {
    /// `None` if there are `limit` already.
    pub(crate) fn connect(&self, address: SocketAddr, local_address: SocketAddr, limit: usize) -> Option<Arc<Client>> {
        let mut connected = self.connected.lock();
        if connected.len() >= limit {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client::new(id, address, local_address));
        connected.insert(id, client.clone());
        self.total.fetch_add(1, Ordering::Relaxed);
        Some(client)
    }

    pub(crate) fn disconnect(&self, id: u64) {
        self.connected.lock().remove(&id);
    }

    pub(crate) fn list(&self) -> Vec<Arc<Client>> {
        self.connected.lock().values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.connected.lock().len()
    }
}
