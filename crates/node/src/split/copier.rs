//! Copies a partition that this node leads.

use super::page::{self, Place};
use super::seal::Sealing;
use super::sorter::Sorter;
use super::steps::{self, Step};
use crate::node_context::NodeContext;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_cluster::{Catalog, CatalogCommand, CopyReport, CopyState, Split};
use tessera_consensus::GroupId;
use tessera_engine::{PageLimit, mutation};
use tessera_store::hosting::{Seal, Tap, group_of};
use tessera_store::{Operation, Table, WriteOptions};
use tessera_types::{Durability, RequestError};
use tokio::sync::Semaphore;

/// Partitions of which a node copies pages at one time; others that have caught up go on as well. After each page it
/// pauses for as long as that took: what clients want comes first.
const PAGING: usize = 1;
/// What a page holds at most: what is copied under one hold of an engine's lock, and sent before others get a turn.
const PAGE: PageLimit = PageLimit { records: 1_000, bytes: 1 << 20 };
/// A copier has caught up when so little was written while it sent what was written before, or if that never happens.
const LITTLE_BYTES: usize = 256 << 10;
const CATCH_UP_ROUNDS: usize = 50;
/// How long a copier that has caught up waits for more, if there are few others.
const TAIL_PAUSE: Duration = Duration::from_millis(10);
const FEW: usize = 64;
/// How often it is told why a partition is not sealed yet.
const SEAL_IS_TOLD: Duration = Duration::from_secs(2);
/// How long a partition waits whose copy has failed before it starts again.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// How often a copier that waits for another node looks whether the split is still wanted.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// What this node copies.
pub(crate) struct Copiers {
    running: Mutex<HashSet<GroupId>>,
    paging: Semaphore,
}

impl Default for Copiers {
    fn default() -> Self {
        Self { running: Mutex::default(), paging: Semaphore::new(PAGING) }
    }
}

impl Copiers {
    /// Begins to copy what this node leads of tables that are being split or truncated, unless that has begun.
    pub(crate) fn begin(self: &Arc<Self>, context: &Arc<NodeContext>) {
        for entry in context.view.catalog().tables() {
            let Some(split) = &entry.split else { continue };
            let tables = (context.registry.any(entry.id), context.registry.any(split.into));
            let (Some(table), Some(into)) = tables else { continue };
            let undone = (0..).zip(&split.copies).filter(|(_, state)| **state != CopyState::Done);
            for (partition, _) in undone {
                let is_led = table.partition(partition).is_leading();
                if is_led && self.running.lock().insert(group_of(table.id(), partition)) {
                    let (context, table, into) = (context.clone(), table.clone(), into.clone());
                    let (seal, empties) = (table.seal(), split.truncation.is_some());
                    let attempt = rand::random_range(1..=u64::MAX);
                    tokio::spawn(self.clone().copy(Copier { context, table, partition, into, seal, empties, attempt }));
                }
            }
        }
    }

    async fn copy(self: Arc<Self>, copier: Copier) {
        let (table, partition) = (copier.table.name(), copier.partition);
        match copier.copy(&self).await {
            Ok(()) => tracing::info!(%table, partition, "copied for a split"),
            Err(why) => {
                tracing::info!(%table, partition, why, "copying for a split starts again");
                tokio::time::sleep(FAILED_PAUSE).await;
            }
        }
        self.running.lock().remove(&group_of(copier.table.id(), partition));
    }

    async fn pause(&self) {
        let crowd = self.running.lock().len().div_ceil(FEW);
        tokio::time::sleep(TAIL_PAUSE * u32::try_from(crowd).unwrap_or(u32::MAX)).await;
    }
}

/// One copy of one partition.
struct Copier {
    context: Arc<NodeContext>,
    table: Arc<Table>,
    partition: u32,
    into: Arc<Table>,
    /// What this split or truncation seals with.
    seal: Seal,
    /// Whether the new partitions begin empty.
    empties: bool,
    /// A number of its own.
    attempt: u64,
}

const LED_ELSEWHERE: &str = "the partition is led elsewhere now";

