//! What is done to a cluster, one thing after the other, as the seed says.

use super::comings::Comings;
use super::tables::{Table, Trust};
use crate::cluster::net::Net;
use crate::cluster::{Cluster, WHOLE};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeSet;
use std::time::Duration;

/// Tables are split until they have so many, in most runs.
pub const MOST_PARTITIONS: u64 = 32;

/// After so long every node has heard that a clock is right again: it is seen within a second, and told twice a second.
pub const TOLD: Duration = Duration::from_millis(2_500);

/// How often each thing was done.
#[derive(Debug, Default)]
pub struct Faults {
    kills: u32,
    stops: u32,
    drains: u32,
    replica_changes: u32,
    splits: u32,
    cuts: u32,
    slow_links: u32,
    clock_steps: u32,
    power_cuts: u32,
    blackouts: u32,
}

/// Disturbs a cluster.
pub struct Nemesis {
    pub faults: Faults,
    pub tables: Vec<Table>,
    /// Tables are split until they have so many.
    pub most_partitions: u64,
    /// Processes are ended one at a time, and only when all that they hold is elsewhere too.
    pub is_gentle: bool,
    pub trust: Trust,
    /// What makes nodes come and go; `None` where the nodes stay the same.
    pub comings: Option<Comings>,
}

impl Nemesis {
    /// Does one thing.
    pub fn disturb(&mut self, cluster: &mut Cluster, random: &mut StdRng) {
        if self.comings.is_none() {
            assert_eq!(cluster.ended(), [0; 0], "nodes ended by themselves");
        }
        let running = cluster.running();
        let at = *running.choose(random).expect("nodes run");
        let another = *running.iter().find(|other| **other != at).expect("there are several");
        let pause = Duration::from_millis(random.random_range(300..2_500));
        if random.random_bool(0.3) {
            self.split(cluster, random, another);
        }
        if let Some(comings) = &mut self.comings
            && random.random_bool(0.5)
        {
            return comings.disturb(cluster, random);
        }
        if let Some(net) = &cluster.net {
            match random.random_range(0..10) {
                0..4 => return self.cut(cluster, random, at, pause),
                4..6 => return slow(net, random, at, pause, &mut self.faults),
                _ => {}
            }
        }
        if cluster.clocks.is_some() && random.random_bool(0.5) {
            return self.set_clock(cluster, random, at, pause);
        }
        if !cluster.disks.is_empty() && random.random_bool(0.6) {
            return self.cut_power(cluster, random, at, pause);
        }
        match random.random_range(0..10) {
            0..4 => {
                if self.is_gentle {
                    cluster.wait_until_whole();
                }
                let forget = if self.is_gentle { self.replicas_without_log(cluster, at) } else { BTreeSet::new() };
                cluster.kill(at);
                std::thread::park_timeout(pause);
                cluster.start_node(at);
                self.faults.kills += 1;
                // Until it has told that it has forgotten, the cluster looks as whole as before.
                cluster.wait_for("replicas without a log are renewed", WHOLE, || {
                    self.replicas_without_log(cluster, at).is_disjoint(&forget)
                });
            }
            4..8 => {
                cluster.signal(at, "-STOP");
                std::thread::park_timeout(pause);
                cluster.signal(at, "-CONT");
                self.faults.stops += 1;
            }
            8 => {
                // Whether it is refused or unknown does not matter: what follows must hold anyway.
                drain(cluster, another, at, false);
                std::thread::park_timeout(pause);
                drain(cluster, another, at, true);
                self.faults.drains += 1;
            }
            _ => self.change_replicas(cluster, random, another, pause),
        }
        // Some faults follow one another at once.
        std::thread::park_timeout(Duration::from_millis(random.random_range(0..2_000)));
    }

    /// Replicas of a node that end with its process.
    fn replicas_without_log(&self, cluster: &Cluster, at: usize) -> BTreeSet<NamedReplica> {
        let names =
            self.tables.iter().filter(|table| table.options.contains("--durability none")).map(|table| table.name);
        replicas_on(cluster, at, names)
    }

    fn set_clock(&mut self, cluster: &Cluster, random: &mut StdRng, at: usize, pause: Duration) {
        if self.trust == Trust::MostClocks {
            cluster.set_clocks(0);
            let are_up = || cluster.running().into_iter().all(|at| cluster.status(at).is_some());
            cluster.wait_for("all nodes are up", WHOLE, are_up);
            std::thread::park_timeout(TOLD);
        }
        let most = [1, 60, 7_200, 100 * 86_400].choose(random).expect("there are some");
        let clocks = cluster.clocks.as_ref().expect("nodes have clocks of their own");
        clocks.set(&cluster.data_directory(at), random.random_range(-most..=*most));
        std::thread::park_timeout(pause);
        self.faults.clock_steps += 1;
    }

