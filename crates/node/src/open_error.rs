use crate::data_directory::DataDirectoryError;
use tessera_consensus::LogError;
use tessera_engine::EngineError;

/// Why a node cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A storage engine cannot be opened.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A table of the data directory is in an engine that this build lacks.
    #[error("table '{0}' is on RocksDB, and this build has no RocksDB engine")]
    NoRocksdb(String),
    /// A file of the data directory cannot be read or written.
    #[error("{0}: {1}")]
    File(&'static str, std::io::Error),
    /// The node could not join the cluster, for this reason.
    #[error("the cluster does not let this node in: {0}")]
    Join(String),
    /// The node cannot listen for other nodes.
    #[error("the connections between nodes cannot be set up: {0}")]
    Transport(std::io::Error),
    /// The system gives no more threads.
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}