impl Copier {
    async fn copy(&self, others: &Copiers) -> Result<(), String> {
        if self.empties {
            return self.end(others).await;
        }
        let tap = {
            let _permit = others.paging.acquire().await.map_err(|error| error.to_string())?;
            // It may have been a long wait, and whoever leads now should not be overtaken.
            self.check_leads()?;
            self.check_is_on()?;
            self.begin().await?;
            let tap = self.table.partition(self.partition).change_capture().tap();
            self.check_leads()?;
            self.copy_pages(&tap).await?;
            tap
        };
        for _ in 0..CATCH_UP_ROUNDS {
            if self.send_tapped(&tap).await? < LITTLE_BYTES {
                break;
            }
        }
        self.report(CopyReport::CaughtUp).await?;
        while !self.takes_effect().await? {
            self.send_tapped(&tap).await?;
            others.pause().await;
        }
        self.seal(Some(&tap)).await?;
        self.send_tapped(&tap).await?;
        // Records that were read while others took their place do not count.
        tap.take().ok_or(LED_ELSEWHERE)?;
        self.report(CopyReport::Done).await
    }

    /// Ends the partition, and copies nothing: the table is truncated.
    async fn end(&self, others: &Copiers) -> Result<(), String> {
        self.check_leads()?;
        self.report(CopyReport::Begun).await?;
        while !self.takes_effect().await? {
            others.pause().await;
        }
        self.check_leads()?;
        self.seal(None).await?;
        self.report(CopyReport::Done).await
    }

    fn check_leads(&self) -> Result<(), String> {
        let is_leading = self.table.partition(self.partition).is_leading();
        if is_leading { Ok(()) } else { Err(LED_ELSEWHERE.into()) }
    }

    fn children(&self) -> [u32; 2] {
        self.into.schema().partitioner.children_of(self.partition, self.into.schema().partitions)
    }

    /// Has the leader of a new partition take a step. Others wait for their turn meanwhile, and the new partitions get no leader any more once
    /// the split has been given up.
    async fn step(&self, child: u32, step: &Step) -> Result<u64, String> {
        tokio::select! {
            taken = steps::send(&self.context, &self.into, child, self.attempt, step) => taken,
            over = self.is_over() => Err(over),
        }
    }

    /// Returns why there is nothing more to do, once that is so.
    async fn is_over(&self) -> String {
        loop {
            tokio::time::sleep(LOOK_PAUSE).await;
            if let Err(over) = self.check_is_on() {
                return over;
            }
        }
    }

    fn check_is_on(&self) -> Result<(), String> {
        self.split(&self.context.view.catalog()).map(|_| ())
    }

