//! What every face calls: the tables of a node, what it knows of its cluster, and writes on their way to partitions.

use crate::cluster_view::ClusterView;
use crate::coordination::Coordination;
use crate::disk_readers::DiskReaders;
use crate::disk_refusals::DiskRefusals;
use crate::face_meter::{FaceMeter, FaceMeters};
use crate::known_starts::KnownStarts;
use crate::ledger::Evaluator;
use crate::operation::{Operation, PendingReply, WriteCommand, WriteOptions};
use crate::registry::Registry;
use crate::router::Outcomes;
use crate::services::Services;
use crate::store_parts::StoreParts;
use crate::table::{Table, TableIdentity};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_cluster::{Catalog, CatalogRequest};
use tessera_consensus::{Inbox, LogStatus};
use tessera_transport::Transport;
use tessera_types::{ClusterId, NodeId, RequestError, TableId, TableNumber, UnixMillis};
use tokio::sync::Notify;

/// How long a node that has just started waits to hear what tables there are.
const CATALOG_SILENCE: Duration = Duration::from_secs(10);
/// A node not heard of for so long is not asked for anything. One that lives is heard of four times as often.
pub const QUIET: Duration = Duration::from_secs(2);
/// A node not heard of for so long is called silent.
const SILENT: Duration = Duration::from_secs(5);

/// The store of one node. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    parts: Arc<StoreParts>,
    services: Arc<Services>,
    coordination: Arc<Coordination>,
    face_meters: Arc<FaceMeters>,
    disk_refusals: Arc<DiskRefusals>,
    known_starts: Arc<KnownStarts>,
}

impl Store {
    /// A store of these parts, with no face registered yet.
    pub fn new(parts: StoreParts) -> Self {
        let parts = Arc::new(parts);
        let coordination = Arc::new(Coordination::new(parts.clone()));
        let (services, face_meters, disk_refusals) = Default::default();
        let known_starts = Arc::new(KnownStarts::new(parts.identity.node, parts.identity.generation.number));
        Self { services, coordination, face_meters, disk_refusals, known_starts, parts }
    }

    pub(crate) fn parts(&self) -> &StoreParts {
        &self.parts
    }

    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    pub(crate) fn coordination(&self) -> &Arc<Coordination> {
        &self.coordination
    }

    pub(crate) fn face_meters(&self) -> &FaceMeters {
        &self.face_meters
    }

