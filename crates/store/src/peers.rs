//! What nodes say to each other.

use crate::compactions;
use crate::comparison;
use crate::host::Host;
use crate::hot_key_search;
use crate::identity::{JoinRequest, Welcome};
use crate::router::Outcomes;
use crate::snapshot::Progress;
use crate::split;
use crate::store::Store;
use crate::table::{Partition, Table, group_of, partition_of_group};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use tessera_cluster::{CATALOG_GROUP, CatalogCommand, CatalogError, Changed};
use tessera_consensus::{GroupId, PeerMessage};
use tessera_transport::{Answer, Generation, Handler, Refusal};
use tessera_types::{ClusterId, NodeId, ReplicaId, RequestError, TableId};

/// Messages: what replicas of a group tell each other; which groups the sender leads, each with the term; that the sender
/// is about to stop, or wants others to lead.
pub(crate) const GROUP: u8 = 1;
pub(crate) const LEADS: u8 = 2;
pub(crate) const STOPS: u8 = 3;
/// That the sender does not stop after all.
pub(crate) const STAYS: u8 = 5;
/// How far the sender is with snapshots that it fetches.
pub(crate) const FETCHES: u8 = 4;
/// What partitions that the sender leads hold, and are asked.
pub(crate) const TRAFFIC: u8 = 6;

/// Where the sender is found now.
pub(crate) const ADDRESS: u8 = 7;
/// What a replica has in a slice that is being compared; what became of a comparison.
pub(crate) const DIGEST: u8 = 8;
pub(crate) const COMPARED: u8 = 9;

/// Requests: to change the catalog; to be let into the cluster; to do what a client asked another node.
pub(crate) const CATALOG: u8 = 1;
pub(crate) const JOIN: u8 = 2;
pub(crate) const REDIS: u8 = 3;
/// To delete all records of some partitions.
pub(crate) const CLEAR: u8 = 4;
/// A piece of a snapshot.
pub(crate) const SNAPSHOT: u8 = 5;
/// As [`REDIS`].
pub(crate) const PEGASUS: u8 = 6;

/// A step of copying a table that is being split.
pub(crate) const COPY: u8 = 7;
/// To count which keys of a partition are asked.
pub(crate) const HOT_KEYS: u8 = 8;
/// How far a node is with compacting a table.
pub(crate) const COMPACTION: u8 = 9;

/// To take part in comparing the replicas of a partition.
pub(crate) const TAKE_PART: u8 = 10;
/// To compare the replicas of partitions, or to tell what came of that.
pub(crate) const COMPARE: u8 = 11;
/// To ask the sender, which is about to go, nothing more. Answered when what it was asked has been answered.
pub(crate) const ASK_NO_MORE: u8 = 12;
/// As [`REDIS`].
pub(crate) const REQL: u8 = 13;

/// A protocol whose requests nodes hand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    Redis,
    Pegasus,
    Reql,
}

impl Face {
    pub(crate) fn service(self) -> u8 {
        match self {
            Self::Redis => REDIS,
            Self::Pegasus => PEGASUS,
            Self::Reql => REQL,
        }
    }
}

/// What the node that leads the catalog answers to a change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CatalogAnswer {
    Changed(Changed),
    /// Likewise, with the index in the log of the catalog's group that has it. Nodes whose protocol is of version 6 do not read it.
    ChangedAt(Changed, u64),
    Refused(CatalogError),
    /// Not done: another node leads, or none.
    NotLeading,
    Unknown,
    Failed(String),
}

impl From<Result<Result<Changed, CatalogError>, RequestError>> for CatalogAnswer {
    fn from(outcome: Result<Result<Changed, CatalogError>, RequestError>) -> Self {
        match outcome {
            Ok(Ok(changed)) => Self::Changed(changed),
            Ok(Err(error)) => Self::Refused(error),
            Err(RequestError::NotReady) => Self::NotLeading,
            Err(RequestError::Interrupted) => Self::Unknown,
            Err(error) => Self::Failed(error.to_string()),
        }
    }
}

impl From<CatalogAnswer> for Result<Result<Changed, CatalogError>, RequestError> {
    fn from(answer: CatalogAnswer) -> Self {
        match answer {
            CatalogAnswer::Changed(changed) | CatalogAnswer::ChangedAt(changed, _) => Ok(Ok(changed)),
            CatalogAnswer::Refused(error) => Ok(Err(error)),
            CatalogAnswer::NotLeading => Err(RequestError::NotReady),
            CatalogAnswer::Unknown => Err(RequestError::Interrupted),
            CatalogAnswer::Failed(error) => {
                Err(RequestError::Engine(format!("the node that leads the catalog: {error}")))
            }
        }
    }
}

/// Carries out what a client asked another node.
pub(crate) type ServeFace = Arc<dyn Fn(Bytes) -> Outcomes + Send + Sync>;

/// Takes what other nodes send, once the store is open.
#[derive(Default)]
pub(crate) struct PeerHandler {
    pub(crate) store: OnceLock<Store>,
}

