//! What a transaction does about keys that transactions over partitions hold.

use super::Transaction;
use tessera_transaction::{Access, TransactionId};
use tessera_types::{RequestError, UnixMillis};

impl Transaction<'_> {
    /// Refuses to read or write a key that another transaction holds.
    #[inline]
    pub(super) fn check_lock(&self, hash_key: &[u8], access: Access) -> Result<(), RequestError> {
        if self.has_locks { self.look_for_lock(hash_key, access) } else { Ok(()) }
    }

    #[cold]
    fn look_for_lock(&self, hash_key: &[u8], access: Access) -> Result<(), RequestError> {
        let ledger = &self.partition_state().ledger;
        if self.writer.is_none() {
            // It does not see what is on its way, so it waits until that is applied.
            if !ledger.is_unreadable(hash_key) {
                return Ok(());
            }
            self.found.is_held.set(true);
            return Err(RequestError::NotReady);
        }
        match ledger.holder(hash_key, access) {
            Some(holder) => {
                self.wait_for(holder);
                Err(RequestError::WouldWait)
            }
            None => Ok(()),
        }
    }

    /// Notes that this is to be given up and made again when another transaction holds nothing here any more.
    pub(crate) fn wait_for(&self, holder: TransactionId) {
        let held_by = &self.found.held_by;
        held_by.set(held_by.get().or(Some(holder)));
    }

    /// Refuses to go on as long as transactions over partitions have something in the partition that this one's own effects depend on,
    /// whatever their keys are: it is made again when they have not. No new ones are taken meanwhile.
    ///
    /// # Errors
    /// [`RequestError::WouldWait`].
    pub fn await_no_intents(&self) -> Result<(), RequestError> {
        let ledger = &self.partition_state().ledger;
        match ledger.any_holder() {
            Some(holder) => {
                ledger.close();
                self.wait_for(holder);
                Err(RequestError::WouldWait)
            }
            None => {
                ledger.reopen();
                Ok(())
            }
        }
    }

    /// Whether this transaction, which only reads, has not read a key that another one holds.
    pub(crate) fn is_held(&self) -> bool {
        self.found.is_held.get()
    }

    /// When the first of the records ends that this transaction has read, in milliseconds since 1970; the end of time if none does.
    pub(crate) fn first_expiry(&self) -> u64 {
        self.found.first_expiry.get().map_or(u64::MAX, UnixMillis::get)
    }

    /// The transaction over partitions for which this one would have to wait; then it is to be given up and made again when that one
    /// holds nothing here any more.
    pub fn take_holder(&self) -> Option<TransactionId> {
        self.found.held_by.take()
    }
}
