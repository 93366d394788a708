//! The handshake decides which nodes may talk to each other. Before anything else is read or answered, both ends prove
//! that they know the cluster's secret, each by an HMAC over random numbers of both. So an overheard proof is of no use
//! later or in the other direction:
//!
//! ```text
//! the one that dials   "TESSERA" | u8 version | u128 cluster | u32 its node | u32 the node it means to reach
//!                      | u64, u64 its generation | [32] nonce
//! the other one        u8 0 | [32] nonce
//! the one that dials   [32] proof, HMAC("dials  " | its first message | the other one's nonce)
//! the other one        u8 0 | u64, u64 its generation | [32] proof, HMAC("answers" | the first message | its own nonce | what
//!                      comes before the proof)
//! the one that dials   u8 0
//! ```
//!
//! **Versions.** The node that dials names the version of the connection; the other one accepts or refuses it. A node
//! accepts its own version and the one before. If its own version is refused, it dials again with the one before. So
//! nodes of two successive versions work together, and a cluster is upgraded node by node. A change of what travels
//! increases the version; over a connection of the version before, only what that version reads may be sent. Version 7
//! has log entries and checkpoints with records of ordered spaces; version 6 reads all others.
//!
//! Instead of a zero the other node may send a one, a u16 length and the reason in words, and close the connection.
//! Instead of the second zero it may send a three, a u16 length, the reason, and a proof over these: the node that
//! dials was removed from the cluster. Each node may say in its last message that the generation of the other one has
//! been overtaken: it sends a two instead of the zero, and a later number instead of its own generation. Until a node
//! has seen the proof it reveals nothing of itself but its version. A node without identity, which wants to join, sends
//! zeros for the cluster and for both nodes. Without a secret the proof proves nothing, and a node must know the
//! cluster's id, which has 128 random bits.
//!
//! So a node that was installed anew under an old address is not mistaken for the old one, and nodes of two clusters
//! that were configured with each other's addresses refuse each other. What travels after the handshake is neither
//! encrypted nor signed: somebody who can change it on its way can take a connection over.

