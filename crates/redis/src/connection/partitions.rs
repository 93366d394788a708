//! Which partitions commands are about.

use super::frame::OwnedFrame;
use crate::commands::{Command, CommandError, FanOut, Keys, Run, SessionCommand};
use smallvec::{SmallVec, smallvec};
use tessera_store::Table;
use tessera_types::{RecordKey, RequestError};

/// The parts of a command, each with its partition: one for each partition of its keys. Commands without keys, and those
/// whose keys are together, stay whole.
pub(super) type Parts = SmallVec<[(u32, OwnedFrame); 1]>;

pub(super) fn parts(table: &Table, command: &Command, frame: OwnedFrame) -> Result<Parts, CommandError> {
    let partition_of = |at: usize| table.partition_of(&RecordKey::new(frame.argument(at), b""));
    let mut positions = command.key_positions(frame.len());
    let first = positions.next().map(|at| (partition_of(at), at));
    let mut keys: SmallVec<[(u32, usize); 16]> = positions.map(|at| (partition_of(at), at)).collect();
    let partition = first.map_or(0, |(partition, _)| partition);
    if keys.iter().all(|(other, _)| *other == partition) {
        return Ok(smallvec![(partition, frame)]);
    }
    keys.extend(first);
    if command.fan_out == FanOut::Refuse {
        return Err(RequestError::CrossPartition.into());
    }
    let step = match command.keys {
        Keys::Every(step) => step,
        _ => 1,
    };
    if !(frame.len() - 1).is_multiple_of(step) {
        return Err(CommandError::arity(command.name));
    }
    keys.sort_unstable();
    let part = |keys: &[(u32, usize)]| (keys[0].0, frame.part(keys.iter().map(|(_, at)| *at), step));
    Ok(keys.chunk_by(|(one, _), (other, _)| one == other).map(part).collect())
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
