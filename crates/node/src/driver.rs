//! What makes the cluster what the catalog says: a round twice a second, on every node for the groups it leads, and on the
//! node that leads the catalog for all.

use crate::compactions::Compactions;
use crate::comparison;
use crate::message;
use crate::node_context::NodeContext;
use crate::presence::Watch;
use crate::split::{self, Copiers};
use crate::status_query::query_status;
use crate::survivors::AwaitedSurvivors;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_cluster::{
    CATALOG_GROUP, Catalog, CatalogCommand, Presence, Standing, Step, has_target_members, next_catalog_step,
    next_moves, next_step, next_trade, renewal, replacement,
};
use tessera_consensus::{GroupId, GroupView, KEPT_FOR_LAGGARDS, LogStatus};
use tessera_store::hosting::{QUIET, encode_reason, number, partition_of_group};
use tessera_types::{NodeId, ReplicaId, RequestError, UnixMillis};

const ROUND: Duration = Duration::from_millis(500);
/// Partitions that move at one time.
const MOVES: usize = 4;
/// Groups led by a node not heard of for so long look for another leader; nodes that live are heard of twice as often.
const SILENT: Duration = Duration::from_secs(1);
/// For how long after a node was started again groups that rest look for another leader than the one that it was.
const STARTED: Duration = Duration::from_secs(3);
/// How long after asking a replica to lead it is asked again.
const HAND_OVER_PAUSE: Duration = Duration::from_secs(10);
/// How long a node that starts waits before it says what it has forgotten. Leases that rest on what it had promised are
/// over by then.
const FORGETFUL: Duration = Duration::from_secs(1);
/// Rounds between two reminders of who leads what.
const REMINDER: u64 = 20;
/// Rounds after which this node reports to all others what clients ask of its partitions.
const TRAFFIC: u64 = 10;

/// Runs until it is dropped.
pub(crate) async fn run(context: Arc<NodeContext>) {
    let mut rounds = Reconciler {
        context,
        began: Instant::now(),
        watch: Watch::new(),
        handed_over: HashMap::new(),
        awaited: AwaitedSurvivors::default(),
        shuns_leading: false,
        copiers: Arc::default(),
        compactions: Compactions::default(),
        traded: Instant::now(),
    };
    rounds.context.begin_to_take_part().await;
    tokio::spawn(comparison::run(rounds.context.clone()));
    tokio::spawn(rounds.context.store.clone().finish_transactions());
    let mut interval = tokio::time::interval(ROUND);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for number in 0.. {
        interval.tick().await;
        rounds.round(number).await;
    }
}

struct Reconciler {
    context: Arc<NodeContext>,
    began: Instant,
    watch: Watch,
    handed_over: HashMap<GroupId, Instant>,
    awaited: AwaitedSurvivors,
    /// Whether others were asked to lead, since the disk here takes nothing.
    shuns_leading: bool,
    copiers: Arc<Copiers>,
    compactions: Compactions,
    /// When it was last asked what evens out bytes and load.
    traded: Instant,
}

