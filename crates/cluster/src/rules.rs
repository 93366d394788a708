//! The rules that changes of members and moves of replicas obey. docs/decisions/0020 says why each exists. In tests
//! each rule can be switched off, which the simulation (`crate::simulation`) must notice.

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The group's leader hears from a replica that gets a vote, and its node has been alive for a while.
    VotersLive,
    /// A replica that gets a vote, or counts as a copy, has its snapshot.
    SnapshotIsThere,
    /// A replica that gets a vote, or counts as a copy, has answered the leader and has what was committed a while ago.
    VotersKeepUp,
    /// A replica that gets a vote, or counts as a copy, lacks few bytes.
    LackIsBounded,
    /// Members that are alive and have caught up are a majority after every change.
    MajorityRemains,
    /// A change leaves as many complete copies as there were, or as there are target members.
    CopiesRemain,
    /// A move to a node that is gone is given up, and takes no slot from others.
    MovesAreGivenUp,
    /// A replica that a move may have made a member stays until the group's leader has reported that it is no member.
    GivenUpIsRemembered,
    /// A replica is placed only on a node that is alive.
    PlacedOnTheLiving,
    /// If the first target member is not alive, another one leads.
    AnyHeir,
    /// A voter of the catalog's group whose node is lost is replaced by a learner that is alive.
    LostVotersAreReplaced,
    /// A node that asks again to be let in, since the answer was lost, gets the same number.
    TokensAreKnown,
    /// A replica begins on a node only when the earlier replica of its partition there has ended.
    EndedBeforeTheNext,
    /// Before a replica begins, the log has durably forgotten the earlier one.
    LogForgetsBeforeTheNext,
    /// Before a replica begins, the records of the earlier one are durably removed.
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

/// Runs a function without a rule, on this thread.
#[cfg(test)]
pub(crate) fn without<T>(rule: Option<Rule>, act: impl FnOnce() -> T) -> T {
    LEFT_OUT.set(rule);
    let outcome = act();
    LEFT_OUT.set(None);
    outcome
}
