//! Whether the partitions of a transaction can be asked at all.
//!
//! What locks keys of one partition depends on others until it is decided. So nobody begins to lock as long as one of them has no leader:
//! its keys in the partitions that are well would be held until it has one. The same holds where the leader's disk takes nothing.

use super::part::TransactionPart;
use super::transact::Transacted;
use crate::router::Refusal;
use crate::store::Store;
use crate::table::{Leader, Table};
use std::time::{Duration, Instant};
use tessera_types::RequestError;

/// Between two looks, if no partition tells that it has a leader.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl Store {
    /// Whether a partition has a leader, as far as this node knows, that is heard of and can be reached.
    pub(super) fn is_led(&self, table: &Table, partition: u32) -> bool {
        match table.leader_of(partition) {
            Leader::Here => true,
            Leader::Node(node) => self.is_heard(node) && self.trouble(node).is_none(),
            Leader::Unknown => false,
        }
    }

    /// Whether all partitions are [led](Self::is_led).
    pub(super) fn are_led(&self, parts: &[TransactionPart]) -> bool {
        parts.iter().all(|part| self.is_led(&part.table, part.partition))
    }

    /// Waits until all partitions are [led](Self::is_led).
    ///
    /// # Errors
    /// What the client is told, if a table was split meanwhile, or if they are not led `until` then.
    pub(super) async fn await_leaders(&self, parts: &[TransactionPart], until: Instant) -> Result<(), Transacted> {
        self.await_leaders_with(parts, until, |_| None).await
    }

    /// Waits until all partitions are [led](Self::is_led) by nodes whose disks take writes.
    ///
    /// # Errors
    /// As [`Self::await_leaders`]; also if the disk of a leader takes nothing, and no other node is going to lead.
    pub(super) async fn await_writable(&self, parts: &[TransactionPart], until: Instant) -> Result<(), Transacted> {
        self.await_leaders_with(parts, until, |part| self.disk_refusal(&part.table, part.partition)).await
    }

    async fn await_leaders_with(
        &self,
        parts: &[TransactionPart],
        until: Instant,
        refusal: impl Fn(&TransactionPart) -> Option<Refusal>,
    ) -> Result<(), Transacted> {
        let mut pause = SHORTEST_PAUSE;
        loop {
            if parts.iter().any(|part| part.table.successor().is_some()) {
                return Err(Transacted::Split);
            }
            let refusals: Vec<_> = parts.iter().filter_map(&refusal).collect();
            if refusals.is_empty() && self.are_led(parts) {
                return Ok(());
            }
            let not_reached = self.not_reached(parts);
            let is_hopeless = not_reached.is_some() || refusals.iter().any(|refusal| !refusal.may_end_soon());
            if Instant::now() >= until || is_hopeless {
                let refused = refusals.into_iter().min_by_key(|refusal| refusal.may_end_soon());
                let reason = not_reached.or(refused.map(|refusal| refusal.reason));
                return Err(Transacted::NotDone(reason.unwrap_or(RequestError::NotReady)));
            }
            self.another_leader(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Why partitions cannot be asked, however often it is tried, if that is known here.
    pub(super) fn not_reached(&self, parts: &[TransactionPart]) -> Option<RequestError> {
        parts.iter().find_map(|part| self.in_vain(&part.table))
    }
}
