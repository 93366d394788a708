//! The way of a client's commands to the nodes that lead what they are about.

use super::front::{Front, merge};
use super::part::{Commands, Part, answered, split_part};
use super::request::{carry_out, encode};
use super::{Merge, PendingForwards};
use crate::connection::Connection;
use crate::connection::batch::{Answered, Awaited, Batch, Mode};
use crate::connection::partitions;
use crate::connection::replies::{Replies, ReplyList, outcome_of};
use crate::connection::session_options::SessionOptions;
use crate::resp::Protocol;
use crate::server::{RedisServer, SERVICE};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tessera_face::ClientShare;
use tessera_store::{Outcomes, PartOutcome, Route, Table};
use tessera_types::ReadMode;

/// What the way of commands depends on.
pub(in crate::connection) struct Forwarder {
    server: Arc<RedisServer>,
    memory: Arc<ClientShare>,
    protocol: Protocol,
    options: SessionOptions,
    /// Until when leaders are looked for.
    until: Instant,
}

/// Commands under way, and the replies to those at the front.
struct UnderWay<'a> {
    forwarder: &'a Forwarder,
    front: Option<&'a Front>,
}

impl Route for UnderWay<'_> {
    type Work = Commands;

    const SERVICE: u8 = SERVICE;

    fn request(&self, table: &Table, parts: &[&Part]) -> Vec<u8> {
        encode(table.identity(), self.forwarder.protocol, self.forwarder.options, parts)
    }

    fn carry_out(&self, table: &Table, parts: &[&Part]) -> Outcomes {
        carry_out(self.forwarder.server.clone(), self.request(table, parts).into())
    }

    fn note_forwarded(&self) {
        self.forwarder.server.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    fn note_replies(&self, bytes: usize) {
        self.forwarder.memory.hold_more(bytes);
    }

    fn note_waits(&self, parts: &[Part]) {
        if let Some(front) = self.front {
            front.make(|part| parts[part].outcome.as_ref());
        }
    }
}

impl Connection {
    /// The way of the commands that were read last.
    pub(in crate::connection) fn forwarder(&self) -> Forwarder {
        Forwarder {
            server: self.server.clone(),
            memory: self.memory.clone(),
            protocol: self.session.protocol,
            options: self.session.options,
            until: self.patience.until(),
        }
    }
}

impl Forwarder {
    /// Has every part carried out by whoever leads its partition. The replies at the `front` are made while others wait.
    pub(super) async fn forward(
        &self,
        table: &Arc<Table>,
        mut parts: Vec<Part>,
        front: Option<&Front>,
    ) -> Vec<PartOutcome> {
        let under_way = UnderWay { forwarder: self, front };
        if let Some(successor) = self.server.store.route(table, &under_way, &mut parts, self.until).await {
            Box::pin(self.forward_to_successor(&successor, &mut parts)).await;
        }
        parts.into_iter().map(|part| part.outcome.unwrap_or(PartOutcome::NO_LEADER)).collect()
    }

    /// The table was split: what is not done yet goes to the partitions that took the place of the old ones.
    async fn forward_to_successor(&self, table: &Arc<Table>, parts: &mut [Part]) {
        let (mut again, mut merges, mut which) = (Vec::new(), Vec::new(), Vec::new());
        for (at, part) in parts.iter_mut().enumerate().filter(|(_, part)| part.outcome.is_none()) {
            match split_part(part, table) {
                Ok((parts, merge)) => {
                    which.push(at);
                    again.extend(parts);
                    merges.push(merge);
                }
                Err(error) => {
                    let mut reply = Replies::default();
                    reply.error(self.protocol, &error.into());
                    part.outcome = Some(outcome_of(reply));
                }
            }
        }
        let outcomes = self.forward(table, again, None).await;
        let mut which = which.into_iter();
        merge(&merges, &outcomes, self.protocol, &mut Replies::default(), |reply| {
            if let Some(at) = which.next() {
                parts[at].outcome = Some(outcome_of(std::mem::take(reply)));
            }
        });
    }

    /// Has the partitions' loops carry out writes. The parts of those that turn out not to be led here go to where they are led.
    pub(super) async fn carry_out_here(&self, table: &Arc<Table>, writes: Batch) -> ReplyList {
        let mode = Mode::Write(self.options.writes);
        match writes.run(&self.server.store, Some(table), mode, self.protocol, self.until).await {
            answered if answered.has_undone() => self.forward_undone(table, answered).await,
            answered => answered.list(),
        }
    }

    /// Writes were carried out here, and the parts of some were not done, since their partitions turned out not to be led here any more.
    /// Those are taken to where they are led; what was done keeps its reply, and is not done again. Returns the replies.
    pub(in crate::connection) async fn forward_undone(&self, table: &Arc<Table>, batch: Answered) -> ReplyList {
        let (all, awaited) = batch.into_parts();
        let (mut rest, mut merges, mut all) = (PendingForwards::default(), Vec::new(), all.into_iter());
        for awaited in awaited {
            match awaited {
                Awaited::Ready(reply) => {
                    rest.parts.push(answered(outcome_of(reply)));
                    merges.push(Merge::One);
                }
                Awaited::Merged(merge) => {
                    for (command, frame, outcome) in all.by_ref().take(merge.parts()) {
                        match partitions::parts(table, command, frame.clone()) {
                            Ok(parts) => rest.push(parts[0].0, command, frame, ReadMode::Single),
                            Err(error) => {
                                let mut reply = Replies::default();
                                reply.error(self.protocol, &error);
                                rest.parts.push(answered(outcome_of(reply)));
                            }
                        }
                        let part = rest.parts.last_mut().expect("it was just pushed");
                        part.outcome = outcome.or(part.outcome.take());
                    }
                    merges.push(merge);
                }
            }
        }
        let outcomes = self.forward(table, rest.parts, None).await;
        let mut replies = ReplyList::default();
        merge(&merges, &outcomes, self.protocol, &mut replies.replies, |out| replies.ends.push(out.len()));
        replies
    }
}
