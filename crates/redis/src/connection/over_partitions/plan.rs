//! Commands of a transaction, sorted by the partitions that they concern, and how their replies are put together again.

use super::step::{Step, encode};
use crate::commands::{Command, CommandError, Run, SessionCommand};
use crate::connection::batch;
use crate::connection::forwarding::{self, Merge};
use crate::connection::frame::OwnedFrame;
use crate::connection::partitions::parts;
use crate::connection::replies::{OneReply, Replies};
use crate::resp::{Protocol, reply_length};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_store::{Access, Table, TransactionPart};
use tessera_types::{Durability, RecordKey, RequestError};

/// A transaction that is being put together.
#[derive(Default)]
pub(super) struct Plan {
    parts: BTreeMap<u32, PlannedPart>,
    /// The partition of the first key.
    anchor: Option<u32>,
    replies: Vec<PlannedReply>,
}

/// What is to be done in one partition.
#[derive(Default)]
struct PlannedPart {
    keys: BTreeSet<Vec<u8>>,
    /// They are looked at before anything is done.
    conditions: Vec<Step>,
    steps: Vec<Step>,
    /// How many of the steps are commands.
    commands: usize,
}

/// Where the reply to a command comes from.
enum PlannedReply {
    /// The command needs no partition.
    Here(&'static Command, OwnedFrame),
    /// The command cannot be carried out, whatever is stored.
    Failed(CommandError),
    /// The reply is made of those that these partitions give under these numbers.
    Merged(Merge, Vec<(u32, usize)>),
}

impl Plan {
    /// Adds a command.
    ///
    /// # Errors
    /// If it [cannot be split](super::on_copies) although its keys are in several partitions.
    pub(super) fn add(
        &mut self,
        table: &Table,
        command: &'static Command,
        frame: &OwnedFrame,
    ) -> Result<(), CommandError> {
        if matches!(command.run, Run::Plain(_) | Run::Session(SessionCommand::Unwatch)) {
            self.replies.push(PlannedReply::Here(command, frame.clone()));
            return Ok(());
        }
        let Some((parts, merge)) = forwarding::split(table, command, frame) else {
            return match parts(table, command, frame.clone()) {
                Err(error @ CommandError::Reply(_)) => {
                    self.replies.push(PlannedReply::Failed(error));
                    Ok(())
                }
                _ => Err(RequestError::CrossPartition.into()),
            };
        };
        let mut places = Vec::with_capacity(parts.len());
        if let Some(at) = command.key_positions(frame.len()).next() {
            self.anchor.get_or_insert(table.partition_of(&RecordKey::new(frame.argument(at), b"")));
        }
        for (partition, frame) in parts {
            let part = self.parts.entry(partition).or_default();
            part.keys.extend(command.key_positions(frame.len()).map(|at| frame.argument(at).to_vec()));
            places.push((partition, part.commands));
            part.commands += 1;
            part.steps.push(Step::Command(frame));
        }
        self.replies.push(PlannedReply::Merged(merge, places));
        Ok(())
    }

    /// Adds a condition about `key`.
    pub(super) fn add_condition(&mut self, table: &Table, key: &[u8], condition: Step) {
        self.part_of(table, key).conditions.push(condition);
    }

    /// Adds a step in the partition of `key`.
    pub(super) fn add_step(&mut self, table: &Table, key: &[u8], step: Step) {
        self.part_of(table, key).steps.push(step);
    }

    fn part_of(&mut self, table: &Table, key: &[u8]) -> &mut PlannedPart {
        let partition = table.partition_of(&RecordKey::new(key, b""));
        self.anchor.get_or_insert(partition);
        let part = self.parts.entry(partition).or_default();
        part.keys.insert(key.to_vec());
        part
    }

    /// The parts, that of the first key before the others.
    pub(super) fn parts(
        &self,
        table: &Arc<Table>,
        protocol: Protocol,
        durability: Option<Durability>,
    ) -> Vec<TransactionPart> {
        // Also what is only read is locked against all others: with a lock that readers share, others could see that it ends, by its
        // time to live, before a transaction takes effect that has still seen it.
        let lock = |key: &Vec<u8>| (Bytes::copy_from_slice(key), Access::Exclusive);
        let part = |(partition, part): (&u32, &PlannedPart)| TransactionPart {
            table: table.clone(),
            partition: *partition,
            durability,
            locks: part.keys.iter().map(lock).collect(),
            operation: encode(protocol, part.conditions.iter().chain(&part.steps)),
        };
        let mut parts: Vec<_> = self.parts.iter().map(part).collect();
        parts.sort_by_key(|part| Some(part.partition) != self.anchor);
        parts
    }

    /// Writes the replies to all commands, each after the other, made of what the partitions have replied.
    ///
    /// # Errors
    /// If a reply of a partition is lost.
    pub(super) fn write(
        &self,
        replied: &BTreeMap<u32, Bytes>,
        protocol: Protocol,
        out: &mut Replies,
    ) -> Result<(), CommandError> {
        const LOST: CommandError = CommandError::text(
            "ERR outcome unknown: the transaction has taken effect, but the reply of a partition to it was lost",
        );
        let mut by_partition: BTreeMap<u32, Vec<&[u8]>> = BTreeMap::new();
        for (partition, part) in self.parts.iter().filter(|(_, part)| part.commands > 0) {
            let mut rest = &replied.get(partition).ok_or(LOST)?[..];
            let mut replies = Vec::with_capacity(part.commands);
            for _ in 0..part.commands {
                let (reply, after) = rest.split_at_checked(reply_length(rest).ok_or(LOST)?).ok_or(LOST)?;
                replies.push(reply);
                rest = after;
            }
            by_partition.insert(*partition, replies);
        }
        for planned in &self.replies {
            match planned {
                PlannedReply::Failed(error) => out.error(protocol, error),
                PlannedReply::Here(command, frame) => batch::run_plain(command, frame, protocol, out.buffer()),
                PlannedReply::Merged(merge, places) => {
                    let reply = |(partition, at): &(u32, usize)| OneReply {
                        bytes: by_partition[partition][*at],
                        failure: None,
                    };
                    merge.write(&mut places.iter().map(reply), protocol, out);
                }
            }
        }
        Ok(())
    }
}
