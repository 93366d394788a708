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
    /// That a node which this process has started ended with a code, in the kind for which the code stands.
    pub fn of_node(code: Option<i32>, reason: String) -> Self {
        match code {
            Some(4) => Self::AddressInUse(reason),
            Some(5) => Self::DataDirectory(reason),
            _ => Self::Other(reason),
        }
    }

    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.number())
    }

    fn number(&self) -> u8 {
        match self {
            Self::Other(_) | Self::Unauthorized(_) => 1,
            Self::Usage(_) => 2,
            Self::Config(_) => 3,
            Self::AddressInUse(_) => 4,
            Self::DataDirectory(_) => 5,
            Self::ReplicasDiffer(_) => 6,
            Self::ReplicasNotCompared(_) => 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_started_a_node_ends_with_its_code() {
        for error in [ExitError::AddressInUse(String::new()), ExitError::DataDirectory(String::new())] {
            let again = ExitError::of_node(Some(error.number().into()), "why".into());
            assert_eq!((again.number(), again.to_string()), (error.number(), "why".into()));
        }
        assert_eq!(ExitError::of_node(None, String::new()).number(), 1);
    }
}
