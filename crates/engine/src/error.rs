use std::io;
use std::path::PathBuf;

/// Why an engine failed. After an [`EngineError`] from [`crate::Engine::write`] the partition's state is behind the log
/// and must not serve until a later write or a restart has caught up.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("damaged data: {0}")]
    Corruption(String),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("rocksdb: {0}")]
    Rocksdb(String),
    /// The disk could not be read or written.
    #[error("rocksdb: {0}")]
    RocksdbIo(String),
    /// A write must wait until the engine has caught up with earlier ones, or a read [from the caches](crate::from_caches)
    /// needs something that only the disk has.
    #[error("the engine would have to wait")]
    WouldWait,
    #[error("the partition's records are only partly those of the snapshot that replaces them")]
    PartialRecords,
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

impl From<rocksdb::Error> for EngineError {
    fn from(error: rocksdb::Error) -> Self {
        match error.kind() {
            rocksdb::ErrorKind::Corruption => Self::Corruption(error.into_string()),
            rocksdb::ErrorKind::Incomplete => Self::WouldWait,
            rocksdb::ErrorKind::IOError => Self::RocksdbIo(error.into_string()),
            _ => Self::Rocksdb(error.into_string()),
        }
    }
}
