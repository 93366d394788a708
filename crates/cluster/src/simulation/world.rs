//! Nodes that come, die, lose their disks, are drained and removed; the catalog that they share; and the groups on them.

use super::group::{Copy, Group};
use crate::members::CLOSE_BYTES;
use crate::test_schema::schema_of;
use crate::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tessera_consensus::{GroupView, MemberChange};
use tessera_types::{Durability, EngineKind, Limits, NodeId, ReplicaId, TableId, TableSettings};

/// Rounds of silence after which a node counts as [`Standing::Silent`], [`Away`](Standing::Away),
/// [`Lost`](Standing::Lost), and rounds of presence after which it is [`Steady`](Standing::Steady). A round is half a
/// second.
pub(super) const QUIET: u64 = 4;
pub(super) const AWAY: u64 = 20;
pub(super) const LOST: u64 = 200;
pub(super) const STEADY: u64 = 4;
/// As the driver has it.
const MOVES: usize = 4;
/// Nodes that there are at peace, or more.
const ENOUGH: usize = 5;
/// Rounds in which a world at peace becomes whole.
const PEACE: u64 = 1_500;

/// Numbers that follow from a seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    pub(super) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn of<T: std::marker::Copy>(&mut self, things: &[T]) -> Option<T> {
        (!things.is_empty()).then(|| things[self.below(things.len() as u64) as usize])
    }
}

pub(super) struct Node {
    pub(super) is_up: bool,
    /// It does not come back: its disk is lost, or it never came.
    pub(super) is_gone: bool,
    /// Until that round its disk takes nothing.
    slow_until: u64,
    up_since: u64,
    /// `None` for one that was never heard of.
    last_up: Option<u64>,
    let_in: u64,
    /// The catalog as it knows it.
    catalog: Catalog,
    /// The round in which it heard of it last, since it was started.
    followed: Option<u64>,
}

type Place = (TableId, u32);

pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) now: u64,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) catalog: Catalog,
    pub(super) catalog_group: Group,
    pub(super) groups: BTreeMap<Place, Group>,
    /// Commands whose answer was lost, that take effect later.
    late: VecDeque<CatalogCommand>,
    /// How many nodes have asked to be let in.
    joins: u64,
    pub(super) changes: u64,
    pub(super) given_up: u64,
}

