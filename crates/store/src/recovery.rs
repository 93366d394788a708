//! A node goes on without others that are gone for good, as an operator has said.
//!
//! It is done in two steps, so that it is done as a whole or not at all. What is [decided](tessera_cluster::recover) is written
//! into the data directory while the node is stopped; until the node is started, removing that file undoes it. The next start
//! carries it out before anything else looks at the data: first the log is told of members, then the catalog is replaced, and in
//! the end the node takes the cluster's new name. A start that is cut short before that begins again from the front, and each step
//! done twice is as if done once.

use crate::boot;
use crate::data_directory::{DataDirectory, DataDirectoryError};
use crate::generation;
use crate::identity;
use crate::store::OpenError;
use crate::table::group_of;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use tessera_cluster::{
    CATALOG_GROUP, CatalogFile, Outcome, Recovery, RecoveryError, Survey, SurveyedReplica, catalog_replica, load_json,
    recover, save_json,
};
use tessera_consensus::log::{LogBatch, LogRecord, RecoveredGroup};
use tessera_consensus::{GroupId, Inconsistent, LogError, LoggedReplica, SharedLog, begin_at, leave_alone};
use tessera_transport::Identity;
use tessera_types::{ClusterId, Limits, NodeId, ReplicaId, UnixMillis};

/// Why nothing can be done with a data directory.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    #[error("{0} is no data directory of a node")]
    NoNode(PathBuf),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("the log of group {group}: {source}")]
    Group { group: u64, source: Inconsistent },
    #[error("the catalog in the log: {0}")]
    Catalog(String),
    #[error("among the surveys there must be one of this node, {0}, if there are any")]
    NotAmongSurveys(NodeId),
    #[error(
        "the data directory of this node is not what its survey found: the node was started meanwhile. Stop all nodes, and \
         write all surveys anew"
    )]
    SurveyOutdated,
    #[error(transparent)]
    Undecided(#[from] RecoveryError),
}

/// The data directory of a node that does not run.
pub struct StoppedNode {
    directory: DataDirectory,
    identity: Identity,
}

impl StoppedNode {
    /// # Errors
    /// If there is none, or it is in use.
    pub fn open(root: &Path) -> Result<Self, RecoverError> {
        if !root.join("node.json").exists() {
            return Err(RecoverError::NoNode(root.to_path_buf()));
        }
        let directory = DataDirectory::open(root)?;
        let path = directory.identity();
        let identity = identity::load(&path).map_err(|source| RecoverError::File { path, source })?;
        let identity = identity.ok_or_else(|| RecoverError::NoNode(root.to_path_buf()))?;
        Ok(Self { directory, identity })
    }

    pub fn node(&self) -> NodeId {
        self.identity.node
    }

    /// What has been written down to be carried out by the next start.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn due(&self) -> Result<Option<Recovery>, RecoverError> {
        let path = self.directory.recovery();
        due_in(&path, &self.identity).map_err(|source| RecoverError::File { path, source })
    }

    /// Looks at everything that the node holds and changes nothing.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn survey(&self) -> Result<Survey, RecoverError> {
        let directory = &self.directory;
        let file = |path: PathBuf| move |source| RecoverError::File { path, source };
        let groups = SharedLog::read(&directory.log())?;
        let none = RecoveredGroup::default();
        let held = |group: GroupId| groups.get(&group).unwrap_or(&none);
        let catalog: Option<CatalogFile> = load_json(&directory.catalog()).map_err(file(directory.catalog()))?;
        let mut catalog = catalog.unwrap_or_default();
        let own = identity::load_catalog_replica(&directory.identity()).map_err(file(directory.identity()))?;
        let catalog_replica = survey_of_catalog(own, held(CATALOG_GROUP), &mut catalog)?;
        let mut replicas = std::collections::BTreeMap::new();
        let held_here: Option<std::collections::BTreeMap<u64, ReplicaId>> =
            load_json(&directory.replicas()).map_err(file(directory.replicas()))?;
        let held_here = held_here.unwrap_or_default();
        for table in catalog.catalog.tables() {
            for (partition, placement) in (0..).zip(&table.placement) {
                let group = group_of(table.id, partition);
                let Some(replica) = held_here.get(&group.0).copied() else { continue };
                let is_founder = placement.founders.contains(&replica);
                let founders = if is_founder { &placement.founders[..] } else { &[] };
                let logged = LoggedReplica::read(held(group), founders)
                    .map_err(|source| RecoverError::Group { group: group.0, source })?;
                replicas.insert(group.0, SurveyedReplica::new(replica, logged));
            }
        }
        let has_lost_staged = SharedLog::has_lost_staged(&directory.log()).map_err(file(directory.log()))?;
        let has_lost_tail =
            has_lost_staged || boot::would_have_lost(&directory.boot()).map_err(file(directory.boot()))?;
        let is_copy = generation::is_copy(&directory.generation(), &directory.lock());
        let is_older_copy = is_copy.map_err(file(directory.generation()))?
            || boot::overtaken(&directory.boot()).map_err(file(directory.boot()))?.is_some();
        Ok(Survey {
            mark: ClusterId(rand::random()),
            at: UnixMillis::now(),
            cluster: self.identity.cluster,
            node: self.identity.node,
            starts: generation::starts(&directory.generation()).map_err(file(directory.generation()))?,
            has_lost_tail,
            is_older_copy,
            catalog,
            catalog_replica,
            replicas,
        })
    }

    /// Decides how to go on without the nodes that are lost, by what was just found here, and the surveys of all nodes that are
    /// left; none if this is the only one.
    ///
    /// # Errors
    /// Why that cannot be decided.
    pub fn decide(own: Survey, surveys: &[Survey], lost: &BTreeSet<NodeId>) -> Result<Recovery, RecoverError> {
        if surveys.is_empty() {
            return Ok(recover(&[own], lost, &|table, partition| group_of(table, partition).0)?);
        }
        let before = surveys.iter().find(|survey| survey.node == own.node);
        if !before.ok_or(RecoverError::NotAmongSurveys(own.node))?.is_same(&own) {
            return Err(RecoverError::SurveyOutdated);
        }
        Ok(recover(surveys, lost, &|table, partition| group_of(table, partition).0)?)
    }

    /// Has the next start carry it out.
    ///
    /// # Errors
    /// If it cannot be written down; then nothing has changed.
    pub fn write_down(&self, recovery: &Recovery) -> Result<(), RecoverError> {
        let path = self.directory.recovery();
        save_json(&path, recovery).map_err(|source| RecoverError::File { path, source })
    }
}

