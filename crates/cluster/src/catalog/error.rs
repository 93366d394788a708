//! Why the catalog refuses a command.

use serde::{Deserialize, Serialize};
use tessera_types::{NodeId, ReplicaId, TableId, TableNameError};

/// Why the catalog refused a command. A refused command changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CatalogError {
    /// The name of a table or database breaks the rule for names.
    #[error(transparent)]
    Name(#[from] TableNameError),
    /// A table that is not dropped has this name already.
    #[error("a table named '{0}' exists")]
    Exists(String),
    /// No table that is not dropped has this name or number.
    #[error("no such table: {0}")]
    NoSuchTable(String),
    /// Documents, users and truncation need the cluster protocol of this version on every node.
    #[error("node {0} runs an older version, which does not know this; give it the version of the others first")]
    OlderNode(NodeId),
    /// The name has no database before it.
    #[error("a table of documents is called DATABASE.NAME, not '{0}'")]
    DocumentTableName(String),
    /// A database has this name already.
    #[error("a database named '{0}' exists")]
    DatabaseExists(String),
    /// No database has this name.
    #[error("no such database: {0}")]
    NoSuchDatabase(String),
    /// The database still has tables.
    #[error("database '{0}' has tables; drop them first")]
    DatabaseInUse(String),
    /// The name of a user is empty or longer than so many bytes.
    #[error("the name of a user has 1 to {0} bytes")]
    UserName(usize),
    /// A user has this name already.
    #[error("a user named '{0}' exists")]
    UserExists(String),
    /// No user has this name.
    #[error("no such user: {0}")]
    NoSuchUser(String),
    /// The user `admin` always exists and may always do everything.
    #[error("the user 'admin' can be neither dropped nor given other rights, only another password")]
    Admin,
    /// The right to connect was to hold in one database or table.
    #[error("the right to connect to other servers holds everywhere or nowhere")]
    ConnectIsGlobal,
    /// The cluster has as many users as it may have.
    #[error("a cluster has at most {0} users")]
    TooManyUsers(usize),
    /// An index was asked for on a table of keys and values.
    #[error("a table of keys and values has no indexes")]
    NotOfDocuments,
    /// An index of the table has this name already.
    #[error("an index named '{0}' exists")]
    IndexExists(String),
    /// The table has no index of this name.
    #[error("no such index: {0}")]
    NoSuchIndex(String),
    /// The table has as many indexes as it may have, or the definition is too long.
    #[error("a table has at most {most} indexes, and the definition of one at most {bytes} bytes")]
    TooManyIndexes {
        /// The most indexes of a table.
        most: usize,
        /// The most bytes of a definition.
        bytes: usize,
    },
    /// Rules are for records that are ordered by hash.
    #[error("a table of documents can have no rules")]
    RulesForDocuments,
    /// Eviction is for records that are ordered by hash.
    #[error(
        "a table of documents evicts nothing: its documents would leave their indexes behind; use `--when-full refuse`, and `ttl` for documents that end"
    )]
    EvictsDocuments,
    /// The command must wait until the split has ended.
    #[error(
        "table '{0}' is being split or truncated; try again when that is done, or end a split by `tessera table cancel-split {0}`"
    )]
    Splitting(String),
    /// There is no split to cancel.
    #[error("table '{0}' is not being split")]
    NotSplitting(String),
    /// The partitions are being sealed, so the split cannot be cancelled any more.
    #[error("the split or truncation of table '{0}' is about to take effect; try again in a moment")]
    SplitTakesEffect(String),
    /// A split makes twice the partitions, and the value is that number.
    #[error("a table is split into twice its partitions: {0}")]
    SplitInto(u32),
    /// The report is of an earlier attempt to copy the partition, and is ignored.
    #[error("another copy of the partition has begun, or all is copied")]
    CopyOvertaken,
    /// The settings are no longer what the command expected (`before`).
    #[error("table '{0}' was altered by somebody else at the same time; try again")]
    AlteredMeanwhile(String),
    /// The limit of tables is reached; the value is that limit.
    #[error("the cluster has {0} tables, the limit `tables`")]
    TooManyTables(usize),
    /// The number of partitions is zero or above the limit, which is the value.
    #[error("a table has 1 to {0} partitions (the limit `partitions_per_table`)")]
    Partitions(u32),
    /// Durability `none` was asked for on RocksDB.
    #[error("a rocksdb table keeps its records on disk: durability is hard or soft")]
    DurabilityOfEngine,
    /// Table 0 always exists under its name.
    #[error("table 0, 'default', can be neither dropped nor renamed: connections that choose no table use it")]
    DefaultTable,
    /// The number of replicas is zero or above the limit, which is the value.
    #[error("a partition has 1 to {0} replicas")]
    Replicas(u8),
    /// The node holds a data replica of that partition where a witness was asked for, or the other way round.
    #[error("node {0} holds a replica of partition {2} of table {1} that is of the other kind, witness or not")]
    OtherKind(NodeId, TableId, u32),
    /// No node has this number.
    #[error("no such node: {0}")]
    NoSuchNode(NodeId),
    /// The node, and how many replicas it still holds.
    #[error("node {0} still holds {1} replicas; drain it first, or wait until they have moved")]
    NodeInUse(NodeId, usize),
    /// At least one node must be left that can take replicas.
    #[error(
        "the last node that is not draining cannot be drained or removed (nodes that have not arrived do not count)"
    )]
    LastNode,
    /// The table has fewer partitions.
    #[error("there is no partition {1} of table {0}")]
    NoSuchPartition(TableId, u32),
    /// The catalog's leader was built without this engine.
    #[error("this build has no RocksDB engine; tables are in memory")]
    NoRocksdb,
    /// Replacing a replica must wait for the moves of its partition.
    #[error("replica {0} cannot be replaced now: it has been already, or replicas of its partition are moving")]
    NotReplaceable(ReplicaId),
}
