use crate::{GroupId, Inconsistent, Moment};
use bytes::{Bytes, BytesMut};
use tessera_types::ReplicaId;

/// What the groups of one worker replicate: called by the worker's loop only, never concurrently.
///
/// A command passes through three calls. [`evaluate`](Self::evaluate) turns it into bytes that say what will change,
/// judged against the state *and* everything evaluated before it that is not applied yet.
/// [`apply`](Self::apply) makes the change once it is committed. [`answer`](Self::answer) tells whoever sent it.
pub trait StateMachine {
    /// What the state machine is asked to do.
    type Command: Send + 'static;
    /// What is needed to answer a command once its outcome is known.
    type PendingReply;

    /// A pass of the loop begins. Values that are the same for all its commands, such as the time, can be looked up
    /// once here.
    fn begin_pass(&mut self) {}

    /// Whether the command's effect must be the first in an entry.
    fn begins_entry(&self, _command: &Self::Command) -> bool {
        false
    }

    /// Whether the command is carried out although the disk is full, as long as the log has a [reserve](crate::LogStatus::Reserve): it only
    /// reads, or ends what others wait for.
    fn may_use_reserve(&self, _command: &Self::Command) -> bool {
        false
    }

    /// Appends the command's effect to `payload`. A command that [waits](Evaluated::Waits) is evaluated again later.
    fn evaluate(
        &mut self,
        group: GroupId,
        command: Self::Command,
        payload: &mut BytesMut,
    ) -> Evaluated<Self::PendingReply>;

    /// The machine has read what commands of the group [wait](Evaluated::Waits) for.
    fn has_read(&mut self, _group: GroupId) {}

    /// The next of the group's commands that waited and need not wait any more, to be evaluated again; `None` if there is
    /// none.
    fn next_waiting(&mut self, _group: GroupId) -> Option<Self::Command> {
        None
    }

    /// The worker is stopping: commands that [wait](Evaluated::Waits) are to be refused.
    fn stopping(&mut self) {}

    /// Everything evaluated for `group` since the last call is in the log entry `index`, with this payload.
    fn proposed(&mut self, group: GroupId, index: u64, payload: &Bytes);

    /// Applies committed entries: all of one pass of the loop, in log order within a group. Entries with an empty
    /// payload change nothing but the index. Returns the groups whose engine would block; their entries are submitted
    /// again after [`crate::Inbox::caught_up`].
    ///
    /// # Errors
    /// If the entries could not be applied. They are submitted again later; until then nothing in `committed` may be answered.
    fn apply(&mut self, committed: &[Committed]) -> Result<Vec<GroupId>, String>;

    /// Answers a command: `Ok` once its entry is applied.
    fn answer(&mut self, reply: Self::PendingReply, outcome: Result<(), Failure>);

    /// Leader-acked commands of the group up to this log index are being answered, although they may not be applied yet.
    fn leader_acked(&mut self, _group: GroupId, _index: u64) {}

    /// Refuses a command that was never evaluated.
    fn refuse(&mut self, command: Self::Command, failure: Failure);

    /// The worker no longer has the group; everything that is kept for it can be dropped.
    fn removed(&mut self, _group: GroupId) {}

    /// This replica cannot go on with its log and state, for the given reason. It takes part in nothing until it is
    /// [removed](crate::Inbox::remove), and another replica must take its place.
    fn set_aside(&mut self, group: GroupId, reason: &Inconsistent) {
        tracing::error!(%group, %reason, "a replica is set aside");
    }

    /// Called after [`apply`](Self::apply) has failed: returns the groups with an entry that can never be applied, and
    /// why. Their replicas are [set aside](Self::set_aside), and the entries of the other groups are submitted again.
    fn unusable(&mut self, _committed: &[Committed]) -> Vec<(GroupId, String)> {
        Vec::new()
    }

    /// This replica leads the group and has applied everything acknowledged before. It may answer reads only
    /// [under a lease](Self::lease).
    fn serving(&mut self, group: GroupId);

    /// No other replica can lead the group before `until`; `None`: as long as this one serves, because it is the only
    /// member. A later call replaces an earlier one, and may shorten the lease.
    fn lease(&mut self, _group: GroupId, _until: Option<Moment>) {}

    /// The state reflects everything that the group had committed at that time. `None` means now, and until the next
    /// call. Called on every tick while the group is active, and once when it hibernates.
    fn fresh(&mut self, _group: GroupId, _as_of: Option<Moment>) {}

