//! Who this node is: given once, kept in the data directory.

use crate::config::NodeConfig;
use crate::data_directory::DataDirectory;
use crate::open_error::OpenError;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use tessera_cluster::{Catalog, CatalogFile, JoinToken, Site};
use tessera_engine::DEFAULT_ENGINE;
use tessera_store::hosting::number;
use tessera_transport::{Generation, Identity};
use tessera_types::{ClusterId, NodeId, ReplicaId, UnixMillis};

/// How long a node tries to join.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two rounds of asking all nodes that were named.
const PAUSE: Duration = Duration::from_millis(300);
/// After which it is said again that the node has not been let in, if the reason stays the same.
const REMINDER: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
struct IdentityFile {
    cluster: ClusterId,
    node: NodeId,
    /// The incarnation of this node's replica of the catalog.
    #[serde(default)]
    catalog_incarnation: u32,
    /// Whether that one has still to begin: what the log and the file of the catalog have is an earlier one's.
    #[serde(default)]
    is_catalog_to_begin: bool,
}

/// Reads the identity; `None` for a node that has none yet.
pub(crate) fn load(path: &Path) -> io::Result<Option<Identity>> {
    let file = tessera_cluster::load_json(path)?;
    Ok(file.map(|IdentityFile { cluster, node, .. }| Identity { cluster, node, generation: Generation::default() }))
}

/// This node's replica of the catalog.
pub(crate) fn load_catalog_replica(path: &Path) -> io::Result<ReplicaId> {
    let file: Option<IdentityFile> = tessera_cluster::load_json(path)?;
    let file = file.ok_or(io::ErrorKind::NotFound)?;
    Ok(ReplicaId { node: file.node, incarnation: file.catalog_incarnation })
}

/// Whether what the log and the file of the catalog have is to be forgotten before this node's replica of it begins.
pub(crate) fn is_catalog_to_begin(path: &Path) -> io::Result<bool> {
    let file: Option<IdentityFile> = tessera_cluster::load_json(path)?;
    Ok(file.is_some_and(|file| file.is_catalog_to_begin))
}

pub(crate) fn save_catalog_replica(path: &Path, replica: ReplicaId, is_catalog_to_begin: bool) -> io::Result<()> {
    let file: Option<IdentityFile> = tessera_cluster::load_json(path)?;
    let file = file.ok_or(io::ErrorKind::NotFound)?;
    let catalog_incarnation = replica.incarnation;
    tessera_cluster::save_json(path, &IdentityFile { catalog_incarnation, is_catalog_to_begin, ..file })
}

/// The node goes on in a cluster of another name, with another replica of the catalog.
pub(crate) fn save_recovered(path: &Path, cluster: ClusterId, replica: ReplicaId) -> io::Result<()> {
    let ReplicaId { node, incarnation } = replica;
    let file = IdentityFile { cluster, node, catalog_incarnation: incarnation, is_catalog_to_begin: false };
    tessera_cluster::save_json(path, &file)
}

fn save(path: &Path, identity: Identity) -> io::Result<()> {
    let Identity { cluster, node, .. } = identity;
    let file = IdentityFile { cluster, node, catalog_incarnation: 0, is_catalog_to_begin: false };
    tessera_cluster::save_json(path, &file)
}

/// The identity of the first node of a new cluster.
fn of_new_cluster() -> Identity {
    Identity { cluster: ClusterId(rand::random()), node: FIRST_NODE, generation: Generation::default() }
}

/// The node that founds a cluster.
pub(crate) const FIRST_NODE: NodeId = NodeId(1);

/// Who this node is: as it was before, or a newcomer to a cluster, or the first of a new one.
pub(crate) fn establish(
    config: &NodeConfig,
    directory: &DataDirectory,
    runtime: &tokio::runtime::Runtime,
) -> Result<Identity, OpenError> {
    let failed = |error| OpenError::File("node.json", error);
    if let Some(identity) = load(&directory.identity()).map_err(failed)? {
        return Ok(identity);
    }
    let (identity, catalog) = if config.join.is_empty() {
        let catalog = Catalog::of_new_cluster(config.site.clone(), DEFAULT_ENGINE).founded_at(UnixMillis::now());
        (of_new_cluster(), catalog)
    } else {
        let failed = |error| OpenError::File("join.json", error);
        let request = JoinRequest { site: config.site.clone(), token: join_token(&directory.join()).map_err(failed)? };
        let welcome = runtime.block_on(join(config, &request)).map_err(OpenError::Join)?;
        (Identity { cluster: welcome.cluster, node: welcome.node, generation: Generation::default() }, welcome.catalog)
    };
    // The catalog first: without identity it counts for nothing.
    let file = CatalogFile { applied_index: 0, catalog };
    file.save(&directory.catalog()).map_err(|error| OpenError::File("catalog.json", error))?;
    save(&directory.identity(), identity).map_err(failed)?;
    // It has served its purpose. With an identity nobody looks at it.
    let _ = std::fs::remove_file(directory.join());
    tracing::info!(cluster = %identity.cluster, node = %identity.node, "this node has an identity now");
    Ok(identity)
}

