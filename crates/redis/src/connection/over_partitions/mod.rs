//! Commands that are atomic although their keys are in several partitions: MSET, DEL and the like, RENAME, COPY and LCS, and EXEC.
//!
//! The connection sorts what is to be done by partition ([`plan`]), and the store carries it out as one transaction
//! ([`Store::transact`](tessera_store::Store::transact)). Each part is evaluated in its partition ([`step`]). Commands that need what is in
//! several partitions at once are evaluated [on copies](on_copies).

mod move_key;
mod on_copies;
mod plan;
mod step;
#[cfg(test)]
mod tests;

use super::Connection;
use super::batch;
use super::frame::OwnedFrame;
use super::open_transaction::OpenTransaction;
use super::replies::Replies;
use super::watches::Watched;
use crate::commands::{Command, CommandError, FanOut, Keys, Run};
use crate::server::SERVICE;
use bytes::Bytes;
use on_copies::{keys_of, needs_copies};
use plan::Plan;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use step::{Refusal, Step};
use tessera_store::{PartitionName, Table, Transacted, Transaction, Verdict};
use tessera_types::{ReadMode, RecordKey, RequestError};

/// What became of a plan, if it was carried out or refused.
enum Carried {
    Out(BTreeMap<u32, Bytes>),
    Refused(Refusal),
    /// The table was split; the plan is to be made anew.
    Split,
}

impl Connection {
    /// Whether commands over several partitions are transactions, as the node is configured. What another node sends is for one
    /// partition.
    pub(super) fn transacts(&self) -> bool {
        self.server.config.transactions_over_partitions && !self.is_of_node() && self.server.store.may_transact()
    }

    /// Whether a command writes keys of several partitions, so that it has to be a transaction over them.
    pub(super) fn writes_several_partitions(&self, command: &Command, frame: &OwnedFrame) -> bool {
        let may_have_several = match command.keys {
            Keys::Two => true,
            Keys::Every(step) => frame.len() > step + 1,
            Keys::None | Keys::One(_) => false,
        };
        may_have_several
            && command.flags.write
            && matches!(command.run, Run::Keyed(_))
            && self.transacts()
            && self.is_over_several(command, frame)
    }

    /// Whether a command reads keys of several partitions, which must be read at one instant.
    pub(super) fn reads_several_partitions(&self, command: &Command, frame: &OwnedFrame) -> bool {
        let may_be_apart = match command.keys {
            Keys::Two => true,
            Keys::Every(_) => self.session.options.reads != ReadMode::Outdated,
            Keys::None | Keys::One(_) => false,
        };
        let is_atomic = may_be_apart && frame.len() > 2 && command.flags.read && !command.flags.write;
        is_atomic && self.transacts() && self.is_over_several(command, frame)
    }

    /// Whether this node leads all partitions of an MGET, so that it can look at all of them in one pass.
    pub(super) fn may_join_batch(&self, command: &Command, frame: &OwnedFrame) -> bool {
        let Some(table) = &self.session.table else { return false };
        let is_here = |at| Self::is_here(table, table.partition_of(&RecordKey::new(frame.argument(at), b"")));
        command.fan_out == FanOut::Gather
            && self.session.options.reads == ReadMode::Single
            && command.key_positions(frame.len()).all(is_here)
    }

    fn is_over_several(&self, command: &Command, frame: &OwnedFrame) -> bool {
        let Some(table) = &self.session.table else { return false };
        let mut partitions =
            command.key_positions(frame.len()).map(|at| table.partition_of(&RecordKey::new(frame.argument(at), b"")));
        let first = partitions.next();
        partitions.any(|partition| Some(partition) != first)
    }

    /// Carries out a command that reads keys of several partitions.
    pub(super) async fn read_several_partitions(&mut self, command: &'static Command, frame: &OwnedFrame) {
        let mut replies = Replies::default();
        let done = self.read_plan(command, frame, &mut replies).await;
        self.append_or_refuse(replies, done);
    }

    /// Answers with replies, or with the error that came instead.
    fn append_or_refuse(&mut self, replies: Replies, done: Result<(), CommandError>) {
        match done {
            Ok(()) => self.output.append(replies),
            Err(error) => self.refuse(&error),
        }
    }

