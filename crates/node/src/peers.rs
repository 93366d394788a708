//! What nodes say to each other.

use crate::host::Host;
use crate::identity::{JoinRequest, Welcome};
use crate::{addresses, comparison, message, split};
use bytes::Bytes;
use serde::Serialize;
use std::sync::{Arc, OnceLock};
use tessera_cluster::{CATALOG_GROUP, CatalogCommand, Changed};
use tessera_consensus::PeerMessage;
use tessera_store::Store;
use tessera_store::hosting::{number, partition_of_group};
use tessera_transport::{Answer, Generation, Handler, Refusal};
use tessera_types::{ClusterId, NodeId};

/// Takes what other nodes send, once the node is open.
#[derive(Default)]
pub(crate) struct PeerHandler {
    pub(crate) host: OnceLock<Arc<Host>>,
}

impl Handler for PeerHandler {
    fn messages(&self, from: NodeId, messages: &mut Vec<(u8, Bytes)>) {
        let Some(host) = self.host.get() else { return };
        let mut of_groups = Vec::with_capacity(messages.len());
        for (kind, mut payload) in messages.drain(..) {
            match kind {
                // Nobody speaks for another node's replica.
                message::GROUP => {
                    of_groups.extend(PeerMessage::decode(&mut payload).filter(|it| it.from().node == from))
                }
                message::LEADS => host.on_leaders(from, payload),
                message::STAYS => _ = host.stopping.lock().remove(&from),
                message::FETCHES => host.on_fetch_progress(from, payload),
                message::ADDRESS => {
                    host.addresses.others_address(&host.view.catalog(), &host.transport, from, &payload)
                }
                message::DIGEST => host.comparisons.hear_digest(from, payload),
                message::COMPARED => host.hear_compared(&payload),
                message::DAMAGED => host.hear_damage(from, &payload),
                message::TRAFFIC => host.traffic.hear(from, payload),
                message::STOPS => _ = host.stopping.lock().insert(from),
                _ => {}
            }
        }
        host.deliver(of_groups);
    }

    fn is_known(&self, node: NodeId) -> bool {
        // A node that is still starting knows of none that was removed; it [admits](Self::admits) none yet either.
        self.host.get().is_none_or(|host| host.view.catalog().may_be_a_node(node))
    }

    fn word_for(&self, cluster: ClusterId) -> Option<String> {
        let catalog = self.host.get()?.view.catalog();
        let left_behind = catalog.recoveries().iter().any(|recovery| recovery.from == cluster);
        let word = "it goes on, under another name, without nodes that an operator has named as lost, and does not take back what \
                    they had; with an empty data directory they may join as new nodes";
        left_behind.then(|| word.into())
    }

    fn admits(&self, node: NodeId, generation: Generation) -> Result<(), Refusal> {
        match self.host.get() {
            Some(host) => host.generations.admit(node, generation),
            None => Err(Refusal::Failed("this node is still starting".into())),
        }
    }

    fn is_overtaken(&self, by: NodeId, known: u64) {
        if let Some(host) = self.host.get() {
            host.note_overtaken(by, known);
        }
    }

    fn was_removed(&self, by: NodeId) {
        if let Some(host) = self.host.get() {
            host.note_removed(by);
        }
    }

    fn request(&self, from: Option<NodeId>, service: u8, payload: Bytes) -> Answer {
        let host = self.host.get().cloned();
        Box::pin(async move {
            let Some(host) = host else { return Bytes::new() };
            match (service, from) {
                (number::JOIN, None) => json(&welcome(&host.store, &payload).await),
                (number::SNAPSHOT, Some(_)) => {
                    let piece = tokio::task::spawn_blocking(move || host.read_piece(&payload));
                    piece.await.unwrap_or_default()
                }
                (number::TAKE_PART, Some(_)) => json(&comparison::take_part(&host, &payload)),
                (number::COMPARE, Some(_)) => json(&comparison::answer(&host, &payload)),
                (number::ASK_NO_MORE, Some(from)) => {
                    host.transport.ask_no_more(from).await;
                    Bytes::new()
                }
                (number::COPY, Some(_)) => json(&split::take_step(&host, payload).await),
                (service, Some(from)) => host.store.answer(from, service, payload).await,
                (_, None) => Bytes::new(),
            }
        })
    }

    fn clock_heard(&self) {
        if let Some(host) = self.host.get() {
            host.follow_clocks();
        }
    }

    fn connected(&self, node: NodeId) {
        if let Some(host) = self.host.get() {
            // It has started again.
            host.stopping.lock().remove(&node);
            addresses::tell(&host.transport, node, &host.config.site);
            host.tell_leading(Some(node));
        }
    }
}

fn json(answer: &impl Serialize) -> Bytes {
    serde_json::to_vec(answer).expect("answers have a JSON form").into()
}

async fn welcome(store: &Store, request: &[u8]) -> Result<Welcome, String> {
    let JoinRequest { site, token } = serde_json::from_slice(request).map_err(|error| error.to_string())?;
    let changed = store.change_catalog(CatalogCommand::AddNode { site, token: Some(token) }).await;
    match changed.map_err(|error| error.to_string())?.map_err(|error| error.to_string())? {
        Changed::Node(node) => {
            let catalog = store.catalog().without_tables();
            Ok(Welcome { cluster: store.cluster(), node, catalog })
        }
        other => Err(format!("a node was to be added, and there is {other:?}")),
    }
}

impl Host {
    /// Hands messages to the workers of their groups, all of a worker's at once.
    fn deliver(&self, messages: Vec<PeerMessage>) {
        let (mut catalog, mut by_worker) = (Vec::new(), vec![Vec::new(); self.inboxes.all().len()]);
        for message in messages {
            if message.group == CATALOG_GROUP {
                catalog.push(message);
            } else if let Some((table, partition)) = partition_of_group(message.group) {
                by_worker[self.inboxes.worker_of(table, partition)].push(message);
            }
        }
        self.catalog_inbox.deliver(catalog);
        for (inbox, messages) in self.inboxes.all().iter().zip(by_worker) {
            inbox.deliver(messages);
        }
    }
}

/// Carries the groups' messages.
pub(crate) struct GroupMessages(pub(crate) Arc<tessera_transport::Transport>);

impl tessera_consensus::Transport for GroupMessages {
    fn send(&self, messages: Vec<PeerMessage>) {
        let mut messages = messages;
        // Stable: what goes to one node keeps its order.
        messages.sort_by_key(PeerMessage::destination);
        for messages in messages.chunk_by(|one, other| one.destination() == other.destination()) {
            self.0.send(messages[0].destination(), message::GROUP, messages, |message, out| message.encode(out));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever hears that it was removed stops serving, so nobody may say so who does not know.
    #[test]
    fn a_node_that_is_starting_tells_nobody_that_it_was_removed() {
        let starting = PeerHandler::default();
        assert!(starting.is_known(NodeId(7)));
        assert!(matches!(starting.admits(NodeId(7), Generation::default()), Err(Refusal::Failed(_))));
    }
}
