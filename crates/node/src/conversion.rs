//! Making a data directory of an earlier format one of this format, when the node starts.
//!
//! Each conversion leads from one format to the next, and can be interrupted anywhere: what it has done is read like what it
//! has still to do, and `VERSION` is replaced at its end.

use crate::data_directory::{DataDirectory, FORMAT_VERSION, WITHOUT_SALT, WITHOUT_SPACES};
use crate::open_error::OpenError;
use tessera_consensus::SharedLog;
use tessera_engine::RocksStore;

/// Converts the log of a directory of format 4, which is of format 5 then.
///
/// # Errors
/// If the log is damaged, or something cannot be written.
pub(crate) fn convert_log(directory: &mut DataDirectory) -> Result<(), OpenError> {
    if directory.format() == WITHOUT_SALT {
        directory.note_conversion_from_4()?;
        SharedLog::convert_from_format_4(&directory.log())?;
        directory.note_format(WITHOUT_SPACES)?;
        tracing::info!("the log of the data directory was of format 4 and has been converted");
    }
    Ok(())
}

/// Converts the records of a directory of format 5. The log and the checkpoints of memory tables are read as they are.
///
/// # Errors
/// If something cannot be read or written.
pub(crate) fn convert_records(directory: &mut DataDirectory, rocks: &RocksStore) -> Result<(), OpenError> {
    if directory.format() == WITHOUT_SPACES {
        rocks.convert_from_format_5()?;
        directory.note_format(FORMAT_VERSION)?;
        tracing::info!("the data directory was of format 5 and has been converted");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tessera_engine::RocksConfig;

    #[test]
    fn a_directory_is_of_its_earlier_format_until_it_is_converted() {
        let parent = tempfile::TempDir::new().unwrap();
        let rocks = RocksStore::open(&parent.path().join("rocksdb"), RocksConfig::default()).unwrap();
        for (name, former) in [("first", "4\n"), ("second", "4, being converted\n")] {
            let root = parent.path().join(name);
            let open = || DataDirectory::open(&root).unwrap();
            let version = || fs::read_to_string(root.join("VERSION")).unwrap();
            assert_eq!(open().format(), FORMAT_VERSION);
            fs::write(root.join("VERSION"), former).unwrap();
            // The process ends before it is done, or in the middle of saying so.
            assert_eq!(open().format(), WITHOUT_SALT);
            fs::write(root.join("VERSION.unfinished"), "").unwrap();
            // It is interrupted in the log. The program that wrote that does not open the directory any more.
            let mut directory = open();
            fs::write(directory.log(), "not a directory").unwrap();
            convert_log(&mut directory).unwrap_err();
            assert_eq!((version().as_str(), directory.format()), ("4, being converted\n", WITHOUT_SALT));
            fs::remove_file(directory.log()).unwrap();
            drop(directory);
            convert_log(&mut open()).unwrap();
            assert_eq!(version(), "5\n");
            let mut directory = open();
            convert_log(&mut directory).unwrap();
            assert_eq!(directory.format(), WITHOUT_SPACES);
            convert_records(&mut directory, &rocks).unwrap();
            drop(directory);
            assert_eq!((version().as_str(), open().format()), ("6\n", FORMAT_VERSION));
            assert!(!root.join("VERSION.unfinished").exists());
        }
    }
}
