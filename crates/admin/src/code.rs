//! The codes of errors: what programs tell errors apart by, since words for people may change.

use axum::http::StatusCode;
use tessera_cluster::CatalogError;
use tessera_types::RequestError;

/// The name of a reason, in snake_case. A code that was given once keeps its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) &'static str);

impl From<&RequestError> for Code {
    fn from(error: &RequestError) -> Self {
        Self(match error {
            RequestError::NoSuchTable(_) => "no_such_table",
            RequestError::CrossPartition => "cross_partition",
            RequestError::TooLarge { .. } => "too_large",
            RequestError::TooManyRecords { .. } => "too_many_records",
            RequestError::DurabilityUnavailable(_) => "durability_unavailable",
            RequestError::MemoryFull { .. } => "memory_full",
            RequestError::Busy => "busy",
            RequestError::Throttled => "throttled",
            RequestError::Denied { .. } => "denied",
            RequestError::NotReady => "not_ready",
            RequestError::Held => "held",
            RequestError::Contended => "contended",
            RequestError::DiskFull => "disk_full",
            RequestError::DiskFailed(_) => "disk_failed",
            RequestError::NotApplied(_) => "not_applied",
            RequestError::DiskUnreadable(_) => "disk_unreadable",
            RequestError::Interrupted => "interrupted",
            RequestError::Removed => "removed",
            RequestError::WouldWait => "would_wait",
            RequestError::ShuttingDown => "shutting_down",
            RequestError::Corruption(_) => "corruption",
            RequestError::Engine(_) => "engine",
        })
    }
}

impl From<&CatalogError> for Code {
    fn from(error: &CatalogError) -> Self {
        Self(match error {
            CatalogError::Name(_) => "invalid_name",
            CatalogError::Exists(_) => "table_exists",
            CatalogError::NoSuchTable(_) => "no_such_table",
            CatalogError::OlderNode(_) => "older_node",
            CatalogError::DocumentTableName(_) => "invalid_document_table_name",
            CatalogError::DatabaseExists(_) => "database_exists",
            CatalogError::NoSuchDatabase(_) => "no_such_database",
            CatalogError::DatabaseInUse(_) => "database_in_use",
            CatalogError::UserName(_) => "invalid_user_name",
            CatalogError::UserExists(_) => "user_exists",
            CatalogError::NoSuchUser(_) => "no_such_user",
            CatalogError::Admin => "admin_user",
            CatalogError::ConnectIsGlobal => "connect_is_global",
            CatalogError::TooManyUsers(_) => "too_many_users",
            CatalogError::NotOfDocuments => "not_of_documents",
            CatalogError::IndexExists(_) => "index_exists",
            CatalogError::NoSuchIndex(_) => "no_such_index",
            CatalogError::TooManyIndexes { .. } => "too_many_indexes",
            CatalogError::RulesForDocuments => "rules_for_documents",
            CatalogError::EvictsDocuments => "evicts_documents",
            CatalogError::Splitting(_) => "splitting",
            CatalogError::NotSplitting(_) => "not_splitting",
            CatalogError::SplitTakesEffect(_) => "split_takes_effect",
            CatalogError::SplitInto(_) => "split_into",
            CatalogError::CopyOvertaken => "copy_overtaken",
            CatalogError::AlteredMeanwhile(_) => "altered_meanwhile",
            CatalogError::TooManyTables(_) => "too_many_tables",
            CatalogError::Partitions(_) => "invalid_partitions",
            CatalogError::DurabilityOfEngine => "durability_of_engine",
            CatalogError::DefaultTable => "default_table",
            CatalogError::Replicas(_) => "invalid_replicas",
            CatalogError::OtherKind(..) => "other_kind",
            CatalogError::NoSuchNode(_) => "no_such_node",
            CatalogError::NodeInUse(..) => "node_in_use",
            CatalogError::LastNode => "last_node",
            CatalogError::NoSuchPartition(..) => "no_such_partition",
            CatalogError::NoRocksdb => "no_rocksdb",
            CatalogError::NotReplaceable(_) => "not_replaceable",
        })
    }
}

/// Of what is wrong with a request before anybody looks at what it asks for.
impl From<StatusCode> for Code {
    fn from(status: StatusCode) -> Self {
        Self(match status {
            StatusCode::UNAUTHORIZED => "unauthorized",
            StatusCode::FORBIDDEN => "forbidden",
            StatusCode::NOT_FOUND => "no_such_path",
            StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
            StatusCode::REQUEST_TIMEOUT => "request_timeout",
            StatusCode::PAYLOAD_TOO_LARGE => "body_too_large",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "not_json",
            StatusCode::SERVICE_UNAVAILABLE => "busy",
            _ => "bad_request",
        })
    }
}

#[cfg(test)]
mod tests {
    /// Programs are written by the page.
    #[test]
    fn the_guide_names_every_code() {
        let guide =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/admin-api.md")).unwrap();
        let source = include_str!("code.rs").split("mod tests").next().unwrap();
        let codes: Vec<&str> =
            source.lines().filter_map(|line| line.split_once("=> \"")?.1.strip_suffix("\",")).collect();
        assert!(codes.len() > 60, "{codes:?}");
        let missing: Vec<_> = codes.iter().filter(|code| !guide.contains(&format!("`{code}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
