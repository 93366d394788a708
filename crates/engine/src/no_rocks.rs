//! What takes the place of the RocksDB engine in a build without the feature `rocksdb`: an instance that never has a table.

use crate::{Engine, EngineError, RocksConfig, RocksStatistics};
use std::path::Path;
use std::sync::Arc;
use tessera_types::EngineKind;

/// The engines that this build has.
pub const ENGINES: &[EngineKind] = &[EngineKind::Memory];

/// The node's RocksDB instance, of which this build has none.
pub struct RocksStore(());

impl RocksStore {
    /// Opens nothing, and leaves the directory alone. The settings have no effect.
    ///
    /// # Errors
    /// None.
    pub fn open(_directory: &Path, _config: RocksConfig) -> Result<Arc<Self>, EngineError> {
        tracing::info!("{}: settings of `rocksdb` have no effect", EngineError::NoRocksdb);
        Ok(Arc::new(Self(())))
    }

    /// Fails.
    ///
    /// # Errors
    /// [`EngineError::NoRocksdb`].
    pub fn open_table(self: &Arc<Self>, _name: &str, _partitions: u32) -> Result<Box<dyn Engine>, EngineError> {
        Err(EngineError::NoRocksdb)
    }

    /// Does nothing, as there is no table.
    ///
    /// # Errors
    /// None.
    pub fn drop_table(&self, _name: &str) -> Result<(), EngineError> {
        Ok(())
    }

    /// Does nothing, as there is no table.
    ///
    /// # Errors
    /// None.
    pub fn drop_tables_but(&self, _kept: impl Iterator<Item = String>) -> Result<(), EngineError> {
        Ok(())
    }

    /// Does nothing, as there is no table.
    ///
    /// # Errors
    /// None.
    pub fn convert_from_format_5(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Zeros.
    pub fn statistics(&self) -> RocksStatistics {
        RocksStatistics::default()
    }

    /// Does nothing.
    pub fn shut_down(&self) {}
}