use crate::secret::{self, LENGTH, Secret};
use crate::{Generation, Handler, Identity, Refusal};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tessera_types::{ClusterId, NodeId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MAGIC: &[u8; 7] = b"TESSERA";
/// The versions of the protocol that this program speaks: its own, and the one before.
pub(crate) const VERSIONS: RangeInclusive<u8> = 6..=7;
/// Bytes of the first message.
const HELLO: usize = 48 + LENGTH;

/// Verdicts: the other node may go on; its generation has been overtaken.
const GO_ON: u8 = 0;
const OVERTAKEN: u8 = 2;
/// Verdicts: the other node is refused; it is refused because it was removed from the cluster.
const REFUSED: u8 = 1;
const REMOVED: u8 = 3;
/// Characters of a refusal's reason that are kept.
const LONGEST_REASON: usize = 1000;

const DIALS: &[u8] = b"dials  ";
const ANSWERS: &[u8] = b"answers";

/// Introduces this node to `to`, or as one without identity, for a connection of this version.
///
/// # Errors
/// Why there is no connection; [`io::ErrorKind::Unsupported`] if the other node does not speak the version, and
/// [`io::ErrorKind::PermissionDenied`] if it refuses for another reason, or does not know the secret.
pub(crate) async fn introduce(
    stream: &mut TcpStream,
    secret: &Secret,
    version: u8,
    who: Option<(Identity, NodeId, &Arc<dyn Handler>)>,
) -> io::Result<()> {
    let (cluster, from, to) = who.map_or((0, 0, 0), |(own, to, _)| (own.cluster.0, own.node.0, to.0));
    let generation = who.map_or(Generation::default(), |(own, ..)| own.generation);
    let mut hello = [0; HELLO];
    hello[..7].copy_from_slice(MAGIC);
    hello[7] = version;
    hello[8..24].copy_from_slice(&cluster.to_le_bytes());
    hello[24..28].copy_from_slice(&from.to_le_bytes());
    hello[28..32].copy_from_slice(&to.to_le_bytes());
    hello[32..48].copy_from_slice(&generation.to_bytes());
    hello[48..].copy_from_slice(&secret::nonce()?);
    stream.write_all(&hello).await?;
    let nonce = match read_answer::<LENGTH>(stream).await? {
        Answer::GoesOn { said, .. } => said,
        // Before the proof only the version is a reason to refuse.
        Answer::Refuses { reason, .. } => return Err(io::Error::new(io::ErrorKind::Unsupported, reason)),
    };
    stream.write_all(&secret.prove(&[DIALS, &hello, &nonce])).await?;
    let is_proven = |verdict: u8, said: &[u8], proof: &[u8]| {
        let proof = proof.try_into().expect("a proof has one length");
        match secret.is_proven(&[ANSWERS, &hello, &nonce, &[verdict], said], proof) {
            true => Ok(()),
            false => Err(refused("who answers there does not know the cluster's secret".into())),
        }
    };
    let (verdict, answer) = match read_answer::<{ 16 + LENGTH }>(stream).await? {
        Answer::GoesOn { verdict, said } => (verdict, said),
        Answer::Refuses { verdict, reason } => {
            if let Some((_, node, handler)) = who.filter(|_| verdict == REMOVED) {
                let mut proof = [0; LENGTH];
                stream.read_exact(&mut proof).await?;
                is_proven(verdict, reason.as_bytes(), &proof)?;
                handler.was_removed(node);
            }
            return Err(refused(reason));
        }
    };
    let (said, proof) = answer.split_at(16);
    is_proven(verdict, said, proof)?;
    let theirs = Generation::of_bytes(said);
    let Some((_, node, handler)) = who else { return stream.write_u8(GO_ON).await };
    if verdict == OVERTAKEN {
        handler.is_overtaken(node, theirs.number);
        return Err(overtaken(node));
    }
    match admit(handler, node, theirs).await {
        Ok(()) => stream.write_u8(GO_ON).await,
        Err(Refusal::Overtaken { known }) => {
            stream.write_all(&[&[OVERTAKEN][..], &known.to_le_bytes()].concat()).await?;
            Err(io::Error::other(format!("the data of node {node} is older than what it had before")))
        }
        Err(Refusal::Failed(reason)) => Err(io::Error::other(reason)),
    }
}

fn overtaken(by: NodeId) -> io::Error {
    io::Error::other(format!(
        "node {by} knows a later generation of this node: its data is older than what it had before"
    ))
}

async fn admit(handler: &Arc<dyn Handler>, node: NodeId, generation: Generation) -> Result<(), Refusal> {
    let handler = handler.clone();
    // A new generation of the other node is stored first.
    let admitted = tokio::task::spawn_blocking(move || handler.admits(node, generation)).await;
    admitted.unwrap_or_else(|error| Err(Refusal::Failed(error.to_string())))
}

/// What a node says to one that dials.
enum Answer<const BYTES: usize> {
    GoesOn { verdict: u8, said: [u8; BYTES] },
    Refuses { verdict: u8, reason: String },
}

/// Reads a verdict with its content, or the reason for a refusal.
async fn read_answer<const BYTES: usize>(stream: &mut TcpStream) -> io::Result<Answer<BYTES>> {
    let verdict = stream.read_u8().await?;
    if [GO_ON, OVERTAKEN].contains(&verdict) {
        let mut said = [0; BYTES];
        stream.read_exact(&mut said).await?;
        return Ok(Answer::GoesOn { verdict, said });
    }
    let mut reason = vec![0; usize::from(stream.read_u16_le().await?)];
    stream.read_exact(&mut reason).await?;
    Ok(Answer::Refuses { verdict, reason: printable(&reason) })
}

/// Whoever answers may say anything, and what it says goes to logs and to operators.
fn printable(reason: &[u8]) -> String {
    let reason = String::from_utf8_lossy(reason);
    reason.chars().filter(|sign| !sign.is_control()).take(LONGEST_REASON).collect()
}

/// The error of a node that is refused, or refuses.
fn refused(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

/// Whether the other node was reached and it, or this one, has refused. An attempt soon after will hardly end otherwise.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported].contains(&error.kind())
}

/// Accepts a handshake. Returns the node that dials; `None` for a node without identity.
pub(crate) async fn receive(
    stream: &mut TcpStream,
    secret: &Secret,
    own: Identity,
    versions: &RangeInclusive<u8>,
    handler: &Arc<dyn Handler>,
) -> io::Result<Option<NodeId>> {
    let mut hello = [0; HELLO];
    // The first message of another program may be shorter.
    stream.read_exact(&mut hello[..8]).await?;
    if hello[..7] != *MAGIC {
        return refuse(stream, "this port is for other nodes of the cluster; clients use others".into()).await;
    }
    let version = hello[7];
    if !versions.contains(&version) {
        let reason = format!(
            "this node speaks versions {} and {} of the protocol between nodes, not {version}; nodes work together if their \
             versions differ by one at most",
            versions.start(),
            versions.end()
        );
        return refuse(stream, reason).await;
    }
    stream.read_exact(&mut hello[8..]).await?;
    let nonce = secret::nonce()?;
    stream.write_all(&[&[GO_ON][..], &nonce].concat()).await?;
    let mut proof = [0; LENGTH];
    stream.read_exact(&mut proof).await?;
    if !secret.is_proven(&[DIALS, &hello, &nonce], &proof) {
        let reason = "this node has another secret: `cluster.secret` must be the same on all nodes of a cluster".into();
        return refuse(stream, reason).await;
    }
    let number = |at: usize| u32::from_le_bytes(hello[at..at + 4].try_into().expect("four bytes"));
    let cluster = u128::from_le_bytes(hello[8..24].try_into().expect("sixteen bytes"));
    let (from, to) = (NodeId(number(24)), NodeId(number(28)));
    let refusal = if (cluster, from.0, to.0) == (0, 0, 0) {
        None
    } else if cluster != own.cluster.0 {
        let cluster = ClusterId(cluster);
        let word = handler.word_for(cluster).map(|word| format!(": {word}")).unwrap_or_default();
        Some(format!("this node belongs to another cluster than {cluster}{word}"))
    } else if to != own.node {
        Some(format!("this is node {}, not {to}", own.node))
    } else if from == own.node {
        Some(format!("node {from} is this node"))
    } else if !handler.is_known(from) {
        let reason = removed(from);
        let proof = secret.prove(&[ANSWERS, &hello, &nonce, &[REMOVED], reason.as_bytes()]);
        stream.write_all(&[&refusal_of(REMOVED, &reason)[..], &proof].concat()).await?;
        return Err(io::Error::other(reason));
    } else {
        None
    };
    if let Some(reason) = refusal {
        return refuse(stream, reason).await;
    }
    let from = Some(from).filter(|from| from.0 != 0);
    let admitted = match from {
        Some(from) => admit(handler, from, Generation::of_bytes(&hello[32..48])).await,
        None => Ok(()),
    };
    let (verdict, said) = match &admitted {
        Ok(()) => (GO_ON, own.generation),
        Err(Refusal::Overtaken { known }) => (OVERTAKEN, Generation { number: *known, start: 0 }),
        Err(Refusal::Failed(reason)) => return refuse(stream, reason.clone()).await,
    };
    let said = said.to_bytes();
    let proof = secret.prove(&[ANSWERS, &hello, &nonce, &[verdict], &said]);
    stream.write_all(&[&[verdict][..], &said, &proof].concat()).await?;
    let Some(from) = from else { return stream.read_u8().await.map(|_| None) };
    if verdict == OVERTAKEN {
        return Err(io::Error::other(format!("the data of node {from} is older than what it had before")));
    }
    if stream.read_u8().await? != GO_ON {
        handler.is_overtaken(from, stream.read_u64_le().await?);
        return Err(overtaken(from));
    }
    Ok(Some(from))
}

/// The reason for refusing a node that the catalog no longer has; numbers of nodes are given only once.
pub(crate) fn removed(node: NodeId) -> String {
    format!("node {node} was removed from this cluster; with an empty data directory it may join as a new one")
}

fn refusal_of(verdict: u8, reason: &str) -> Vec<u8> {
    let length = u16::try_from(reason.len()).expect("reasons are short");
    [&[verdict][..], &length.to_le_bytes(), reason.as_bytes()].concat()
}

async fn refuse<T>(stream: &mut TcpStream, reason: String) -> io::Result<T> {
    stream.write_all(&refusal_of(REFUSED, &reason)).await?;
    Err(io::Error::other(reason))
}
