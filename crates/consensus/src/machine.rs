use crate::{GroupId, Inconsistent, Moment};
use bytes::{Bytes, BytesMut};
use tessera_types::ReplicaId;

/// What the groups of one worker replicate: called by the worker's loop only, never concurrently.
///
/// A command passes through three calls. [`evaluate`](Self::evaluate) turns it into bytes that say what will change,
/// judged against the state *and* everything evaluated before it that is not applied yet.
/// [`apply`](Self::apply) makes the change once it is committed. [`answer`](Self::answer) tells whoever sent it.
pub trait StateMachine {
    type Command: Send + 'static;
    /// What is needed to answer a command.
    type Ticket;

    /// A pass of the loop begins: what is the same for all its commands, such as the time, can be looked up once.
    fn begin_pass(&mut self) {}

    /// Whether the command's effect is to be the first in an entry.
    fn begins_entry(&self, _command: &Self::Command) -> bool {
        false
    }

    /// Appends the command's effect to `payload`.
    fn evaluate(&mut self, group: GroupId, command: Self::Command, payload: &mut BytesMut) -> Evaluated<Self::Ticket>;

    /// The machine has read what commands of the group [wait](Evaluated::Waits) for.
    fn has_read(&mut self, _group: GroupId) {}

    /// The next of the group's commands that waited, in the order in which they came, to be evaluated again; `None` if there is
    /// none, or something is still being read.
    fn next_waiting(&mut self, _group: GroupId) -> Option<Self::Command> {
        None
    }

    /// Everything evaluated for `group` since the last call is in the log entry `index`, with this payload.
    fn proposed(&mut self, group: GroupId, index: u64, payload: &Bytes);

    /// Applies committed entries: all that one pass of the loop has, in log order within a group. Entries with an
    /// empty payload change nothing but the index. Returns groups whose state could not take theirs without waiting: these
    /// are given again when [`crate::Inbox::caught_up`] tells.
    ///
    /// # Errors
    /// If the state could not take them. They are given again later; meanwhile nothing of `committed` may be answered.
    fn apply(&mut self, committed: &[Committed]) -> Result<Vec<GroupId>, String>;

    /// Answers a command: `Ok` once its entry is applied.
    fn answer(&mut self, ticket: Self::Ticket, outcome: Result<(), Failure>);

    /// Commands of the group up to this log index have been answered, and may not be applied yet.
    fn answered_early(&mut self, _group: GroupId, _index: u64) {}

    /// Refuses a command that was never evaluated.
    fn refuse(&mut self, command: Self::Command, failure: Failure);

    /// The group is gone from this worker; what is kept for it can be dropped.
    fn removed(&mut self, _group: GroupId) {}

    /// This replica cannot go on with what it has, for that reason: it takes part in nothing until it is
    /// [removed](crate::Inbox::remove), and another one has to take its place.
    fn set_aside(&mut self, group: GroupId, reason: &Inconsistent) {
        tracing::error!(?group, %reason, "a replica is set aside");
    }

    /// Of entries that [`apply`](Self::apply) has just failed at: groups with one that can never be applied, and why. Their
    /// replicas are [set aside](Self::set_aside), and the others' entries given again.
    fn unusable(&mut self, _committed: &[Committed]) -> Vec<(GroupId, String)> {
        Vec::new()
    }

    /// This replica leads the group and has applied everything acknowledged before. It may answer reads only
    /// [under a lease](Self::lease).
    fn serving(&mut self, group: GroupId);

    /// Until `until` no other replica leads the group; `None` is as long as it serves, since there is no other one. A
    /// later call takes the place of an earlier one, and may take time away.
    fn lease(&mut self, _group: GroupId, _until: Option<Moment>) {}

    /// The state reflects all that the group had committed at that time; as of now, as long as nothing else is said, if it
    /// is `None`. Told again and again while the group is awake, and when it begins to rest.
    fn fresh(&mut self, _group: GroupId, _as_of: Option<Moment>) {}

    /// A replica was elected to lead the group, this one or another.
    fn leader(&mut self, _group: GroupId, _term: u64, _leader: ReplicaId) {}

    /// Another replica leads the group, or may. What was evaluated and is not applied is forgotten; it may come back as
    /// committed entries.
    fn deposed(&mut self, _group: GroupId) {}

    /// Whether nobody has read from the group since this was last asked.
    fn is_idle(&mut self, _group: GroupId) -> bool {
        true
    }

    /// A replica lags so far behind that the log does not help it: returns a log index and the state of the group as of
    /// then, now or through [`crate::Inbox::offer_snapshot`] later. It is asked again until there is one.
    fn snapshot(&mut self, _group: GroupId) -> Option<(u64, Vec<u8>)> {
        None
    }

    /// A snapshot of another replica's has come for the group. An empty one says that the state stays as it is, and is that of
    /// `index` from now on: see [`crate::Inbox::bridge`]. Returns true if [`prepare`](Self::prepare) needs nothing more;
    /// else what it needs is being fetched, in the place of what was fetched for an earlier one, and
    /// [`crate::Inbox::fetched`] will tell.
    fn fetch(&mut self, _group: GroupId, _index: u64, _snapshot: &[u8]) -> bool {
        true
    }

    /// What was fetched, or is being fetched, for the group is not needed.
    fn discard(&mut self, _group: GroupId) {}

    /// The group is about to take the snapshot, and does nothing else until its state is replaced: returns true if
    /// [`restore`](Self::restore) will do that, false if it goes on elsewhere and [`crate::Inbox::prepared`] will tell.
    fn prepare(&mut self, _group: GroupId, _index: u64, _snapshot: &[u8]) -> bool {
        true
    }

    /// Replaces the state of the group by a snapshot of another replica's, which reflects the log up to `index`, as far as
    /// [`prepare`](Self::prepare) did not.
    ///
    /// # Errors
    /// If that cannot be done.
    fn restore(&mut self, _group: GroupId, _index: u64, _snapshot: &[u8]) -> Result<(), String> {
        Err("this state machine has no snapshots".into())
    }
}

/// What evaluation made of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Evaluated<T> {
    /// There is a payload. With `sync` the entry must be fsynced before it counts as persisted here. With `early` the command
    /// is answered when this replica has persisted it; whether it takes effect is for a majority to decide later.
    Replicate { ticket: T, sync: bool, early: bool },
    /// Nothing changes, but the answer may rest on entries that are not applied yet, so it waits for those. With `confirm`
    /// it also waits until a majority has confirmed the leader since, whatever its lease says.
    NoChange { ticket: T, confirm: bool },
    /// The machine has refused the command.
    Refused,
    /// Nothing has happened: the command, or one before it, must wait until the machine has read something, and so must those that
    /// come after it. The machine keeps them, and [`crate::Inbox::has_read`] tells when they [go on](StateMachine::next_waiting).
    Waits,
}

/// Committed entries of one group.
#[derive(Debug)]
pub struct Committed {
    pub group: GroupId,
    /// Index of the last entry.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    pub payloads: Vec<Bytes>,
}

/// Why a command was not carried out, or is not known to have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Not done: the group is not on this worker, or not yet leading.
    NotServing,
    /// Not done: as much as may waits for the state machine.
    Busy,
    /// Not done: the disk is full.
    DiskFull,
    /// Not done: the log failed earlier.
    DiskFailed(String),
    /// Not done: the process is going down.
    ShuttingDown,
    /// Proposed, but it will not be known in time whether it took effect.
    Interrupted,
}
