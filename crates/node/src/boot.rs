//! Whether the machine has been started since the data directory was last in use, and what was written then is lost.
//!
//! What a process has written and not synced survives its end, but not the machine's.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;
use tessera_cluster::{load_json, save_json};

/// A random number that Linux makes at each start.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

#[derive(Serialize, Deserialize)]
struct BootFile {
    boot: String,
    /// Whether everything was synced at the end.
    is_clean: bool,
    /// Whether something was lost, and replicas that may have forgotten it are still to be renewed.
    #[serde(default)]
    has_lost: bool,
    /// Whether the directory is older than what the node had, and a number of a start that others have seen.
    #[serde(default)]
    overtaken: Option<u64>,
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string(BOOT_ID)?.trim().to_string())
}

impl BootFile {
    /// Whether something was lost, as seen from this start of the machine.
    fn has_lost_in(&self, boot: &str) -> bool {
        self.has_lost || self.boot != boot && !self.is_clean
    }
}

/// What [`begin`] would say, with nothing changed.
pub(crate) fn would_have_lost(path: &Path) -> io::Result<bool> {
    let boot = boot_id()?;
    Ok(load_json::<BootFile>(path)?.is_some_and(|before| before.has_lost_in(&boot)))
}

/// The directory is in use from now on. Returns whether something was lost, as is known or since the machine went down while it
/// was in use before, and this is not [dealt with](renewed) yet.
pub(crate) fn begin(path: &Path, has_lost: bool) -> io::Result<bool> {
    let boot = boot_id()?;
    let before: Option<BootFile> = load_json(path)?;
    let overtaken = before.as_ref().and_then(|before| before.overtaken);
    let has_lost = has_lost || before.is_some_and(|before| before.has_lost_in(&boot));
    save_json(path, &BootFile { boot, is_clean: false, has_lost, overtaken })?;
    Ok(has_lost)
}

/// No replica is left that may have forgotten.
pub(crate) fn renewed(path: &Path) -> io::Result<()> {
    change(path, |file| (file.has_lost, file.overtaken) = (false, None))
}

/// The directory is older than what the node had, which has started as often as `known` says.
pub(crate) fn note_overtaken(path: &Path, known: u64) -> io::Result<()> {
    change(path, |file| file.overtaken = Some(file.overtaken.map_or(known, |before| before.max(known))))
}

/// What the directory holds is to count, whatever the node had.
pub(crate) fn accept_older(path: &Path) -> io::Result<()> {
    change(path, |file| file.overtaken = None)
}

/// Whether the directory is older than what the node had, and a number of a start that others have seen.
pub(crate) fn overtaken(path: &Path) -> io::Result<Option<u64>> {
    Ok(load_json::<BootFile>(path)?.and_then(|file| file.overtaken))
}

/// Everything is synced.
pub(crate) fn end(path: &Path) -> io::Result<()> {
    change(path, |file| file.is_clean = true)
}

fn change(path: &Path, change: impl FnOnce(&mut BootFile)) -> io::Result<()> {
    let Some(mut file) = load_json(path)? else { return Ok(()) };
    change(&mut file);
    save_json(path, &file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_start_of_the_machine_loses_and_only_without_a_clean_end() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("boot.json");
        let crash_of_machine = || {
            let file: BootFile = load_json(&path).unwrap().unwrap();
            save_json(&path, &BootFile { boot: "earlier".into(), ..file }).unwrap();
        };
        assert!(!begin(&path, false).unwrap(), "new");
        assert!(!begin(&path, false).unwrap(), "the process crashed");
        crash_of_machine();
        assert!(begin(&path, false).unwrap());
        assert!(begin(&path, false).unwrap(), "the process crashed before anything was renewed");
        end(&path).unwrap();
        assert!(begin(&path, false).unwrap(), "it ended, cleanly, before anything was renewed");
        renewed(&path).unwrap();
        assert!(!begin(&path, false).unwrap());
        assert!(begin(&path, true).unwrap() && begin(&path, false).unwrap(), "something was lost without a crash");
        renewed(&path).unwrap();
        end(&path).unwrap();
        crash_of_machine();
        assert!(!begin(&path, false).unwrap(), "it had ended cleanly");
    }
}
