//! Which start of this node this is, and which starts of other nodes have been seen: by that an older copy of a data directory
//! is told from what it was copied from.
//!
//! Starts are counted in the data directory, and the count is on disk before any other node hears of it. Every node keeps the
//! latest start that it has seen of every other one, on disk before it talks to it. Who comes with a start that does not
//! come after that has the data of an earlier time.
//!
//! A copy that was taken since the last start counts like what it was copied from. So it is also written down which file of the
//! file system the directory's lock is: a copy has another one.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tessera_cluster::{load_json, save_json};
use tessera_transport::{Generation, Refusal};
use tessera_types::NodeId;

#[derive(Serialize, Deserialize)]
struct GenerationFile {
    number: u64,
    start: u64,
    place: Place,
}

/// A file, by what no copy of it shares with it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    inode: u64,
    /// When it was made, in nanoseconds since 1970, if the file system says so.
    born: Option<u64>,
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = path.metadata()?;
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born = born.and_then(|born| u64::try_from(born.as_nanos()).ok());
        Ok(Self { inode: metadata.ino(), born })
    }
}

/// Whether the data directory is a copy of the one that was last in use, as far as its lock tells.
pub(crate) fn is_copy(path: &Path, lock: &Path) -> io::Result<bool> {
    let before: Option<GenerationFile> = load_json(path)?;
    let place = Place::of(lock)?;
    Ok(before.is_some_and(|before| before.place != place))
}

/// Counts this start. It comes after number `overtaken` too, which another node has seen.
pub(crate) fn begin(path: &Path, lock: &Path, overtaken: u64) -> io::Result<Generation> {
    let before: Option<GenerationFile> = load_json(path)?;
    let number = before.map_or(0, |before| before.number).max(overtaken) + 1;
    let start = rand::random();
    save_json(path, &GenerationFile { number, start, place: Place::of(lock)? })?;
    Ok(Generation { number, start })
}

/// How often the node was started.
pub(crate) fn starts(path: &Path) -> io::Result<u64> {
    Ok(load_json::<GenerationFile>(path)?.map_or(0, |file| file.number))
}

/// Forgets the starts of all nodes but these. Others that come have nothing but their number in common with those that were seen.
pub(crate) fn forget_others(peers: &Path, nodes: &[NodeId]) -> io::Result<()> {
    let mut known: BTreeMap<NodeId, (u64, u64)> = load_json(peers)?.unwrap_or_default();
    known.retain(|node, _| nodes.contains(node));
    save_json(peers, &known)
}

/// The latest starts of other nodes that were seen here.
pub(crate) struct KnownGenerations {
    path: PathBuf,
    known: Mutex<BTreeMap<NodeId, (u64, u64)>>,
    /// When nodes came with starts that had not been seen before.
    came: Mutex<HashMap<NodeId, Instant>>,
}

impl KnownGenerations {
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        let known = load_json(path)?.unwrap_or_default();
        Ok(Self { path: path.to_path_buf(), known: Mutex::new(known), came: Mutex::default() })
    }

    /// Whether a node was started, as far as was seen here, not longer ago than `time`.
    pub(crate) fn was_started_within(&self, node: NodeId, time: Duration) -> bool {
        self.came.lock().get(&node).is_some_and(|came| came.elapsed() <= time)
    }

    /// Whether a node was started again, as far as was seen here, less than `time` ago. Its first start does not count.
    pub(crate) fn was_started_again_within(&self, node: NodeId, time: Duration) -> bool {
        let was_started_before = || self.known.lock().get(&node).is_some_and(|(number, _)| *number > 1);
        self.was_started_within(node, time) && was_started_before()
    }

    /// Whether a start of a node may come, which is on disk when this returns.
    pub(crate) fn admit(&self, node: NodeId, Generation { number, start }: Generation) -> Result<(), Refusal> {
        let mut known = self.known.lock();
        match known.get(&node) {
            Some(before) if *before == (number, start) => return Ok(()),
            Some((before, _)) if *before >= number => return Err(Refusal::Overtaken { known: *before }),
            _ => {}
        }
        let mut after = known.clone();
        after.insert(node, (number, start));
        let written = save_json(&self.path, &after);
        written.map_err(|error| Refusal::Failed(format!("this node cannot write down that it was seen: {error}")))?;
        *known = after;
        self.came.lock().insert(node, Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn starts_are_counted_and_a_copy_is_noticed() {
        let parent = tempfile::TempDir::new().unwrap();
        let at = |name: &str| {
            let directory = parent.path().join(name);
            fs::create_dir_all(&directory).unwrap();
            (directory.join("generation.json"), directory.join("LOCK"))
        };
        let (path, lock) = at("data");
        fs::write(&lock, "").unwrap();
        assert!(!is_copy(&path, &lock).unwrap(), "new");
        let first = begin(&path, &lock, 0).unwrap();
        assert!(!is_copy(&path, &lock).unwrap());
        let second = begin(&path, &lock, 0).unwrap();
        assert_eq!((first.number, second.number), (1, 2));
        assert!(first.start != second.start);
        let (copied_path, copied_lock) = at("copy");
        fs::copy(&path, &copied_path).unwrap();
        fs::copy(&lock, &copied_lock).unwrap();
        assert!(is_copy(&copied_path, &copied_lock).unwrap());
        assert_eq!(begin(&copied_path, &copied_lock, 7).unwrap().number, 8, "after what another node has seen");
        assert!(!is_copy(&copied_path, &copied_lock).unwrap(), "once");
    }

    #[test]
    fn only_later_starts_may_come_also_after_a_restart() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("peers.json");
        let known = KnownGenerations::load(&path).unwrap();
        let start = |number, start| Generation { number, start };
        for (number, random) in [(3, 30), (3, 30), (5, 50)] {
            known.admit(NodeId(2), start(number, random)).unwrap();
        }
        let is_new = |known: &KnownGenerations| known.was_started_within(NodeId(2), Duration::from_secs(3_600));
        assert!(is_new(&known) && !known.was_started_within(NodeId(3), Duration::from_secs(3_600)));
        let known = KnownGenerations::load(&path).unwrap();
        for older in [start(5, 51), start(4, 50), start(3, 30)] {
            assert_eq!(known.admit(NodeId(2), older), Err(Refusal::Overtaken { known: 5 }));
        }
        known.admit(NodeId(2), start(5, 50)).unwrap();
        assert!(!is_new(&known), "this start was seen before");
        known.admit(NodeId(3), start(1, 1)).unwrap();
    }
}
