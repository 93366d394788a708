//! What is in a world, and what may go wrong there.

use crate::data::Data;
use crate::intent::Access;
use crate::rules::{Rule, Rules};

/// Each key has a partition of its own, so one number stands for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Small;

impl Data for Small {
    type Partition = u8;
    type Key = u8;
    type Operation = Operation;
    /// The new value.
    type Writes = Option<u32>;
    /// The value that was there.
    type Reply = u32;
    /// Term, and how many entries were applied.
    type Stamp = (u8, u8);
}

/// What is done with a partition's key, and for which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Operation {
    pub(super) access: Access,
    pub(super) only_if_empty: bool,
    pub(super) client: u32,
}

/// What a client asks a node for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Program {
    /// Reads all keys and appends to those that it locks exclusively. The first key is in the anchor.
    Transaction(&'static [(u8, Access)]),
    /// Appends to all keys if all are empty.
    IfEmpty(&'static [u8]),
    /// Appends to a key, as an ordinary command does.
    Write(u8),
    /// Reads keys at one instant.
    Read(&'static [u8]),
}

impl Program {
    /// The keys that it needs, and for what.
    pub(super) fn accesses(self) -> Vec<(u8, Access)> {
        match self {
            Self::Transaction(accesses) => accesses.to_vec(),
            Self::IfEmpty(keys) => keys.iter().map(|key| (*key, Access::Exclusive)).collect(),
            Self::Write(key) => vec![(key, Access::Exclusive)],
            Self::Read(keys) => keys.iter().map(|key| (*key, Access::Shared)).collect(),
        }
    }
}

/// How often something may still go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Faults {
    /// A node dies with its coordinator.
    pub(super) crashes: u8,
    /// A partition gets another leader.
    pub(super) leader_changes: u8,
    /// The client of a transaction does not wait any more.
    pub(super) give_ups: u8,
    /// A transaction is taken for abandoned although its coordinator goes on.
    pub(super) suspicions: u8,
}

/// A world to be searched: what there is, and what may go wrong.
#[derive(Clone, Debug)]
pub(super) struct SetUp {
    pub(super) partitions: u8,
    /// What each node's clients ask for, one after the other.
    pub(super) programs: Vec<Vec<Program>>,
    /// The same without the nodes.
    pub(super) all: Vec<Program>,
    pub(super) faults: Faults,
    /// How often a transaction, or a read of several partitions, is tried.
    pub(super) attempts: u8,
    pub(super) left_out: Option<Rule>,
}

impl SetUp {
    pub(super) fn new(partitions: u8, programs: Vec<Vec<Program>>) -> Self {
        let all = programs.concat();
        Self { partitions, programs, all, faults: Faults::default(), attempts: 2, left_out: None }
    }

    pub(super) fn rules(&self) -> Rules {
        Rules { left_out: self.left_out }
    }

    pub(super) fn client(&self, node: usize, program: usize) -> u32 {
        (self.programs[..node].iter().map(Vec::len).sum::<usize>() + program).try_into().expect("few clients")
    }
}
