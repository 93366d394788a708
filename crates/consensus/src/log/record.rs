//! The records inside a block: one byte of kind, the group (u64), then, integers little-endian:
//!
//! | kind | bytes |
//! |---|---|
//! | 1 entries | u32 count, then per entry u64 index, u64 term, u8 type, u32 length, payload |
//! | 2 state | u64 term, u64 vote, u64 commit |
//! | 3 truncated | u64 index, u64 term: the state machine is durable up to here |
//! | 4 removed | (nothing): the group is gone |
//! | 5 members | u64 index of the entry that made these members, u32 length, the members, opaque to the log |
//! | 6 restored | u64 index, u64 term: a snapshot has replaced the state, and all entries |
//! | 7 restoring | u64 index, u64 term, u64 members' index, u32 length, members: a snapshot is about to replace the state |

use crate::GroupId;
use bytes::{Buf, BufMut, Bytes};

const ENTRIES: u8 = 1;
const STATE: u8 = 2;
const TRUNCATED: u8 = 3;
const REMOVED: u8 = 4;
const MEMBERS: u8 = 5;
const RESTORED: u8 = 6;
const RESTORING: u8 = 7;

/// An entry of a group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The position in the group's log, counted from 1.
    pub index: u64,
    /// The term of the leader that proposed the entry.
    pub term: u64,
    /// Raft's entry type, opaque to the log.
    pub kind: u8,
    /// What the state machine wrote, opaque to the log.
    pub payload: Bytes,
}

impl StoredEntry {
    /// Whether the payload is the state machine's, not Raft's own.
    pub fn is_command(&self) -> bool {
        i32::from(self.kind) == raft::eraftpb::EntryType::EntryNormal as i32
    }
}

/// The state that a group must remember besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredState {
    /// The latest term that the replica has seen.
    pub term: u64,
    /// Raft's number of the replica that got this replica's vote in that term; 0 if none did.
    pub vote: u64,
    /// The index up to which the entries are known to be committed.
    pub commit: u64,
}

/// A snapshot, without the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// Index and term of the last entry that it reflects.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The members that it names, and the index of the entry that made them members.
    pub members_index: u64,
    /// Their list as Raft encodes it, opaque to the log.
    pub members: Bytes,
}

/// A record to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord {
    /// Consecutive entries. They replace any entries of the group from the first one's index on.
    Entries {
        /// The group.
        group: GroupId,
        /// The entries, by rising index without gaps.
        entries: Vec<StoredEntry>,
    },
    /// The group's term, vote and commit index.
    State {
        /// The group.
        group: GroupId,
        /// What the group must remember.
        state: StoredState,
    },
    /// The state machine is durable up to an entry, so the log needs nothing up to there.
    Truncated {
        /// The group.
        group: GroupId,
        /// The index of that entry.
        index: u64,
        /// The term of that entry.
        term: u64,
    },
    /// The group was removed from this node.
    Removed {
        /// The group.
        group: GroupId,
    },
    /// The members of the group.
    Members {
        /// The group.
        group: GroupId,
        /// The index of the entry that made these the members.
        index: u64,
        /// Their list as Raft encodes it, opaque to the log.
        members: Bytes,
    },
    /// A snapshot has replaced the state and all entries.
    Restored {
        /// The group.
        group: GroupId,
        /// The index of the last entry that the snapshot reflects.
        index: u64,
        /// The term of that entry.
        term: u64,
    },
    /// The state is about to be replaced, which takes effect on disk before [`Self::Restored`] does.
    Restoring {
        /// The group.
        group: GroupId,
        /// The snapshot that is about to replace the state.
        snapshot: StoredSnapshot,
    },
}

const HEAD: usize = 9;
const ENTRY_HEAD: usize = 21;

impl LogRecord {
    pub(super) fn group(&self) -> GroupId {
        match self {
            Self::Entries { group, .. }
            | Self::State { group, .. }
            | Self::Truncated { group, .. }
            | Self::Members { group, .. }
            | Self::Restored { group, .. }
            | Self::Restoring { group, .. }
            | Self::Removed { group } => *group,
        }
    }

