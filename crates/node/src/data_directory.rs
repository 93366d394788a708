//! Who may use a data directory.

use std::fmt::Display;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tessera_types::TableId;

/// The version of the layout that this program writes.
pub(crate) const FORMAT_VERSION: u32 = 6;
/// The format without spaces: the record that ends a partition which was split stands among the other records.
pub(crate) const WITHOUT_SPACES: u32 = 5;
/// The format before that one, whose log has blocks without salt.
pub(crate) const WITHOUT_SALT: u32 = 4;
/// What `VERSION` says while a log without salt is being converted. The program that wrote the log would take the part of
/// it that is converted for a torn tail, and cut it off; so it must not open the directory any more.
const BEING_CONVERTED: &str = "4, being converted";

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// The system refused an operation on the directory.
    #[error("the data directory {path} cannot be used: {source}")]
    Io {
        /// The directory or a file in it.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process has the lock.
    #[error("the data directory {0} is in use by another process; stop that one, or start with another `data_dir`")]
    InUse(PathBuf),
    /// The directory is in a format that this version neither reads nor converts.
    #[error(
        "the data directory {path} has format version {found}, this program uses {FORMAT_VERSION} and converts versions 4 and 5; \
         start a version of Tessera that reads it, or use another `data_dir`"
    )]
    OtherVersion {
        /// The directory.
        path: PathBuf,
        /// The content of its file `VERSION`.
        found: String,
    },
    /// The directory has files, and none of them says that it belongs to Tessera.
    #[error("{0} is not empty and not a data directory of Tessera; use another `data_dir`, or an empty one")]
    Foreign(PathBuf),
}

/// A data directory that this process alone uses.
#[derive(Debug)]
pub struct DataDirectory {
    root: PathBuf,
    /// The version of what is in it.
    format: u32,
    /// Locked while it is open.
    _lock: File,
}

impl DataDirectory {
    /// Creates the directory if there is none, and locks it. Nobody but its owner, who is who runs this process, may look into
    /// it, so that what passwords protect is not to be read from its files.
    ///
    /// # Errors
    /// If it cannot be used, with what to do.
    pub fn open(root: &Path) -> Result<Self, DataDirectoryError> {
        let io_error = |source| DataDirectoryError::Io { path: root.to_path_buf(), source };
        make_directory(root).map_err(io_error)?;
        let version_path = root.join("VERSION");
        let entries = fs::read_dir(root).map_err(io_error)?.collect::<Result<Vec<_>, _>>().map_err(io_error)?;
        // A fresh ext4 file system has one of its own.
        let is_empty = entries.iter().all(|entry| entry.file_name() == "lost+found");
        if !is_empty && !version_path.exists() && !root.join("LOCK").exists() {
            return Err(DataDirectoryError::Foreign(root.to_path_buf()));
        }
        keep_to_owner(root, is_empty).map_err(io_error)?;
        let lock =
            File::options().create(true).truncate(false).write(true).open(root.join("LOCK")).map_err(io_error)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DataDirectoryError::InUse(root.to_path_buf())),
            Err(TryLockError::Error(source)) => return Err(io_error(source)),
        }
        let format = match fs::read_to_string(&version_path) {
            Ok(found) => match found.trim() {
                BEING_CONVERTED => WITHOUT_SALT,
                found => match found.parse() {
                    Ok(format @ (WITHOUT_SALT | WITHOUT_SPACES | FORMAT_VERSION)) => format,
                    _ => {
                        let found = found.to_string();
                        return Err(DataDirectoryError::OtherVersion { path: root.to_path_buf(), found });
                    }
                },
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write_version(root, FORMAT_VERSION).map_err(io_error)?;
                FORMAT_VERSION
            }
            Err(error) => return Err(io_error(error)),
        };
        Ok(Self { root: root.to_path_buf(), format, _lock: lock })
    }

    /// The format of what is in it.
    pub(crate) fn format(&self) -> u32 {
        self.format
    }

    /// From now on only a program that can go on with the conversion of format 4 opens it.
    ///
    /// # Errors
    /// If the version cannot be written.
    pub(crate) fn note_conversion_from_4(&mut self) -> Result<(), DataDirectoryError> {
        let io_error = |source| DataDirectoryError::Io { path: self.root.clone(), source };
        let found = fs::read_to_string(self.root.join("VERSION")).map_err(io_error)?;
        if found.trim() == BEING_CONVERTED { Ok(()) } else { self.write_version(BEING_CONVERTED) }
    }

    /// All that is in it is of this format now, durably. Until this is done the next start converts again.
    ///
    /// # Errors
    /// If the version cannot be written.
    pub(crate) fn note_format(&mut self, format: u32) -> Result<(), DataDirectoryError> {
        self.write_version(format)?;
        self.format = format;
        Ok(())
    }

    fn write_version(&self, version: impl Display) -> Result<(), DataDirectoryError> {
        write_version(&self.root, version).map_err(|source| DataDirectoryError::Io { path: self.root.clone(), source })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    pub fn rocksdb(&self) -> PathBuf {
        self.root.join("rocksdb")
    }

    pub fn memory_table(&self, id: TableId) -> PathBuf {
        self.root.join("memory").join(format!("table-{id}"))
    }

    /// The directories of memory tables that are there.
    pub fn memory_tables(&self) -> Vec<(TableId, PathBuf)> {
        // If it cannot be read, there is none, or opening a table tells what is wrong.
        let entries = fs::read_dir(self.root.join("memory")).into_iter().flatten().flatten();
        let table = |entry: fs::DirEntry| {
            let id = entry.file_name().to_str()?.strip_prefix("table-")?.parse().ok()?;
            Some((TableId(id), entry.path()))
        };
        entries.filter_map(table).collect()
    }

    /// Who this node is.
    pub fn identity(&self) -> PathBuf {
        self.root.join("node.json")
    }

    /// With what it asks to be let into a cluster, until it has an identity.
    pub fn join(&self) -> PathBuf {
        self.root.join("join.json")
    }

    /// Which replicas it holds.
    pub fn replicas(&self) -> PathBuf {
        self.root.join("replicas.json")
    }

    /// Snapshots on their way; of no use after a restart.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// Since which start of the machine it is in use.
    pub fn boot(&self) -> PathBuf {
        self.root.join("boot.json")
    }

    /// Which start of the node this is.
    pub fn generation(&self) -> PathBuf {
        self.root.join("generation.json")
    }

    /// Which starts of other nodes were seen.
    pub fn peers(&self) -> PathBuf {
        self.root.join("peers.json")
    }

    /// What an operator has decided that the node is to go on with; carried out by its next start.
    pub fn recovery(&self) -> PathBuf {
        self.root.join("recovery.json")
    }

    pub fn lock(&self) -> PathBuf {
        self.root.join("LOCK")
    }

    pub fn catalog(&self) -> PathBuf {
        self.root.join("catalog.json")
    }
}

