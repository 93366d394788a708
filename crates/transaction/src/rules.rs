//! The rules that the protocol consists of.

/// A rule of the protocol. The tests leave out one after the other, and the model checker finds what goes wrong then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A partition answers when the entry is committed that the answer rests on.
    AnswersWaitForCommit,
    /// The coordinator asks for the decision when all participants are prepared.
    DecideWhenAllArePrepared,
    /// The coordinator that has asked for the decision aborts only if the anchor says so.
    AbortAtTheAnchor,
    /// A prepared participant keeps its intent until it knows the decision.
    KeepIntents,
    /// A transaction that a participant has resolved is not prepared there again.
    PrepareOnce,
    /// A decision is made once: a request that comes again gets what was decided.
    DecideOnce,
    /// Who asks about a transaction without a decision is answered when the abort is logged.
    LogAborts,
    /// An intent whose coordinator is gone is asked about.
    RecoverIntents,
    /// A transaction that has committed is settled when all participants have resolved it.
    SettleWhenAllHaveResolved,
    /// The anchor forgets that a transaction committed when all participants have resolved it.
    ForgetWhenAllHaveResolved,
    /// What a node says of its settled transactions, or a later start of it, makes partitions refuse the earlier ones.
    RefuseWhatIsSettled,
    /// Decisions of a node's earlier start outlive the news of the later one.
    KeepDecisionsOfEarlierStarts,
    /// Whoever writes a key waits for the locks on it.
    WritesWaitForLocks,
    /// Whoever reads a key waits for an exclusive lock on it.
    ReadsWaitForLocks,
    /// The anchor decides when no other transaction holds its keys.
    DecisionsWaitForLocks,
    /// A transaction that writes locks what it reads.
    LockWhatIsRead,
    /// The older of two transactions waits, and the younger one gives way.
    YoungerGivesWay,
    /// A read of several partitions is confirmed once it has all values.
    ConfirmReads,
    /// It is not confirmed if what was read has changed.
    ConfirmNoChange,
    /// It is not confirmed while a transaction may be about to change what was read.
    ConfirmNoLock,
}

/// Which rules are kept: all, outside of this crate's tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rules {
    #[cfg(test)]
    pub(crate) left_out: Option<Rule>,
}

impl Rules {
    /// Whether a rule is kept.
    #[cfg(test)]
    pub(crate) fn keep(self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }

    /// Whether a rule is kept.
    #[cfg(not(test))]
    #[inline]
    #[allow(clippy::unused_self, reason = "tests leave out rules")]
    pub(crate) fn keep(self, _rule: Rule) -> bool {
        true
    }
}
