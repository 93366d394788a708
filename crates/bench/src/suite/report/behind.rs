//! Where Tessera is behind a peer, or behind the published shape: found by rules, so that nobody has to want to tell.

use super::Material;
use super::scale::growth;
use super::shown::{control, cost_ratio, mean};
use crate::report::RunResult;
use crate::suite::experiments::{self, RETHINKDB_PROTOCOLS};
use crate::suite::peer::is_control;
use crate::suite::published::RethinkRow;
use crate::suite::result::CellResult;
use std::collections::BTreeMap;

/// What is taken for the same.
const NOISE: f64 = 0.1;

fn per_cpu(run: &RunResult) -> Option<f64> {
    run.operations_per_server_cpu_second
}

/// A sentence for each place.
pub(super) fn places(material: &Material) -> Vec<String> {
    [
        peers(material),
        limiter(material),
        partitions(material),
        scale(material),
        rethinkdb(material),
        map_reduce(material),
    ]
    .concat()
}

/// By kind of peer: how many times Tessera's operations per CPU-second the peer does, in each cell where both were measured.
pub(super) fn ratios_to_peers(material: &Material) -> BTreeMap<String, Vec<f64>> {
    // By program and number of copies, whatever its version and durability.
    let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for result in material.results.values() {
        let Some(ours) = result.shown().and_then(per_cpu) else { continue };
        // The control copies nothing: only how its cost grows is to be compared, not what it is.
        for (name, peer) in result.peers.iter().filter(|(name, _)| !is_control(name)) {
            let theirs = peer.shown().and_then(per_cpu);
            ratios.entry(kind_of(name)).or_default().extend(theirs.map(|theirs| theirs / ours));
        }
    }
    ratios
}

fn peers(material: &Material) -> Vec<String> {
    let sentence = |(kind, ratios): (String, Vec<f64>)| {
        let ahead: Vec<f64> = ratios.iter().copied().filter(|ratio| *ratio > 1.0 + NOISE).collect();
        let (mean, most) = (mean(&ahead)?, ahead.iter().copied().fold(0.0, f64::max));
        Some(format!(
            "{kind}, does more operations per CPU-second than Tessera's nodes together in {} of \
             {} cells where both were measured: {mean:.1} times as many on average, {most:.1} at most.",
            ahead.len(),
            ratios.len()
        ))
    };
    ratios_to_peers(material).into_iter().filter_map(sentence).collect()
}

/// What a peer is, of its name: `PROGRAM VERSION, COPIES, DURABILITY`.
fn kind_of(name: &str) -> String {
    let mut parts = name.split(", ");
    let program = parts.next().and_then(|program| program.split(' ').next()).unwrap_or(name);
    [program].into_iter().chain(parts.next()).collect::<Vec<_>>().join(", ")
}

fn limiter(material: &Material) -> Vec<String> {
    let rows = &material.published.limiter;
    let ours = |setting: &str| material.run(&experiments::limiter(setting)).map(|run| run.operations_per_second);
    let Some((first, base)) = rows.first().and_then(|first| Some((first, ours(&first.setting)?))) else {
        return Vec::new();
    };
    let compare = |row: &crate::suite::published::LimiterRow| {
        let (ours, theirs) = (ours(&row.setting)? / base, row.max_write_qps / first.max_write_qps);
        (ours < theirs * (1.0 - NOISE)).then(|| {
            format!(
                "Rate limiter, {}: {ours:.2} of the writes that there are without a limit, where Pegasus published {theirs:.2}.",
                row.setting
            )
        })
    };
    rows.iter().skip(1).filter_map(compare).collect()
}

