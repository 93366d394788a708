//! What a node does with a table that it hosts: it opens it, keeps it in step with the catalog, and reads and writes its engine. Faces
//! use none of it.

use super::Table;
use crate::admission::Gate;
use crate::clock::ClusterClock;
use crate::compaction_state::CompactionState;
use crate::partition::Partition;
use crate::seal::Seal;
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tessera_cluster::TableEntry;
use tessera_engine::{Engine, EngineError};
use tessera_types::{Limits, NodeId, TableNumber};

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
        Self {
            id: entry.id,
            number: AtomicU32::new(entry.number.0),
            was_split: entry.was_split(),
            truncations: AtomicU32::new(entry.truncations),
            schema: entry.schema.clone(),
            limits,
            name: ArcSwap::from_pointee(entry.name.clone()),
            settings: ArcSwap::from_pointee(entry.settings.clone()),
            indexes: ArcSwap::from_pointee(entry.indexes.clone()),
            gate,
            engine,
            partitions,
            is_dropped: AtomicBool::new(false),
            is_splitting: AtomicBool::new(false),
            successor: ArcSwapOption::empty(),
            compaction: Mutex::default(),
            clock,
            node,
            times: Default::default(),
        }
    }

    /// Takes what the catalog says of the table now.
    ///
    /// # Errors
    /// If the engine does not take its settings.
    pub fn follow(&self, entry: &TableEntry) -> Result<(), EngineError> {
        self.number.store(entry.number.0, Ordering::Release);
        self.truncations.store(entry.truncations, Ordering::Release);
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
        let is_replaced = entry.is_dropped() && self.successor.load().is_some();
        self.is_splitting.store(entry.split.is_some() || is_replaced, Ordering::Release);
        Ok(())
    }

    /// The table was split or truncated: another one has taken its place, and if this one is kept, it has another number.
    pub fn replace_by(&self, successor: Arc<Self>, number: TableNumber) {
        self.number.store(number.0, Ordering::Release);
        self.successor.store(Some(successor));
        // Whoever sees this sees the rest.
        self.is_dropped.store(true, Ordering::Release);
    }

    /// What a seal of a partition says from now on until the table is truncated: seals of before are void.
    pub fn seal(&self) -> Seal {
        Seal::of(self.truncations.load(Ordering::Acquire))
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
