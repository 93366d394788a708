//! What the nodes tell one another for the system tables `jobs`, `stats` and `logs`.
//!
//! A request is one byte, the kind, and what it is about; the answer is JSON. A node of a version that has no such service answers
//! nothing, and counts as one that was not reached.

use crate::cluster::server;
use crate::identity::table_id;
use crate::shared::Shared;
use crate::tables::Tables;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, UNIX_EPOCH};
use tessera_reql::{Error, LogLine, Monitor, NodeStatistics, QueryJob, Result, Server, TableStatistics};
use tessera_store::{Envelope, PartOutcome, QUIET};
use tessera_types::{Model, NodeId};

/// The number of the service, which only this has.
pub(crate) const SERVICE: u8 = 18;

/// How long a node may take to tell.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two samples of what is counted.
const SAMPLE: Duration = Duration::from_secs(1);

/// What a node is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Ask {
    Queries = 0,
    /// To end the query whose identifier follows.
    EndQuery = 1,
    Statistics = 2,
    Log = 3,
}

impl Ask {
    fn of(kind: u8) -> Option<Self> {
        [Self::Queries, Self::EndQuery, Self::Statistics, Self::Log].into_iter().find(|ask| *ask as u8 == kind)
    }
}

/// Counts what happens in a second, as long as the face is there.
pub(crate) async fn sample(shared: Weak<Shared>) {
    let mut seconds = tokio::time::interval(SAMPLE);
    seconds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        let queries = shared.counts.queries.load(Ordering::Relaxed);
        shared.meter.sample(queries, |table| shared.store.table(table).is_some());
    }
}

/// Answers another node, on a thread where this may take a moment: requests come in on that of a partition.
pub(crate) async fn serve(shared: Arc<Shared>, request: Bytes) -> Envelope {
    let runtime = shared.runtime.clone();
    let answered = runtime.spawn_blocking(move || {
        let (kind, about) = request.split_first()?;
        let about = std::str::from_utf8(about).ok()?;
        Some(answer(&shared, Ask::of(*kind)?, about))
    });
    answered.await.ok().flatten().map(PartOutcome::Done).into_iter().collect()
}

fn answer(shared: &Shared, ask: Ask, about: &str) -> Bytes {
    match ask {
        Ask::Queries => json(&shared.clients.jobs(|number| query_id(shared, number))),
        Ask::EndQuery => json(&shared.clients.end(about, |number| query_id(shared, number))),
        Ask::Statistics => json(&statistics(shared)),
        Ask::Log => json(&shared.config.log_book.lines()),
    }
}

fn json(answer: &impl Serialize) -> Bytes {
    serde_json::to_vec(answer).expect("answers have a JSON form").into()
}

/// An identifier that no other query of the cluster has: it names the node and its start too.
fn query_id(shared: &Shared, number: u64) -> String {
    let started = shared.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u32;
    format!("{started:08x}-{:04x}-4000-8004-{:012x}", shared.store.node().0 & 0xffff, number & 0xffff_ffff_ffff)
}

fn statistics(shared: &Shared) -> NodeStatistics {
    let mut measured = shared.meter.measure(shared.counts.queries.load(Ordering::Relaxed));
    let tables = shared.store.tables();
    let documents = tables.iter().filter(|table| table.schema().model == Model::Document);
    let share = |table: &Arc<tessera_store::Table>| {
        let (read, written) = measured.tables.remove(&table.id()).unwrap_or_default();
        let (memory_bytes, disk_bytes) = table.engine().sizes();
        TableStatistics { table: table_id(table.number()), read, written, memory_bytes, disk_bytes }
    };
    NodeStatistics {
        connections: shared.connections.load(Ordering::Relaxed) as u64,
        active_connections: shared.clients.active() as u64,
        queries: measured.queries,
        tables: documents.map(share).collect(),
    }
}

impl Tables {
    /// Asks all nodes of the cluster at one time.
    fn ask_all<T: DeserializeOwned>(&self, ask: Ask, about: &str) -> Vec<(Server, Option<T>)> {
        let store = &self.0.store;
        let request: Bytes = [&[ask as u8], about.as_bytes()].concat().into();
        let ask_one = |node: NodeId| {
            let (store, request) = (store.clone(), request.clone());
            self.0.runtime.spawn(async move {
                if !store.is_heard(node) {
                    return None;
                }
                let asked = tokio::time::timeout(PATIENCE, store.ask_face(SERVICE, node, &request, 1)).await;
                match asked.ok()?.ok()?.into_iter().next() {
                    Some(PartOutcome::Done(answer)) => Some(answer),
                    _ => None,
                }
            })
        };
        let nodes: Vec<NodeId> = store.catalog().nodes().map(|node| node.id).collect();
        let asked: Vec<_> =
            nodes.into_iter().map(|node| (node, (node != store.node()).then(|| ask_one(node)))).collect();
        // On the thread of the query, while the others are asked.
        let own = answer(&self.0, ask, about);
        let told = self.wait(async {
            let mut told = Vec::new();
            for (node, asked) in asked {
                let answer = match asked {
                    Some(asked) => asked.await.ok().flatten(),
                    None => Some(own.clone()),
                };
                told.push((node, answer));
            }
            told
        });
        let read = |answer: Bytes| serde_json::from_slice(&answer).ok();
        told.into_iter().map(|(node, answer)| (server(node), answer.and_then(read))).collect()
    }
}

/// Whether a query was ended, by what the nodes have answered to that.
///
/// # Errors
/// If nobody knows: none has ended it, and some have not answered.
fn is_ended(told: &[(Server, Option<bool>)]) -> Result<()> {
    if told.iter().any(|(_, is_ended)| *is_ended == Some(true)) {
        return Ok(());
    }
    let silent = told.iter().filter(|(_, answer)| answer.is_none()).map(|(server, _)| format!("`{}`", server.name));
    match silent.collect::<Vec<_>>() {
        silent if silent.is_empty() => Ok(()),
        silent => Err(Error::failed(format!(
            "The query was found on none of the servers that have answered, and may still run: {} did not answer in time.",
            silent.join(", ")
        ))),
    }
}

impl Monitor for Tables {
    fn queries(&self) -> Result<Vec<(Server, Option<Vec<QueryJob>>)>> {
        Ok(self.ask_all(Ask::Queries, ""))
    }

    fn end_query(&self, id: &str) -> Result<()> {
        is_ended(&self.ask_all(Ask::EndQuery, id))
    }

    fn statistics(&self) -> Result<Vec<(Server, Option<NodeStatistics>)>> {
        Ok(self.ask_all(Ask::Statistics, ""))
    }

    fn log_lines(&self) -> Result<Vec<(Server, Option<Vec<LogLine>>)>> {
        Ok(self.ask_all(Ask::Log, ""))
    }

    fn silence_limit(&self) -> Duration {
        QUIET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_ended_if_its_node_says_so_or_nobody_has_it() {
        let told = |answers: &[Option<bool>]| -> Vec<(Server, Option<bool>)> {
            (1..).zip(answers).map(|(node, answer)| (server(NodeId(node)), *answer)).collect()
        };
        for known in [&[Some(false), Some(true), None][..], &[Some(false), Some(false)]] {
            assert!(is_ended(&told(known)).is_ok());
        }
        // It was said to have ended.
        let unknown = is_ended(&told(&[Some(false), None, None])).unwrap_err();
        assert!(unknown.message().contains("`node-2`, `node-3` did not answer in time"), "{}", unknown.message());
    }
}
