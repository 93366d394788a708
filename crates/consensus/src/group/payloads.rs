//! Payloads of entries that Raft has in its hands. It sees entries without their payloads, and hands them back in the same pass.

use super::message::Payload;
use ahash::AHashMap;
use raft::eraftpb::Entry;
use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Payloads {
    /// Those of entries that were proposed in this pass, by index, ascending.
    proposed: VecDeque<(u64, Payload)>,
    /// Those of entries that came from the leader in this pass, by index and term.
    incoming: AHashMap<(u64, u64), Payload>,
}

impl Payloads {
    pub(super) fn proposed(&mut self, index: u64, payload: Payload) {
        self.proposed.push_back((index, payload));
    }

    pub(super) fn came(&mut self, entry: &Entry, payload: Payload) {
        self.incoming.insert((entry.index, entry.term), payload);
    }

    /// The payload of an entry that Raft hands over for the log.
    pub(super) fn take(&mut self, entry: &Entry) -> Payload {
        if !entry.data.is_empty() {
            // The entry is Raft's own, a change of members.
            return Payload { bytes: entry.data.clone().into(), sync: true };
        }
        if let Some(payload) = self.incoming.remove(&(entry.index, entry.term)) {
            return payload;
        }
        while self.proposed.front().is_some_and(|(index, _)| *index < entry.index) {
            self.proposed.pop_front();
        }
        // Entries that Raft makes itself have no payload.
        let own = self.proposed.pop_front_if(|(index, _)| *index == entry.index);
        own.map(|(_, payload)| payload).unwrap_or_default()
    }

    /// The pass is over: Raft has handed over all that it took.
    pub(super) fn clear(&mut self) {
        self.incoming.clear();
        self.proposed.clear();
    }
}