fn place_of(command: &CatalogCommand) -> Option<Place> {
    match command {
        CatalogCommand::Place { table, partition, .. } => Some((*table, *partition)),
        _ => None,
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
        let first = catalog_replica(NodeId(1));
        let mut catalog_group = Group::of(&[first]);
        catalog_group.copies.insert(first, Copy { matched: 1, snapshot: 0, is_told: true });
        let (nodes, groups, late) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        let (joins, changes, given_up) = (0, 0, 0);
        let mut world =
            Self { dice: Dice(seed), now: 0, nodes, catalog, catalog_group, groups, late, joins, changes, given_up };
        world.begin_node(NodeId(1), true);
        world.follow(NodeId(1));
        world
    }

    fn begin_node(&mut self, node: NodeId, is_up: bool) {
        let (now, catalog) = (self.now, self.catalog.clone());
        let last_up = is_up.then_some(now);
        let node_state = Node {
            is_up,
            is_gone: !is_up,
            slow_until: 0,
            up_since: now,
            last_up,
            let_in: now,
            catalog,
            followed: None,
        };
        self.nodes.insert(node, node_state);
    }

    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.is_up)
    }

    /// Whether a replica is there and has what counts.
    pub(super) fn is_sound(&self, group: &Group, replica: &ReplicaId) -> bool {
        self.is_up(replica.node) && group.is_complete(replica)
    }

    /// Sound voters above a majority.
    pub(super) fn spare(&self, group: &Group, voters: &[ReplicaId]) -> isize {
        let sound = voters.iter().filter(|voter| self.is_sound(group, voter)).count();
        sound as isize - (voters.len() / 2 + 1) as isize
    }

    pub(super) fn presence(&self) -> Presence {
        let standing = |(id, node): (&NodeId, &Node)| {
            let silence = self.now - node.last_up.unwrap_or(node.let_in);
            let standing = match silence {
                LOST.. => Standing::Lost,
                AWAY.. => Standing::Away,
                QUIET.. => Standing::Silent,
                _ if node.last_up.is_none() => Standing::Silent,
                _ if self.now - node.up_since >= STEADY => Standing::Steady,
                _ => Standing::Here,
            };
            (*id, standing)
        };
        Presence::new(self.nodes.iter().map(standing), BTreeSet::new())
    }

    fn catalog_serves(&self) -> bool {
        self.catalog_group.leader.is_some()
            && self.catalog_group.is_majority(|voter| self.is_sound(&self.catalog_group, voter))
    }

    /// Changes the catalog, if it is led.
    pub(super) fn change(&mut self, command: CatalogCommand) -> bool {
        if !self.catalog_serves() {
            return false;
        }
        let before = self.catalog.clone();
        let is_done = self.catalog.apply(&command, &Limits::default()).is_ok();
        assert!(is_done || self.catalog == before, "what is refused changes nothing: {command:?}");
        is_done
    }

    /// As [`Self::change`], by a driver: requests and answers get lost.
    fn ask(&mut self, command: CatalogCommand) {
        match self.dice.below(20) {
            0 => {}
            1 => self.late.push_back(command),
            _ => _ = self.change(command),
        }
    }

    pub(super) fn round(&mut self) {
        self.now += 1;
        let now = self.now;
        self.nodes.values_mut().filter(|node| node.is_up).for_each(|node| node.last_up = Some(now));
        if self.dice.one_in(3)
            && let Some(command) = self.late.pop_front()
        {
            self.change(command);
        }
        self.pass_groups();
        let up: Vec<NodeId> = self.nodes.iter().filter(|(_, node)| node.is_up).map(|(id, _)| *id).collect();
        for node in up {
            // Whoever is up hears of the catalog in this round or the next.
            let is_late = self.nodes[&node].followed.is_none_or(|round| round + 1 < self.now);
            if self.catalog_serves() && (is_late || !self.dice.one_in(4)) {
                self.follow(node);
            }
            // One that was started hears of it before it decides anything.
            if self.nodes[&node].followed.is_some() {
                self.drive(node);
            }
        }
        self.check_majorities();
    }

    fn pass_groups(&mut self) {
        let up: BTreeSet<NodeId> = self.nodes.iter().filter(|(_, node)| node.is_up).map(|(id, _)| *id).collect();
        let slow: BTreeSet<NodeId> =
            self.nodes.iter().filter(|(_, node)| node.slow_until > self.now).map(|(id, _)| *id).collect();
        let (is_up, is_slow) = (|it: &ReplicaId| up.contains(&it.node), |it: &ReplicaId| slow.contains(&it.node));
        self.catalog_group.pass(1, &is_up, &is_slow);
        for group in self.groups.values_mut() {
            // Some are more than a member that gets a vote may lack.
            let most = if self.dice.one_in(12) { 100_000 } else { 50 };
            let writes = self.dice.below(3) * self.dice.below(most);
            group.pass(writes, &is_up, &is_slow);
        }
    }

    /// A node hears of the catalog, and makes its replicas those that it says.
    pub(super) fn follow(&mut self, node: NodeId) {
        let catalog = self.catalog.clone();
        for table in catalog.tables() {
            for (partition, placement) in (0..).zip(&table.placement) {
                let group =
                    self.groups.entry((table.id, partition)).or_insert_with(|| Group::of(&placement.initial_members));
                let due = placement.on(node);
                let here: Vec<ReplicaId> = group.copies.keys().filter(|it| it.node == node).copied().collect();
                for replica in here.into_iter().filter(|replica| Some(*replica) != due) {
                    assert!(
                        !group.is_voter(&replica),
                        "{node} drops {replica} of {}.{partition}, which votes: {placement:?}, {group:?}",
                        table.id
                    );
                    group.copies.remove(&replica);
                }
                let begins = |due: ReplicaId, dice: &mut Dice| {
                    let is_initial_member = placement.initial_members.contains(&due);
                    let snapshot = if is_initial_member || due.is_witness() { 0 } else { 1 + dice.below(12) as u32 };
                    Copy { matched: u64::from(is_initial_member), snapshot, is_told: false }
                };
                if let Some(due) = due {
                    let dice = &mut self.dice;
                    group.copies.entry(due).or_insert_with(|| begins(due, dice));
                }
            }
        }
        if let Some(node) = self.nodes.get_mut(&node) {
            node.followed = Some(self.now);
            node.catalog = catalog;
        }
    }

    /// What the driver of a node does in a round.
    fn drive(&mut self, node: NodeId) {
        let presence = self.presence();
        let places: Vec<Place> = self.groups.keys().copied().collect();
        for place in places {
            let group = &self.groups[&place];
            let Some(leader) = group.leader.filter(|leader| leader.node == node) else { continue };
            if !group.is_majority(|voter| self.is_sound(group, voter)) {
                continue; // it does not serve
            }
            let table = self.nodes[&node].catalog.get(place.0);
            let Some(placement) = table.map(|table| table.placement[place.1 as usize].clone()) else { continue };
            let view = group.view(leader, &|replica| self.is_up(replica.node));
            let step = next_step(&view, &placement, &presence);
            if has_target_members(&view, &placement.target) && placement.is_moving() {
                self.ask(CatalogCommand::moved(place.0, place.1, &placement));
            }
            match step {
                Step::Change(changes) => {
                    let after = self.check_change(&self.groups[&place], &view, &changes, Some(&placement));
                    self.groups.insert(place, after);
                    self.changes += 1;
                }
                Step::TransferLeadership(to) => self.transfer_leadership(place, to),
                Step::Done | Step::Wait => {}
            }
        }
        if self.catalog_group.leader == Some(catalog_replica(node)) && self.catalog_serves() {
            self.lead_catalog(&presence);
        }
    }

    fn transfer_leadership(&mut self, place: Place, to: ReplicaId) {
        let is_able = self.is_sound(&self.groups[&place], &to);
        let group = self.groups.get_mut(&place).expect("just seen");
        if is_able && group.copies[&to].matched == group.end {
            group.leader = Some(to);
            group.copies.values_mut().for_each(|copy| copy.is_told = false);
        }
    }

    fn lead_catalog(&mut self, presence: &Presence) {
        let expected: Vec<NodeId> = self.catalog.nodes().filter(|it| it.is_expected).map(|it| it.id).collect();
        for node in expected.into_iter().filter(|node| presence.is_here(*node)) {
            self.ask(CatalogCommand::Arrived { node, has_vote: false });
        }
        let leader = self.catalog_group.leader.expect("it serves");
        let view = self.catalog_group.view(leader, &|replica| self.is_up(replica.node));
        let nodes: Vec<NodeId> = self.catalog.nodes().filter(|it| !it.is_expected).map(|it| it.id).collect();
        let leaving = self.catalog.nodes().filter(|it| it.is_draining).map(|it| it.id).collect();
        match next_catalog_step(&view, &nodes, &leaving, presence) {
            Step::Change(changes) => {
                let mut after = self.check_change(&self.catalog_group, &view, &changes, None);
                let learners: Vec<ReplicaId> =
                    after.learners.iter().filter(|it| self.is_up(it.node)).copied().collect();
                for learner in learners {
                    let snapshot = 1 + self.dice.below(4) as u32;
                    after.copies.entry(learner).or_insert(Copy { matched: 0, snapshot, is_told: false });
                }
                self.catalog_group = after;
                self.changes += 1;
            }
            Step::TransferLeadership(to) if self.is_sound(&self.catalog_group, &to) => {
                self.catalog_group.leader = Some(to);
                self.catalog_group.copies.values_mut().for_each(|copy| copy.is_told = false);
            }
            _ => {}
        }
        let is_led = |table, partition| {
            let leader = self.groups.get(&(table, partition)).and_then(|group| group.leader);
            leader.is_some_and(|leader| self.is_up(leader.node))
        };
        for command in next_moves(&self.catalog, presence, MOVES, &is_led) {
            let place = place_of(&command).expect("moves place");
            let was_moving = self.catalog.get(place.0).expect("a table").placement[place.1 as usize].is_moving();
            self.given_up += u64::from(was_moving);
            self.ask(command);
        }
    }

    /// What must be so of every change that is made.
    fn check_change(
        &self,
        group: &Group,
        view: &GroupView,
        changes: &[MemberChange],
        placement: Option<&Placement>,
    ) -> Group {
        let after = group.changed(changes);
        for comer in after.voters.iter().filter(|voter| !group.is_voter(voter)) {
            let lacks = group.lacks(comer);
            assert!(lacks <= CLOSE_BYTES, "{comer} gets a vote and lacks {lacks} bytes: {group:?}");
        }
        // Those that were members when the move began; what it has added may go again when it is given up.
        let members = placement.map_or(&group.voters, |placement| &placement.current);
        let kept: Vec<ReplicaId> = members.iter().filter(|it| group.is_voter(it)).copied().collect();
        let (spare_before, spare) = (self.spare(group, &kept), self.spare(group, &after.voters));
        assert!(spare >= 0, "no majority is left by {changes:?} of {view:?}");
        // An operator may want fewer replicas, which bear less.
        let target = placement.map_or(after.voters.len(), |it| it.target.len());
        let bearable = (target as isize - 1) / 2;
        let is_removal = placement.is_none() && after.voters.len() < group.voters.len();
        assert!(
            spare >= spare_before.min(bearable) || is_removal,
            "{changes:?} leaves a group that bears less, {spare} for {spare_before}: {view:?}"
        );
        if let Some(placement) = placement {
            let copies = |replicas: &[ReplicaId]| {
                replicas.iter().filter(|it| !it.is_witness() && self.is_sound(group, it)).count()
            };
            let target = placement.target.iter().filter(|it| !it.is_witness()).count();
            let before = copies(&kept).min(target);
            assert!(copies(&after.voters) >= before, "a copy less after {changes:?} of {view:?}, {placement:?}");
        }
        after
    }

    /// Nodes that die are chosen so that groups can bear it: so whatever has no majority lost it by a step of ours.
    fn check_majorities(&self) {
        for (place, group) in &self.groups {
            let is_left = |voter: &ReplicaId| {
                let is_new = group.end <= 1;
                self.is_up(voter.node) && (is_new || group.copies.get(voter).is_some_and(|copy| copy.snapshot == 0))
            };
            assert!(group.is_majority(is_left), "round {}: {place:?} has no majority: {group:?}", self.now);
        }
        let is_left = |voter: &ReplicaId| self.is_up(voter.node) && self.catalog_group.copies.contains_key(voter);
        let group = &self.catalog_group;
        assert!(group.is_majority(is_left), "round {}: the catalog has no majority: {group:?}", self.now);
    }

    /// Whether all groups could go on without a node.
    pub(super) fn can_bear(&self, lost: NodeId) -> bool {
        let goes_on = |group: &Group| group.is_majority(|it| it.node != lost && self.is_sound(group, it));
        // One copy at least that has everything.
        let keeps = |group: &Group| {
            let mut copies = group.copies.keys().filter(|it| group.is_voter(it) && !it.is_witness());
            copies.any(|it| it.node != lost && self.is_sound(group, it))
        };
        goes_on(&self.catalog_group) && self.groups.values().all(|group| goes_on(group) && keeps(group))
    }

    pub(super) fn kill(&mut self, node: NodeId, for_good: bool) {
        let state = self.nodes.get_mut(&node).expect("a node");
        state.is_up = false;
        state.is_gone |= for_good;
        if for_good {
            self.groups.values_mut().for_each(|group| group.copies.retain(|it, _| it.node != node));
            self.catalog_group.copies.retain(|it, _| it.node != node);
        }
    }

    pub(super) fn start(&mut self, node: NodeId) {
        let now = self.now;
        let state = self.nodes.get_mut(&node).expect("a node");
        (state.is_up, state.up_since, state.followed) = (true, now, None);
    }

    /// Lets a node in, which comes, or never does. The answer may get lost, and then it asks again.
    pub(super) fn join(&mut self, comes: bool) -> Option<NodeId> {
        let before: BTreeSet<NodeId> = self.catalog.nodes().map(|node| node.id).collect();
        self.joins += 1;
        let token = Some(JoinToken(self.joins.to_string()));
        for _ in 0..=self.dice.below(2) {
            self.change(CatalogCommand::AddNode { site: Site::default(), token: token.clone() });
        }
        let node = self.catalog.nodes().map(|node| node.id).filter(|node| !before.contains(node)).last()?;
        self.begin_node(node, comes);
        Some(node)
    }

    pub(super) fn create(&mut self, name: &str, partitions: u32, replicas: u8) -> bool {
        let schema = schema_of(EngineKind::Rocksdb, Durability::Hard, partitions, replicas);
        let presence = self.presence();
        let absent = presence.below(Standing::Here, self.catalog.nodes().map(|node| node.id));
        // A table made on a node that died a moment ago would begin without it, which is nobody's fault.
        if self.nodes.iter().any(|(id, node)| presence.is_here(*id) && !node.is_up) {
            return false;
        }
        let settings = TableSettings::default();
        let is_created = self.change(CatalogCommand::Create { name: name.into(), schema, settings, absent });
        let up: Vec<NodeId> = self.nodes.iter().filter(|(_, node)| node.is_up).map(|(id, _)| *id).collect();
        up.into_iter().filter(|_| is_created).for_each(|node| self.follow(node));
        is_created
    }

    /// Something happens to a node, or an operator does something.
    pub(super) fn disturb(&mut self) {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        let Some(node) = self.dice.of(&nodes) else { return };
        let (is_up, is_gone) = (self.nodes[&node].is_up, self.nodes[&node].is_gone);
        match self.dice.below(20) {
            0..4 if is_up && self.can_bear(node) => self.kill(node, false),
            4..6 if is_up && self.can_bear(node) => self.kill(node, true),
            0..10 if !is_up && !is_gone => self.start(node),
            10..12 if is_up => self.nodes.get_mut(&node).expect("a node").slow_until = self.now + self.dice.below(40),
            12..14 if self.nodes.len() < 8 => {
                let comes = !self.dice.one_in(3);
                let comer = self.join(comes);
                // It may be gone before anybody has heard of it.
                if let Some(comer) = comer.filter(|_| comes && self.dice.one_in(3)) {
                    self.kill(comer, true);
                }
            }
            14..16 => {
                let is_draining = self.dice.one_in(2);
                self.change(CatalogCommand::Drain { node, is_draining });
            }
            16 => _ = self.remove(node),
            17 => {
                let (name, replicas) = (["default", "t"][self.dice.below(2) as usize], [2, 3, 3, 5]);
                let replicas = replicas[self.dice.below(4) as usize];
                self.change(CatalogCommand::SetReplicas { name: name.into(), replicas });
            }
            18 => _ = self.create("t", 3, 3),
            _ => {}
        }
    }

    /// An operator removes a node, and it ends.
    fn remove(&mut self, node: NodeId) -> bool {
        let may_go = !self.is_up(node) || self.can_bear(node);
        let is_removed = may_go && self.change(CatalogCommand::RemoveNode { node });
        if is_removed {
            let is_member = self.catalog_group.is_voter(&catalog_replica(node));
            // It runs on until the catalog's group is without it.
            if !is_member {
                self.nodes.remove(&node);
            }
        }
        is_removed
    }

    /// All that can come back does, operators clean up, and in the end everything is as it is to be.
    pub(super) fn make_peace(&mut self) {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        for node in nodes {
            self.change(CatalogCommand::Drain { node, is_draining: false });
            self.nodes.get_mut(&node).expect("a node").slow_until = 0;
            if !self.nodes[&node].is_gone && !self.nodes[&node].is_up {
                self.start(node);
            }
        }
        for _ in 0..PEACE {
            self.round();
            // Nodes that lost their disks come back as others.
            if self.nodes.values().filter(|node| node.is_up).count() < ENOUGH {
                self.join(true);
            }
            let gone: Vec<NodeId> = self.nodes.iter().filter(|(_, node)| node.is_gone).map(|(id, _)| *id).collect();
            gone.into_iter().for_each(|node| _ = self.remove(node));
            let left: Vec<NodeId> =
                self.nodes.keys().filter(|node| self.catalog.node(**node).is_none()).copied().collect();
            left.into_iter().filter(|it| !self.catalog_group.is_voter(&catalog_replica(*it))).for_each(|node| {
                self.nodes.remove(&node);
            });
            if self.what_is_missing().is_none() {
                return;
            }
        }
        panic!("not whole after {PEACE} rounds: {}", self.what_is_missing().expect("just seen"));
    }

    /// What is not as it is to be.
    pub(super) fn what_is_missing(&self) -> Option<String> {
        let nodes = self.catalog.nodes().count();
        if let Some(gone) = self.nodes.iter().find(|(_, node)| !node.is_up) {
            let held = self.groups.iter().find_map(|((table, partition), group)| {
                let placement = &self.catalog.get(*table)?.placement[*partition as usize];
                placement.on(*gone.0).map(|_| format!("{table}.{partition} {placement:?} {group:?}"))
            });
            return Some(format!("node {} is still there and holds {held:?}: {:?}", gone.0, self.presence()));
        }
        if let Some(ghost) = self.catalog.nodes().find(|node| !self.nodes.contains_key(&node.id)) {
            return Some(format!("nobody is node {}", ghost.id));
        }
        for table in self.catalog.tables() {
            for (partition, placement) in (0..).zip(&table.placement) {
                let group = &self.groups[&(table.id, partition)];
                let (mut voters, mut target) = (group.voters.clone(), placement.target.clone());
                voters.sort_unstable();
                target.sort_unstable();
                let data_replicas = target.iter().filter(|it| !it.is_witness()).count();
                let is_whole = voters == target
                    && !placement.is_moving()
                    && group.leader.is_some()
                    && data_replicas == usize::from(table.schema.replicas).min(nodes)
                    && voters.iter().all(|voter| self.is_sound(group, voter));
                if !is_whole {
                    return Some(format!("{}.{partition} of {nodes} nodes: {placement:?}, {group:?}", table.id));
                }
            }
        }
        let group = &self.catalog_group;
        let is_whole = group.voters.len() == nodes.min(5) && group.voters.iter().all(|it| self.is_sound(group, it));
        (!is_whole).then(|| format!("the catalog of {nodes} nodes: {group:?}"))
    }
}
