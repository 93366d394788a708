//! Files that other nodes fetch.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tessera_consensus::GroupId;

/// The files, by number.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(super) files: Mutex<HashMap<u64, Outgo>>,
}

pub(super) struct Outgo {
    pub(super) group: GroupId,
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    pub(super) used: Instant,
}

impl Drop for Outgo {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a snapshot's file is left over");
        }
    }
}