/// Says which format a directory has: a crash leaves what was said before, or this.
fn write_version(root: &Path, version: impl Display) -> io::Result<()> {
    let unfinished = root.join("VERSION.unfinished");
    let mut file = File::create(&unfinished)?;
    writeln!(file, "{version}")?;
    file.sync_all()?;
    fs::rename(&unfinished, root.join("VERSION"))?;
    File::open(root)?.sync_all()
}

/// What only the owner may do.
const OWNER_ONLY: u32 = 0o700;

/// Makes a directory and those that it is to be in, of which those that are there stay as they are.
fn make_directory(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::DirBuilder::new().mode(OWNER_ONLY).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        outcome => outcome,
    }
}

/// Takes the rights of others to a directory away.
fn keep_to_owner(path: &Path, is_new: bool) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & !OWNER_ONLY == 0 {
        return Ok(());
    }
    if !is_new {
        let path = path.display();
        tracing::warn!(%path, "others than its owner could look into the data directory (mode {mode:o}); now they cannot");
    }
    if let Err(error) = fs::set_permissions(path, fs::Permissions::from_mode(OWNER_ONLY)) {
        tracing::warn!(path = %path.display(), %error, "others than its owner can still look into the data directory");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_used_once_by_its_own_version() {
        let parent = tempfile::TempDir::new().unwrap();
        let root = parent.path().join("data");
        let first = DataDirectory::open(&root).unwrap();
        assert!(matches!(DataDirectory::open(&root), Err(DataDirectoryError::InUse(_))));
        drop(first);
        DataDirectory::open(&root).unwrap();
        for other in ["1", "3", "7", "4, being", ""] {
            fs::write(root.join("VERSION"), other).unwrap();
            assert!(matches!(DataDirectory::open(&root), Err(DataDirectoryError::OtherVersion { .. })), "{other}");
        }
        assert!(matches!(DataDirectory::open(parent.path()), Err(DataDirectoryError::Foreign(_))));
    }

    #[test]
    fn nobody_but_the_owner_looks_into_it() {
        let parent = tempfile::TempDir::new().unwrap();
        let root = parent.path().join("of/some/data");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        drop(DataDirectory::open(&root).unwrap());
        assert_eq!(mode(&root), 0o700);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        drop(DataDirectory::open(&root).unwrap());
        assert_eq!(mode(&root), 0o700, "one from before");
        let foreign = parent.path().join("of");
        let before = mode(&foreign);
        assert!(matches!(DataDirectory::open(&foreign), Err(DataDirectoryError::Foreign(_))));
        assert_eq!(mode(&foreign), before, "what is not ours stays as it is");
    }

    #[test]
    fn a_fresh_file_system_is_empty() {
        let mounted = tempfile::TempDir::new().unwrap();
        fs::create_dir(mounted.path().join("lost+found")).unwrap();
        DataDirectory::open(mounted.path()).unwrap();
    }
}
