//! What must hold in every state, and the search for a state in which it does not.

use super::history::{History, Values};
use super::set_up::{Program, SetUp};
use super::world::{Event, Node, Partition, Running, World};
use crate::id::TransactionIds;
use crate::ledger::Ledger;
use crate::rules::Rule;
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet};
use tessera_types::NodeId;

/// Holds in some state, or the checks would say little.
pub(super) const ALL_IS_DONE: &str = "all that was asked is done";

pub(super) const PROPERTIES: [&str; 3] =
    ["what clients see is strictly serializable", "everything ends", "what is done stays, in all partitions"];

impl Model for SetUp {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        let ledger = Ledger::new(self.rules());
        let partition = Partition { ledger, value: 0, term: 0, applied: 0, pending: None, finishing: BTreeMap::new() };
        let node =
            |number| Node { generation: 1, ids: TransactionIds::new(NodeId(number), 1), begun: 0, running: None };
        vec![World {
            partitions: vec![partition; usize::from(self.partitions)],
            nodes: (0..self.programs.len() as u32).map(node).collect(),
            network: BTreeSet::new(),
            history: History::default(),
            faults: self.faults,
        }]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        for (number, node) in world.nodes.iter().enumerate() {
            match &node.running {
                None if node.begun < self.programs[number].len() => events.push(Event::Begin(number)),
                None => (),
                Some(Running::Write) => events.push(Event::Write(number)),
                Some(Running::Transaction { .. }) => {
                    if world.faults.crashes > 0 {
                        events.push(Event::Crash(number));
                    }
                    if world.faults.give_ups > 0 {
                        events.push(Event::GiveUp(number));
                    }
                }
                Some(Running::Read { read, confirming, .. }) => {
                    events.extend(read.iter().map(|partition| Event::Read(number, *partition)));
                    events.extend(confirming.keys().map(|partition| Event::Confirm(number, *partition)));
                }
            }
        }
        for (number, partition) in (0..).zip(&world.partitions) {
            if partition.pending.is_some() {
                events.push(Event::Commit(number));
            }
            if world.faults.leader_changes > 0 && (partition.pending.is_some() || !partition.finishing.is_empty()) {
                events.push(Event::ChangeLeader(number));
            }
            for (id, _) in partition.ledger.intents() {
                if self.rules().keep(Rule::RecoverIntents) && world.may_be_gone(id) {
                    events.push(Event::Recover(number, id));
                }
                if !self.rules().keep(Rule::KeepIntents) {
                    events.push(Event::Drop(number, id));
                }
            }
            let unfinished = partition.ledger.unfinished().filter(|(id, _)| world.may_be_gone(*id));
            events.extend(unfinished.map(|(id, _)| Event::Finish(number, id)));
        }
        let arriving = world.network.iter().filter(|message| world.changes_by(message));
        events.extend(arriving.cloned().map(Event::Arrive));
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut next = world.clone();
        next.take(self, event);
        next.forget_answers();
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let [serializable, ends, stays] = PROPERTIES;
        vec![
            Property::always(serializable, |set_up: &SetUp, world: &World| {
                world.history.is_strictly_serializable(&set_up.all, world.partitions.len(), None)
            }),
            // What has ended may end differently in another order, so a state in which nothing goes on is what counts.
            Property::always(ends, |set_up: &SetUp, world: &World| world.is_at_peace(set_up) || set_up.goes_on(world)),
            Property::always(stays, |set_up: &SetUp, world: &World| {
                let values: Values = world.partitions.iter().map(|partition| partition.value).collect();
                !world.is_at_peace(set_up)
                    || world.history.is_strictly_serializable(&set_up.all, values.len(), Some(&values))
            }),
            Property::sometimes(ALL_IS_DONE, |set_up: &SetUp, world: &World| {
                world.is_at_peace(set_up) && world.history.is_all_done(set_up.all.len())
            }),
        ]
    }
}

impl SetUp {
    /// Whether anything can still happen.
    fn goes_on(&self, world: &World) -> bool {
        let mut events = Vec::new();
        self.actions(world, &mut events);
        events.into_iter().any(|event| self.next_state(world, event).is_some())
    }
}

impl World {
    /// All clients have their answers or their node has died, and no key is held.
    fn is_at_peace(&self, set_up: &SetUp) -> bool {
        let is_idle = |(node, programs): (&Node, &Vec<Program>)| node.running.is_none() && node.begun == programs.len();
        self.nodes.iter().zip(&set_up.programs).all(is_idle)
            && self.partitions.iter().all(|partition| partition.pending.is_none() && partition.ledger.has_no_intents())
            // Nothing that is late brings an intent back for good; but what it brings back is to be waited for.
            && !set_up.goes_on(self)
    }
}