impl Reconciler {
    async fn round(&mut self, number: u64) {
        self.context.dial_peers();
        self.context.follow_clocks();
        self.context.replace_catalog_that_is_aside().await;
        self.context.wake_what_waits();
        let context = self.context.clone();
        let settled = tokio::task::spawn_blocking(move || context.make_room().and(context.reconcile_replicas())).await;
        if let Ok(Err(error)) = settled {
            tracing::warn!(%error, "replicas that are to be here cannot be begun; trying again");
        }
        if self.began.elapsed() >= FORGETFUL {
            self.tell_what_is_lost().await;
        }
        self.leave_leading_to_sound_disks().await;
        let context = self.context.clone();
        let looked_after = tokio::task::spawn_blocking(move || context.look_after_damage()).await;
        if let Ok(Err(error)) = looked_after {
            tracing::warn!(%error, "damaged files could not be looked after; trying again");
        }
        self.context.replace_damaged(MOVES).await;
        self.context.tell_fetches();
        self.context.drop_unused_snapshots();
        self.context.drop_left_over_fetches();
        self.copiers.begin(&self.context);
        split::resume_stopped(&self.context);
        self.compactions.begin_due(&self.context, UnixMillis::now());
        if number.is_multiple_of(REMINDER) {
            self.context.tell_leading(None);
            self.context.tell_differences();
            self.context.tell_damage();
        }
        if number.is_multiple_of(TRAFFIC) {
            let context = self.context.clone();
            // It fails only if it panics, which is reported.
            let _ = tokio::task::spawn_blocking(move || {
                context.traffic.tell(&context.registry, &context.transport, context.identity.node)
            })
            .await;
        }
        let presence = self.watch.look(&self.context);
        let (mut done, mut led, mut lost, mut survivors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for inbox in self.context.inboxes.clone().all() {
            for view in query_status(inbox).await {
                self.context.wake_if_somebody_waits(&view);
                if view.is_serving {
                    if self.context.view.knows_catalog() {
                        self.move_on(&view, &presence, &mut done);
                    }
                    led.extend(self.context.tells_that_it_leads(&view));
                    survivors.extend(self.context.tells_who_votes(&view));
                } else if !view.unreachable_by_log.is_empty() {
                    lost.extend(self.context.help_unreachable(&view));
                } else if view.leader.is_none() {
                    survivors.extend(self.context.survives(&view));
                }
            }
        }
        done.extend((!led.is_empty()).then_some(CatalogCommand::Led { groups: led }));
        done.extend((!lost.is_empty()).then_some(CatalogCommand::Amnesiac { replicas: lost }));
        done.extend((!survivors.is_empty()).then_some(CatalogCommand::Survived { replicas: survivors }));
        for command in done {
            self.change(command).await;
        }
        let catalog = query_status(&self.context.catalog_inbox).await;
        if let Some(view) = catalog.iter().find(|view| view.id == CATALOG_GROUP && view.is_serving) {
            self.lead_catalog(view, &presence).await;
        }
        self.context.addresses.keep(&self.context.store, &self.context.config.site);
    }

    /// A node whose log or engines take nothing lets others lead what they can, until it does again.
    async fn leave_leading_to_sound_disks(&mut self) {
        let refusal = self.context.disk_refusal();
        self.context.store.note_disk_refusal(self.context.identity.node, refusal.clone());
        if let Some(reason) = refusal {
            if !self.shuns_leading {
                tracing::warn!(%reason, "the disk takes no writes; other nodes are to lead what is led here");
            }
            self.shuns_leading = true;
            let mut payload = Vec::new();
            encode_reason(&mut payload, &reason);
            self.context.transport.broadcast(message::STOPS, &payload);
            self.context.hand_over_once(&mut BTreeSet::new()).await;
        } else if std::mem::take(&mut self.shuns_leading) {
            self.context.transport.broadcast(message::STAYS, &[]);
        }
    }

    /// A step of a group that this node leads towards the members that the catalog wants.
    fn move_on(&mut self, view: &GroupView, presence: &Presence, done: &mut Vec<CatalogCommand>) {
        let context = self.context.clone();
        let Some((table, partition)) = partition_of_group(view.id) else { return };
        let catalog = context.view.catalog();
        let Some(entry) = catalog.get(table) else { return };
        let Some(placement) = entry.placement.get(partition as usize) else { return };
        // A witness does not keep the log for ever for a replica that is away.
        let laggard = view.voters.iter().find(|id| !presence.may_lead(id.node));
        if let Some(laggard) = laggard.filter(|_| view.unreplicated_bytes > KEPT_FOR_LAGGARDS as u64)
            && view.voters.iter().any(|voter| voter.is_witness())
        {
            done.extend(replacement(&catalog, presence, table, partition, laggard.node));
        }
        match next_step(view, placement, presence) {
            Step::Change(changes) => context.inbox_of(table, partition).change_members(view.id, changes),
            Step::TransferLeadership(to) => {
                let lately = self.handed_over.get(&view.id).is_some_and(|at| at.elapsed() < HAND_OVER_PAUSE);
                if !lately && !context.damage.is_damaged(view.id, to) {
                    self.handed_over.insert(view.id, Instant::now());
                    context.inbox_of(table, partition).transfer_leadership(view.id, to);
                }
                // Its members are as wanted; only another one of them is to lead.
                if placement.is_moving() && has_target_members(view, &placement.target) {
                    done.push(CatalogCommand::moved(table, partition, placement));
                }
            }
            Step::Done if placement.is_moving() => done.push(CatalogCommand::moved(table, partition, placement)),
            Step::Done | Step::Wait => {}
        }
    }

    async fn change(&self, command: CatalogCommand) {
        match self.context.store.change_catalog(command.clone()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%command, %error, "refused by the catalog"),
            Err(RequestError::ShuttingDown) => {}
            Err(error) => tracing::debug!(%command, %error, "the catalog could not be changed; trying again"),
        }
    }