/// What a node says that wants to be let in.
#[derive(Serialize, Deserialize)]
pub(crate) struct JoinRequest {
    pub(crate) site: Site,
    pub(crate) token: JoinToken,
}

/// Made up before it is first asked to be let in, and kept until the node has an identity: when an answer is lost, the
/// cluster knows by it who asks again, and gives the same number.
fn join_token(path: &Path) -> io::Result<JoinToken> {
    if let Some(token) = tessera_cluster::load_json(path)? {
        return Ok(token);
    }
    let token = JoinToken(format!("{:032x}", rand::random::<u128>()));
    tessera_cluster::save_json(path, &token)?;
    Ok(token)
}

/// What a node that lets another one in tells it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) cluster: ClusterId,
    pub(crate) node: NodeId,
    /// Without tables.
    pub(crate) catalog: Catalog,
}

/// Asks nodes of a cluster, one after the other, to be let in.
///
/// # Errors
/// What the last one said when none did in time.
async fn join(config: &NodeConfig, request: &JoinRequest) -> Result<Welcome, String> {
    let began = Instant::now();
    let mut refusals = Refusals::default();
    let request = serde_json::to_vec(request).expect("requests have a JSON form");
    loop {
        let mut error = String::new();
        for seed in &config.join {
            let answer = tessera_transport::ask_stranger(seed, &config.secret, number::JOIN, &request).await;
            match answer.and_then(|answer| {
                serde_json::from_slice::<Result<Welcome, String>>(&answer).map_err(|error| error.to_string())?
            }) {
                Ok(welcome) => return Ok(welcome),
                Err(reason) => error = format!("{seed}: {reason}"),
            }
        }
        if began.elapsed() >= PATIENCE {
            return Err(error);
        }
        if refusals.is_news(&error, Instant::now()) {
            let left = PATIENCE.saturating_sub(began.elapsed()).as_secs();
            tracing::warn!(error, "not let into the cluster yet; trying for {left} seconds more");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What was said last of why a node is not let in, and when.
#[derive(Default)]
struct Refusals(Option<(String, Instant)>);

impl Refusals {
    /// Whether this is to be said now: another reason at once, the same one every now and then.
    fn is_news(&mut self, reason: &str, now: Instant) -> bool {
        let is_known = self.0.as_ref().is_some_and(|(said, at)| said == reason && now - *at < REMINDER);
        if !is_known {
            self.0 = Some((reason.into(), now));
        }
        !is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It once was said three times a second, for two minutes.
    #[test]
    fn why_a_node_is_not_let_in_is_said_once_and_then_rarely() {
        let (began, mut refusals) = (Instant::now(), Refusals::default());
        let mut said = |reason: &str, seconds: u64| refusals.is_news(reason, began + Duration::from_secs(seconds));
        assert!(said("refused", 0));
        assert!(!said("refused", 1) && !said("refused", 9));
        assert!(said("refused", 10) && !said("refused", 19));
        assert!(said("too many nodes", 19) && !said("too many nodes", 20));
        assert!(said("refused", 20), "it is another reason than the last one");
    }

    /// A node that is killed before it has read the answer to its join must not ask as somebody else: the cluster would keep the
    /// number that it gave for nobody.
    #[test]
    fn a_node_that_starts_again_asks_to_be_let_in_with_the_same_token() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("join.json");
        let first = join_token(&path).unwrap();
        assert_eq!(join_token(&path).unwrap(), first, "read from the disk");
        let another = join_token(&directory.path().join("another.json")).unwrap();
        assert_ne!(another, first);
    }
}
