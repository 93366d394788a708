//! Where nodes are. The catalog says it; a node that has come back under another address says so itself on every connection
//! that it makes, and is dialled there at once. Else it would wait for ever: it hears nothing from those who look for it at
//! its old address, and the catalog can be changed only by who hears from its leader.

use crate::message;
use bytes::{BufMut, Bytes};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tessera_cluster::{Catalog, CatalogCommand, Site};
use tessera_store::Store;
use tessera_transport::Transport;
use tessera_types::NodeId;

/// Longest address that is taken from another node.
const LONGEST: usize = 1 << 10;

/// What nodes said of themselves.
#[derive(Default)]
pub(crate) struct Addresses {
    told: Mutex<HashMap<NodeId, Told>>,
    /// Whether the catalog is being told where this node is.
    is_telling: AtomicBool,
}

/// Where a node said that it is, and what the catalog said then. When the catalog says something else, that is newer.
struct Told {
    peer: String,
    instead_of: String,
}

impl Addresses {
    /// Where to dial the nodes of the catalog.
    fn of(&self, catalog: &Catalog) -> HashMap<NodeId, String> {
        let mut told = self.told.lock();
        told.retain(|node, told| catalog.node(*node).is_some_and(|entry| entry.site.peer == told.instead_of));
        let address = |node: NodeId, known: &String| told.get(&node).map_or(known, |told| &told.peer).clone();
        catalog.nodes().map(|node| (node.id, address(node.id, &node.site.peer))).collect()
    }

    /// Takes what a node says. Returns whether it is news.
    fn hear(&self, catalog: &Catalog, node: NodeId, peer: String) -> bool {
        let Some(known) = catalog.node(node).map(|entry| entry.site.peer.clone()) else { return false };
        let mut told = self.told.lock();
        if told.get(&node).map_or(&known, |told| &told.peer) == &peer {
            return false;
        }
        told.insert(node, Told { peer, instead_of: known });
        true
    }
}

impl Addresses {
    /// Dials the nodes of the catalog.
    pub(crate) fn dial(&self, catalog: &Catalog, transport: &Arc<Transport>) {
        transport.set_peers(&self.of(catalog));
    }

    /// Takes what another node says of itself, and dials it there.
    pub(crate) fn others_address(&self, catalog: &Catalog, transport: &Arc<Transport>, node: NodeId, payload: &Bytes) {
        let Some(address) = std::str::from_utf8(payload).ok().filter(|it| !it.is_empty() && it.len() <= LONGEST) else {
            return;
        };
        if self.hear(catalog, node, address.to_string()) {
            tracing::info!(%node, address, "a node is found elsewhere now");
            self.dial(catalog, transport);
        }
    }

    /// Has the catalog name the addresses that this node has now, in a task that the caller does not wait for.
    pub(crate) fn keep(self: &Arc<Self>, store: &Store, site: &Site) {
        let known = store.catalog().node(store.node()).map(|node| node.site.clone());
        let is_known = known.is_none_or(|known| known == *site);
        if is_known || self.is_telling.swap(true, Ordering::Relaxed) {
            return;
        }
        let (addresses, store, site) = (self.clone(), store.clone(), site.clone());
        tokio::spawn(async move {
            let command = CatalogCommand::SetSite { node: store.node(), site };
            if let Err(error) = store.change_catalog(command).await {
                tracing::debug!(%error, "the catalog does not know yet where this node is; trying again");
            }
            addresses.is_telling.store(false, Ordering::Relaxed);
        });
    }
}

/// Tells another node where this one is.
pub(crate) fn tell(transport: &Transport, node: NodeId, site: &Site) {
    transport.send(node, message::ADDRESS, &[site.peer.as_bytes()], |address, out| out.put_slice(address));
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_types::{EngineKind, Limits};

    #[test]
    fn what_a_node_says_of_itself_counts_until_the_catalog_says_something_newer() {
        let node = NodeId(1);
        let at = |peer: &str| Site { peer: peer.into(), ..Site::default() };
        let mut catalog = Catalog::of_new_cluster(at("old:1"), EngineKind::Rocksdb);
        let addresses = Addresses::default();
        let dialled = |catalog: &Catalog| addresses.of(catalog)[&node].clone();
        assert!(!addresses.hear(&catalog, node, "old:1".into()), "that is known");
        assert!(addresses.hear(&catalog, node, "new:1".into()) && !addresses.hear(&catalog, node, "new:1".into()));
        assert_eq!(dialled(&catalog), "new:1");
        assert!(addresses.hear(&catalog, node, "newer:1".into()), "it has moved again");
        assert_eq!(dialled(&catalog), "newer:1");
        let set = |peer| CatalogCommand::SetSite { node, site: at(peer) };
        catalog.apply(&set("newest:1"), &Limits::default()).unwrap();
        assert_eq!(dialled(&catalog), "newest:1");
        assert!(!addresses.hear(&catalog, NodeId(9), "any:1".into()), "no such node");
    }
}
