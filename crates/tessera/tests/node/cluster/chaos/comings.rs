//! Nodes that come and go: that join, die while they join, are drained and removed, lose their disks and come back as new ones,
//! come back under other addresses, and with an older copy of their data.
//!
//! A disk is lost, or put back as it was, only while nothing else is missing, since what is on too few disks is lost with them.
//! What is left of a node that is gone is drained and removed as its operator would, while other things happen.

use super::faults::{NamedReplica, replicas_on};
use super::tables::Table;
use crate::cluster::{Cluster, WHOLE};
use crate::server::wait_for;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

type Kind = fn(&mut Comings, &mut Cluster, &mut StdRng);

/// What is done.
const KINDS: &[Kind] =
    &[Comings::join, Comings::die_in_the_join, Comings::retire, Comings::lose_disk, Comings::move_house, PUT_BACK];

/// What may be done while other nodes are missed: no disk is lost.
const AT_ANY_TIME: &[Kind] = &[Comings::join, Comings::die_in_the_join, Comings::retire, Comings::move_house];

/// Where there is an older copy, it is put back; else one is made.
const PUT_BACK: Kind = Comings::copy_or_put_back;

/// How long a disk that is to be lost waits until nothing else is missing.
const PATIENCE: Duration = Duration::from_secs(10);

/// A catalog that was the leader's so many seconds ago or more may be an old one.
const OLD_SECONDS: f64 = 1.0;

pub struct Comings {
    /// How many nodes run at least, and at most.
    least: usize,
    most: usize,
    /// Where a node runs that is being drained to be removed.
    retiring: Option<usize>,
    tables: Vec<&'static str>,
    /// Where a node runs of which there is an older copy, with its number.
    copied: Option<(usize, u64)>,
    /// Where nodes are down for a while.
    down: Vec<usize>,
    /// A node that runs with an older copy, and the replicas that it had: others are to take their place.
    put_back: Option<(usize, BTreeSet<NamedReplica>)>,
    pub counts: Counts,
}

/// How often each thing was done.
#[derive(Debug, Default)]
pub struct Counts {
    joins: u32,
    failed_joins: u32,
    retirements: u32,
    lost_disks: u32,
    new_addresses: u32,
    older_copies: u32,
    removals: u32,
    /// How many of all these were done while other nodes were missed.
    meanwhile: u32,
}

impl Comings {
    pub fn new(least: usize, most: usize, tables: &[Table]) -> Self {
        let tables = tables.iter().map(|table| table.name).chain(["default"]).collect();
        let counts = Counts::default();
        Self { least, most, retiring: None, tables, copied: None, down: Vec::new(), put_back: None, counts }
    }

    pub fn disturb(&mut self, cluster: &mut Cluster, random: &mut StdRng) {
        self.tidy(cluster);
        // It takes two turns: else most runs would end before a copy is put back.
        let puts_back = random.random_bool(if self.copied.is_some() { 0.6 } else { 0.3 });
        let kind = if puts_back { &PUT_BACK } else { KINDS.choose(random).expect("there are some") };
        kind(self, cluster, random);
        std::thread::park_timeout(Duration::from_millis(random.random_range(0..1_500)));
    }

    /// Lets nodes come or go while others are cut off, or are `down` and come back where they were.
    pub fn disturb_while_others_are_missed(&mut self, cluster: &mut Cluster, random: &mut StdRng, down: &[usize]) {
        // Who joins needs somebody to ask.
        if cluster.running().is_empty() {
            return;
        }
        self.down = down.to_vec();
        AT_ANY_TIME.choose(random).expect("there are some")(self, cluster, random);
        self.down.clear();
        self.counts.meanwhile += 1;
    }

    /// Ends all that is under way.
    pub fn finish(&mut self, cluster: &mut Cluster) {
        let began = Instant::now();
        let mut is_told = false;
        wait_for("nodes that are gone are removed", WHOLE, || {
            self.tidy(cluster);
            let is_late = began.elapsed() > WHOLE * 9 / 10;
            if is_late && !std::mem::replace(&mut is_told, true) {
                let ghosts = ghosts(cluster);
                eprintln!("not yet removed: {ghosts:?}, and what runs at {:?}", self.retiring);
                cluster.running().into_iter().for_each(|at| eprintln!("{}", cluster.describe(at)));
            }
            (self.retiring.is_none() && ghosts(cluster).is_some_and(|ghosts| ghosts.is_empty())).then_some(())
        });
    }

    fn join(&mut self, cluster: &mut Cluster, _: &mut StdRng) {
        if cluster.running().len() + self.down.len() < self.most {
            cluster.add_node(&self.down);
            self.counts.joins += 1;
        }
    }

    /// It ends at any moment, and its disk is gone. It may be known by then or not.
    fn die_in_the_join(&mut self, cluster: &mut Cluster, random: &mut StdRng) {
        let at = cluster.add_node(&self.down);
        std::thread::park_timeout(Duration::from_millis(random.random_range(0..1_500)));
        cluster.kill(at);
        cluster.lose_disk(at);
        self.counts.failed_joins += 1;
    }

    fn retire(&mut self, cluster: &mut Cluster, random: &mut StdRng) {
        let running = cluster.running();
        if self.retiring.is_none() && running.len() > self.least {
            self.retiring = running.choose(random).copied();
            self.counts.retirements += 1;
        }
    }