/// Takes what the log holds into the catalog, whether it is known to be committed or not.
fn survey_of_catalog(
    replica: ReplicaId,
    recovered: &RecoveredGroup,
    catalog: &mut CatalogFile,
) -> Result<SurveyedReplica, RecoverError> {
    let founder = catalog_replica(identity::FIRST_NODE);
    let founders = if replica == founder { vec![founder] } else { Vec::new() };
    let mut logged = LoggedReplica::read(recovered, &founders)
        .map_err(|source| RecoverError::Group { group: CATALOG_GROUP.0, source })?;
    let before = catalog.applied_index;
    for entry in recovered.entries.iter().filter(|entry| entry.index > before) {
        if entry.index != catalog.applied_index + 1 {
            return Err(RecoverError::Catalog(format!("entry {} is missing", catalog.applied_index + 1)));
        }
        let payload = entry.is_command().then_some(&entry.payload[..]);
        catalog.apply(entry.index, payload, &Limits::default()).map_err(RecoverError::Catalog)?;
    }
    if let Some(taken) = recovered.restoring.as_ref().filter(|taken| catalog.applied_index >= taken.index) {
        logged.end = logged.end.max((taken.term, taken.index));
    }
    Ok(SurveyedReplica::new(replica, logged))
}

fn due_in(path: &Path, identity: &Identity) -> io::Result<Option<Recovery>> {
    let recovery: Option<Recovery> = load_json(path)?;
    Ok(recovery.filter(|recovery| recovery.from == identity.cluster && recovery.left.contains(&identity.node)))
}

/// What this start is to carry out.
pub(crate) fn due(directory: &DataDirectory, identity: &Identity) -> Result<Option<Recovery>, OpenError> {
    due_in(&directory.recovery(), identity).map_err(|error| OpenError::File("recovery.json", error))
}

/// Carries it out. Returns the catalog from now on.
pub(crate) fn carry_out(
    directory: &DataDirectory,
    identity: &Identity,
    recovery: &Recovery,
    log: &SharedLog,
    recovered: &mut HashMap<GroupId, RecoveredGroup>,
) -> Result<CatalogFile, OpenError> {
    let lost = recovery.lost.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    tracing::warn!(lost, cluster = %recovery.cluster, "going on without nodes that are lost for good, as an operator has said");
    for it in &recovery.partitions {
        let (table, partition) = (&it.name, it.partition);
        match it.outcome {
            Outcome::GoesOn { replica, end, lacks: Some(lacks), .. } => {
                tracing::warn!(table, partition, %replica, index = end.1, ?lacks, "it goes on with what is left, and may lack acknowledged writes");
            }
            Outcome::BeginsAnew { had_log: true } => {
                tracing::warn!(table, partition, "nothing is left of it; it begins anew");
            }
            _ => {}
        }
    }
    let records = tell_log(identity.node, recovery, recovered);
    log.submit(LogBatch { records, ..LogBatch::default() });
    log.wait_synced()?;
    let failed = |file: &'static str| move |error| OpenError::File(file, error);
    generation::forget_others(&directory.peers(), &recovery.left).map_err(failed("peers.json"))?;
    let file = CatalogFile { applied_index: recovery.catalog_end.1, catalog: recovery.catalog.clone() };
    file.save(&directory.catalog()).map_err(failed("catalog.json"))?;
    // The last step: with the new name nothing of this is due any more.
    let replica = recovery.catalog.catalog_replica(identity.node);
    identity::save_recovered(&directory.identity(), recovery.cluster, replica).map_err(failed("node.json"))?;
    Ok(file)
}

/// Changes what the log holds of groups, and returns what it is to be told.
fn tell_log(node: NodeId, recovery: &Recovery, recovered: &mut HashMap<GroupId, RecoveredGroup>) -> Vec<LogRecord> {
    let mut records = Vec::new();
    for it in &recovery.partitions {
        if let Outcome::GoesOn { replica, .. } = it.outcome
            && replica.node == node
        {
            let group = group_of(it.table, it.partition);
            records.extend(leave_alone(group, recovered.entry(group).or_default(), replica));
        }
    }
    let (voters, learners) = (&recovery.catalog_voters, &recovery.catalog_learners);
    let (catalog, of_catalog) = begin_at(CATALOG_GROUP, recovery.catalog_end, voters, learners);
    recovered.insert(CATALOG_GROUP, catalog);
    records.extend(of_catalog);
    records
}
