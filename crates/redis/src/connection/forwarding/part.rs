//! Commands for one partition that go to another node together.

use super::{Merge, split};
use crate::commands::{Run, SessionCommand};
use crate::connection::frame::OwnedFrame;
use crate::connection::partitions;
use tessera_store::{PartOutcome, Table};
use tessera_types::{ReadMode, RequestError};

/// Of a part that concerns no partition: there are fewer partitions.
const NO_PARTITION: u32 = u32::MAX;

/// What is to be done to one partition.
#[derive(Clone)]
pub(super) struct Commands {
    /// A command on a whole table, of which this partition is to do its part.
    pub(super) is_in_partition: bool,
    /// The last one's reply counts.
    pub(super) frames: Vec<OwnedFrame>,
}

pub(super) type Part = tessera_store::Part<Commands>;

/// One that is to be done.
pub(super) fn part(partition: u32, reads: ReadMode, is_repeatable: bool, work: Commands) -> Part {
    Part { partition, reads, is_repeatable, work, outcome: None }
}

/// One that nobody need carry out any more.
pub(super) fn answered(outcome: PartOutcome) -> Part {
    let nothing = Commands { is_in_partition: false, frames: Vec::new() };
    Part { outcome: Some(outcome), ..part(NO_PARTITION, ReadMode::Single, false, nothing) }
}

/// The parts of one in a table that was split, and how their replies become one.
pub(super) fn split_part(old: &Part, table: &Table) -> Result<(Vec<Part>, Merge), RequestError> {
    let on = |partition: u32, frames| {
        let is_in_partition = old.work.is_in_partition;
        part(partition, old.reads, old.is_repeatable, Commands { is_in_partition, frames })
    };
    let [frame] = &old.work.frames[..] else {
        let commands = old.work.frames.iter().filter_map(|frame| {
            let command = crate::commands::find(frame.arguments()[0])?;
            Some((command, frame))
        });
        let partition = partitions::partition_of_all(table, commands)?.unwrap_or(0);
        return Ok((vec![on(partition, old.work.frames.clone())], Merge::One));
    };
    let command = crate::commands::find(frame.arguments()[0]).ok_or(RequestError::NotReady)?;
    let schema = table.schema();
    if let Run::Session(which @ (SessionCommand::Keys | SessionCommand::Flush)) = command.run {
        let children = schema.partitioner.children_of(old.partition, schema.partitions);
        let parts = children.map(|child| on(child, vec![frame.clone()]));
        let count = children.len();
        let is_flush = which == SessionCommand::Flush;
        return Ok((parts.into(), if is_flush { Merge::Same { parts: count } } else { Merge::Arrays(count) }));
    }
    // Commands on whole tables start again; a cursor means what it meant, or less.
    let (parts, merge) = split(table, command, frame).ok_or(RequestError::NotReady)?;
    Ok((parts.into_iter().map(|(partition, frame)| on(partition, vec![frame])).collect(), merge))
}