    /// The split that it copies for. Another one may have begun since, into other partitions.
    fn split<'c>(&self, catalog: &'c Catalog) -> Result<&'c Split, String> {
        let split = catalog.get(self.table.id()).and_then(|entry| entry.split.as_ref());
        split.filter(|split| split.into == self.into.id()).ok_or_else(|| "the table is not being split any more".into())
    }

    /// Makes the new partitions this copier's, and blank.
    async fn begin(&self) -> Result<(), String> {
        let [one, other] = self.children();
        let (first, second) = tokio::try_join!(self.step(one, &Step::Status), self.step(other, &Step::Status))?;
        self.report(CopyReport::Begun).await?;
        let (first, second) = (Step::Clear { index: first }, Step::Clear { index: second });
        tokio::try_join!(self.step(one, &first), self.step(other, &second))?;
        Ok(())
    }

    async fn copy_pages(&self, tap: &Tap<'_>) -> Result<(), String> {
        let mut next = Some(Place::START);
        while let Some(from) = next {
            let began = Instant::now();
            let (table, into, partition, children) =
                (self.table.clone(), self.into.clone(), self.partition, self.children());
            let read = move || page::read(&table, partition, &from, PAGE, Sorter::new(&into, children));
            let page = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
            let (batches, after) = page.map_err(|error| error.to_string())?;
            let bytes: usize = batches.iter().flatten().map(Bytes::len).sum();
            let context = &self.context;
            context.incoming.take_turn(bytes as u64, context.config.move_bytes_per_second).await;
            // What was applied up to here may be in the page; what comes later is not, and must be sent after it.
            self.send(batches).await?;
            self.send_tapped(tap).await?;
            next = after;
            if next.is_some() {
                tokio::time::sleep(began.elapsed()).await;
            }
        }
        Ok(())
    }

    /// Sends what the tap has caught, and returns how many bytes that were.
    async fn send_tapped(&self, tap: &Tap<'_>) -> Result<usize, String> {
        let payloads = tap.take().ok_or(LED_ELSEWHERE)?;
        let mut sorter = Sorter::new(&self.into, self.children());
        for mutation in payloads.iter().flat_map(|payload| mutation::decode(payload)) {
            sorter.add(mutation.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
        }
        self.send(sorter.finish()).await?;
        Ok(payloads.iter().map(Bytes::len).sum())
    }

    async fn send(&self, batches: [Vec<Bytes>; 2]) -> Result<(), String> {
        let send = async |child: u32, batches: Vec<Bytes>| {
            for batch in batches {
                self.step(child, &Step::Take(batch)).await?;
            }
            Ok::<(), String>(())
        };
        let ([one, other], [first, second]) = (self.children(), batches);
        tokio::try_join!(send(one, first), send(other, second)).map(|_| ())
    }

    async fn report(&self, report: CopyReport) -> Result<(), String> {
        let Self { table, partition, attempt, .. } = self;
        let command = CatalogCommand::Copy { table: table.id(), partition: *partition, attempt: *attempt, report };
        match self.context.store.change_catalog(command).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether partitions are to be sealed, now that this one has caught up.
    async fn takes_effect(&self) -> Result<bool, String> {
        let catalog = self.context.view.catalog();
        let split = self.split(&catalog)?;
        if !split.takes_effect && split.copies[self.partition as usize] != CopyState::CaughtUp(self.attempt) {
            // Either the news is late here, or somebody else has begun, who may never end: then the catalog says so.
            self.report(CopyReport::CaughtUp).await?;
        }
        Ok(split.takes_effect)
    }

    /// Tells why a partition is not sealed yet, at first and now and then.
    fn tell_what_delays_the_seal(&self, error: &RequestError, told: &mut Option<Instant>) {
        if told.is_some_and(|told| told.elapsed() < SEAL_IS_TOLD) {
            return;
        }
        *told = Some(Instant::now());
        let (table, partition) = (self.table.name(), self.partition);
        let ledger = self.table.partition(partition).ledger();
        let transactions = ledger.describe();
        tracing::info!(%table, partition, %error, transactions, "a partition is to be sealed; trying again");
    }

    async fn seal(&self, tap: Option<&Tap<'_>>) -> Result<(), String> {
        let mut told = None;
        while !self.seal.is_on(self.table.engine(), self.partition).map_err(|error| error.to_string())? {
            if self.table.seal() != self.seal {
                return Err("the table was recalled meanwhile, and is truncated again".into());
            }
            // It may be in the log already, if it is not known what became of it: nothing is let in before it is there again.
            let (sealing, sealed) = Sealing::new(self.seal);
            let seal: Arc<dyn Operation> = Arc::new(sealing);
            // The catalog is told on the strength of it, and does not forget that when power is cut.
            let durability = self.table.schema().is_persistent().then_some(Durability::Hard);
            let options = WriteOptions { durability, ..WriteOptions::default() };
            self.context.store.write(&self.table, options, &seal, [self.partition]);
            match sealed.await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => self.tell_what_delays_the_seal(&error, &mut told),
                Err(_) => return Err("the node is stopping".into()),
            }
            match tap {
                Some(tap) => _ = self.send_tapped(tap).await?,
                None => self.check_leads()?,
            }
            tokio::time::sleep(TAIL_PAUSE).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::tests::HoldsLoop;
    use crate::test_node::TestNode;
    use std::future::poll_fn;
    use std::task::Poll;

    /// It is not known what becomes of a seal whose entry waits for the disk. What was let in after it once stood behind it in the log.
    #[tokio::test]
    async fn a_partition_that_is_sealed_again_lets_nothing_in_before() {
        let node = TestNode::start(|_| {});
        let table = node.create_table("t", 1).await;
        let held = HoldsLoop::begin(&node, &table, 0, |state| {
            state.stop_serving();
            state.change_capture().seal();
        })
        .await;
        let copier = Copier {
            context: node.context.clone(),
            table: table.clone(),
            partition: 0,
            into: table.clone(),
            seal: table.seal(),
            empties: true,
            attempt: 1,
        };
        let mut sealing = std::pin::pin!(copier.seal(None));
        let is_pending = poll_fn(|context| Poll::Ready(sealing.as_mut().poll(context).is_pending())).await;
        assert!(is_pending);
        assert!(table.partition(0).change_capture().refuses_requests());
        drop(held);
        sealing.await.unwrap();
        assert!(table.is_sealed(0).unwrap() && table.partition(0).change_capture().refuses_requests());
    }
}