impl Handler for PeerHandler {
    fn messages(&self, from: NodeId, messages: &mut Vec<(u8, Bytes)>) {
        let Some(store) = self.store.get() else { return };
        let mut of_groups = Vec::with_capacity(messages.len());
        for (kind, mut payload) in messages.drain(..) {
            match kind {
                // Nobody speaks for another node's replica.
                GROUP => of_groups.extend(PeerMessage::decode(&mut payload).filter(|it| it.from().node == from)),
                LEADS => store.host.others_lead(from, payload),
                STAYS => _ = store.host.stopping.lock().remove(&from),
                FETCHES => store.host.others_fetch(from, payload),
                ADDRESS => store.host.others_address(from, &payload),
                DIGEST => store.host.comparisons.hear_digest(from, payload),
                COMPARED => store.host.hear_compared(&payload),
                TRAFFIC => store.host.hear_traffic(from, payload),
                STOPS => _ = store.host.stopping.lock().insert(from),
                _ => {}
            }
        }
        store.host.deliver(of_groups);
    }

    fn is_known(&self, node: NodeId) -> bool {
        // A node that is still starting knows of none that was removed; it [admits](Self::admits) none yet either.
        self.store.get().is_none_or(|store| store.host.catalog.load().may_be_a_node(node))
    }

    fn word_for(&self, cluster: ClusterId) -> Option<String> {
        let catalog = self.store.get()?.catalog();
        let left_behind = catalog.recoveries().iter().any(|recovery| recovery.from == cluster);
        let word = "it goes on, under another name, without nodes that an operator has named as lost, and does not take back what \
                    they had; with an empty data directory they may join as new nodes";
        left_behind.then(|| word.into())
    }

    fn admits(&self, node: NodeId, generation: Generation) -> Result<(), Refusal> {
        match self.store.get() {
            Some(store) => store.host.generations.admit(node, generation),
            None => Err(Refusal::Failed("this node is still starting".into())),
        }
    }

    fn is_overtaken(&self, by: NodeId, known: u64) {
        if let Some(store) = self.store.get() {
            store.host.note_overtaken(by, known);
        }
    }

    fn was_removed(&self, by: NodeId) {
        if let Some(store) = self.store.get() {
            store.host.note_removed(by);
        }
    }

    fn request(&self, from: Option<NodeId>, service: u8, payload: Bytes) -> Answer {
        let store = self.store.get().cloned();
        Box::pin(async move {
            let Some(store) = store else { return Bytes::new() };
            match (service, from) {
                (CATALOG, Some(from)) => {
                    let answer: CatalogAnswer = match serde_json::from_slice(&payload) {
                        Ok(command) => store.change_catalog_here(command).await.into(),
                        Err(error) => CatalogAnswer::Failed(error.to_string()),
                    };
                    let reads_index = store.host.transport.version_with(from).is_some_and(|version| version >= 7);
                    match answer {
                        CatalogAnswer::Changed(changed) if reads_index => {
                            json(&CatalogAnswer::ChangedAt(changed, store.catalog_follower.index()))
                        }
                        answer => json(&answer),
                    }
                }
                (JOIN, None) => json(&welcome(&store, &payload).await),
                (CLEAR, Some(_)) => match clear(&store, &payload).await {
                    Ok(()) => Bytes::from_static(b"ok"),
                    Err(error) => Bytes::from(error),
                },
                (SNAPSHOT, Some(_)) => {
                    let piece = tokio::task::spawn_blocking(move || store.host.read_piece(&payload));
                    piece.await.unwrap_or_default()
                }
                (COMPACTION, Some(_)) => json(&compactions::answer(&store.host, &payload)),
                (TAKE_PART, Some(_)) => json(&comparison::take_part(&store.host, &payload)),
                (COMPARE, Some(_)) => json(&comparison::answer(&store, &payload)),
                (ASK_NO_MORE, Some(from)) => {
                    store.host.transport.ask_no_more(from).await;
                    Bytes::new()
                }
                (HOT_KEYS, Some(_)) => json(&hot_key_search::answer(&store.host, &payload).await),
                (COPY, Some(_)) => json(&split::take_step(&store, payload).await),
                (REDIS, Some(_)) => ask(&store, Face::Redis, payload).await,
                (PEGASUS, Some(_)) => ask(&store, Face::Pegasus, payload).await,
                (REQL, Some(_)) => ask(&store, Face::Reql, payload).await,
                _ => Bytes::new(),
            }
        })
    }

    fn clock_heard(&self) {
        if let Some(store) = self.store.get() {
            store.host.follow_clocks();
        }
    }

    fn connected(&self, node: NodeId) {
        if let Some(store) = self.store.get() {
            // It has started again.
            store.host.stopping.lock().remove(&node);
            store.host.tell_address(node);
            store.host.tell_leading(Some(node));
        }
    }
}

async fn ask(store: &Store, face: Face, request: Bytes) -> Bytes {
    match store.host.faces[face as usize].get() {
        Some(serve) => serve(request).await.encode(),
        None => Bytes::new(),
    }
}

