//! What the leader does: it walks through its partition slice by slice, and looks whether all replicas have the same.

use super::gather::Gather;
use super::mark::Propose;
use super::outcome::{ComparisonOutcome, Difference, PartitionComparison, ReplicaDigest, describe};
use super::replica::{TakePart, take_part_here};
use super::verdict::{Digests, are_equal, standing_alone};
use crate::node_context::NodeContext;
use crate::status_query::query_status;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_engine::SliceDigest;
use tessera_store::Table;
use tessera_store::hosting::{PendingReply, WriteCommand, group_of, number};
use tessera_types::{EngineKind, NodeId, ReplicaId, RequestError, WhenFull};
use tokio::sync::oneshot;

/// Slices that are on their way at one time: followers learn what is committed with the next entry.
const WINDOW: usize = 4;
/// How long a replica may take for a slice, and how often it is asked.
const PATIENCE: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 3;
/// How often a difference must show again until it counts, and the pause before that.
const CONFIRMATIONS: usize = 2;
const PAUSE: Duration = Duration::from_millis(200);
/// The most differences that are listed; the comparison of a partition ends when it has found this many.
const DIFFERENCES: usize = 20;
/// The fewest bytes that a slice counts as, because an empty slice costs something too.
const SLICE_COST: u64 = 4 << 10;

/// Why a walk ends early.
enum Stop {
    /// Another node leads, or may.
    LeadsNoLonger,
    Lacks(String),
}

/// A comparison of a partition's replicas.
pub(super) struct Walk<'a> {
    context: &'a NodeContext,
    table: &'a Arc<Table>,
    partition: u32,
    comparison: u64,
    gather: Gather,
    /// This node's replica, and all that have records and take part.
    own: ReplicaId,
    replicas: Vec<ReplicaId>,
    voters: usize,
    number: u32,
    began: Instant,
    bytes_per_second: u64,
    /// Bytes that count towards the rate so far.
    cost: u64,
    found: PartitionComparison,
    alone: BTreeSet<ReplicaId>,
}

/// What became of a walk, and which replicas differ from what a majority agrees on.
pub(super) struct Walked {
    pub(super) found: PartitionComparison,
    pub(super) alone: BTreeSet<ReplicaId>,
    pub(super) own: Option<ReplicaId>,
}

/// Compares the replicas of a partition that this node leads.
pub(super) async fn walk(context: &NodeContext, table: &Arc<Table>, partition: u32, bytes_per_second: u64) -> Walked {
    let found = PartitionComparison::begun(partition);
    let end = |found, alone, own| Walked { found, alone, own };
    if let Some(reason) = unfit(table) {
        return end(found.lacks(reason.into()), BTreeSet::new(), None);
    }
    let group = group_of(table.id(), partition);
    let views = query_status(context.inbox_of(table.id(), partition)).await;
    let Some(view) = views.into_iter().find(|view| view.id == group && view.is_serving) else {
        let found = found.lacks("the node does not lead the partition".into());
        return end(PartitionComparison { leads_no_longer: true, ..found }, BTreeSet::new(), None);
    };
    let replicas: Vec<_> = view.voters.iter().copied().filter(|voter| !voter.is_witness()).collect();
    if replicas.len() < 2 {
        return end(found.lacks("the partition has one replica with records only".into()), BTreeSet::new(), None);
    }
    let comparison = rand::random::<u64>().max(1);
    let mut walk = Walk {
        context,
        table,
        partition,
        comparison,
        gather: context.comparisons.gather(comparison),
        own: view.replica,
        replicas,
        voters: view.voters.len(),
        number: 0,
        began: Instant::now(),
        bytes_per_second,
        cost: 0,
        found,
        alone: BTreeSet::new(),
    };
    walk.ask_to_take_part(comparison).await;
    let outcome = walk.go().await;
    walk.found.replicas.clone_from(&walk.replicas);
    walk.ask_to_take_part(0).await;
    let Walk { mut found, alone, own, .. } = walk;
    match outcome {
        Ok(()) => {}
        Err(Stop::Lacks(reason)) => found = found.lacks(reason),
        Err(Stop::LeadsNoLonger) => {
            found = found.lacks("another node began to lead the partition meanwhile".into());
            found.leads_no_longer = true;
        }
    }
    end(found, alone, Some(own))
}

