//! How calls fail, in the words of Pegasus' clients.

use tessera_types::RequestError;

/// Codes in the body of a response, those of RocksDB.
pub(crate) const OK: i32 = 0;
pub(crate) const NOT_FOUND: i32 = 1;
pub(crate) const CORRUPTION: i32 = 2;
pub(crate) const INVALID_ARGUMENT: i32 = 4;
pub(crate) const IO_ERROR: i32 = 5;
/// There is more.
pub(crate) const INCOMPLETE: i32 = 7;
/// A check was not passed.
pub(crate) const TRY_AGAIN: i32 = 13;

/// How a call that got no response of its own failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The name of an error, in the place of a body.
    Header(&'static str),
    /// A code in the body.
    Body(i32),
    /// Nothing was done, since this node does not lead the partition, for this reason: another one may.
    Elsewhere(RequestError),
    /// It was to be done with what the caches have, and something has to come from the disk.
    WouldWait,
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NotReady | RequestError::ShuttingDown | RequestError::Removed => Self::Elsewhere(error),
            RequestError::WouldWait => Self::WouldWait,
            RequestError::NoSuchTable(_) => Self::Header("ERR_OBJECT_NOT_FOUND"),
            RequestError::CrossPartition => Self::Header("ERR_PARENT_PARTITION_MISUSED"),
            RequestError::TooLarge { .. } | RequestError::TooManyRecords { .. } => Self::Header("ERR_INVALID_DATA"),
            RequestError::DurabilityUnavailable(_) => Self::Header("ERR_INVALID_PARAMETERS"),
            RequestError::MemoryFull { .. } => Self::Header("ERR_CAPACITY_EXCEEDED"),
            RequestError::Busy | RequestError::Throttled | RequestError::Held | RequestError::Contended => {
                Self::Header("ERR_BUSY")
            }
            // Clients ask where the partition is led.
            RequestError::Denied { .. } => Self::Header("ERR_INVALID_STATE"),
            RequestError::DiskFull => Self::Header("ERR_DISK_INSUFFICIENT"),
            // What may have happened, nobody knows: as after a time-out.
            RequestError::Interrupted => Self::Header("ERR_TIMEOUT"),
            // Clients do not know the names that Pegasus has for these.
            RequestError::DiskFailed(_)
            | RequestError::NotApplied(_)
            | RequestError::DiskUnreadable(_)
            | RequestError::Engine(_) => Self::Body(IO_ERROR),
            RequestError::Corruption(_) => Self::Body(CORRUPTION),
        }
    }
}

impl From<thrift::Error> for Failure {
    fn from(_: thrift::Error) -> Self {
        Self::Header("ERR_INVALID_DATA")
    }
}
