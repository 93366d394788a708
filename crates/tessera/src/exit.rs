use std::process::ExitCode;

/// Why the program ends early, each kind with an exit code of its own.
#[derive(Debug, thiserror::Error)]
pub enum ExitError {
    #[error("{0}")]
    Other(String),
    /// A node wants to know who asks.
    #[error("{0}")]
    Unauthorized(String),
    #[error("{0}")]
    Usage(String),
    #[error("configuration: {0}")]
    Config(String),
    #[error("{0}")]
    AddressInUse(String),
    #[error("{0}")]
    DataDirectory(String),
    #[error("{0}")]
    ReplicasDiffer(String),
    #[error("{0}")]
    ReplicasNotCompared(String),
}

impl ExitError {
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Other(_) | Self::Unauthorized(_) => 1,
            Self::Usage(_) => 2,
            Self::Config(_) => 3,
            Self::AddressInUse(_) => 4,
            Self::DataDirectory(_) => 5,
            Self::ReplicasDiffer(_) => 6,
            Self::ReplicasNotCompared(_) => 7,
        })
    }
}
