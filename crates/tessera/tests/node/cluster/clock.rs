//! Clocks of nodes that can be set while they run, by a library between them and the system (Debian's package libfaketime).
//! Only the time of day is: steps do not touch the monotonic clock, and must not touch what is promised.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The clocks of a cluster's nodes, each a file that says by how much it is off.
pub struct Clocks {
    library: PathBuf,
}

impl Clocks {
    /// `None` if the library is not installed.
    pub fn new() -> Option<Self> {
        let places = std::fs::read_dir("/usr/lib").ok()?;
        let mut libraries = places.flatten().map(|place| place.path().join("faketime/libfaketimeMT.so.1"));
        libraries.find(|library| library.exists()).map(|library| Self { library })
    }

    fn file(directory: &Path) -> PathBuf {
        directory.with_extension("clock")
    }

    /// Gives a node that is not started yet, with its data in a directory, a clock of its own.
    pub fn give(&self, command: &mut Command, directory: &Path) {
        let file = Self::file(directory);
        if !file.exists() {
            self.set(directory, 0);
        }
        command.env("LD_PRELOAD", &self.library).env("FAKETIME_TIMESTAMP_FILE", file);
        command.env("FAKETIME_CACHE_DURATION", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// Sets the clock of a node so many seconds ahead, from within a second on.
    pub fn set(&self, directory: &Path, seconds: i64) {
        let file = Self::file(directory);
        let new = file.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
        std::fs::rename(new, file).unwrap();
    }
}

/// The library leaves files in memory when its process is killed.
impl Drop for Clocks {
    fn drop(&mut self) {
        for file in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            let name = file.file_name().into_string().unwrap_or_default();
            let process = name.strip_prefix("faketime_shm_").or(name.strip_prefix("sem.faketime_sem_"));
            if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}
