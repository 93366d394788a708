//! The engines as the benchmark's in-process driver sees them.

use bytes::BytesMut;
use std::sync::Arc;
use tempfile::TempDir;
use tessera_bench::{EngineName, EngineUnderTest};
use tessera_engine::{
    Applied, Engine, MemoryBudget, MemoryConfig, MemoryEngine, PageLimit, Position, RocksConfig, RocksStore, Visit,
    mutation,
};
use tessera_types::{Expiry, RecordKey, StoredValue, ValueKind};

const PARTITIONS: u32 = 64;

struct UnderTest {
    engine: Box<dyn Engine>,
    payload: BytesMut,
    indexes: Vec<u64>,
    /// The temporary directory of a RocksDB engine, removed when the benchmark is done.
    _home: Option<(Arc<RocksStore>, TempDir)>,
}

/// Opens an empty engine of 64 partitions; RocksDB's lives in a temporary directory.
pub fn open(name: EngineName) -> anyhow::Result<Box<dyn EngineUnderTest>> {
    let (engine, home): (Box<dyn Engine>, _) = match name {
        EngineName::Memory => {
            let budget = Arc::new(MemoryBudget::new(&MemoryConfig::default()));
            (Box::new(MemoryEngine::open(PARTITIONS, budget, None)?), None)
        }
        EngineName::Rocksdb => {
            let directory = TempDir::new()?;
            let store = RocksStore::open(directory.path(), RocksConfig::default())?;
            (store.open_table("bench", PARTITIONS)?, Some((store, directory)))
        }
    };
    let indexes = vec![0; PARTITIONS as usize];
    Ok(Box::new(UnderTest { engine, payload: BytesMut::new(), indexes, _home: home }))
}

fn partition_of(key: &RecordKey<'_>) -> u32 {
    // The remainder is below the divisor.
    (key.hash() % u64::from(PARTITIONS)) as u32
}

impl EngineUnderTest for UnderTest {
    fn read(&mut self, key: &[u8]) -> anyhow::Result<Option<usize>> {
        let key = RecordKey::new(key, b"");
        let mut length = None;
        self.engine.get(partition_of(&key), &key, &mut |value| length = Some(value.len()))?;
        Ok(length)
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let key = RecordKey::new(key, b"");
        let partition = partition_of(&key);
        let stored = StoredValue { expiry: Expiry::NEVER, kind: ValueKind::Plain, payload: value };
        mutation::encode_put(&mut self.payload, &key, &stored);
        let index = &mut self.indexes[partition as usize];
        *index += 1;
        let payloads = &[self.payload.split().freeze()];
        Ok(self.engine.write(&[Applied { partition, index: *index, term: 1, payloads }])?)
    }

    fn scan(&mut self, key: &[u8], records: usize) -> anyhow::Result<usize> {
        let key = RecordKey::new(key, b"");
        let mut visited = 0;
        let visit = &mut |_: RecordKey<'_>, value: &[u8]| {
            visited += 1;
            std::hint::black_box(value);
            Visit::NextRecord
        };
        let (from, limit) = (Position::of_hash(key.hash()), PageLimit { records, bytes: usize::MAX });
        self.engine.scan(partition_of(&key), &from, limit, visit)?;
        Ok(visited)
    }

    fn loaded(&mut self) -> anyhow::Result<()> {
        Ok(self.engine.compact(&|_| {})?)
    }
}
