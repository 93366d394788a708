//! Why the persistent groups of a worker take no commands.

use crate::log::{LogStatus, SharedLog};
use crate::{Failure, StateMachine};

pub(super) struct Refusal {
    pub(super) failure: Failure,
    /// Whether the log still writes what commands come to that [may use its reserve](StateMachine::may_use_reserve).
    has_reserve: bool,
}

impl Refusal {
    /// All commands are refused.
    pub(super) fn of_all(failure: Failure) -> Self {
        Self { failure, has_reserve: false }
    }

    pub(super) fn of_log(log: &SharedLog) -> Option<Self> {
        match log.status() {
            LogStatus::Ok => None,
            LogStatus::Reserve => Some(Self { failure: Failure::DiskFull, has_reserve: true }),
            LogStatus::Full => Some(Self::of_all(Failure::DiskFull)),
            LogStatus::Failed(error) => Some(Self::of_all(Failure::DiskFailed(error))),
        }
    }

    /// Whether the worker ends, whatever the disk does.
    pub(super) fn is_shutting_down(&self) -> bool {
        self.failure == Failure::ShuttingDown
    }

    /// Whether what was proposed will not be written soon.
    pub(super) fn is_stuck(&self) -> bool {
        !self.has_reserve && !self.is_shutting_down()
    }

    pub(super) fn refuses<M: StateMachine>(&self, machine: &M, command: &M::Command) -> bool {
        !(self.has_reserve && machine.may_use_reserve(command))
    }
}
