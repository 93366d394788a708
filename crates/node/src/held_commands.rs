//! Commands of a partition that meet keys which a transaction over partitions holds.
//!
//! Such a command is taken back as if it had not been evaluated, and evaluated again when the transaction is resolved. Commands on other
//! keys go on meanwhile, but for those of the same pipeline, which take effect in their order. Commands on the same keys cannot overtake it: they wait for the same transaction, and what comes between the
//! resolution and the second evaluation waits behind those that waited before. Of these, plain commands go first: they hold nothing afterwards, so they delay
//! nobody, while each part of another transaction would hold the key again. Then the parts of other transactions follow, the oldest before all: so
//! none of them is overtaken for ever.
//!
//! A partition that leads no more refuses those that wait at once: nothing of them has happened.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;
use tessera_store::PATIENCE;
use tessera_store::hosting::WriteCommand;
use tessera_transaction::TransactionId;

/// The commands of one partition that wait.
#[derive(Default)]
pub(crate) struct HeldCommands {
    by_holder: HashMap<TransactionId, Waiting>,
    /// The transaction that commands of a pipeline wait for, all of them for the same one, and how many they are; by the
    /// [address](tessera_store::hosting::PendingReply::address) of their operation.
    pipelines: HashMap<usize, (TransactionId, usize)>,
    /// Those that need not wait any more, and what came after these.
    ready: VecDeque<WriteCommand>,
    /// Whether the command that is evaluated next has waited.
    is_again: bool,
}

/// Commands that wait for one transaction.
#[derive(Default)]
struct Waiting {
    commands: Vec<WriteCommand>,
    /// No command is [due](until) before.
    first_due: Option<Instant>,
}

/// How long a command waits that has met a held key.
fn until(command: &WriteCommand) -> Option<Instant> {
    command.pending_reply.until().or_else(|| command.held_since.map(|since| since + PATIENCE))
}

/// The place of the operation of a command in a pipeline. Parts of transactions are in none.
fn pipeline(command: &WriteCommand) -> Option<usize> {
    command.pending_reply.address().filter(|_| command.pending_reply.age().is_none())
}

impl HeldCommands {
    /// Whether the command that is to be evaluated has to wait behind others.
    pub(crate) fn hold_up(&mut self) -> bool {
        !std::mem::take(&mut self.is_again) && !self.ready.is_empty()
    }

    /// Lets a command wait behind others.
    pub(crate) fn push(&mut self, command: WriteCommand) {
        self.ready.push_back(command);
    }

    /// The transaction for which a command waits that comes before this one in its pipeline.
    pub(crate) fn holder_before(&self, command: &WriteCommand) -> Option<TransactionId> {
        if self.pipelines.is_empty() {
            return None;
        }
        self.pipelines.get(&pipeline(command)?).map(|(holder, _)| *holder)
    }

    /// Lets a command wait for a transaction. How long it waits counts from the first transaction for which it had to, unless its
    /// operation says until when.
    pub(crate) fn wait_for(&mut self, holder: TransactionId, mut command: WriteCommand) {
        command.held_since.get_or_insert_with(Instant::now);
        if let Some(pipeline) = pipeline(&command) {
            self.pipelines.entry(pipeline).or_insert((holder, 0)).1 += 1;
        }
        let waiting = self.by_holder.entry(holder).or_default();
        waiting.first_due = waiting.first_due.into_iter().chain(until(&command)).min();
        waiting.commands.push(command);
    }

    /// Notes that a command does not wait for a transaction any more.
    fn leaves(pipelines: &mut HashMap<usize, (TransactionId, usize)>, command: &WriteCommand) {
        let Some(Entry::Occupied(mut waiting)) = pipeline(command).map(|pipeline| pipelines.entry(pipeline)) else {
            return;
        };
        waiting.get_mut().1 -= 1;
        if waiting.get().1 == 0 {
            waiting.remove();
        }
    }

    /// Ends the waiting for transactions that hold nothing here any more. Returns whether commands may go on.
    pub(crate) fn release(&mut self, holds: impl Fn(TransactionId) -> bool) -> bool {
        if self.by_holder.is_empty() {
            return false;
        }
        let gone = self.by_holder.extract_if(|holder, _| !holds(*holder));
        let mut released: Vec<_> = gone.flat_map(|(_, waiting)| waiting.commands).collect();
        released.iter().for_each(|command| Self::leaves(&mut self.pipelines, command));
        // `None` comes before all ages. Commands of one pipeline stay in their order: they wait for the same transaction.
        released.sort_by_key(|command| (command.pending_reply.age(), command.held_since));
        let is_released = !released.is_empty();
        self.ready.extend(released);
        is_released
    }

    /// Takes out those that have waited for too long, to be refused: the decision of the transaction that holds their keys cannot be had,
    /// or one transaction after the other has held them.
    pub(crate) fn take_late(&mut self, now: Instant) -> Vec<WriteCommand> {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| now >= due);
        let mut late = Vec::new();
        for waiting in self.by_holder.values_mut().filter(|waiting| is_due(waiting.first_due)) {
            late.extend(waiting.commands.extract_if(.., |command| is_due(until(command))));
            waiting.first_due = waiting.commands.iter().filter_map(until).min();
        }
        late.iter().for_each(|command| Self::leaves(&mut self.pipelines, command));
        late
    }

    /// The next one to be evaluated again.
    pub(crate) fn next(&mut self) -> Option<WriteCommand> {
        self.ready.pop_front()
    }

    /// Notes whether the command that is evaluated next has waited.
    pub(crate) fn note_again(&mut self, is_again: bool) {
        self.is_again = is_again;
    }

    /// Takes all of them out, to be refused.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = WriteCommand> + use<> {
        let Self { by_holder, ready, .. } = std::mem::take(self);
        by_holder.into_values().flat_map(|waiting| waiting.commands).chain(ready)
    }
}

#[cfg(test)]
mod tests;
