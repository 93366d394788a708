use crate::data_directory::DataDirectoryError;
use tessera_consensus::LogError;
use tessera_engine::EngineError;

/// Why a node cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{0}: {1}")]
    File(&'static str, std::io::Error),
    #[error("the cluster does not let this node in: {0}")]
    Join(String),
    #[error("the connections between nodes cannot be set up: {0}")]
    Transport(std::io::Error),
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}