fn partitions(material: &Material) -> Vec<String> {
    let rows = &material.published.partitions;
    let (Some(few), Some(many)) = (rows.first(), rows.last()) else { return Vec::new() };
    let runs = |count: u32| experiments::partitions(count).map(|cell| material.run(&cell));
    let published = [many.w_qps / few.w_qps, many.r_qps / few.r_qps];
    let ours = runs(few.partitions).into_iter().zip(runs(many.partitions));
    let sentences = ["writes", "reads"].into_iter().zip(ours).zip(published).filter_map(|((what, (few_, many_)), theirs)| {
        let ours = cost_ratio(few_?, many_?)?;
        (ours < theirs * (1.0 - NOISE)).then(|| {
            format!(
                "{} partitions instead of {}: {ours:.2} of the {what} per CPU-second, where Pegasus published {theirs:.2} of the \
                 throughput.",
                many.partitions, few.partitions
            )
        })
    });
    sentences.collect()
}

fn scale(material: &Material) -> Vec<String> {
    let sentence = |case| {
        let ratio = growth(material, case, CellResult::shown).filter(|ratio| *ratio > 1.0 + NOISE)?;
        let control = growth(material, case, control).map_or(String::new(), |control| {
            format!(" Of as many redis-server processes under the same clients, it costs {control:.2} times.")
        });
        Some(format!("A {case} costs {ratio:.2} times the CPU time on 7 nodes that it does on 5.{control}"))
    };
    ["write", "read"].into_iter().filter_map(sentence).collect()
}

fn rethinkdb(material: &Material) -> Vec<String> {
    let mut sentences = Vec::new();
    let workloads = [
        ("A", "A 50/50", "a", None),
        ("C", "C read only, read_mode single", "c", None),
        ("C, outdated", "C read only, read_mode outdated", "c", Some("outdated")),
    ];
    let through = RETHINKDB_PROTOCOLS.into_iter().flat_map(|protocol| workloads.map(|workload| (protocol, workload)));
    for (protocol, (title, published, workload, reads)) in through {
        let at = |nodes| material.run(&experiments::rethinkdb(protocol, workload, nodes, reads));
        let ratio = at(16).zip(at(2)).and_then(|(large, small)| cost_ratio(large, small));
        let ratio = ratio.filter(|ratio| *ratio > 1.0 + NOISE);
        sentences.extend(ratio.map(|ratio| {
            format!(
                "YCSB {title} through the protocol {protocol}: an operation costs {ratio:.1} times the CPU time on 16 nodes that it does on \
                 2.{}",
                published_growth(material, published).unwrap_or_default()
            )
        }));
    }
    sentences
}

/// How much throughput RethinkDB has published on most nodes, of what it has on fewest.
fn published_growth(material: &Material, workload: &str) -> Option<String> {
    let is_it = |row: &&RethinkRow| row.workload.starts_with(workload) && row.metric == "throughput";
    let rows = || material.published.rethinkdb.iter().filter(is_it);
    let (few, many) = (rows().min_by_key(|row| row.nodes)?, rows().max_by_key(|row| row.nodes)?);
    let (nodes, growth) = (f64::from(many.nodes) / f64::from(few.nodes), many.value / few.value);
    Some(format!(
        " The throughput that RethinkDB has published is {growth:.1} times as high on {} nodes as on {}, which are {nodes:.0} times as many.",
        many.nodes, few.nodes
    ))
}

fn map_reduce(material: &Material) -> Vec<String> {
    let at = |nodes| material.run(&experiments::map_reduce(nodes));
    let ratio = at(16).zip(at(1)).and_then(|(large, small)| cost_ratio(large, small));
    let ratio = ratio.filter(|ratio| *ratio > 1.0 + NOISE);
    let sentence =
        |ratio| format!("The map-reduce query costs {ratio:.1} times the CPU time on 16 nodes that it does on one.");
    ratio.map(sentence).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::kind_of;

    #[test]
    fn peers_of_one_kind_are_told_together() {
        assert_eq!(
            kind_of("redis-server 7.0.15, two copies (asynchronous), volatile"),
            "redis-server, two copies (asynchronous)"
        );
        assert_eq!(kind_of("redis at 10.0.0.9:6379, as it was set up"), "redis, as it was set up");
        assert_eq!(kind_of("one"), "one");
    }
}
