//! Which partitions commands are about.

use super::frame::OwnedFrame;
use crate::commands::{Command, CommandError, FanOut, Keys, Run, SessionCommand};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
use tessera_store::Table;
use tessera_types::{RecordKey, RequestError};

/// The parts of a command, each with its partition: one for each partition of its keys. Commands without keys, and those
/// whose keys are together, stay whole.
type Parts = SmallVec<[(u32, OwnedFrame); 1]>;

pub(super) fn parts(table: &Table, command: &Command, frame: OwnedFrame) -> Result<Parts, CommandError> {
    let args = frame.arguments();
    let partition_of = |at: usize| table.partition_of(&RecordKey::new(args[at], b""));
    let mut positions = command.key_positions(args.len());
    let Some(first) = positions.next() else {
        drop(args);
        return Ok(smallvec![(0, frame)]);
    };
    let partition = partition_of(first);
    if positions.all(|at| partition_of(at) == partition) {
        drop(args);
        return Ok(smallvec![(partition, frame)]);
    }
    if command.fan_out == FanOut::Refuse {
        return Err(RequestError::CrossPartition.into());
    }
    let step = match command.keys {
        Keys::Every(step) => step,
        _ => 1,
    };
    if !(args.len() - 1).is_multiple_of(step) {
        return Err(CommandError::arity(command.name));
    }
    let mut by_partition: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for at in command.key_positions(args.len()) {
        by_partition.entry(partition_of(at)).or_insert_with(|| vec![0]).extend(at..at + step);
    }
    Ok(by_partition.into_iter().map(|(partition, args)| (partition, frame.part(args.into_iter()))).collect())
}

/// The one partition of the keys of a transaction, with the WATCH before it; `None` if there are no keys.
pub(super) fn partition_of_all<'a>(
    table: &Table,
    commands: impl Iterator<Item = (&'static Command, &'a OwnedFrame)>,
) -> Result<Option<u32>, RequestError> {
    let mut partition = None;
    for (command, frame) in commands {
        let args = frame.arguments();
        let positions: Vec<usize> = match command.run {
            // Between nodes, it has a digest after each key.
            Run::Session(SessionCommand::Watch) => (1..args.len()).step_by(2).collect(),
            _ => command.key_positions(args.len()).collect(),
        };
        for at in positions {
            let key = table.partition_of(&RecordKey::new(args[at], b""));
            if *partition.get_or_insert(key) != key {
                return Err(RequestError::CrossPartition);
            }
        }
    }
    Ok(partition)
}
