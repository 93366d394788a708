//! What the replicas of a group send each other.
//!
//! Raft's own message goes as protobuf, without the entries' payloads; these follow it as they are:
//!
//! ```text
//! u64 group | u8 flags (1: the group rests) | u64 progress | u32 length, Raft's message
//! u32 count, then per entry u8 sync, u32 length, payload
//! ```

use crate::GroupId;
use bytes::{Buf, BufMut, Bytes};
use prost::Message as _;
use raft::eraftpb::{EntryType, Message, MessageType, Snapshot};
use tessera_types::{NodeId, ReplicaId};

/// A message from a replica to another one of its group.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerMessage {
    /// The group of both replicas.
    pub group: GroupId,
    /// Whether this is the last heartbeat of a leader that hibernates.
    pub(crate) hibernates: bool,
    /// From a leader to a witness: the index up to which every data replica has the log. From a leader to another
    /// replica: the committed index. Otherwise zero.
    pub(crate) progress: u64,
    pub(crate) message: Message,
    /// One payload for each entry of the message.
    pub(crate) payloads: Vec<Payload>,
}

/// What an entry carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) bytes: Bytes,
    /// Whether it must be fsynced before it counts as persisted.
    pub(crate) sync: bool,
}

impl PeerMessage {
    /// The replica that sends the message.
    pub fn from(&self) -> ReplicaId {
        super::from_raft(self.message.from)
    }

    /// The replica that the message is for.
    pub fn to(&self) -> ReplicaId {
        super::from_raft(self.message.to)
    }

    /// The node that it is for.
    pub fn destination(&self) -> NodeId {
        self.to().node
    }

    pub(crate) fn is_snapshot(&self) -> bool {
        self.message.msg_type() == MessageType::MsgSnapshot
    }

    /// Index and state of a snapshot.
    pub(crate) fn snapshot(&self) -> (u64, &[u8]) {
        let snapshot = self.message.get_snapshot();
        // Decoding saw to that it has both parts.
        (snapshot.get_metadata().index, split_snapshot(snapshot).unwrap_or_default().1)
    }

    /// Whether it is a snapshot without a state: a witness needs none, and a data replica that is
    /// [force-recovered](crate::Inbox::force_recover) keeps its own.
    pub(crate) fn keeps_state(&self) -> bool {
        self.message.msg_type() == MessageType::MsgSnapshot && self.snapshot().1.is_empty()
    }

    pub(crate) fn has_entries(&self) -> bool {
        !self.message.entries.is_empty()
    }

    /// Entries that begin with the first one of all.
    pub(crate) fn is_whole_log(&self) -> bool {
        self.message.msg_type() == MessageType::MsgAppend && self.message.index == 0
    }

    pub(crate) fn is_request_for_vote(&self) -> bool {
        matches!(self.message.msg_type(), MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
    }

    /// Bytes of the encoded form, nearly.
    pub fn size_hint(&self) -> usize {
        128 + self.payloads.iter().map(|payload| 5 + payload.bytes.len()).sum::<usize>()
    }

    /// Appends the message to `out`, in the form that [`decode`](Self::decode) reads.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_u64_le(self.group.0);
        out.put_u8(u8::from(self.hibernates));
        out.put_u64_le(self.progress);
        out.put_u32_le(length(self.message.encoded_len()));
        self.message.encode(out).expect("the buffer grows");
        out.put_u32_le(length(self.payloads.len()));
        for Payload { bytes, sync } in &self.payloads {
            out.put_u8(u8::from(*sync));
            out.put_u32_le(length(bytes.len()));
            out.put_slice(bytes);
        }
    }

    /// Reads what [`Self::encode`] wrote from the front of `bytes`; `None` if that is not a message.
    pub fn decode(bytes: &mut Bytes) -> Option<Self> {
        let group = GroupId(bytes.try_get_u64_le().ok()?);
        let hibernates = bytes.try_get_u8().ok()? & 1 != 0;
        let progress = bytes.try_get_u64_le().ok()?;
        let message = Message::decode(take(bytes)?).ok()?;
        let count = bytes.try_get_u32_le().ok()? as usize;
        // Entries without payload still have their five bytes here, so the count cannot promise more than there is.
        let are_known = message.entries.iter().all(|entry| EntryType::from_i32(entry.entry_type).is_some());
        // A snapshot begins with the index of the members that it names.
        let is_cut = message.msg_type() == MessageType::MsgSnapshot && message.get_snapshot().data.len() < 8;
        if count != message.entries.len() || count * 5 > bytes.len() || !are_known || is_cut {
            return None;
        }
        let payload = |bytes: &mut Bytes| {
            let sync = bytes.try_get_u8().ok()? != 0;
            Some(Payload { bytes: take(bytes)?, sync })
        };
        let payloads = (0..count).map(|_| payload(bytes)).collect::<Option<_>>()?;
        Some(Self { group, hibernates, progress, message, payloads })
    }
}

/// What a snapshot carries: the index of the entry that made the members what it names, and the state.
pub(super) fn split_snapshot(snapshot: &Snapshot) -> Option<(u64, &[u8])> {
    let (members_index, state) = snapshot.data.split_first_chunk()?;
    Some((u64::from_le_bytes(*members_index), state))
}

fn length(length: usize) -> u32 {
    u32::try_from(length).expect("entries are limited to far less than 4 GiB")
}

fn take(bytes: &mut Bytes) -> Option<Bytes> {
    let length = bytes.try_get_u32_le().ok()? as usize;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use raft::eraftpb::Entry;

    #[test]
    fn messages_come_back_and_cut_ones_are_refused() {
        let entries = vec![Entry { index: 7, term: 2, ..Default::default() }, Entry { index: 8, ..Default::default() }];
        let message = Message { from: 1, to: 2, term: 3, entries, ..Default::default() };
        let payloads = vec![Payload { bytes: Bytes::from_static(b"payload"), sync: true }, Payload::default()];
        let message = PeerMessage { group: GroupId(9), hibernates: true, progress: 6, message, payloads };
        let mut encoded = BytesMut::new();
        message.encode(&mut encoded);
        let encoded = encoded.freeze();
        let mut twice = Bytes::from([&encoded[..], &encoded[..]].concat());
        for _ in 0..2 {
            assert_eq!(PeerMessage::decode(&mut twice).as_ref(), Some(&message));
        }
        assert!(twice.is_empty());
        for end in 0..encoded.len() {
            assert_eq!(PeerMessage::decode(&mut encoded.slice(..end)), None, "cut at {end}");
        }
    }
}
