//! Who may talk to whom. The one that dials says:
//!
//! ```text
//! "TESSERA" | u8 version | u128 cluster | u32 its node | u32 the node it means to reach
//! ```
//!
//! and gets back a zero byte, or a byte one, a u16 length and the reason in words. A node without identity sends zeros.
//!
//! So a node that was installed anew under an old address is not taken for the old one, and nodes of two clusters that
//! were given one another's addresses refuse each other.

use crate::Identity;
use std::io;
use tessera_types::{ClusterId, NodeId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MAGIC: &[u8; 7] = b"TESSERA";
const VERSION: u8 = 2;

/// Introduces this node to `to`, or as one without identity.
pub(crate) async fn introduce(stream: &mut TcpStream, who: Option<(Identity, NodeId)>) -> io::Result<()> {
    let (cluster, from, to) = who.map_or((0, 0, 0), |(own, to)| (own.cluster.0, own.node.0, to.0));
    let mut hello = [0; 32];
    hello[..7].copy_from_slice(MAGIC);
    hello[7] = VERSION;
    hello[8..24].copy_from_slice(&cluster.to_le_bytes());
    hello[24..28].copy_from_slice(&from.to_le_bytes());
    hello[28..].copy_from_slice(&to.to_le_bytes());
    stream.write_all(&hello).await?;
    if stream.read_u8().await? == 0 {
        return Ok(());
    }
    let mut reason = vec![0; usize::from(stream.read_u16_le().await?)];
    stream.read_exact(&mut reason).await?;
    Err(io::Error::other(String::from_utf8_lossy(&reason).into_owned()))
}

/// Hears who dials. Returns the node, `None` for one without identity.
pub(crate) async fn receive(stream: &mut TcpStream, own: Identity) -> io::Result<Option<NodeId>> {
    let mut hello = [0; 32];
    stream.read_exact(&mut hello).await?;
    let number = |at: usize| u32::from_le_bytes(hello[at..at + 4].try_into().expect("four bytes"));
    let cluster = u128::from_le_bytes(hello[8..24].try_into().expect("sixteen bytes"));
    let (from, to) = (NodeId(number(24)), NodeId(number(28)));
    let refusal = if hello[..7] != *MAGIC {
        Some("this port is for other nodes of the cluster; clients use others".to_string())
    } else if hello[7] != VERSION {
        Some(format!("this node speaks version {VERSION} of the protocol between nodes, not {}", hello[7]))
    } else if cluster == 0 {
        None
    } else if cluster != own.cluster.0 {
        Some(format!("this node belongs to cluster {}, not {}", own.cluster, ClusterId(cluster)))
    } else if to != own.node {
        Some(format!("this is node {}, not {to}", own.node))
    } else {
        None
    };
    match refusal {
        None => {
            stream.write_u8(0).await?;
            Ok(Some(from).filter(|from| from.0 != 0))
        }
        Some(reason) => {
            stream.write_u8(1).await?;
            stream.write_u16_le(u16::try_from(reason.len()).expect("reasons are short")).await?;
            stream.write_all(reason.as_bytes()).await?;
            Err(io::Error::other(reason))
        }
    }
}
