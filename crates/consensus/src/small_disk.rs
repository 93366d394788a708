//! A small file system in memory, for the time of a test.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub(crate) struct SmallDisk {
    at: TempDir,
}

impl SmallDisk {
    /// `None` without the right to mount one.
    pub(crate) fn mount(bytes: usize) -> Option<Self> {
        let at = TempDir::new().unwrap();
        let size = format!("size={bytes}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at.path()).output();
        if !mount.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: mounting a small file system needs root");
            return None;
        }
        Some(Self { at })
    }

    pub(crate) fn path(&self) -> &Path {
        self.at.path()
    }

    fn ballast(&self) -> PathBuf {
        self.at.path().join("ballast")
    }

    pub(crate) fn fill(&self) {
        let mut file = File::create(self.ballast()).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.at.path()).status();
    }
}
