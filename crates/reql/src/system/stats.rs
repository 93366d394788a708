//! The table `stats`: what the nodes have been asked, and hold. What Tessera does not count is `null`.

use std::collections::BTreeMap;

use super::parts::{array, name, tables};
use crate::cluster::Server;
use crate::error::Result;
use crate::monitor::{NodeStatistics, Rate, TableStatistics};
use crate::scan::TableInfo;
use crate::source::Source;
use crate::value::{self, Value};

/// What stands in a row about a node that has not answered, in the words of RethinkDB.
const SILENT: &str = "Timed out. Unable to retrieve stats.";

/// What a node has told.
struct Node {
    statistics: NodeStatistics,
    /// Its share of each table, by the identifier of the table.
    shares: BTreeMap<String, TableStatistics>,
}

/// What a node has told, if it has.
type Told = (Server, Option<Node>);

impl Node {
    fn new(mut statistics: NodeStatistics) -> Self {
        let tables = std::mem::take(&mut statistics.tables);
        Self { statistics, shares: tables.into_iter().map(|share| (share.table.clone(), share)).collect() }
    }

    /// What it has told of a table. A node that has none of it has nothing of it.
    fn share(&self, table: &TableInfo) -> TableStatistics {
        self.shares.get(&table.id).cloned().unwrap_or_default()
    }
}

pub(super) fn rows(source: &dyn Source) -> Result<Vec<Value>> {
    let Some(monitor) = source.monitor() else { return Ok(Vec::new()) };
    let told = monitor.statistics()?.into_iter();
    let nodes: Vec<Told> = told.map(|(server, statistics)| (server, statistics.map(Node::new))).collect();
    let tables = tables(source)?;
    let mut rows = vec![cluster(&nodes, &tables)?];
    for node in &nodes {
        rows.push(server(node, &tables)?);
    }
    for info in &tables {
        rows.push(table(info, &nodes)?);
        for node in &nodes {
            rows.push(table_server(info, node)?);
        }
    }
    Ok(rows)
}

fn id<const N: usize>(parts: [&str; N]) -> Result<Value> {
    array(parts.map(Value::from))
}

fn count(number: u64) -> Result<Value> {
    value::number(number as f64)
}

/// Documents of tables read and written on nodes.
fn documents<'a>(nodes: impl IntoIterator<Item = &'a Node>, tables: &[TableInfo]) -> (Rate, Rate) {
    let (mut read, mut written) = (Rate::default(), Rate::default());
    let add = |sum: &mut Rate, rate: Rate| {
        sum.per_second += rate.per_second;
        sum.total += rate.total;
    };
    for node in nodes {
        for table in tables {
            let share = node.share(table);
            add(&mut read, share.read);
            add(&mut written, share.written);
        }
    }
    (read, written)
}

fn cluster(nodes: &[Told], tables: &[TableInfo]) -> Result<Value> {
    let (read, written) = documents(nodes.iter().filter_map(|(_, node)| node.as_ref()), tables);
    let told = || nodes.iter().filter_map(|(_, node)| node.as_ref().map(|node| &node.statistics));
    let engine = value::object([
        ("client_connections", count(told().map(|node| node.connections).sum())?),
        ("clients_active", count(told().map(|node| node.active_connections).sum())?),
        ("queries_per_sec", value::number(told().map(|node| node.queries.per_second).sum())?),
        ("read_docs_per_sec", value::number(read.per_second)?),
        ("written_docs_per_sec", value::number(written.per_second)?),
    ])?;
    value::object([("id", id(["cluster"])?), ("query_engine", engine)])
}

fn server((server, node): &Told, tables: &[TableInfo]) -> Result<Value> {
    let id = id(["server", &server.id])?;
    let Some(node) = node else {
        return value::object([("error", Value::from(SILENT)), ("id", id), ("server", name(server))]);
    };
    let (read, written) = documents([node], tables);
    let node = &node.statistics;
    let engine = value::object([
        ("client_connections", count(node.connections)?),
        ("clients_active", count(node.active_connections)?),
        ("queries_per_sec", value::number(node.queries.per_second)?),
        ("queries_total", count(node.queries.total)?),
        ("read_docs_per_sec", value::number(read.per_second)?),
        ("read_docs_total", count(read.total)?),
        ("written_docs_per_sec", value::number(written.per_second)?),
        ("written_docs_total", count(written.total)?),
    ])?;
    value::object([("id", id), ("query_engine", engine), ("server", name(server))])
}

fn table(info: &TableInfo, nodes: &[Told]) -> Result<Value> {
    let (read, written) = documents(nodes.iter().filter_map(|(_, node)| node.as_ref()), std::slice::from_ref(info));
    let engine = value::object([
        ("read_docs_per_sec", value::number(read.per_second)?),
        ("written_docs_per_sec", value::number(written.per_second)?),
    ])?;
    value::object([
        ("db", Value::from(info.database.name.clone())),
        ("id", id(["table", &info.id])?),
        ("query_engine", engine),
        ("table", Value::from(info.name.clone())),
    ])
}

fn table_server(info: &TableInfo, (server, node): &Told) -> Result<Value> {
    let mut fields = vec![
        ("db", Value::from(info.database.name.clone())),
        ("id", id(["table_server", &info.id, &server.id])?),
        ("server", name(server)),
        ("table", Value::from(info.name.clone())),
    ];
    match node {
        None => fields.push(("error", Value::from(SILENT))),
        Some(node) => {
            let TableStatistics { read, written, memory_bytes, disk_bytes, .. } = node.share(info);
            let engine = value::object([
                ("read_docs_per_sec", value::number(read.per_second)?),
                ("read_docs_total", count(read.total)?),
                ("written_docs_per_sec", value::number(written.per_second)?),
                ("written_docs_total", count(written.total)?),
            ])?;
            fields.push(("query_engine", engine));
            fields.push(("storage_engine", storage(memory_bytes, disk_bytes)?));
        }
    }
    Ok(Value::object(fields)?)
}

fn storage(memory_bytes: u64, disk_bytes: u64) -> Result<Value> {
    let space = value::object([
        ("data_bytes", count(disk_bytes)?),
        ("garbage_bytes", Value::Null),
        ("metadata_bytes", Value::Null),
        ("preallocated_bytes", Value::Null),
    ])?;
    let disk = value::object([
        ("read_bytes_per_sec", Value::Null),
        ("read_bytes_total", Value::Null),
        ("space_usage", space),
        ("written_bytes_per_sec", Value::Null),
        ("written_bytes_total", Value::Null),
    ])?;
    let cache = value::object([("in_use_bytes", count(memory_bytes)?)])?;
    value::object([("cache", cache), ("disk", disk)])
}
