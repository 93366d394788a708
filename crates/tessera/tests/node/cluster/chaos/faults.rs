//! What is done to a cluster, one thing after the other, as the seed says.

use super::tables::Table;
use crate::cluster::Cluster;
use crate::cluster::net::Net;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::time::Duration;

/// Tables are split until they have so many.
const MOST_PARTITIONS: u64 = 32;

/// What is done to a cluster, each with how often it was.
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

pub fn disturb(cluster: &mut Cluster, random: &mut StdRng, faults: &mut Faults, tables: &[Table]) {
    let at = random.random_range(0..cluster.nodes.len());
    let pause = Duration::from_millis(random.random_range(300..2_500));
    let another = (at + 1) % cluster.nodes.len();
    if random.random_bool(0.3) {
        split(cluster, random, another, faults, tables);
    }
    if let Some(net) = &cluster.net {
        match random.random_range(0..10) {
            0..4 => return cut(cluster, random, at, pause, faults),
            4..6 => return slow(net, random, at, pause, faults),
            _ => {}
        }
    }
    if let Some(clocks) = cluster.clocks.as_ref().filter(|_| random.random_bool(0.5)) {
        let most = [1, 60, 3_600, 100 * 86_400].choose(random).expect("there are some");
        clocks.set(&cluster.data_directory(at), random.random_range(-most..=*most));
        std::thread::park_timeout(pause);
        faults.clock_steps += 1;
        return;
    }
    if !cluster.disks.is_empty() && random.random_bool(0.6) {
        let all: Vec<usize> = (0..cluster.nodes.len()).collect();
        let of = if random.random_bool(0.1) { &all[..] } else { &all[at..=at] };
        cluster.cut_power(of);
        std::thread::park_timeout(pause);
        of.iter().for_each(|at| cluster.start_node(*at));
        faults.power_cuts += u32::from(of.len() == 1);
        faults.blackouts += u32::from(of.len() > 1);
        std::thread::park_timeout(pause);
        return;
    }
    match random.random_range(0..10) {
        0..4 => {
            cluster.kill(at);
            std::thread::park_timeout(pause);
            cluster.start_node(at);
            faults.kills += 1;
        }
        4..8 => {
            cluster.signal(at, "-STOP");
            std::thread::park_timeout(pause);
            cluster.signal(at, "-CONT");
            faults.stops += 1;
        }
        8 => {
            // Whether it is refused or unknown does not matter: what follows must hold anyway.
            let _ = cluster.cli(another, &format!("node drain {}", at + 1));
            std::thread::park_timeout(pause);
            let _ = cluster.cli(another, &format!("node drain {} --undo", at + 1));
            faults.drains += 1;
        }
        _ => {
            let replicas = random.random_range(1..=3);
            let _ = cluster.cli(another, &format!("table alter rocks --replicas {replicas}"));
            std::thread::park_timeout(pause);
            let _ = cluster.cli(another, "table alter rocks --replicas 3");
            faults.replica_changes += 1;
        }
    }
    // Some faults follow one another at once.
    std::thread::park_timeout(Duration::from_millis(random.random_range(0..2_000)));
}

/// Begins to split a table, which goes on while other things happen.
fn split(cluster: &Cluster, random: &mut StdRng, at: usize, faults: &mut Faults, tables: &[Table]) {
    let name = tables.choose(random).expect("there are tables").name;
    let shown = cluster.cli(at, &format!("table show {name} --json")).unwrap_or_default();
    let table: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
    let Some(partitions) = table["partitions"].as_u64().filter(|partitions| *partitions < MOST_PARTITIONS) else {
        return;
    };
    if table["split"].is_null()
        && cluster.cli(at, &format!("table alter {name} --partitions {}", 2 * partitions)).is_ok()
    {
        faults.splits += 1;
        std::thread::park_timeout(Duration::from_millis(random.random_range(0..1_500)));
    }
}

/// Cuts a node off, or one of its links, or one direction of that; often while replicas move.
fn cut(cluster: &mut Cluster, random: &mut StdRng, at: usize, pause: Duration, faults: &mut Faults) {
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
        let _ = cluster.cli(other, &format!("node drain {}", at + 1));
    }
    std::thread::park_timeout(pause);
    cluster.net.as_ref().expect("there are links").heal();
    if is_moving {
        std::thread::park_timeout(pause);
        let _ = cluster.cli(other, &format!("node drain {} --undo", at + 1));
    }
    faults.cuts += 1;
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
