//! Tables that are dropped, renamed or truncated while nodes are away, are cut off, or are about to learn of it.

use super::net::Net;
use super::{Cluster, WHOLE};
use crate::resp_client::{Client, Value};
use crate::server::wait_for;
use crate::skipped::skip;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often a change is made until only the nodes are named that cannot have heard of it.
const TRIES: usize = 5;

/// Has a table changed, and checks which nodes the answer names as behind. A node that is well and slow may be named besides, but not
/// each time.
fn assert_behind(expected: &[u64], mut change: impl FnMut(usize) -> String) {
    let mut named = Vec::new();
    for attempt in 0..TRIES {
        let changed: serde_json::Value = serde_json::from_str(&change(attempt)).unwrap();
        let behind: Vec<u64> = serde_json::from_value(changed["nodes_behind"].clone()).unwrap();
        assert!(expected.iter().all(|node| behind.contains(node)), "{changed}");
        if behind == expected {
            return;
        }
        named.push(behind);
    }
    panic!("{expected:?} are behind, and {named:?} were named");
}

/// Whoever is told that a table was dropped may rely on it: nobody's writes that begin later are acknowledged, on any node.
#[test]
fn a_dropped_table_takes_no_writes_on_any_node() {
    let cluster = Cluster::start(3);
    for round in 0..12 {
        let create = "table create gone --engine memory --durability soft --partitions 8 --replicas 3";
        cluster.cli(0, create).unwrap();
        let (stop, tries, dropped_at) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(None));
        let wait_for_tries = |more: u64| {
            let before = tries.load(Ordering::Relaxed);
            wait_for("clients write", WHOLE, || (tries.load(Ordering::Relaxed) >= before + more).then_some(()));
        };
        let write = |writer: usize| {
            let mut client = cluster.client(writer % 3);
            assert_eq!(client.run("TABLE gone"), Value::Simple("OK".into()));
            let mut latest = None;
            for number in 0.. {
                let began = Instant::now();
                if client.run(&format!("SET w{writer}n{number} v")) == Value::Simple("OK".into()) {
                    latest = Some(began);
                }
                tries.fetch_add(1, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            let dropped_at: Instant = dropped_at.lock().unwrap().expect("it was dropped");
            latest.and_then(|latest| latest.checked_duration_since(dropped_at)).map(|late| (writer % 3, late))
        };
        let write = &write;
        let late: Vec<(usize, Duration)> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..6).map(|writer| scope.spawn(move || write(writer))).collect();
            wait_for_tries(500);
            cluster.cli(round % 3, "table drop gone").unwrap();
            *dropped_at.lock().unwrap() = Some(Instant::now());
            wait_for_tries(500);
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().filter_map(|writer| writer.join().unwrap()).collect()
        });
        assert!(late.is_empty(), "round {round}: writes through these nodes began so long after the drop: {late:?}");
    }
}

/// A node that runs, and is cut off from those that keep the catalog, cannot know that a table was dropped. Whoever drops it is told
/// so, and what such a node acknowledges is not lost: it is in the table that was dropped.
#[test]
fn writes_to_a_dropped_table_on_the_other_side_of_a_cut_are_in_it_when_it_is_recalled() {
    let Some(net) = Net::new(5) else {
        return skip("network namespaces need root and iproute2");
    };
    net.enter();
    let cluster = Cluster { net: Some(net), ..Cluster::planned(TempDir::new().unwrap(), 5) }.started();
    let net = cluster.net.as_ref().unwrap();
    let create = "table create again --engine memory --durability hard --partitions 16 --replicas 1";
    cluster.cli(0, create).unwrap();
    cluster.wait_until_whole();
    for (one, other) in (0..3).flat_map(|one| [(one, 3), (one, 4)]) {
        net.cut(one, other);
        net.cut(other, one);
    }
    let dropped = wait_for("the larger side has a leader of the catalog, and drops the table", WHOLE, || {
        cluster.cli(0, "table drop again --json").ok()
    });
    assert_behind(&[4, 5], |attempt| {
        if attempt == 0 {
            return dropped.clone();
        }
        let other = format!("other{attempt}");
        cluster.cli(0, &format!("table create {other} --engine memory --partitions 1 --replicas 1")).unwrap();
        cluster.cli(0, &format!("table drop {other} --json")).unwrap()
    });
    cluster.cli(0, create).unwrap();
    // What the other side leads is waited for in vain, so all are asked at once.
    let write = |number: usize| {
        let mut client = cluster.client(3);
        assert_eq!(client.run("TABLE again"), Value::Simple("OK".into()));
        (client.run(&format!("SET cut{number} {number}")) == Value::Simple("OK".into())).then_some(number)
    };
    let write = &write;
    let written: Vec<usize> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..40).map(|number| scope.spawn(move || write(number))).collect();
        writers.into_iter().filter_map(|writer| writer.join().unwrap()).collect()
    });
    assert!(!written.is_empty(), "a node that is cut off serves what it leads");
    net.heal();
    cluster.wait_until_whole();
    let dropped: serde_json::Value =
        serde_json::from_str(&cluster.cli(0, "table list --dropped --json").unwrap()).unwrap();
    let number = dropped.as_array().unwrap().iter().find(|table| table["name"] == "again").unwrap()["number"].clone();
    cluster.cli(0, &format!("table recall {number} --name before")).unwrap();
    cluster.wait_until_whole();
    for (table, has) in [("again", false), ("before", true)] {
        let mut client = cluster.client(0);
        assert_eq!(client.run(&format!("TABLE {table}")), Value::Simple("OK".into()));
        for number in &written {
            let expected = if has { Value::Bulk(number.to_string().into_bytes()) } else { Value::Null };
            assert_eq!(client.run(&format!("GET cut{number}")), expected, "cut{number} in {table}");
        }
    }
}