fn json(answer: &impl Serialize) -> Bytes {
    serde_json::to_vec(answer).expect("answers have a JSON form").into()
}

async fn clear(store: &Store, request: &[u8]) -> Result<(), String> {
    let (table, partitions): (TableId, Vec<u32>) =
        serde_json::from_slice(request).map_err(|error| error.to_string())?;
    let table = store.table(table).ok_or("the table is not known here")?;
    for partition in partitions.into_iter().filter(|partition| *partition < table.schema.partitions) {
        store.clear(&table, partition..partition + 1).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

async fn welcome(store: &Store, request: &[u8]) -> Result<Welcome, String> {
    let JoinRequest { site, token } = serde_json::from_slice(request).map_err(|error| error.to_string())?;
    let changed = store.change_catalog(CatalogCommand::AddNode { site, token: Some(token) }).await;
    match changed.map_err(|error| error.to_string())?.map_err(|error| error.to_string())? {
        Changed::Node(node) => {
            let catalog = store.catalog().without_tables();
            Ok(Welcome { cluster: store.host.identity.cluster, node, catalog })
        }
        other => Err(format!("a node was to be added, and there is {other:?}")),
    }
}

/// Appends to a message of [`LEADS`] that this node leads a partition, if it still does: `u64 group | u64 term | u32 incarnation of its replica`.
pub(crate) fn put_leader(message: &mut BytesMut, table: &Table, partition: u32) {
    let (term, replica) = table.partitions[partition as usize].leader.replica();
    if replica.node != table.node {
        return; // it has been overtaken
    }
    message.put_u64_le(group_of(table.id, partition).0);
    message.put_u64_le(term);
    message.put_u32_le(replica.incarnation);
}

impl Host {
    /// Hands messages to the workers of their groups, all of a worker's at once.
    fn deliver(&self, messages: Vec<PeerMessage>) {
        let (mut catalog, mut by_worker) = (Vec::new(), vec![Vec::new(); self.inboxes.len()]);
        for message in messages {
            if message.group == CATALOG_GROUP {
                catalog.push(message);
            } else if let Some((table, partition)) = partition_of_group(message.group) {
                by_worker[self.worker_of(table, partition)].push(message);
            }
        }
        self.catalog_inbox.deliver(catalog);
        for (inbox, messages) in self.inboxes.iter().zip(by_worker) {
            inbox.deliver(messages);
        }
    }

    /// Tells others how far this node is with what it fetches, and that it is done.
    pub(crate) fn tell_fetches(&self) {
        let progress = self.incoming.progress();
        if progress.is_empty() && !self.tells_fetches.swap(false, Ordering::Relaxed) {
            return;
        }
        self.tells_fetches.store(!progress.is_empty(), Ordering::Relaxed);
        let mut payload = BytesMut::new();
        for (group, Progress { bytes, of }) in &progress {
            [group.0, *bytes, *of].iter().for_each(|word| payload.put_u64_le(*word));
        }
        self.fetches.lock().insert(self.identity.node, progress);
        self.transport.broadcast(FETCHES, &payload);
    }

    fn others_fetch(&self, node: NodeId, mut payload: Bytes) {
        let mut fetches = Vec::new();
        while let (Ok(group), Ok(bytes), Ok(of)) =
            (payload.try_get_u64_le(), payload.try_get_u64_le(), payload.try_get_u64_le())
        {
            fetches.push((GroupId(group), Progress { bytes, of }));
        }
        self.fetches.lock().insert(node, fetches);
    }

    fn others_lead(&self, node: NodeId, mut payload: Bytes) {
        while let (Ok(group), Ok(term), Ok(incarnation)) =
            (payload.try_get_u64_le(), payload.try_get_u64_le(), payload.try_get_u32_le())
        {
            let Some((table, partition)) = partition_of_group(GroupId(group)) else { continue };
            if let Some(table) = self.registry.any(table)
                && let Some(state) = table.partitions.get(partition as usize)
            {
                state.leader.heard(term, ReplicaId { node, incarnation });
            }
        }
        self.opened.notify_waiters();
    }

    /// Tells another node, or all, which groups this one leads: those who hold no replica have no other way to know.
    pub(crate) fn tell_leading(&self, node: Option<NodeId>) {
        let mut payload = BytesMut::new();
        for table in self.registry.open_tables() {
            let serving = |(_, state): &(u32, &Partition)| state.is_serving.load(Ordering::Acquire);
            let led = (0..).zip(&table.partitions).filter(serving);
            led.for_each(|(partition, _)| put_leader(&mut payload, &table, partition));
        }
        match node {
            _ if payload.is_empty() => {}
            Some(node) => self.transport.send(node, LEADS, &[payload], |payload, out| out.put_slice(payload)),
            None => self.transport.broadcast(LEADS, &payload),
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
            self.0.send(messages[0].destination(), GROUP, messages, |message, out| message.encode(out));
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