    /// Has the operations of a face that are parts of [transactions over partitions](Self::transact) evaluated here, as long as
    /// `evaluator` is there. The face has a service of its own, by number.
    ///
    /// # Panics
    /// If the service has an evaluator already.
    pub fn evaluate_for<E: Evaluator + 'static>(&self, service: u8, evaluator: &Arc<E>) {
        self.coordination.add(service, evaluator);
    }

    /// A meter for a face of this name, with its commands, and for each whether it looks for keys.
    ///
    /// # Panics
    /// If there are more than four faces.
    pub fn meter_face(
        &self,
        name: &'static str,
        commands: impl IntoIterator<Item = (&'static str, bool)>,
    ) -> Arc<FaceMeter> {
        self.face_meters.add(name, commands)
    }

    /// Who reads what the disk must be waited for.
    pub fn disk_readers(&self) -> &DiskReaders {
        &self.parts.disk_readers
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.parts.transport
    }

    pub(crate) fn view(&self) -> &ClusterView {
        &self.parts.view
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.parts.registry
    }

    pub(crate) fn leader_news(&self) -> &Notify {
        &self.parts.leader_news
    }

    pub(crate) fn catalog_inbox(&self) -> &Inbox<CatalogRequest> {
        &self.parts.catalog_inbox
    }

    /// Waits until this node knows what tables there are: one that has just joined does not, and what a node knows from before its
    /// start may have been dropped, and made anew under the same name, since. If no majority of the catalog's nodes can be heard for
    /// [`CATALOG_SILENCE`], what the node knows will do.
    pub async fn wait_until_tables_are_known(&self) {
        let began = Instant::now();
        let has_tables = || self.registry().tables().active().next().is_some();
        while !self.view().knows_catalog() && !self.is_removed() && (began.elapsed() < CATALOG_SILENCE || !has_tables())
        {
            let opened = self.leader_news().notified();
            let _ = tokio::time::timeout(Duration::from_millis(50), opened).await;
        }
    }

    /// Waits until every partition serves, or `timeout` is over. Returns whether they all do.
    pub async fn wait_until_serving(&self, timeout: Duration) -> bool {
        let all = async {
            loop {
                let opened = self.leader_news().notified();
                if self.is_serving() {
                    return;
                }
                // The pause covers a table that appears between the check and the wait.
                let _ = tokio::time::timeout(Duration::from_millis(50), opened).await;
            }
        };
        tokio::time::timeout(timeout, all).await.is_ok()
    }

    /// Whether every partition of every table has a leader, here or on another node that is not silent.
    pub fn is_serving(&self) -> bool {
        let tables = self.registry().tables();
        let led = |table: &Arc<Table>| (0..table.schema.partitions).all(|at| self.live_leader(table, at).is_some());
        !self.is_removed() && tables.active().next().is_some() && tables.active().all(led)
    }

    /// Partitions without a leader, of any table that is open here, one that takes what another is split into among them.
    pub fn leaderless(&self, id: TableId) -> usize {
        let Some(table) = self.registry().any(id) else { return 0 };
        (0..table.schema.partitions).filter(|partition| self.live_leader(&table, *partition).is_none()).count()
    }

    /// The node that leads a partition, unless it is [silent](Self::is_silent): what is known of a leader stays known when its node
    /// is lost.
    pub fn live_leader(&self, table: &Table, partition: u32) -> Option<NodeId> {
        table.known_leader(partition).filter(|leader| !self.is_silent(*leader))
    }

    /// The active table with this identifier.
    pub fn table(&self, id: TableId) -> Option<Arc<Table>> {
        self.registry().with(|tables| tables.active_by_id(id).cloned())
    }

    /// The active table that another node means.
    pub fn table_identified(&self, identity: TableIdentity) -> Option<Arc<Table>> {
        self.table(identity.id).filter(|table| table.identity() == identity)
    }

    /// The active table with this number.
    pub fn table_numbered(&self, number: TableNumber) -> Option<Arc<Table>> {
        self.registry().with(|tables| tables.numbered(number).cloned())
    }

    /// The active table of this name.
    pub fn table_named(&self, name: &str) -> Option<Arc<Table>> {
        self.registry().with(|tables| tables.named(name).cloned())
    }

    /// Active tables by number.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.registry().with(|tables| tables.active().cloned().collect())
    }

    /// Has an operation that only reads carried out by the partitions' loops, confirmed by a majority of each partition's
    /// replicas: linearizable whatever clocks do.
    pub fn read_confirmed(
        &self,
        table: &Table,
        operation: &Arc<dyn Operation>,
        partitions: impl IntoIterator<Item = u32>,
    ) {
        let command = |(part, partition)| {
            let reply = PendingReply::new(operation.clone(), part);
            (partition, WriteCommand { confirm: true, ..WriteCommand::new(reply) })
        };
        for (command, error) in self.parts.inboxes.submit_all(table, partitions.into_iter().enumerate().map(command)) {
            command.pending_reply.answer(Err(error));
        }
    }

    /// The catalog as this node knows it.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.view().catalog()
    }

    /// Another number whenever a user of the cluster has been changed, as far as this node knows.
    pub fn user_changes(&self) -> u64 {
        self.view().user_changes()
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.parts.identity.node
    }

    /// The name of the cluster.
    pub fn cluster(&self) -> ClusterId {
        self.parts.identity.cluster
    }

    /// The node that leads the catalog, as far as this one knows.
    pub fn catalog_leader(&self) -> Option<NodeId> {
        self.view().catalog_leader()
    }

    /// How old the catalog that this node knows may be. `None` if the node has not heard since its start what the catalog's leader has.
    pub fn catalog_age(&self) -> Option<Duration> {
        self.view().catalog_age()
    }

    /// Whether this node is the only one of its cluster. One that was removed is not, though another one may be.
    pub fn is_alone(&self) -> bool {
        self.view().is_alone() && !self.is_removed()
    }

    /// Whether this node was removed from its cluster, as another node has said. It serves nothing any more.
    pub fn is_removed(&self) -> bool {
        self.view().is_removed()
    }

    /// How long ago another node was last heard of.
    pub fn silence(&self, node: NodeId) -> Option<Duration> {
        self.transport().silence(node)
    }

    /// Why another node cannot be reached, by the latest attempt; `None` while it is connected.
    pub fn trouble(&self, node: NodeId) -> Option<String> {
        self.transport().trouble(node)
    }

    /// Whether a node is this one, or was heard of within the last seconds.
    pub fn is_heard(&self, node: NodeId) -> bool {
        node == self.node() || self.silence(node).is_some_and(|silence| silence < QUIET)
    }

    /// Whether a node is another one, and was not heard of for five seconds, or never.
    pub fn is_silent(&self, node: NodeId) -> bool {
        node != self.node() && self.silence(node).is_none_or(|silence| silence > SILENT)
    }

    /// Has requests that clients made to other nodes carried out here, as long as the face's server is there. The face has a service
    /// of its own, by number.
    ///
    /// # Panics
    /// If another one has that number.
    pub fn serve_face<S: Send + Sync + 'static>(
        &self,
        service: u8,
        server: &Arc<S>,
        serve: impl Fn(Arc<S>, Bytes) -> Outcomes + Send + Sync + 'static,
    ) {
        self.services().add(service, server, serve);
    }

    /// Sends each part of an operation to its partition: the first to `partitions[0]`, and so on. It is answered on its
    /// own, also when this refuses it.
    ///
    /// Cancellation: none; once sent, an operation runs to its end.
    pub fn write(
        &self,
        table: &Table,
        options: WriteOptions,
        operation: &Arc<dyn Operation>,
        partitions: impl IntoIterator<Item = u32>,
    ) {
        self.parts.write(table, options, false, operation, partitions);
    }

    /// The time by which records expire: not this node's clock, but the median of the clocks of all nodes.
    pub fn now(&self) -> UnixMillis {
        self.parts.clock.now()
    }

    /// What [`Self::now`] was at a moment a while ago, for whoever has looked at a clock already.
    pub fn time_at(&self, moment: Instant) -> UnixMillis {
        self.parts.clock.time_at(moment)
    }

    /// When records of a table dropped now are purged, by the [cluster's time](Self::now).
    pub fn purge_time(&self) -> UnixMillis {
        let retention = u64::try_from(self.parts.drop_retention.as_millis()).unwrap_or(u64::MAX);
        self.now().checked_add_millis(retention).unwrap_or(UnixMillis::new(u64::MAX))
    }

    /// Notes why a node takes no writes of tables with a log, if it does not: its disk is full, or has failed.
    pub fn note_disk_refusal(&self, node: NodeId, reason: Option<RequestError>) {
        self.disk_refusals.note(node, reason);
    }

    pub(crate) fn disk_refusals(&self) -> &DiskRefusals {
        &self.disk_refusals
    }

    /// Notes that another node is there as of a start with this number.
    pub fn note_start(&self, node: NodeId, start: u64) {
        self.known_starts.note(node, start);
    }

    pub(crate) fn known_starts(&self) -> &KnownStarts {
        &self.known_starts
    }

    /// Whether the log takes writes now.
    pub fn log_status(&self) -> LogStatus {
        self.parts.log.status()
    }
}
