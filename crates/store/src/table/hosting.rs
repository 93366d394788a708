//! What a node does with a table that it hosts: it opens it, keeps it in step with the catalog, and reads and writes its engine. Faces
//! use none of it.

use super::{HostedTable, Table};
use crate::admission::Gate;
use crate::clock::ClusterClock;
use crate::compaction_state::CompactionState;
use crate::partition::Partition;
use crate::seal::Seal;
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tessera_cluster::TableEntry;
use tessera_engine::{Engine, EngineError};
use tessera_types::{Limits, NodeId};

impl Table {
    /// A table of the catalog whose engine is open, with its partitions. It is to [follow](Self::follow) the catalog then.
    pub fn new(
        entry: &TableEntry,
        engine: Box<dyn Engine>,
        partitions: Vec<Partition>,
        limits: Arc<Limits>,
        clock: Arc<ClusterClock>,
        node: NodeId,
    ) -> Self {
        let gate = Gate::default();
        gate.set(&entry.settings.admission);
        let hosted = HostedTable {
            id: entry.id,
            was_split: entry.was_split(),
            truncations_by_now: AtomicU32::new(entry.truncations),
            schema: entry.schema.clone(),
            limits,
            name: ArcSwap::from_pointee(entry.name.clone()),
            settings: ArcSwap::from_pointee(entry.settings.clone()),
            indexes: ArcSwap::from_pointee(entry.indexes.clone()),
            gate,
            engine,
            partitions,
            compaction: Mutex::default(),
            clock,
            node,
            times: Default::default(),
        };
        Self::handle(Arc::new(hosted), entry)
    }

    fn handle(hosted: Arc<HostedTable>, entry: &TableEntry) -> Self {
        Self {
            hosted,
            number: entry.number,
            truncations: entry.truncations,
            is_dropped: AtomicBool::new(entry.is_dropped()),
            is_splitting: AtomicBool::new(false),
            successor: ArcSwapOption::empty(),
            split_heard: OnceLock::new(),
        }
    }

    /// Whether the handle is for the table as clients call it by now. After a truncation it is not.
    pub fn is_current(&self, entry: &TableEntry) -> bool {
        self.truncations == entry.truncations
    }

    /// Another handle of what this one had, under the number that it got when an empty table took its place. Nothing that was asked
    /// through this one will be done there.
    pub fn renewed(&self, entry: &TableEntry) -> Self {
        Self::handle(self.hosted.clone(), entry)
    }

    /// Takes what the catalog says of the table now.
    ///
    /// # Errors
    /// If the engine does not take its settings.
    pub fn follow(&self, entry: &TableEntry) -> Result<(), EngineError> {
        self.truncations_by_now.store(entry.truncations, Ordering::Release);
        if *self.settings.load_full() != entry.settings || *self.name.load_full() != entry.name {
            self.engine.apply_settings(&entry.settings)?;
            self.gate.set(&entry.settings.admission);
            self.settings.store(Arc::new(entry.settings.clone()));
            self.name.store(Arc::new(entry.name.clone()));
        }
        if *self.indexes.load_full() != entry.indexes {
            self.indexes.store(Arc::new(entry.indexes.clone()));
        }
        for (partition, placement) in self.partitions.iter().zip(&entry.placement) {
            partition.leader.began_with(&placement.initial_members);
        }
        self.is_dropped.store(entry.is_dropped(), Ordering::Release);
        self.is_splitting.store(entry.split.is_some(), Ordering::Release);
        Ok(())
    }

    /// Whether somebody else holds the table, by this handle or another one.
    pub fn is_held_elsewhere(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || Arc::strong_count(&self.hosted) > 1
    }

    /// The table was split or truncated, and another one has taken its place.
    pub fn replace_by(&self, successor: Arc<Self>) {
        self.is_splitting.store(true, Ordering::Release);
        let is_split = successor.schema.partitions != self.schema.partitions;
        // Whoever has not heard of a split yet does not hear of it by a truncation either.
        let heard = if is_split { Some(Instant::now()) } else { self.split_heard() };
        if let Some(heard) = heard {
            let _ = successor.split_heard.set(heard);
        }
        self.successor.store(Some(successor));
        // Whoever sees this sees the rest.
        self.is_dropped.store(true, Ordering::Release);
    }

    /// The table is not there any more under the number of this handle, whether or not another one has taken its place.
    pub fn end(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    /// What a seal of a partition says from now on until the table is truncated: seals of before are void.
    pub fn seal(&self) -> Seal {
        Seal::of(self.truncations_by_now.load(Ordering::Acquire))
    }

    /// Whether a partition has ended, as of what is applied: its table is being split or truncated, and this was sealed for it.
    ///
    /// # Errors
    /// What the engine reports.
    pub fn is_sealed(&self, partition: u32) -> Result<bool, EngineError> {
        self.seal().is_on(&*self.engine, partition)
    }

    /// Whether it was dropped, or another table has taken its place.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// The engine that holds the records.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The partitions by their numbers, those without a replica here too.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// # Panics
    /// If the table has no such partition.
    pub fn partition(&self, partition: u32) -> &Partition {
        &self.partitions[partition as usize]
    }

    /// The cluster's time.
    pub fn clock(&self) -> &ClusterClock {
        &self.clock
    }

    /// How far this node is with compacting the table.
    pub fn compaction(&self) -> MutexGuard<'_, CompactionState> {
        self.compaction.lock()
    }
}
