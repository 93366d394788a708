//! Databases, tables and servers as ReQL names and identifies them.

use tessera_reql::DatabaseInfo;
use tessera_types::{NodeId, RecordKey, TableNumber};

/// A number as an identifier of RethinkDB's form.
fn id(kind: u16, number: u64) -> String {
    format!("00000000-0000-4000-{:04x}-{number:012x}", 0x8000 | kind)
}

pub(crate) fn database_info(name: &str) -> DatabaseInfo {
    let hash = RecordKey::new(name.as_bytes(), b"").hash();
    DatabaseInfo { id: id(1, hash & 0xffff_ffff_ffff), name: name.into() }
}

pub(crate) fn table_id(number: TableNumber) -> String {
    id(2, u64::from(number.0))
}

pub(crate) fn server_id(node: NodeId) -> String {
    id(3, u64::from(node.0))
}

pub(crate) fn full_name(database: &DatabaseInfo, name: &str) -> String {
    format!("{}.{name}", database.name)
}
