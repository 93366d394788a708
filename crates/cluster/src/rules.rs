//! The rules that changes of members and moves of replicas keep to. docs/decisions/0020 says why each is there. In tests each
//! can be left out, which the simulation (`crate::simulation`) must notice.

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Whoever gets a vote is heard of by the group's leader, and its node has been there for a while.
    VotersLive,
    /// Whoever gets a vote has answered the leader, has its snapshot, and lacks little, in bytes and in time.
    VotersHaveCaughtUp,
    /// Members that are there and have caught up are a majority after every change.
    MajorityRemains,
    /// A change leaves as many complete copies as there were, or as many as are wanted.
    CopiesRemain,
    /// A move to a node that is gone is given up, and takes no slot from others.
    MovesAreGivenUp,
    /// A replica that a move may have made a member stays until the group's leader has said that it is none.
    GivenUpIsRemembered,
    /// A replica goes only to a node that is there.
    PlacedOnTheLiving,
    /// If the first of those that are wanted is not there, another one leads.
    AnyHeir,
    /// A voter of the catalog's group whose node has been lost for long gives way to a learner that is there.
    LostVotersAreReplaced,
    /// A replica begins on a node when the earlier one of its partition there has ended.
    EndedBeforeTheNext,
    /// The log has forgotten the earlier one by then, on disk.
    LogForgetsBeforeTheNext,
    /// Its records are gone by then, on disk.
    RecordsGoBeforeTheNext,
    /// The node's list names a replica, on disk, before it takes part.
    ListedBeforeItRuns,
}

#[cfg(not(test))]
pub(crate) const fn holds(_rule: Rule) -> bool {
    true
}

#[cfg(test)]
thread_local! {
    static LEFT_OUT: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn holds(rule: Rule) -> bool {
    LEFT_OUT.get() != Some(rule)
}

/// Does something without a rule, on this thread.
#[cfg(test)]
pub(crate) fn without<T>(rule: Option<Rule>, act: impl FnOnce() -> T) -> T {
    LEFT_OUT.set(rule);
    let outcome = act();
    LEFT_OUT.set(None);
    outcome
}