    async fn tell_what_is_lost(&self) {
        let replicas = self.context.lost_here();
        if replicas.is_empty() {
            return self.context.note_renewed();
        }
        tracing::info!(
            replicas = replicas.len(),
            "what was here has forgotten its votes, or is set aside; others are to take its place"
        );
        self.change(CatalogCommand::Amnesiac { replicas }).await;
    }

    /// What the node that leads the catalog does for the cluster.
    async fn lead_catalog(&mut self, view: &GroupView, presence: &Presence) {
        let context = self.context.clone();
        let catalog = context.view.catalog();
        for node in catalog.nodes().filter(|node| node.is_expected && presence.is_here(node.id)) {
            self.change(CatalogCommand::Arrived { node: node.id, has_vote: false }).await;
        }
        let has_vote = |node: NodeId| view.voters.iter().any(|voter| voter.node == node);
        for node in catalog.nodes().filter(|node| node.is_new && !node.is_expected && has_vote(node.id)) {
            self.change(CatalogCommand::Arrived { node: node.id, has_vote: true }).await;
        }
        let nodes: Vec<NodeId> = catalog.nodes().filter(|node| !node.is_expected).map(|node| node.id).collect();
        let members: Vec<_> = view.voters.iter().chain(&view.learners).copied().collect();
        let renewal = renewal(view.replica, &members, &catalog, nodes.iter().copied()).filter(|_| !view.is_changing);
        let renewal = renewal.map(|change| Step::Change(vec![change]));
        let leaving = catalog.nodes().filter(|node| node.is_draining).map(|node| node.id).collect();
        match renewal.unwrap_or_else(|| next_catalog_step(view, &nodes, &leaving, presence)) {
            Step::Change(changes) => context.catalog_inbox.change_members(CATALOG_GROUP, changes),
            Step::TransferLeadership(to) => context.catalog_inbox.transfer_leadership(CATALOG_GROUP, to),
            Step::Done | Step::Wait => {}
        }
        let lost = context.lost_elsewhere(&presence.below(Standing::Away, nodes.iter().copied()));
        if !lost.is_empty() {
            self.change(CatalogCommand::Amnesiac { replicas: lost }).await;
        }
        let groups = self.awaited.given_up(&catalog, |node| presence.is_here(node), Instant::now());
        if !groups.is_empty() {
            tracing::warn!(
                partitions = groups.len(),
                "partitions of tables without a log begin anew, empty: most of their replicas have ended, and none that is left can \
                 know that it has everything"
            );
            self.change(CatalogCommand::BeginAnew { groups }).await;
        }
        let moving =
            catalog.tables().flat_map(|table| &table.placement).filter(|placement| placement.is_moving()).count();
        let is_led = |table, partition| {
            let leader = context.registry.any(table).and_then(|table| table.known_leader(partition));
            leader.is_some_and(|leader| presence.is_here(leader))
        };
        let mut moves = next_moves(&catalog, presence, MOVES, &is_led);
        if moves.is_empty() && moving == 0 {
            moves = self.next_trade(&catalog, &nodes, presence);
        }
        for command in moves {
            if let CatalogCommand::Place { table, partition, nodes, witness } = &command {
                let nodes: Vec<_> = nodes.iter().map(NodeId::to_string).collect();
                let witness = witness.map_or("none".into(), |witness| witness.to_string());
                tracing::info!(%table, partition, nodes = %nodes.join(", "), %witness, "replicas of a partition are to move");
            }
            self.change(command).await;
        }
    }

    /// What evens out bytes and load, now and then.
    fn next_trade(&mut self, catalog: &Catalog, nodes: &[NodeId], presence: &Presence) -> Vec<CatalogCommand> {
        let interval = self.context.config.balance_interval;
        if interval.is_zero() || self.traded.elapsed() < interval {
            return Vec::new();
        }
        self.traded = Instant::now();
        let unfit = presence.below(Standing::Steady, catalog.nodes().map(|node| node.id));
        let live = nodes.iter().copied().filter(|node| presence.of(*node) != Standing::Lost).collect();
        let weights = self.context.traffic.weights(&live);
        weights.map(|weights| next_trade(catalog, &unfit, &weights)).unwrap_or_default()
    }
}

/// How long a node that stops waits for others to lead.
const HAND_OVER: Duration = Duration::from_secs(3);

