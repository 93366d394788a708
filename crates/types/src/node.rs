//! Who is who in a cluster.

use crate::text::json_is_text;
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
    /// The node that holds the replica.
    pub node: NodeId,
    /// Has [`Self::WITNESS`] for a witness.
    pub incarnation: u32,
}

impl ReplicaId {
    /// Marks a witness: a replica that votes and keeps the log, but no records. A replica never changes from
    /// one kind to the other, so its name tells its kind.
    const WITNESS: u32 = 1 << 31;

    /// The name of a witness. `incarnation` must be below 2^31.
    pub fn new_witness(node: NodeId, incarnation: u32) -> Self {
        Self { node, incarnation: incarnation | Self::WITNESS }
    }

    /// Whether the replica is a witness, which holds no records.
    pub fn is_witness(self) -> bool {
        self.incarnation & Self::WITNESS != 0
    }
}

/// As `NODE.INCARNATION`, with a `w` behind for a witness.
impl fmt::Display for ReplicaId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_witness() { "w" } else { "" };
        write!(formatter, "{}.{}{mark}", self.node, self.incarnation & !Self::WITNESS)
    }
}

impl FromStr for ReplicaId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (node, incarnation) = text.split_once('.')?;
            let (incarnation, is_witness) = match incarnation.strip_suffix('w') {
                Some(incarnation) => (incarnation, true),
                None => (incarnation, false),
            };
            let node = NodeId(node.parse().ok()?);
            let incarnation = incarnation.parse().ok().filter(|number| number & Self::WITNESS == 0)?;
            Some(if is_witness { Self::new_witness(node, incarnation) } else { Self { node, incarnation } })
        };
        parse().ok_or_else(|| format!("'{text}' names no replica: NODE.INCARNATION, with a w behind for a witness"))
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

// In JSON a name is its text.
json_is_text!(ReplicaId);
json_is_text!(ClusterId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_from_their_text() {
        for id in [ReplicaId { node: NodeId(3), incarnation: 7 }, ReplicaId::new_witness(NodeId(3), 7)] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert_eq!(ReplicaId::new_witness(NodeId(3), 7).to_string(), "3.7w");
        for bad in ["", "3", "3.", "3.w", "x.1", "3.4294967295"] {
            assert!(bad.parse::<ReplicaId>().is_err(), "{bad}");
        }
        let cluster = ClusterId(0xabc);
        assert_eq!(cluster.to_string().parse(), Ok(cluster));
    }
}
