use std::path::PathBuf;
use std::time::Duration;
use tessera_cluster::Site;
use tessera_engine::{MemoryConfig, RocksConfig};
use tessera_transport::Secret;
use tessera_types::Limits;

/// What a node needs to know to open.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The directory of the node's files, which is made if it is not there.
    pub data_directory: PathBuf,
    /// Loops that share the partitions, normally one per core that serves.
    pub workers: usize,
    /// The limits that requests are checked against.
    pub limits: Limits,
    /// The settings of the memory engine.
    pub memory: MemoryConfig,
    /// The settings of RocksDB.
    pub rocksdb: RocksConfig,
    /// Bytes of a segment file of the log.
    pub log_segment_bytes: u64,
    /// Bytes of log beyond which state is made durable so that segments can go.
    pub log_limit_bytes: u64,
    /// How long a write with durability `soft` may stay without an fsync.
    pub soft_sync_interval: Duration,
    /// A directory in memory where `soft` writes outlive the process until they are in the log; `None` to have them wait for it.
    pub staging_directory: Option<PathBuf>,
    /// How long the records of a dropped table are kept.
    pub drop_retention: Duration,
    /// Age at which the state of idle tables is made durable although nobody needs the log's space.
    pub flush_age: Duration,
    /// Where this node can be reached.
    pub site: Site,
    /// What all nodes of the cluster know and nobody else; empty for none.
    pub secret: Secret,
    /// Nodes of a cluster to join, as `HOST:PORT`. Empty, or with an identity in the data directory already, it joins none.
    pub join: Vec<String>,
    /// Whether what the data directory holds is to count although the node had more: an operator's word.
    pub accept_older_data: bool,
    /// How long a node may be silent until its replicas are replaced.
    pub replace_after: Duration,
    /// For how long after another node was started again it is not asked to lead what this node leads.
    pub lead_again_after: Duration,
    /// Bytes of snapshots that this node takes in a second.
    pub move_bytes_per_second: u64,
    /// How often bytes and load are evened out between nodes; zero is never.
    pub balance_interval: Duration,
    /// How often the replicas of a partition are compared; zero is never, unless somebody asks.
    pub compare_interval: Duration,
    /// Bytes of records that this node has compared in a second.
    pub compare_bytes_per_second: u64,
    /// Commands that may wait in a worker's queue; more are refused as busy.
    pub queued_writes: usize,
}

impl NodeConfig {
    /// Defaults for a node in `data_directory`.
    pub fn new(data_directory: impl Into<PathBuf>) -> Self {
        Self {
            data_directory: data_directory.into(),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            limits: Limits::default(),
            memory: MemoryConfig::default(),
            rocksdb: RocksConfig::default(),
            log_segment_bytes: 64 << 20,
            log_limit_bytes: 1 << 30,
            soft_sync_interval: Duration::from_millis(100),
            staging_directory: None,
            drop_retention: Duration::from_secs(86_400),
            flush_age: Duration::from_secs(600),
            site: Site::default(),
            secret: Secret::new(b""),
            join: Vec::new(),
            accept_older_data: false,
            replace_after: Duration::from_secs(300),
            lead_again_after: Duration::from_secs(70),
            move_bytes_per_second: 100 << 20,
            balance_interval: Duration::from_secs(60),
            compare_interval: Duration::from_secs(7 * 86_400),
            compare_bytes_per_second: 4 << 20,
            queued_writes: 200_000,
        }
    }
}
