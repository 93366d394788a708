//! What engines report, for whoever made the request.

use tessera_engine::EngineError;
use tessera_types::{RecordKey, RequestError};

/// What the engine reports, as an error of the request.
pub fn request_error(error: EngineError) -> RequestError {
    match error {
        EngineError::Corruption(what) => RequestError::Corruption(what),
        EngineError::WouldWait => RequestError::WouldWait,
        disk if disk.is_disk() => RequestError::DiskUnreadable(disk.to_string()),
        other => RequestError::Engine(other.to_string()),
    }
}

/// The error for a record whose bytes are no value.
pub fn damaged(key: &RecordKey<'_>) -> RequestError {
    RequestError::Corruption(format!("the record under hash key '{}'", key.hash_key.escape_ascii()))
}