    /// A replica was elected to lead the group, this one or another.
    fn leader(&mut self, _group: GroupId, _term: u64, _leader: ReplicaId) {}

    /// This replica led the group and leads no longer. Effects that were evaluated and not applied must be forgotten;
    /// they may come back as committed entries.
    fn stepped_down(&mut self, _group: GroupId) {}

    /// Whether nobody has read from the group since the last call.
    fn is_idle(&mut self, _group: GroupId) -> bool {
        true
    }

    /// A replica lacks entries that the log no longer has. Returns a snapshot: a log index and the state of the group
    /// at that index, now or through [`crate::Inbox::offer_snapshot`] later. Called again until there is one.
    fn snapshot(&mut self, _group: GroupId) -> Option<(u64, Vec<u8>)> {
        None
    }

    /// A snapshot of another replica has arrived for the group. An empty snapshot means that the state stays as it is
    /// and counts as that of `index` from now on: see [`crate::Inbox::force_recover`]. Returns true if
    /// [`prepare`](Self::prepare) needs nothing more. Otherwise the content is being fetched, replacing what was
    /// fetched for an earlier snapshot, and [`crate::Inbox::fetched`] reports the end.
    fn fetch(&mut self, _group: GroupId, _index: u64, _snapshot: &[u8]) -> bool {
        true
    }

    /// The snapshot that was fetched, or is being fetched, for the group is not needed.
    fn discard(&mut self, _group: GroupId) {}

    /// The group is about to install the snapshot, and pauses until its state is replaced. Returns true if
    /// [`restore`](Self::restore) will replace it, and false if another thread does so and [`crate::Inbox::prepared`]
    /// reports the end.
    fn prepare(&mut self, _group: GroupId, _index: u64, _snapshot: &[u8]) -> bool {
        true
    }

    /// Replaces the state of the group by a snapshot of another replica, which reflects the log up to `index`, as far as
    /// [`prepare`](Self::prepare) has not done so.
    ///
    /// # Errors
    /// If the state cannot be replaced.
    fn restore(&mut self, _group: GroupId, _index: u64, _snapshot: &[u8]) -> Result<(), String> {
        Err("this state machine has no snapshots".into())
    }
}

/// The outcome of evaluating a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Evaluated<T> {
    /// The command has an effect, which is appended to the payload. With `sync` the entry must be fsynced before it
    /// counts as persisted on this replica. With `leader_acked` the command is answered when this replica has persisted
    /// the entry; a majority decides later whether it takes effect.
    Replicate {
        /// What answers the command later.
        reply: T,
        /// Whether the entry must be fsynced before it counts.
        sync: bool,
        /// Whether the command is answered before a majority has the entry.
        leader_acked: bool,
    },
    /// Nothing changes, but the answer may depend on entries that are not applied yet, so it waits for those. With
    /// `confirm` it also waits until a majority has confirmed, after the command came, that this replica leads,
    /// whatever its lease says.
    NoChange {
        /// What answers the command later.
        reply: T,
        /// Whether a majority must confirm the leader first.
        confirm: bool,
    },
    /// The machine has refused the command.
    Refused,
    /// Nothing has happened: the command must wait, until the machine has read something or for something else. The machine keeps
    /// it, and [`crate::Inbox::has_read`] or [`crate::Inbox::go_on`] tells when it [goes on](StateMachine::next_waiting).
    Waits,
}

/// Committed entries of one group.
#[derive(Debug)]
pub struct Committed {
    /// The group that committed the entries.
    pub group: GroupId,
    /// Index of the last entry.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The payloads of the entries, in the order of the log.
    pub payloads: Vec<Bytes>,
}

/// Why a command was not carried out, or is not known to have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Not done: the group is not on this worker, or not yet leading.
    NotServing,
    /// Not done: the limit of entries that wait for the state machine is reached.
    Busy,
    /// Not done: the disk is full.
    DiskFull,
    /// Not done: the log failed earlier.
    DiskFailed(String),
    /// Not done: the state machine cannot [apply](StateMachine::apply) what is committed, which is tried again and again.
    NotApplied(String),
    /// Not done: the process is going down.
    ShuttingDown,
    /// Proposed, but its outcome will not be known in time.
    Interrupted,
}