    /// It begins anew where it was, as another node.
    fn lose_disk(&mut self, cluster: &mut Cluster, random: &mut StdRng) {
        let lost = cluster.running().choose(random).copied().filter(|lost| self.retiring != Some(*lost));
        let lost = lost.filter(|_| self.comes_to_have_all(cluster));
        if let Some(lost) = lost {
            cluster.kill(lost);
            cluster.lose_disk(lost);
            std::thread::park_timeout(Duration::from_millis(random.random_range(0..1_500)));
            cluster.start_node(lost);
            self.counts.lost_disks += 1;
        }
    }

    fn move_house(&mut self, cluster: &mut Cluster, random: &mut StdRng) {
        let running = cluster.running();
        let Some(moved) = running.choose(random).copied() else { return };
        cluster.kill(moved);
        cluster.change_ports(moved);
        cluster.start_node(moved);
        self.counts.new_addresses += 1;
    }

    /// A node that nobody let in for long enough gives up.
    fn start_again(&self, cluster: &mut Cluster) {
        for at in cluster.ended() {
            assert!(cluster.number(at).is_none(), "the node at {at} ended by itself");
            cluster.kill(at);
            cluster.start_node(at);
        }
    }

    /// Copies what is on a node's disk, or puts such a copy back.
    fn copy_or_put_back(&mut self, cluster: &mut Cluster, random: &mut StdRng) {
        let Some((at, number)) = self.copied.take() else {
            let running = cluster.running();
            let Some(at) = running.choose(random).copied() else { return };
            let Some(number) = cluster.number(at) else { return };
            cluster.kill(at);
            cluster.copy_disk(at);
            cluster.start_node(at);
            self.copied = Some((at, number));
            return;
        };
        // It may have gone meanwhile.
        if cluster.running().contains(&at) && cluster.number(at) == Some(number) && self.retiring != Some(at) {
            if self.comes_to_have_all(cluster) {
                let replicas = replicas_on(cluster, at, self.tables.iter().copied());
                cluster.kill(at);
                cluster.put_copy_back(at);
                cluster.start_node(at);
                self.put_back = Some((at, replicas));
                self.counts.older_copies += 1;
            } else {
                self.copied = Some((at, number));
            }
        }
    }

    /// Waits a little until nothing is missing anywhere; partitions may move, or be split.
    fn comes_to_have_all(&mut self, cluster: &mut Cluster) -> bool {
        let began = Instant::now();
        loop {
            self.tidy(cluster);
            if self.has_all(cluster) {
                return true;
            }
            if began.elapsed() > PATIENCE {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    fn has_all(&mut self, cluster: &Cluster) -> bool {
        // Until a node has told that it has forgotten, the cluster looks as whole as before.
        let still_has = |(at, had): &(usize, BTreeSet<NamedReplica>)| {
            cluster.number(*at).is_some() && !replicas_on(cluster, *at, self.tables.iter().copied()).is_disjoint(had)
        };
        if self.put_back.as_ref().is_some_and(still_has) {
            return false;
        }
        self.put_back = None;
        ghosts(cluster).is_some_and(|all| all.is_empty())
            && cluster.running().iter().all(|at| cluster.lacks_nothing(*at))
    }

    /// Does what is left to do for nodes that go or are gone.
    fn tidy(&mut self, cluster: &mut Cluster) {
        self.start_again(cluster);
        let Some(asked) = cluster.running().into_iter().find(|at| self.retiring != Some(*at)) else { return };
        let mut going = ghosts(cluster).unwrap_or_default();
        let retiring = self.retiring.and_then(|at| cluster.number(at));
        going.extend(retiring);
        for number in going {
            let Some(node) = listed(cluster, asked).into_iter().flatten().find(|node| node["id"] == number) else {
                continue;
            };
            if node["is_draining"] != true {
                // A node that is not being drained and holds none now may get some at any time.
                let _ = cluster.cli(asked, &format!("node drain {number}"));
                continue;
            }
            if node["replicas"] != 0 {
                continue;
            }
            if retiring == Some(number) {
                let at = self.retiring.take().expect("one retires");
                cluster.kill(at);
                cluster.lose_disk(at);
            }
            if cluster.cli(asked, &format!("node remove {number}")).is_ok() {
                self.counts.removals += 1;
            }
        }
    }
}

/// The nodes that one knows. `None` if it may know an old catalog, as one that has just joined, in which a node that is to go
/// may hold nothing yet.
fn listed(cluster: &Cluster, asked: usize) -> Option<Vec<serde_json::Value>> {
    let cluster = &cluster.status(asked)?["cluster"];
    cluster["catalog_age_seconds"].as_f64().filter(|age| *age < OLD_SECONDS)?;
    Some(cluster["nodes"].as_array()?.clone())
}

/// Nodes that the cluster knows and nobody runs. `None` while a node that runs does not know its own number yet.
fn ghosts(cluster: &Cluster) -> Option<BTreeSet<u64>> {
    let running = cluster.running();
    // Before the others are asked: whoever gets a number meanwhile would look like one that is gone.
    let numbers: Option<BTreeSet<u64>> = running.iter().map(|at| cluster.number(*at)).collect();
    let mut known = BTreeSet::new();
    for at in &running {
        known.extend(listed(cluster, *at)?.iter().filter_map(|node| node["id"].as_u64()));
    }
    let numbers = numbers?;
    Some(known.into_iter().filter(|number| !numbers.contains(number)).collect())
}
