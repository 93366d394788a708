//! Plays what a RethinkDB server was recorded to answer through the ReQL port, and compares (`make oracle-wire`).
//!
//! A part that the seed draws is played in every run, by one node and by a cluster of three. `ORACLE_WHOLE=1` plays everything;
//! the variables of `tessera_oracle` choose what is played and printed.

mod feeds;
mod player;
mod socket;

use crate::cluster::Cluster;
use crate::server::{Node, free_port};
use player::WirePlayer;
use std::path::{Path, PathBuf};
use tessera_oracle::{Expected, Sample};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/reql_oracle")
}

fn is_whole() -> bool {
    std::env::var_os("ORACLE_WHOLE").is_some()
}

fn sample(scenarios: f64, steps: f64) -> Sample {
    let seed = std::env::var("TESSERA_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("TESSERA_SEED={seed}");
    Sample { seed, scenarios, steps }
}

#[test]
fn a_node_answers_as_rethinkdb_did() {
    let part = (!is_whole()).then(|| sample(0.2, 0.1));
    let nodes: Vec<_> = (0..2)
        .map(|_| {
            let (data, port) = (tempfile::tempdir().unwrap(), free_port());
            let node = Node::start(data.path(), &[&format!("reql.port={port}"), "workers=1"]);
            (data, port, node)
        })
        .collect();
    let players = nodes.iter().map(|(_, port, _)| WirePlayer::new(vec![*port])).collect();
    Expected::of(&directory()).in_sample(part).check(players);
}

/// What tells how tables are spread says something else there, and rightly so.
const ABOUT_ONE_SERVER: &[&str] = &["admin", "matrix_writes", "feeds/system tables"];

#[test]
fn three_nodes_answer_as_rethinkdb_did() {
    let part = sample(if is_whole() { 0.5 } else { 0.1 }, if is_whole() { 0.3 } else { 0.03 });
    let cluster = Cluster::start_with_reql(3);
    let player = WirePlayer::new(cluster.reql_ports());
    Expected::of(&directory()).in_sample(Some(part)).without(ABOUT_ONE_SERVER).check(vec![player]);
}