impl NodeContext {
    /// Lets other nodes lead what this one leads, as far as they can, and answers what it has taken, so that clients of other nodes
    /// notice nothing when it stops. What it has taken may only be answered once the new leader has told that it counts.
    pub(crate) async fn transfer_leaderships(&self) {
        let began = Instant::now();
        self.transport.broadcast(message::STOPS, &[]);
        let mut asked = BTreeSet::new();
        while began.elapsed() < HAND_OVER && self.hand_over_once(&mut asked).await {
            tokio::time::sleep(ROUND / 50).await;
        }
        while began.elapsed() < HAND_OVER && self.owes_answers().await {
            tokio::time::sleep(ROUND / 50).await;
        }
        self.have_nobody_ask().await;
    }

    async fn owes_answers(&self) -> bool {
        for inbox in self.inboxes.all() {
            if query_status(inbox).await.iter().any(|view| view.owes_answers) {
                return true;
            }
        }
        query_status(&self.catalog_inbox).await.iter().any(|view| view.owes_answers)
    }

    /// Returns when no other node asks this one anything, and all have the answers to what they had asked; or after a while.
    /// A request that is still on its way when the process ends would otherwise count as one that may have been carried out.
    async fn have_nobody_ask(&self) {
        let others =
            self.view.catalog().nodes().map(|node| node.id).filter(|node| self.may_lead(*node)).collect::<Vec<_>>();
        let mut asked = tokio::task::JoinSet::new();
        for node in others {
            let transport = self.transport.clone();
            asked.spawn(async move { transport.request(node, number::ASK_NO_MORE, &[]).await });
        }
        let _ = tokio::time::timeout(HAND_OVER, asked.join_all()).await;
    }

    /// Returns whether there was something that another node could lead.
    async fn hand_over_once(&self, asked: &mut BTreeSet<GroupId>) -> bool {
        let mut views = query_status(&self.catalog_inbox).await;
        for inbox in self.inboxes.all() {
            views.extend(query_status(inbox).await);
        }
        let mut waits = false;
        for view in views.iter().filter(|view| view.is_serving) {
            let may_lead = |heir: &&ReplicaId| !heir.is_witness() && self.may_lead(heir.node);
            let heirs = view.voters.iter().filter(|voter| **voter != view.replica).filter(may_lead);
            let lag =
                |heir: &&ReplicaId| view.others.iter().find(|it| it.replica == **heir).map_or(u64::MAX, |it| it.lag);
            let Some(heir) = heirs.min_by_key(lag) else { continue };
            waits = true;
            // Asked once: what does not come of it comes of an election when this node is gone.
            if asked.insert(view.id) {
                match partition_of_group(view.id) {
                    Some((table, partition)) => self.inbox_of(table, partition).transfer_leadership(view.id, *heir),
                    None => self.catalog_inbox.transfer_leadership(view.id, *heir),
                }
            }
        }
        waits
    }
}

impl NodeContext {
    /// Hibernating groups do not notice that their leader's node is gone, that it has been started again and leads nothing any
    /// more, which it may never do again (a replica of an older copy, or one that has forgotten its votes, stays down), or that
    /// their leader here has lost its majority.
    fn wake_what_waits(&self) {
        let catalog = self.view.catalog();
        let is_away = |node: &NodeId| {
            let is_silent = self.transport.silence(*node).is_none_or(|silence| silence >= SILENT);
            *node != self.identity.node && (is_silent || self.generations.was_started_within(*node, STARTED))
        };
        let away: Arc<[NodeId]> = catalog.nodes().map(|node| node.id).filter(is_away).collect();
        if !away.is_empty() {
            self.inboxes.all().iter().for_each(|inbox| inbox.wake_those_that_need(away.clone()));
            self.catalog_inbox.wake_those_that_need(away);
        }
    }

    /// Why this node takes no writes of tables with a log, if it does not.
    fn disk_refusal(&self) -> Option<RequestError> {
        match self.log.status() {
            LogStatus::Failed(error) => Some(RequestError::DiskFailed(error)),
            LogStatus::Reserve | LogStatus::Full => Some(RequestError::DiskFull),
            LogStatus::Ok => self.refused_writes.reason().map(RequestError::NotApplied),
        }
    }

    /// Whether another node is there, and means to stay.
    fn may_lead(&self, node: NodeId) -> bool {
        let is_there = self.transport.silence(node).is_some_and(|silence| silence < QUIET);
        is_there && !self.stopping.contains(node)
    }
}