    pub(super) fn encoded_len(&self) -> usize {
        HEAD + match self {
            Self::Entries { entries, .. } => {
                4 + entries.iter().map(|entry| ENTRY_HEAD + entry.payload.len()).sum::<usize>()
            }
            Self::State { .. } => 24,
            Self::Truncated { .. } | Self::Restored { .. } => 16,
            Self::Removed { .. } => 0,
            Self::Members { members, .. } => 12 + members.len(),
            Self::Restoring { snapshot, .. } => 28 + snapshot.members.len(),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, group) = match self {
            Self::Entries { group, .. } => (ENTRIES, group),
            Self::State { group, .. } => (STATE, group),
            Self::Truncated { group, .. } => (TRUNCATED, group),
            Self::Removed { group } => (REMOVED, group),
            Self::Members { group, .. } => (MEMBERS, group),
            Self::Restored { group, .. } => (RESTORED, group),
            Self::Restoring { group, .. } => (RESTORING, group),
        };
        out.put_u8(kind);
        out.put_u64_le(group.0);
        match self {
            Self::Entries { entries, .. } => {
                out.put_u32_le(u32::try_from(entries.len()).expect("a pass proposes fewer entries"));
                for entry in entries {
                    out.put_u64_le(entry.index);
                    out.put_u64_le(entry.term);
                    out.put_u8(entry.kind);
                    out.put_u32_le(u32::try_from(entry.payload.len()).expect("payloads are limited by the store"));
                    out.put_slice(&entry.payload);
                }
            }
            Self::State { state, .. } => {
                out.put_u64_le(state.term);
                out.put_u64_le(state.vote);
                out.put_u64_le(state.commit);
            }
            Self::Truncated { index, term, .. } | Self::Restored { index, term, .. } => {
                out.put_u64_le(*index);
                out.put_u64_le(*term);
            }
            Self::Removed { .. } => {}
            Self::Members { index, members, .. } => put_members(out, *index, members),
            Self::Restoring { snapshot, .. } => {
                out.put_u64_le(snapshot.index);
                out.put_u64_le(snapshot.term);
                put_members(out, snapshot.members_index, &snapshot.members);
            }
        }
    }

    /// Takes one record off `bytes`; `None` if they do not begin with one.
    pub(super) fn decode(bytes: &mut Bytes) -> Option<Self> {
        let kind = bytes.try_get_u8().ok()?;
        let group = GroupId(bytes.try_get_u64_le().ok()?);
        Some(match kind {
            ENTRIES => {
                let count = bytes.try_get_u32_le().ok()? as usize;
                if count > bytes.len() / ENTRY_HEAD {
                    return None;
                }
                let mut entries = Vec::with_capacity(count);
                for _ in 0..count {
                    let (index, term) = (bytes.try_get_u64_le().ok()?, bytes.try_get_u64_le().ok()?);
                    let kind = bytes.try_get_u8().ok()?;
                    let length = bytes.try_get_u32_le().ok()? as usize;
                    if length > bytes.len() {
                        return None;
                    }
                    entries.push(StoredEntry { index, term, kind, payload: bytes.split_to(length) });
                }
                Self::Entries { group, entries }
            }
            STATE => {
                let mut next = || bytes.try_get_u64_le().ok();
                Self::State { group, state: StoredState { term: next()?, vote: next()?, commit: next()? } }
            }
            TRUNCATED => {
                Self::Truncated { group, index: bytes.try_get_u64_le().ok()?, term: bytes.try_get_u64_le().ok()? }
            }
            REMOVED => Self::Removed { group },
            RESTORED => {
                Self::Restored { group, index: bytes.try_get_u64_le().ok()?, term: bytes.try_get_u64_le().ok()? }
            }
            MEMBERS => {
                let (index, members) = take_members(bytes)?;
                Self::Members { group, index, members }
            }
            RESTORING => {
                let (index, term) = (bytes.try_get_u64_le().ok()?, bytes.try_get_u64_le().ok()?);
                let (members_index, members) = take_members(bytes)?;
                Self::Restoring { group, snapshot: StoredSnapshot { index, term, members_index, members } }
            }
            _ => return None,
        })
    }
}

fn put_members(out: &mut Vec<u8>, index: u64, members: &Bytes) {
    out.put_u64_le(index);
    out.put_u32_le(u32::try_from(members.len()).expect("a group has few members"));
    out.put_slice(members);
}

fn take_members(bytes: &mut Bytes) -> Option<(u64, Bytes)> {
    let index = bytes.try_get_u64_le().ok()?;
    let length = bytes.try_get_u32_le().ok()? as usize;
    (length <= bytes.len()).then(|| (index, bytes.split_to(length)))
}
