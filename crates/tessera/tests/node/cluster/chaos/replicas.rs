//! Whether all replicas hold the same when everything is at rest again.

use super::load::{Load, Session};
use super::tables::{Promise, Table};
use crate::cluster::Cluster;
use crate::resp_client::{Value, words};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A replica hears of a commit with the next message, and of what has expired a little later.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads every key from the replica of each node, which answers by itself what it holds; a node without one asks another.
///
/// # Errors
/// Keys that nodes go on to tell differently.
pub fn compare(cluster: &Cluster, load: &Load, table: Table, mut keys: Vec<String>) -> Result<(), String> {
    // Each replica of such a table throws away what it likes.
    if table.promise == Promise::Cache {
        return Ok(());
    }
    let began = Instant::now();
    loop {
        let running = (0..cluster.nodes.len()).filter(|at| cluster.nodes[*at].is_some());
        let told: Vec<Vec<Value>> =
            running.map(|at| digests(cluster, load, table, at, &keys)).collect::<Result<_, _>>()?;
        let differ = |key: usize| told.iter().any(|of_node| of_node[key] != told[0][key]);
        let different: BTreeMap<String, Vec<Value>> = (0..keys.len())
            .filter(|key| differ(*key))
            .map(|key| (keys[key].clone(), told.iter().map(|of_node| of_node[key].clone()).collect()))
            .collect();
        if different.is_empty() {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            let some: Vec<_> = different.iter().take(5).collect();
            return Err(format!("{} keys differ between replicas, e.g. {some:?}", different.len()));
        }
        keys = different.into_keys().collect();
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// Has the nodes compare all records of all replicas, those that no client has asked for among them.
pub fn compare_all(cluster: &Cluster, table: Table) {
    let at = (0..cluster.nodes.len()).find(|at| cluster.nodes[*at].is_some()).expect("a node runs");
    let began = Instant::now();
    loop {
        let (code, compared) = cluster.compare(at, table.name);
        // A replica may be busy for a while, or be replaced by one with another name.
        match code {
            0 => return,
            7 if began.elapsed() < PATIENCE => std::thread::park_timeout(Duration::from_millis(100)),
            _ => panic!("{}: {compared}", table.name),
        }
    }
}

fn digests(cluster: &Cluster, load: &Load, table: Table, at: usize, keys: &[String]) -> Result<Vec<Value>, String> {
    let address = (cluster.host(at), cluster.ports[at].0);
    let mut session = Session::open(load, &address, table, "outdated", 0).ok_or("a node cannot be reached")?;
    let mut told = Vec::new();
    for keys in keys.chunks(200) {
        let commands: Vec<_> = keys.iter().map(|key| words(&format!("OBJECT DIGEST {key}"))).collect();
        for answer in session.ask_all(&commands) {
            // What a partition that just begins does not tell differs from what others tell.
            told.push(answer.value().cloned().unwrap_or_else(|| Value::Error("not told".into())));
        }
    }
    Ok(told)
}
