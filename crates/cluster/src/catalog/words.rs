//! Commands in words, for logs.

use super::{CatalogCommand, CopyReport};
use std::fmt;
use tessera_types::{NodeId, Scope};

impl fmt::Display for CatalogCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { name, .. } => write!(f, "create the table {name}"),
            Self::Alter { name, .. } => write!(f, "change settings of the table {name}"),
            Self::SetReplicas { name, replicas } => write!(f, "have {replicas} replicas of the table {name}"),
            Self::Split { name, partitions, .. } => write!(f, "split the table {name} into {partitions} partitions"),
            Self::Truncate { name, .. } => write!(f, "truncate the table {name}"),
            Self::CancelSplit { name } => write!(f, "give up splitting or truncating the table {name}"),
            Self::Copy { table, partition, report, .. } => {
                write!(f, "partition {partition} of table {table} {}", words_of(*report))
            }
            Self::Rename { name, to } => write!(f, "rename the table {name} to {to}"),
            Self::Drop { name, .. } => write!(f, "drop the table {name}"),
            Self::Recall { number, to: None } => write!(f, "recall the table with number {number}"),
            Self::Recall { number, to: Some(name) } => write!(f, "recall the table with number {number} as {name}"),
            Self::CreateDatabase { name } => write!(f, "create the database {name}"),
            Self::DropDatabase { name } => write!(f, "drop the database {name}"),
            Self::CreateUser { name, .. } => write!(f, "create the user {name}"),
            Self::AlterUser { name, .. } => write!(f, "change the password of the user {name}"),
            Self::DropUser { name } => write!(f, "drop the user {name}"),
            Self::Grant { user, scope, .. } => write!(f, "change what the user {user} may do {}", place_of(scope)),
            Self::CreateIndex { table, name, .. } => {
                write!(f, "create the index {name} of the table with number {table}")
            }
            Self::DropIndex { table, name } => write!(f, "drop the index {name} of the table with number {table}"),
            Self::RenameIndex { table, name, to, .. } => {
                write!(f, "rename the index {name} of the table with number {table} to {to}")
            }
            Self::Purge { .. } => f.write_str("forget dropped tables whose time has come"),
            Self::AddNode { site, .. } => write!(f, "let in the node at {}", site.peer),
            Self::Arrived { node, .. } => write!(f, "node {node} has arrived"),
            Self::SetSite { node, site } => write!(f, "node {node} is at {} now", site.peer),
            Self::RenewCatalogReplica { node } => write!(f, "give node {node} another replica of the catalog"),
            Self::Drain { node, is_draining: true } => write!(f, "drain node {node}"),
            Self::Drain { node, is_draining: false } => write!(f, "end the drain of node {node}"),
            Self::RemoveNode { node } => write!(f, "remove node {node}"),
            Self::Place { table, partition, nodes, witness } => {
                write!(f, "place partition {partition} of table {table} on nodes {}", listed(nodes))?;
                witness.map_or(Ok(()), |node| write!(f, " with a witness on node {node}"))
            }
            Self::Amnesiac { replicas } | Self::AwaitSurvivors { amnesiac: replicas } => {
                write!(f, "{} replicas may have lost what they acknowledged", replicas.len())
            }
            Self::Survived { replicas } => {
                write!(f, "{} replicas have what others have lost", replicas.len())
            }
            Self::BeginAnew { groups } => write!(f, "{} partitions begin anew, empty", groups.len()),
            Self::Led { groups } => write!(f, "{} partitions have leaders that serve", groups.len()),
            Self::Replace { table, partition, replica } => {
                write!(f, "replace replica {replica} of partition {partition} of table {table}")
            }
            Self::Moved { table, partition, .. } => {
                write!(f, "partition {partition} of table {table} has the members that are wanted")
            }
        }
    }
}

fn words_of(report: CopyReport) -> &'static str {
    match report {
        CopyReport::Begun => "begins to be copied",
        CopyReport::CaughtUp => "is copied but for what is written now",
        CopyReport::Done => "is sealed and copied",
    }
}

fn place_of(scope: &Scope) -> String {
    match scope {
        Scope::Global => "everywhere".into(),
        Scope::Database(name) => format!("in the database {name}"),
        Scope::Table(name) => format!("in the table {name}"),
    }
}

fn listed(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_types::{TableId, UnixMillis};

    /// Logs once had them as the program has them.
    #[test]
    fn commands_are_told_in_words() {
        let (table, partition) = (TableId(3), 7);
        let nodes = vec![NodeId(1), NodeId(2)];
        let place = CatalogCommand::Place { table, partition, nodes, witness: Some(NodeId(4)) };
        assert_eq!(place.to_string(), "place partition 7 of table 3 on nodes 1, 2 with a witness on node 4");
        let copy = CatalogCommand::Copy { table, partition, attempt: 1, report: CopyReport::Done };
        assert_eq!(copy.to_string(), "partition 7 of table 3 is sealed and copied");
        assert_eq!(CatalogCommand::drop("shop", UnixMillis::new(1)).to_string(), "drop the table shop");
        let drain = CatalogCommand::Drain { node: NodeId(2), is_draining: false };
        assert_eq!(drain.to_string(), "end the drain of node 2");
    }
}
