use std::io;
use std::path::PathBuf;

/// Why an engine failed. After an [`EngineError`] from [`crate::Engine::write`] the partition's state is behind the log
/// and must not serve until a later write or a restart has caught up.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Stored bytes are not what was written, or do not decode.
    #[error("damaged data: {0}")]
    Corruption(String),
    /// The system refused an operation on a file of the engine.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// RocksDB reports an error that concerns no disk.
    #[error("rocksdb: {0}")]
    Rocksdb(String),
    /// The disk could not be read or written.
    #[error("rocksdb: {0}")]
    RocksdbIo(String),
    /// The table is in RocksDB, and this program was built without it.
    #[error("this build has no RocksDB engine")]
    NoRocksdb,
    /// A write must wait until the engine has caught up with earlier ones, or a read [from the caches](crate::from_caches)
    /// needs something that only the disk has.
    #[error("the engine would have to wait")]
    WouldWait,
    /// A snapshot was being installed when the process ended; the partition needs another snapshot.
    #[error("the partition's records are only partly those of the snapshot that replaces them")]
    PartialRecords,
    /// The log has to be durable before the engine is, and could not be made so.
    #[error("the log could not be synced: {0}")]
    LogNotSynced(String),
}

impl EngineError {
    /// Whether data are not what was written, so that reading them again would not help.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Corruption(_) => true,
            Self::Io { source, .. } => source.kind() == io::ErrorKind::UnexpectedEof,
            _ => false,
        }
    }

    /// Whether the disk is what failed. Whoever only wanted to read has changed nothing.
    pub fn is_disk(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::RocksdbIo(_))
    }

    /// Adds the path to an I/O error.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