    fn cut_power(&mut self, cluster: &mut Cluster, random: &mut StdRng, at: usize, pause: Duration) {
        let of = if random.random_bool(0.1) { cluster.running() } else { vec![at] };
        cluster.cut_power(&of);
        self.go_on(cluster, random, &of, pause);
        of.iter().for_each(|at| cluster.start_node(*at));
        self.faults.power_cuts += u32::from(of.len() == 1);
        self.faults.blackouts += u32::from(of.len() > 1);
        std::thread::park_timeout(pause);
    }

    /// Cuts a node off, or one of its links, or one direction of that; often while replicas move, or nodes come and go.
    fn cut(&mut self, cluster: &mut Cluster, random: &mut StdRng, at: usize, pause: Duration) {
        let nodes = cluster.nodes.len();
        let other = (at + random.random_range(1..nodes)) % nodes;
        let whole = random.random_bool(0.5);
        let one_way = random.random_bool(0.3);
        let net = cluster.net.as_ref().expect("there are links");
        for peer in (0..nodes).filter(|peer| *peer != at && (whole || *peer == other)) {
            net.cut(at, peer);
            if !one_way {
                net.cut(peer, at);
            }
        }
        let is_moving = random.random_bool(0.4);
        if is_moving {
            drain(cluster, other, at, false);
        }
        self.go_on(cluster, random, &[], pause);
        cluster.net.as_ref().expect("there are links").heal();
        if is_moving {
            std::thread::park_timeout(pause);
            drain(cluster, other, at, true);
        }
        self.faults.cuts += 1;
    }

    /// Lets time pass with what is broken; nodes that are `down` come back where they were. Where nodes come and go, one may do so
    /// meanwhile.
    fn go_on(&mut self, cluster: &mut Cluster, random: &mut StdRng, down: &[usize], pause: Duration) {
        if let Some(comings) = &mut self.comings
            && random.random_bool(0.5)
        {
            comings.disturb_while_others_are_missed(cluster, random, down);
        }
        std::thread::park_timeout(pause);
    }

    fn change_replicas(&mut self, cluster: &Cluster, random: &mut StdRng, at: usize, pause: Duration) {
        let table = self.tables.choose(random).expect("there are tables");
        // A single replica may be lost with its disk, or its process if it has no log.
        let least = if self.is_gentle || self.comings.is_some() { 2 } else { 1 };
        let (name, replicas) = (table.name, random.random_range(least..=3));
        let _ = cluster.cli(at, &format!("table alter {name} --replicas {replicas}"));
        std::thread::park_timeout(pause);
        let _ = cluster.cli(at, &format!("table alter {name} --replicas {}", table.replicas()));
        self.faults.replica_changes += 1;
    }

    /// Begins to split a table, which goes on while other things happen.
    fn split(&mut self, cluster: &Cluster, random: &mut StdRng, at: usize) {
        let name = self.tables.choose(random).expect("there are tables").name;
        let shown = cluster.cli(at, &format!("table show {name} --json")).unwrap_or_default();
        let table: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
        let Some(partitions) = table["partitions"].as_u64().filter(|partitions| *partitions < self.most_partitions)
        else {
            return;
        };
        if table["split"].is_null()
            && cluster.cli(at, &format!("table alter {name} --partitions {}", 2 * partitions)).is_ok()
        {
            self.faults.splits += 1;
            std::thread::park_timeout(Duration::from_millis(random.random_range(0..1_500)));
        }
    }
}

/// Table, partition and name.
pub type NamedReplica = (&'static str, usize, String);

/// The replicas of some tables that a node is to have, as another one knows.
pub fn replicas_on(cluster: &Cluster, at: usize, tables: impl Iterator<Item = &'static str>) -> BTreeSet<NamedReplica> {
    let number = cluster.number(at).expect("it has been there");
    let asked = *cluster.running().iter().find(|other| **other != at).expect("there are several");
    let mut replicas = BTreeSet::new();
    for table in tables {
        for (partition, wanted) in cluster.replicas_of(asked, table).iter().enumerate() {
            let names = wanted.as_array().into_iter().flatten().filter_map(|name| name.as_str());
            let names = names.filter(|name| name.starts_with(&format!("{number}.")));
            replicas.extend(names.map(|name| (table, partition, name.to_string())));
        }
    }
    replicas
}

/// Asks a node to have another one drained, or to let it hold replicas again.
fn drain(cluster: &Cluster, asked: usize, at: usize, is_over: bool) {
    if let Some(number) = cluster.number(at) {
        let _ = cluster.cli(asked, &format!("node drain {number}{}", if is_over { " --undo" } else { "" }));
    }
}

/// Delays and loses a part of what a node is sent, or sends, or both.
fn slow(net: &Net, random: &mut StdRng, at: usize, pause: Duration, faults: &mut Faults) {
    let (rate, delay) = (random.random_range(100..4_000), random.random_range(20..600));
    let directions: &[bool] = [&[true][..], &[false], &[true, false]].choose(random).expect("there are some");
    directions.iter().for_each(|is_incoming| net.slow(at, *is_incoming, rate, delay));
    std::thread::park_timeout(pause);
    net.heal();
    faults.slow_links += 1;
}
