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
use crate::open_error::OpenError;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use tessera_cluster::{
    CATALOG_GROUP, CatalogFile, Outcome, Recovery, RecoveryError, Survey, SurveyedReplica, catalog_replica, load_json,
    recover, save_json,
};
use tessera_consensus::log::{LogBatch, LogRecord, RecoveredGroup};
use tessera_consensus::{GroupId, Inconsistent, LogError, LoggedReplica, SharedLog, begin_at, leave_alone};
use tessera_store::hosting::group_of;
use tessera_transport::Identity;
use tessera_types::{ClusterId, Limits, NodeId, ReplicaId, UnixMillis};

/// Why nothing can be done with a data directory.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    /// The directory has no identity of a node.
    #[error("{0} is no data directory of a node")]
    NoNode(PathBuf),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The system refused an operation on a file.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// What the log has of a group contradicts itself.
    #[error("the log of group {group}: {source}")]
    Group {
        /// The number of the group.
        group: u64,
        /// The contradiction.
        source: Inconsistent,
    },
    /// The catalog in the log cannot be applied, for this reason.
    #[error("the catalog in the log: {0}")]
    Catalog(String),
    /// Surveys of other nodes were given, and none of this node.
    #[error("among the surveys there must be one of this node, {0}, if there are any")]
    NotAmongSurveys(NodeId),
    /// The node was started after its survey was written.
    #[error(
        "the data directory of this node is not what its survey found: the node was started meanwhile. Stop all nodes, and \
         write all surveys anew"
    )]
    SurveyOutdated,
    /// The surveys do not allow a decision.
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

    /// The node to which the data directory belongs.
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
                let is_founder = placement.initial_members.contains(&replica);
                let initial_members = if is_founder { &placement.initial_members[..] } else { &[] };
                let logged = LoggedReplica::read(held(group), initial_members)
                    .map_err(|source| RecoverError::Group { group: group.0, source })?;
                replicas.insert(group.0, SurveyedReplica { replica, logged });
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
    let initial_members = if replica == founder { vec![founder] } else { Vec::new() };
    let mut logged = LoggedReplica::read(recovered, &initial_members)
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
    Ok(SurveyedReplica { replica, logged })
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
    let note = recovery.catalog.recoveries().last();
    let [alone, may_lack, begun_anew] = note.map_or([0; 3], |note| [note.alone, note.may_lack, note.begun_anew]);
    tracing::warn!(
        lost,
        cluster = %recovery.cluster,
        alone,
        may_lack,
        begun_anew,
        "going on without nodes that are lost for good, as an operator has said; recovery.json says what becomes of each partition"
    );
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::TestNode;
    use bytes::Bytes;
    use tessera_cluster::{Catalog, CatalogCommand, Site};
    use tessera_consensus::LogConfig;
    use tessera_consensus::log::StoredEntry;
    use tessera_types::{Durability, EngineKind, Model, Partitioner, TableId, TableSchema, TableSettings};

    /// The data directory of the first of two nodes, as if it had been stopped: a table `t` of one partition, which is on both.
    fn one_of_two(root: &Path) -> TableId {
        let directory = DataDirectory::open(root).unwrap();
        let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        let mut apply = |command: CatalogCommand| _ = catalog.apply(&command, &Limits::default()).unwrap();
        apply(CatalogCommand::AddNode { site: Site::default(), token: None });
        apply(CatalogCommand::Arrived { node: NodeId(2), has_vote: false });
        let schema = TableSchema {
            engine: EngineKind::Rocksdb,
            partitions: 1,
            partitioner: Partitioner::default(),
            model: Model::default(),
            primary_key: None,
            durability: Durability::Hard,
            replicas: 2,
        };
        let (settings, absent) = (TableSettings::default(), BTreeSet::new());
        let before = catalog.clone();
        let create = CatalogCommand::Create { name: "t".into(), schema, settings, absent };
        catalog.apply(&create, &Limits::default()).unwrap();
        let table = catalog.by_name("t").unwrap().clone();
        // The catalog's file lags behind the log, which has a change that nobody knows to be committed.
        CatalogFile { applied_index: 3, catalog: before }.save(&directory.catalog()).unwrap();
        let (from, node) = (ClusterId(7), ReplicaId { node: NodeId(1), incarnation: 0 });
        identity::save_recovered(&directory.identity(), from, node).unwrap();
        boot::begin(&directory.boot(), false).unwrap();
        generation::begin(&directory.generation(), &directory.lock(), 0).unwrap();
        let mut held: std::collections::BTreeMap<u64, ReplicaId> = catalog
            .tables()
            .flat_map(|table| (0..).zip(&table.placement).map(|(partition, it)| (table.id, partition, it)))
            .filter_map(|(id, partition, it)| Some((group_of(id, partition).0, it.on(NodeId(1))?)))
            .collect();
        held.insert(1 << 40, node); // of a table that is gone
        save_json(&directory.replicas(), &held).unwrap();
        let (log, _) = SharedLog::open(&directory.log(), &LogConfig::default()).unwrap();
        let both = vec![node, ReplicaId { node: NodeId(2), incarnation: 0 }];
        let (of_catalog, mut records) = begin_at(CATALOG_GROUP, (1, 3), &both, &[]);
        assert_eq!(of_catalog.truncated, (3, 1));
        let payload = Bytes::from(serde_json::to_vec(&create).unwrap());
        let entry = StoredEntry { index: 4, term: 1, kind: 0, payload };
        records.push(LogRecord::Entries { group: CATALOG_GROUP, entries: vec![entry] });
        let entry = |index| StoredEntry { index, term: 1, kind: 0, payload: Bytes::new() };
        let entries = (1..=5).map(entry).collect();
        records.push(LogRecord::Entries { group: group_of(table.id, 0), entries });
        log.submit(LogBatch { records, ..LogBatch::default() });
        log.wait_synced().unwrap();
        log.close();
        table.id
    }

    #[test]
    fn what_is_decided_is_carried_out_once_however_often_it_is_begun() {
        let data = tempfile::TempDir::new().unwrap();
        let root = data.path().join("data");
        let table = one_of_two(&root);
        let lost = BTreeSet::from([NodeId(2)]);
        let group = group_of(table, 0);
        {
            let node = StoppedNode::open(&root).unwrap();
            let survey = node.survey().unwrap();
            assert!(survey.catalog.catalog.by_name("t").is_some(), "what is in the log counts");
            assert_eq!((survey.catalog_replica.logged.end, survey.replicas[&group.0].logged.end), ((1, 4), (1, 5)));
            let outdated = Survey { starts: 0, ..survey.clone() };
            let refused = StoppedNode::decide(survey.clone(), &[outdated], &lost);
            assert!(matches!(refused, Err(RecoverError::SurveyOutdated)));
            let recovery = StoppedNode::decide(survey, &[], &lost).unwrap();
            node.write_down(&recovery).unwrap();
            assert_eq!(node.due().unwrap(), Some(recovery));
        }
        let directory = DataDirectory::open(&root).unwrap();
        let identity = || identity::load(&directory.identity()).unwrap().unwrap();
        let recovery = due(&directory, &identity()).unwrap().unwrap();
        let before = std::fs::read(directory.identity()).unwrap();
        let mut outcomes = Vec::new();
        for _ in 0..2 {
            let (log, mut recovered) = SharedLog::open(&directory.log(), &LogConfig::default()).unwrap();
            let file = carry_out(&directory, &identity(), &recovery, &log, &mut recovered).unwrap();
            log.close();
            let on_disk = SharedLog::read(&directory.log()).unwrap();
            assert_eq!((&on_disk[&group], &on_disk[&CATALOG_GROUP]), (&recovered[&group], &recovered[&CATALOG_GROUP]));
            outcomes.push((file, recovered));
            assert_eq!(due(&directory, &identity()).unwrap(), None, "it is done");
            // As if the process had been killed before the last step.
            std::fs::write(directory.identity(), &before).unwrap();
        }
        assert!(outcomes[0] == outcomes[1], "{outcomes:#?}");
    }

    #[tokio::test]
    async fn a_node_that_is_alone_lacks_nothing() {
        let node = TestNode::start(|_| ());
        node.create_table("t", 1).await;
        let stopped = |data: &Path| {
            let node = StoppedNode::open(data).unwrap();
            let refused = StoppedNode::decide(node.survey().unwrap(), &[], &BTreeSet::from([NodeId(2)]));
            assert!(matches!(refused, Err(RecoverError::Undecided(RecoveryError::OlderCopy(NodeId(1))))), "a copy");
        };
        let node = node.restart(stopped, |_| ());
        assert!(node.store.table_named("t").is_some());
    }
}