    async fn read_plan(
        &mut self,
        command: &'static Command,
        frame: &OwnedFrame,
        out: &mut Replies,
    ) -> Result<(), CommandError> {
        let protocol = self.session.protocol;
        loop {
            let table = self.session.table().ok_or(CommandError::NO_TABLE)?;
            let (mut plan, mut replies) = (Plan::default(), None);
            if needs_copies(&table, command, frame) {
                let run = |out: &mut Replies, transaction: &mut Transaction<'_>| {
                    // The reply says what is wrong.
                    let _ = batch::run(command, frame, protocol, out, transaction);
                    Verdict::Commit
                };
                let keys = keys_of(std::iter::once((command, frame)));
                replies = Some(self.evaluate_on_copies(&table, &mut plan, &keys, run).await?.0);
            } else {
                plan.add(&table, command, frame)?;
            }
            match self.carry_out_plan(&table, &plan, true).await? {
                Carried::Out(replied) => match replies {
                    Some(replies) => out.append(replies),
                    None => plan.write(&replied, protocol, out)?,
                },
                Carried::Refused(Refusal::Outdated) if Instant::now() < self.patience.until() => continue,
                Carried::Refused(refusal) => return Err(error_of(refusal)),
                Carried::Split => continue,
            }
            return Ok(());
        }
    }

    /// Carries out a command that writes keys of several partitions.
    pub(super) async fn write_several_partitions(&mut self, command: &'static Command, frame: &OwnedFrame) {
        let mut replies = Replies::default();
        let done = match command.keys {
            Keys::Two => self.move_key(command, frame, &mut replies).await,
            _ => self.write_keys(command, frame, &mut replies).await,
        };
        self.append_or_refuse(replies, done);
    }

    async fn write_keys(
        &mut self,
        command: &'static Command,
        frame: &OwnedFrame,
        out: &mut Replies,
    ) -> Result<(), CommandError> {
        let Keys::Every(step) = command.keys else { return Err(RequestError::CrossPartition.into()) };
        if !(frame.len() - 1).is_multiple_of(step) {
            return Err(CommandError::arity(command.name));
        }
        let is_conditional = command.name == "msetnx";
        loop {
            let table = self.session.table().ok_or(CommandError::NO_TABLE)?;
            let mut plan = Plan::default();
            if is_conditional {
                // The condition is about all keys, and each partition looks at its own.
                let mset = crate::commands::find(b"mset").expect("MSET is a command");
                plan.add(&table, mset, &frame.renamed(b"MSET"))?;
                for at in command.key_positions(frame.len()) {
                    let key = frame.argument(at);
                    plan.add_condition(&table, key, Step::Absent(key.to_vec()));
                }
            } else {
                plan.add(&table, command, frame)?;
            }
            match self.carry_out_plan(&table, &plan, false).await? {
                Carried::Out(_) if is_conditional => out.writer(self.session.protocol).boolean(true),
                Carried::Out(replied) => plan.write(&replied, self.session.protocol, out)?,
                Carried::Refused(Refusal::Present) if is_conditional => {
                    out.writer(self.session.protocol).boolean(false);
                }
                Carried::Refused(refusal) => return Err(error_of(refusal)),
                Carried::Split => continue,
            }
            return Ok(());
        }
    }

    /// EXEC of commands on several partitions.
    pub(super) async fn exec_over_partitions(&mut self, transaction: OpenTransaction, watches: Vec<Watched>) {
        for (command, frame) in &transaction.commands {
            if !self.admit(command, frame).await {
                return;
            }
        }
        let mut replies = Replies::default();
        let done = self.exec_plan(&transaction, watches, &mut replies).await;
        self.append_or_refuse(replies, done);
    }

    async fn exec_plan(
        &mut self,
        transaction: &OpenTransaction,
        watches: Vec<Watched>,
        out: &mut Replies,
    ) -> Result<(), CommandError> {
        let protocol = self.session.protocol;
        let Some(watched) = self.tokens(watches) else {
            out.writer(protocol).null_array();
            return Ok(());
        };
        let commands = &transaction.commands;
        let only_reads = commands.iter().all(|(command, _)| !command.flags.write);
        loop {
            let table = self.session.table().ok_or(CommandError::NO_TABLE)?;
            let (mut plan, mut replies) = (Plan::default(), None);
            if commands.iter().any(|(command, frame)| needs_copies(&table, command, frame)) {
                let keys = keys_of(commands.iter().map(|(command, frame)| (*command, frame)));
                let run = |out: &mut Replies, transaction: &mut Transaction<'_>| {
                    batch::run_all(commands, &[], protocol, out, transaction)
                };
                let (replied, verdict) = self.evaluate_on_copies(&table, &mut plan, &keys, run).await?;
                if verdict == Verdict::Abandon {
                    out.append(replied);
                    return Ok(());
                }
                replies = Some(replied);
            } else {
                for (command, frame) in commands {
                    plan.add(&table, command, frame)?;
                }
            }
            for (key, token) in &watched {
                let unwritten = Step::Unwritten { key: key.clone(), token: token.clone() };
                plan.add_condition(&table, key, unwritten);
            }
            match self.carry_out_plan(&table, &plan, only_reads).await? {
                Carried::Out(replied) => match replies {
                    Some(replies) => out.append(replies),
                    None => {
                        out.writer(protocol).array(commands.len());
                        plan.write(&replied, protocol, out)?;
                    }
                },
                Carried::Refused(Refusal::Changed) => out.writer(protocol).null_array(),
                Carried::Refused(Refusal::Outdated) if Instant::now() < self.patience.until() => continue,
                Carried::Refused(refusal) => return Err(error_of(refusal)),
                Carried::Split => continue,
            }
            return Ok(());
        }
    }

    /// Tokens of watched keys; `None` if this node has lost one of the watches.
    fn tokens(&self, watches: Vec<Watched>) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let token = |watched| match watched {
            Watched::Remote { key, token } => Some((key, token)),
            // This node is alone, or was, and carries out the parts itself.
            Watched::Here(watch, digest) => {
                let key = watch.hash_key().to_vec();
                Some((key, self.server.kept_watches.keep(watch, digest).encode()))
            }
            Watched::Lost { .. } => None,
        };
        watches.into_iter().map(token).collect()
    }

    /// Has the partitions carry out a plan.
    ///
    /// # Errors
    /// If it was not carried out, or nobody knows whether it was.
    async fn carry_out_plan(
        &mut self,
        table: &Arc<Table>,
        plan: &Plan,
        only_reads: bool,
    ) -> Result<Carried, CommandError> {
        let (server, options, until) = (self.server.clone(), self.session.options, self.patience.until());
        let parts = plan.parts(table, self.session.protocol, options.writes.durability);
        if parts.is_empty() {
            return Ok(Carried::Out(BTreeMap::new()));
        }
        let transacted = match only_reads && options.reads != ReadMode::Majority {
            true => self.wait_for(None, Box::pin(server.store.read_at_one_instant(SERVICE, parts, until))).await,
            false => self.wait_for(None, Box::pin(server.store.transact(SERVICE, parts, until))).await,
        };
        match transacted {
            Transacted::Committed(replied) => {
                let of_partition = |(name, reply): (PartitionName, Bytes)| (name.partition, reply);
                Ok(Carried::Out(replied.into_iter().map(of_partition).collect()))
            }
            Transacted::Refused(refusal) => Ok(Carried::Refused(Refusal::decode(&refusal))),
            Transacted::NotDone(reason) => Err(reason.into()),
            Transacted::Unknown => Err(RequestError::Interrupted.into()),
            Transacted::Split => {
                self.session.follow_split();
                Ok(Carried::Split)
            }
        }
    }
}

/// The reply to a command that is evaluated away from its keys, if these have changed each time until its patience was over.
const OVERTAKEN: CommandError = CommandError::text(
    "TRYAGAIN others have changed the keys each time that this was tried, or a partition of them does not answer; nothing was done; try again",
);

/// The error that a refusal is, where it is nothing else.
fn error_of(refusal: Refusal) -> CommandError {
    match refusal {
        Refusal::Error(line) => CommandError::Reply(String::from_utf8_lossy(&line).into_owned().into()),
        // Keys that nobody asked about.
        Refusal::Changed | Refusal::Present => RequestError::NotReady.into(),
        Refusal::Outdated => OVERTAKEN,
    }
}
