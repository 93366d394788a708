//! Reads of several partitions at one instant, without locks and without the log.

use crate::data::Data;
use crate::rules::{Rule, Rules};
use std::collections::BTreeMap;

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadStep<D: Data> {
    /// Other answers are still to come.
    Wait,
    /// All values are there. Now each of these partitions is asked whether its stamp is still the same, and no transaction
    /// holds an exclusive lock on what was read.
    Confirm(Vec<(D::Partition, D::Stamp)>),
    /// All values were current at one instant.
    Done(BTreeMap<D::Partition, D::Reply>),
    /// They may not have been. All is read again, by another attempt.
    Changed,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Part<D: Data> {
    read: Option<(D::Stamp, D::Reply)>,
    is_confirmed: bool,
}

/// One attempt to read several partitions at one instant.
///
/// First each partition is read; a partition whose keys are locked exclusively answers when they are not. When all values are there,
/// each partition confirms that nothing has changed. The instant of the read is that between the two rounds: nothing had
/// changed by then, and no transaction had taken effect that a partition would show only later, since its lock would have
/// been seen at the confirmation, or its write. A read of one partition needs no confirmation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadAttempt<D: Data> {
    parts: BTreeMap<D::Partition, Part<D>>,
    rules: Rules,
}

impl<D: Data> ReadAttempt<D> {
    /// A read of these partitions.
    pub fn new(partitions: impl IntoIterator<Item = D::Partition>) -> Self {
        let parts = partitions.into_iter().map(|partition| (partition, Part { read: None, is_confirmed: false }));
        Self { parts: parts.collect(), rules: Rules::default() }
    }

    #[cfg(test)]
    pub(crate) fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// A partition has answered with values, which no exclusive lock was on, and their stamp. An answer that comes again does
    /// nothing.
    pub fn receive(&mut self, from: D::Partition, stamp: D::Stamp, reply: D::Reply) -> ReadStep<D> {
        match self.parts.get_mut(&from) {
            Some(part) if part.read.is_none() => part.read = Some((stamp, reply)),
            _ => return ReadStep::Wait,
        }
        if self.parts.values().any(|part| part.read.is_none()) {
            return ReadStep::Wait;
        }
        if self.parts.len() == 1 || !self.rules.keep(Rule::ConfirmReads) {
            return ReadStep::Done(self.values());
        }
        let stamp = |(partition, part): (&D::Partition, &Part<D>)| Some((*partition, part.read.clone()?.0));
        ReadStep::Confirm(self.parts.iter().filter_map(stamp).collect())
    }

    /// A partition has confirmed what was read of it, or not.
    pub fn confirm(&mut self, from: D::Partition, is_unchanged: bool) -> ReadStep<D> {
        if !is_unchanged {
            return ReadStep::Changed;
        }
        if let Some(part) = self.parts.get_mut(&from) {
            part.is_confirmed = true;
        }
        match self.parts.values().all(|part| part.is_confirmed) {
            true => ReadStep::Done(self.values()),
            false => ReadStep::Wait,
        }
    }

    fn values(&self) -> BTreeMap<D::Partition, D::Reply> {
        let value = |(partition, part): (&D::Partition, &Part<D>)| Some((*partition, part.read.clone()?.1));
        self.parts.iter().filter_map(value).collect()
    }
}
