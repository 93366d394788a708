//! What the rows of system tables are made of.

use crate::cluster::Server;
use crate::error::Result;
use crate::scan::TableInfo;
use crate::source::Source;
use crate::value::Value;

/// All tables but those of the system.
pub(super) fn tables(source: &dyn Source) -> Result<Vec<TableInfo>> {
    let mut tables = Vec::new();
    for database in source.databases()? {
        tables.extend(source.tables(&database)?);
    }
    Ok(tables)
}

pub(super) fn array(items: impl IntoIterator<Item = Value>) -> Result<Value> {
    Ok(Value::array(items.into_iter().collect())?)
}

pub(super) fn name(server: &Server) -> Value {
    Value::from(server.name.clone())
}

pub(super) fn names<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Result<Value> {
    array(servers.into_iter().map(name))
}
