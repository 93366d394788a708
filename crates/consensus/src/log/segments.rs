//! Segment files and their names.

use super::LogError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Room for the number: 2^64 in hexadecimal.
const NAME_LEN: usize = 16;
const EXTENSION: &str = "log";

pub(super) fn path(directory: &Path, segment: u64) -> PathBuf {
    directory.join(format!("{segment:0NAME_LEN$x}.{EXTENSION}"))
}

/// The numbers of the segments in `directory`, ascending.
pub(super) fn list(directory: &Path) -> Result<Vec<u64>, LogError> {
    let io_error = |source| LogError::Io { path: directory.to_path_buf(), source };
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory).map_err(io_error)? {
        let path = entry.map_err(io_error)?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| stem.len() == NAME_LEN);
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            segments.extend(stem.and_then(|stem| u64::from_str_radix(stem, 16).ok()));
        }
    }
    segments.sort_unstable();
    Ok(segments)
}

pub(super) fn delete(directory: &Path, segment: u64) -> io::Result<()> {
    fs::remove_file(path(directory, segment))
}
