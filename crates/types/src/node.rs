//! Who is who in a cluster.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Names a node. Given once, never to another one; zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A replica of a group: the node it is on, and which of the group's replicas there in the course of time. A replica that
/// has lost its log, or comes back to a node after it was removed, is another one: it must not vote as if it remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ReplicaId {
    pub node: NodeId,
    pub incarnation: u32,
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.node, self.incarnation)
    }
}

impl FromStr for ReplicaId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (node, incarnation) = text.split_once('.')?;
            Some(Self { node: NodeId(node.parse().ok()?), incarnation: incarnation.parse().ok()? })
        };
        parse().ok_or_else(|| format!("'{text}' names no replica: NODE.INCARNATION"))
    }
}

impl From<ReplicaId> for String {
    fn from(id: ReplicaId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ReplicaId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Names a cluster: a random number, so that no two are taken for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl FromStr for ClusterId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        u128::from_str_radix(text, 16)
            .map(Self)
            .map_err(|_| format!("'{text}' names no cluster: 32 hexadecimal digits"))
    }
}

impl From<ClusterId> for String {
    fn from(id: ClusterId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ClusterId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
