//! A partition's records on their way to another node.

use crate::host::Host;
use crate::table::Table;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_engine::EngineError;

/// Names of files of this process.
fn file(host: &Host) -> Result<std::path::PathBuf, EngineError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let directory = host.directory.snapshots();
    fs::create_dir_all(&directory).map_err(EngineError::io(&directory))?;
    Ok(directory.join(NEXT.fetch_add(1, Ordering::Relaxed).to_string()))
}

/// The records as of some log index, which comes first.
pub(crate) fn write(host: &Host, table: &Table, partition: u32) -> Result<(u64, Vec<u8>), EngineError> {
    let path = file(host)?;
    let index = table.engine.checkpoint(partition, &path)?;
    let bytes = fs::read(&path).map_err(EngineError::io(&path))?;
    fs::remove_file(&path).map_err(EngineError::io(&path))?;
    Ok((index, bytes))
}

/// Replaces the records by those of a snapshot; they are on disk when this returns.
pub(crate) fn restore(host: &Host, table: &Table, partition: u32, index: u64, bytes: &[u8]) -> Result<(), EngineError> {
    let path = file(host)?;
    fs::write(&path, bytes).map_err(EngineError::io(&path))?;
    let state = &table.partitions[partition as usize];
    state.is_readable.store(false, Ordering::Release);
    state.version.fetch_add(1, Ordering::AcqRel);
    let outcome = table.engine.restore(partition, &path, index);
    state.version.fetch_add(1, Ordering::AcqRel);
    state.is_readable.store(outcome.is_ok(), Ordering::Release);
    fs::remove_file(&path).map_err(EngineError::io(&path))?;
    outcome?;
    // Nothing of it rests on this node's log.
    table.engine.make_durable(partition, &|| Ok(()))
}
