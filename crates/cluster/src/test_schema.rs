//! Schemas of the tables that tests create.

use tessera_types::{Durability, EngineKind, Model, Partitioner, TableSchema};

pub(crate) fn schema_of(engine: EngineKind, durability: Durability, partitions: u32, replicas: u8) -> TableSchema {
    TableSchema {
        engine,
        partitions,
        partitioner: Partitioner::Crc64,
        model: Model::Kv,
        primary_key: None,
        durability,
        replicas,
    }
}
