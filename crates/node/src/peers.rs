//! What nodes say to each other.

use crate::identity::{JoinRequest, Welcome};
use crate::node_context::NodeContext;
use crate::{addresses, comparison, message, split};
use bytes::Bytes;
use serde::Serialize;
use std::sync::{Arc, OnceLock};
use tessera_cluster::{CATALOG_GROUP, CatalogCommand, Changed};
use tessera_consensus::PeerMessage;
use tessera_store::Store;
use tessera_store::hosting::{decode_reason, number, partition_of_group};
use tessera_transport::{Answer, Generation, Handler, Refusal};
use tessera_types::{ClusterId, NodeId};

/// Takes what other nodes send, once the node is open.
#[derive(Default)]
pub(crate) struct PeerHandler {
    pub(crate) context: OnceLock<Arc<NodeContext>>,
}

impl Handler for PeerHandler {
    fn messages(&self, from: NodeId, messages: &mut Vec<(u8, Bytes)>) {
        let Some(context) = self.context.get() else { return };
        let mut of_groups = Vec::with_capacity(messages.len());
        for (kind, mut payload) in messages.drain(..) {
            match kind {
                // Nobody speaks for another node's replica.
                message::GROUP => {
                    of_groups.extend(PeerMessage::decode(&mut payload).filter(|it| it.from().node == from))
                }
                message::LEADS => context.on_leaders(from, payload),
                message::STAYS => context.hear_that_it_stays(from),
                message::FETCHES => context.on_fetch_progress(from, payload),
                message::ADDRESS => {
                    context.addresses.others_address(&context.view.catalog(), &context.transport, from, &payload)
                }
                message::DIGEST => context.comparisons.hear_digest(from, payload),
                message::COMPARED => context.hear_compared(&payload),
                message::DAMAGED => context.hear_damage(from, &payload),
                message::TRAFFIC => context.traffic.hear(from, payload),
                message::STOPS => {
                    context.stopping.note(from);
                    context.store.note_disk_refusal(from, decode_reason(payload));
                }
                _ => {}
            }
        }
        context.deliver(of_groups);
    }

    fn is_known(&self, node: NodeId) -> bool {
        // A node that is still starting knows of none that was removed; it [admits](Self::admits) none yet either.
        self.context.get().is_none_or(|context| context.view.catalog().may_be_a_node(node))
    }

    fn word_for(&self, cluster: ClusterId) -> Option<String> {
        let catalog = self.context.get()?.view.catalog();
        let left_behind = catalog.recoveries().iter().any(|recovery| recovery.from == cluster);
        let word = "it goes on, under another name, without nodes that an operator has named as lost, and does not take back what \
                    they had; with an empty data directory they may join as new nodes";
        left_behind.then(|| word.into())
    }

    fn admits(&self, node: NodeId, generation: Generation) -> Result<(), Refusal> {
        match self.context.get() {
            Some(context) => {
                context.generations.admit(node, generation)?;
                context.store.note_start(node, generation.number);
                Ok(())
            }
            None => Err(Refusal::Failed("this node is still starting".into())),
        }
    }

    fn is_overtaken(&self, by: NodeId, known: u64) {
        if let Some(context) = self.context.get() {
            context.note_overtaken(by, known);
        }
    }

    fn was_removed(&self, by: NodeId) {
        if let Some(context) = self.context.get() {
            context.note_removed(by);
        }
    }

    fn request(&self, from: Option<NodeId>, service: u8, payload: Bytes) -> Answer {
        let context = self.context.get().cloned();
        Box::pin(async move {
            let Some(context) = context else { return Bytes::new() };
            match (service, from) {
                (number::JOIN, None) => json(&welcome(&context.store, &payload).await),
                (number::SNAPSHOT, Some(_)) => {
                    let piece = tokio::task::spawn_blocking(move || context.read_piece(&payload));
                    piece.await.unwrap_or_default()
                }
                (number::TAKE_PART, Some(_)) => json(&comparison::take_part(&context, &payload)),
                (number::COMPARE, Some(_)) => json(&comparison::answer(&context, &payload)),
                (number::ASK_NO_MORE, Some(from)) => {
                    context.transport.ask_no_more(from).await;
                    Bytes::new()
                }
                (number::COPY, Some(_)) => json(&split::take_step(&context, payload).await),
                (service, Some(from)) => context.store.answer(from, service, payload).await,
                (_, None) => Bytes::new(),
            }
        })
    }

    fn clock_heard(&self) {
        if let Some(context) = self.context.get() {
            context.follow_clocks();
        }
    }

    fn connected(&self, node: NodeId) {
        if let Some(context) = self.context.get() {
            // It has started again.
            context.hear_that_it_stays(node);
            addresses::tell(&context.transport, node, &context.config.site);
            context.tell_leading(Some(node));
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

impl NodeContext {
    fn hear_that_it_stays(&self, node: NodeId) {
        self.stopping.forget(node);
        self.store.note_disk_refusal(node, None);
    }

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