/// Why a table's replicas need not have the same records.
fn unfit(table: &Table) -> Option<&'static str> {
    let evicts = table.schema().engine == EngineKind::Memory && table.settings().when_full == WhenFull::Evict;
    evicts.then_some("each replica of a table that evicts does so on its own")
}

impl Walk<'_> {
    async fn ask_to_take_part(&mut self, comparison: u64) {
        let request = TakePart { group: group_of(self.table.id(), self.partition).0, comparison };
        let mut away = Vec::new();
        for replica in self.replicas.clone() {
            if !self.is_told(replica.node, &request).await {
                away.push(replica);
            }
        }
        if comparison != 0 {
            away.into_iter().for_each(|replica| self.lose(replica));
        }
    }

    async fn is_told(&self, node: NodeId, request: &TakePart) -> bool {
        let context = self.context;
        if node == context.identity.node {
            return take_part_here(context, request);
        }
        let encoded = serde_json::to_vec(request).expect("numbers have a JSON form");
        let answer = context.transport.request(node, number::TAKE_PART, &encoded);
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        matches!(answer, Ok(Ok(answer)) if serde_json::from_slice(&answer).unwrap_or(false))
    }

    /// Goes on without a replica.
    fn lose(&mut self, replica: ReplicaId) {
        self.replicas.retain(|other| *other != replica);
        let reason = format!("replica {replica} does not answer in time; it was not compared, or not to the end");
        let found = std::mem::replace(&mut self.found, PartitionComparison::begun(self.partition));
        self.found = found.lacks(reason);
    }

    fn check_enough(&self) -> Result<(), Stop> {
        let is_enough = self.replicas.len() > 1 && self.replicas.contains(&self.own);
        if is_enough { Ok(()) } else { Err(Stop::Lacks("fewer than two replicas answer in time".into())) }
    }

    async fn go(&mut self) -> Result<(), Stop> {
        self.check_enough()?;
        let mut from = Some(Bytes::new());
        // Slices that are under way: the number, the first key, and where the leader's replica found the end.
        let mut window: VecDeque<(u32, Bytes, Option<Bytes>)> = VecDeque::new();
        loop {
            while window.len() < WINDOW
                && let Some(position) = from.clone()
            {
                let (number, own) = self.begin_slice(&position, None).await?;
                from.clone_from(&own.next);
                window.push_back((number, position, own.next));
            }
            let Some((number, position, end)) = window.pop_front() else { return Ok(()) };
            let are_here = self.gather.until(number, &self.replicas, PATIENCE).await;
            let digests = self.gather.take(number, &self.replicas);
            let is_settled = are_here && are_equal(&digests) && digests.values().all(|digest| !digest.is_cut);
            if is_settled {
                self.count(&digests);
            } else {
                self.examine(position, end).await?;
            }
            if self.found.differences.len() >= DIFFERENCES {
                return Ok(());
            }
        }
    }

    /// Puts a mark for a slice into the log, when its turn has come, and returns what this node's replica has there.
    async fn begin_slice(&mut self, from: &Bytes, to: Option<&Bytes>) -> Result<(u32, SliceDigest), Stop> {
        for _ in 0..ATTEMPTS {
            if self.bytes_per_second > 0 {
                let due = Duration::from_secs_f64(self.cost as f64 / self.bytes_per_second as f64);
                tokio::time::sleep_until((self.began + due).into()).await;
            }
            self.number += 1;
            let number = self.number;
            match self.propose(number, from, to).await {
                Ok(()) => {}
                Err(RequestError::NotReady | RequestError::Interrupted | RequestError::ShuttingDown) => {
                    return Err(Stop::LeadsNoLonger);
                }
                Err(RequestError::Busy) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(error) => return Err(Stop::Lacks(error.to_string())),
            }
            if self.gather.until(number, &[self.own], PATIENCE).await
                && let Some(own) = self.gather.of(number, self.own)
            {
                self.cost += own.bytes.max(SLICE_COST);
                return Ok((number, own));
            }
        }
        Err(Stop::Lacks("the engine of the replica that leads is busy".into()))
    }

    async fn propose(&self, number: u32, from: &Bytes, to: Option<&Bytes>) -> Result<(), RequestError> {
        let (sender, outcome) = oneshot::channel();
        let propose = Propose {
            node: self.context.identity.node,
            comparison: self.comparison,
            number,
            from: from.clone(),
            to: to.cloned(),
            outcome: Mutex::new(Some(sender)),
        };
        let pending_reply = PendingReply::new(Arc::new(propose), 0);
        // It need not be durable: nobody waits for it after a restart.
        let command = WriteCommand { begins_entry: true, ..WriteCommand::new(pending_reply) };
        if let Err((command, error)) = self.context.inboxes.submit(self.table, self.partition, command) {
            command.pending_reply.answer(Err(error));
        }
        match tokio::time::timeout(2 * PATIENCE, outcome).await {
            Ok(outcome) => outcome.unwrap_or(Err(RequestError::Interrupted)),
            Err(_) => Err(RequestError::Interrupted),
        }
    }

    fn count(&mut self, digests: &Digests) {
        let digest = digests.get(&self.own).or_else(|| digests.values().next());
        self.found.records += digest.map_or(0, |digest| digest.records);
        self.found.bytes += digest.map_or(0, |digest| digest.bytes);
    }

    /// Looks again at what is not plainly equal, one slice after the other.
    async fn examine(&mut self, mut from: Bytes, end: Option<Bytes>) -> Result<(), Stop> {
        loop {
            let (to, mut digests) = self.digests(&from, end.clone()).await?;
            for _ in 0..CONFIRMATIONS {
                if are_equal(&digests) {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
                digests = self.digests(&from, to.clone()).await?.1;
            }
            if are_equal(&digests) {
                self.count(&digests);
            } else {
                self.differ(&from, &digests);
            }
            // Slices of replicas that differ may end at different keys; what lies between is looked at again.
            let next = digests.values().map(|digest| digest.next.clone());
            match next.min_by_key(|next| (next.is_none(), next.clone())).flatten() {
                Some(next) if Some(&next) != end.as_ref() && self.found.differences.len() < DIFFERENCES => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// What all replicas have in a slice, with where it ends at the latest: earlier than asked for if a replica would have too
    /// much to look at.
    async fn digests(&mut self, from: &Bytes, mut to: Option<Bytes>) -> Result<(Option<Bytes>, Digests), Stop> {
        let mut attempts = 0;
        loop {
            let (number, _) = self.begin_slice(from, to.as_ref()).await?;
            let are_here = self.gather.until(number, &self.replicas, PATIENCE).await;
            let digests = self.gather.take(number, &self.replicas);
            if are_here {
                let cut = digests.values().filter(|digest| digest.is_cut).filter_map(|digest| digest.next.clone());
                match cut.min() {
                    Some(next) => to = Some(next),
                    None => return Ok((to, digests)),
                }
                continue;
            }
            attempts += 1;
            // A node that is not heard of any more is not waited for.
            let is_lost = |replica: &ReplicaId| attempts >= ATTEMPTS || !self.context.store.is_heard(replica.node);
            let silent = self.replicas.iter().copied().filter(|replica| !digests.contains_key(replica));
            silent.filter(is_lost).collect::<Vec<_>>().into_iter().for_each(|replica| self.lose(replica));
            self.check_enough()?;
            if attempts >= ATTEMPTS {
                attempts = 0;
            }
        }
    }

    fn differ(&mut self, from: &Bytes, digests: &Digests) {
        let name = self.table.name();
        let next = digests.get(&self.own).and_then(|digest| digest.next.as_ref());
        let to = next.map_or_else(|| "the end".into(), describe);
        let of = |(replica, digest): (&ReplicaId, &SliceDigest)| ReplicaDigest {
            replica: *replica,
            records: digest.records,
            digest: format!("{:032x}", digest.hash),
        };
        let difference = Difference { from: describe(from), to, replicas: digests.iter().map(of).collect() };
        let alone = standing_alone(digests, self.voters);
        let of_each =
            difference.replicas.iter().map(|it| format!("{} has {} records ({})", it.replica, it.records, it.digest));
        let of_each = of_each.collect::<Vec<_>>().join(", ");
        let standing_alone = alone.iter().map(ReplicaId::to_string).collect::<Vec<_>>().join(", ");
        let Difference { from, to, .. } = &difference;
        tracing::error!(table = %name, partition = self.partition, %from, %to, %standing_alone, "replicas differ: {of_each}");
        self.alone.extend(alone);
        self.found.outcome = ComparisonOutcome::Differ;
        self.found.differences.push(difference);
        self.context.comparisons.count_difference();
    }
}