/// Names that change hands: a write under a name goes into no table that had the name before.
#[test]
fn a_renamed_table_is_known_by_its_new_name_on_all_nodes() {
    let cluster = Cluster::start(3);
    let create = "table create name --engine memory --partitions 4 --replicas 3";
    for round in 0..6 {
        cluster.cli(0, create).unwrap();
        cluster.cli(round % 3, &format!("table rename name older{round}")).unwrap();
        for at in 0..3 {
            let answer = cluster.client(at).run("TABLE name");
            assert!(
                matches!(answer, Value::Error(_)),
                "node {at} finds it under its old name in round {round}: {answer}"
            );
        }
    }
}

/// A node that stands still may go on with the old name when it wakes up. Whoever renames the table is told so.
#[test]
fn whoever_renames_a_table_is_told_of_nodes_that_stand_still() {
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create name0 --engine memory --partitions 4 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let status: serde_json::Value = serde_json::from_str(&cluster.cli(0, "status --json").unwrap()).unwrap();
    // Nodes have numbers from 1.
    let still = if status["cluster"]["catalog_leader"] == 3 { 1 } else { 2 };
    cluster.signal(still, "-STOP");
    assert_behind(&[still as u64 + 1], |attempt| {
        let (before, after) = (format!("name{attempt}"), format!("name{}", attempt + 1));
        let renamed = cluster.cli(0, &format!("table rename {before} {after} --json")).unwrap();
        let told: serde_json::Value = serde_json::from_str(&renamed).unwrap();
        assert_eq!(told["name"], after, "{renamed}");
        renamed
    });
    cluster.signal(still, "-CONT");
}

/// It was answered as not done when the leader of one partition had just ended and others were empty already.
#[test]
fn a_table_is_truncated_whole_when_a_leader_has_just_ended() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create full --engine memory --durability soft --partitions 6 --replicas 3").unwrap();
    for killed in [1, 2] {
        cluster.wait_until_whole();
        let mut client = cluster.client(0);
        client.run("TABLE full");
        for number in 0..60 {
            assert_eq!(client.run(&format!("SET k{number} v")), Value::Simple("OK".into()));
        }
        cluster.kill(killed);
        cluster.cli(0, "table truncate full --yes").unwrap();
        for number in 0..60 {
            assert_eq!(client.run(&format!("GET k{number}")), Value::Null, "k{number}, without node {killed}");
        }
        cluster.start_node(killed);
    }
}

/// While a node is away, a table is dropped and made anew under the same name. The node knew the old one when it came back, and for a
/// second or more acknowledged writes to it, which nobody found again.
#[test]
fn a_node_that_was_away_serves_no_table_that_was_dropped_meanwhile() {
    let mut cluster = Cluster::start(3);
    let create = "table create again --engine memory --durability hard --partitions 4 --replicas 3";
    cluster.cli(0, create).unwrap();
    cluster.wait_until_whole();
    for round in 0..2 {
        let mut client = cluster.client(0);
        client.run("TABLE again");
        assert_eq!(client.run(&format!("SET old{round} old")), Value::Simple("OK".into()));
        cluster.kill(2);
        cluster.cli(0, "table drop again").unwrap();
        cluster.cli(0, create).unwrap();
        // With the second node away, too, the one that was away soon leads partitions of the table that was dropped.
        cluster.kill(1);
        cluster.start_node(2);
        let began = Instant::now();
        let mut written = Vec::new();
        for number in 0.. {
            let mut client = wait_for("the node takes connections", WHOLE, || Client::connect(cluster.ports[2].0).ok());
            if client.run("TABLE again") == Value::Simple("OK".into()) {
                let old = client.run(&format!("GET old{round}"));
                assert!(!matches!(old, Value::Bulk(_)), "a record of the table that was dropped: {old}");
                if client.run(&format!("SET n{number} {number}")) == Value::Simple("OK".into()) {
                    written.push(number);
                }
            }
            if written.len() >= 200 || began.elapsed() > Duration::from_secs(60) {
                break;
            }
        }
        assert!(!written.is_empty(), "the new table serves");
        cluster.start_node(1);
        cluster.wait_until_whole();
        let mut client = cluster.client(0);
        client.run("TABLE again");
        for number in written {
            let value = client.run(&format!("GET n{number}"));
            assert_eq!(value, Value::Bulk(number.to_string().into_bytes()), "n{number} in round {round}");
        }
    }
}
