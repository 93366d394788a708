//! Reads of several records of a partition, of one instant where that is promised, and with what is [settled](crate::expiry_fence).
//!
//! A reader does not stop writers. It looks at the partition's [version](Table::version) before and after: if both are the same,
//! nothing was written between. When writes come too fast for that, the partition's loop makes the read, between two writes.

use crate::store::Store;
use crate::table::{Leader, Table};
use crate::transaction::Transaction;
use std::time::{Duration, Instant};
use tessera_types::{ReadMode, RequestError, UnixMillis};

/// How often a read that writes overtook is made again before the partition's loop makes it.
pub const READ_TRIES: usize = 4;
/// Between two looks at what is not settled.
const PAUSE: Duration = Duration::from_millis(2);

impl Table {
    /// Makes a read of a partition so that all it sees is of one instant. Returns `None` if writes came between each time, or one that is
    /// on its way may have found alive what has expired: then the partition's loop has to make it.
    ///
    /// Nobody is promised an instant who asks for what was, of a replica that does not lead.
    ///
    /// # Errors
    /// Those of [`Transaction::read_only`], [`Transaction::check_lease`] and `read`.
    pub fn read_instant<T, E: From<RequestError>>(
        &self,
        partition: u32,
        reads: ReadMode,
        now: UnixMillis,
        mut read: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        for _ in 0..READ_TRIES {
            let before = self.version(partition);
            let mut transaction = Transaction::read_only(self, partition, reads, now)?;
            let outcome = read(&mut transaction)?;
            if transaction.is_unsettled() {
                return Ok(None);
            }
            transaction.check_lease()?;
            if self.is_one_instant(partition, reads, before) {
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    /// Whether it is of use to read again what was refused since it is not [settled](crate::expiry_fence): not from `until` on, and not
    /// while this node has no lease for the partition, or does not serve it. Then nobody knows when what is on its way will be applied.
    pub fn may_settle(&self, partition: u32, until: Instant) -> bool {
        self.has_lease(partition) && Instant::now() < until
    }

    /// Whether what was read since a partition had the version `before` is of one instant, or need not be.
    pub fn is_one_instant(&self, partition: u32, reads: ReadMode, before: Option<u64>) -> bool {
        let is_same = before.is_some() && before == self.version(partition);
        is_same || (reads == ReadMode::Outdated && self.leader_of(partition) != Leader::Here)
    }
}

impl Store {
    /// Waits a moment for what is not [settled](crate::expiry_fence) in a partition, of which a read was refused; `false` if it is of no use to
    /// try again, since this node does not serve the partition, or not now, or it is too late.
    ///
    /// Each try must go by the same time: what is on its way is applied soon, and no write that comes later finds alive what had expired by
    /// then. With a later time there might be something new each time.
    pub async fn settles(&self, table: &Table, partition: u32, until: Instant) -> bool {
        let is_tried_again = table.may_settle(partition, until);
        if is_tried_again {
            self.another_leader(PAUSE).await;
        }
        is_tried_again
    }
}
