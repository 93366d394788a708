//! What clients notice when a node is killed, stopped, drained, stands still, or has a full disk.

use super::{Cluster, WHOLE};
use crate::disk::SmallDisk;
use crate::reql::{Client as ReqlClient, table};
use crate::resp_client::{Client, Value, words};
use crate::server::wait_for;
use crate::skipped::skip;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What came of writes through another node.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    longest: Duration,
    refused: u64,
    /// Under way when the leader changed: they may have taken effect.
    unknown: u64,
}

impl Outcomes {
    fn and(self, other: Self) -> Self {
        Self {
            longest: self.longest.max(other.longest),
            refused: self.refused + other.refused,
            unknown: self.unknown + other.unknown,
        }
    }
}

/// Writes through a node while `disturb` happens to another one.
fn write_while(port: u16, table: &str, disturb: impl FnOnce()) -> Outcomes {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u32)
            .map(|writer| {
                let stop = &stop;
                scope.spawn(move || {
                    let mut client = Client::connect(port).unwrap();
                    client.run(&format!("TABLE {table}"));
                    let mut outcomes = Outcomes::default();
                    for number in 0u64.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let began = Instant::now();
                        let reply = client.run(&format!("SET w{writer}n{} {number}", number % 100));
                        outcomes.longest = outcomes.longest.max(began.elapsed());
                        match reply {
                            Value::Simple(_) => {}
                            Value::Error(line) if line.contains("outcome unknown") => outcomes.unknown += 1,
                            other => {
                                eprintln!("{other}");
                                outcomes.refused += 1;
                            }
                        }
                    }
                    outcomes
                })
            })
            .collect();
        disturb();
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).fold(Outcomes::default(), Outcomes::and)
    })
}

#[test]
#[ignore = "a measurement; `make failover` runs it"]
fn failover_takes() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine rocksdb --partitions 16 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let (mut gaps, mut all) = (Vec::new(), Outcomes::default());
    for kill in 0..20 {
        let at = kill % 3;
        let port = cluster.ports[(at + 1) % 3].0;
        let outcomes = write_while(port, "t", || {
            std::thread::park_timeout(Duration::from_millis(500));
            cluster.kill(at);
            std::thread::park_timeout(Duration::from_secs(4));
        });
        gaps.push(outcomes.longest);
        all = all.and(outcomes);
        cluster.start_node(at);
        cluster.wait_until_whole();
        // Leaders go back to where they belong, or the next kill would hit nobody.
        std::thread::park_timeout(Duration::from_secs(5));
    }
    gaps.sort_unstable();
    eprintln!("longest write per kill: median {:?}, worst {:?}; {all:?}", gaps[10], gaps[19]);
}

#[test]
#[ignore = "a measurement; `make failover` runs it"]
fn rolling_restart_takes() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine rocksdb --partitions 16 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let (mut gaps, mut all) = (Vec::new(), Outcomes::default());
    // Twenty restarts, one node after the other, as a cluster is upgraded.
    for restart in 0..20 {
        let at = restart % 3;
        let port = cluster.ports[(at + 1) % 3].0;
        let outcomes = write_while(port, "t", || {
            assert_eq!(cluster.nodes[at].take().unwrap().process.terminate(), Some(0));
            cluster.start_node(at);
            cluster.wait_until_whole();
        });
        gaps.push(outcomes.longest);
        all = all.and(outcomes);
        // Leaders go back to where they belong, or the next restart would meet none.
        std::thread::park_timeout(Duration::from_secs(5));
    }
    gaps.sort_unstable();
    eprintln!("longest write per restart: median {:?}, worst {:?}; {all:?}", gaps[10], gaps[19]);
}

#[test]
fn stopping_a_node_refuses_no_request_made_to_others() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 8 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let port = cluster.ports[1].0;
    // What matters is what was under way when a node went, which not every stop meets.
    for at in [0, 2, 0] {
        let outcomes = write_while(port, "t", || {
            let mut node = cluster.nodes[at].take().unwrap();
            assert_eq!(node.process.terminate(), Some(0));
        });
        assert_eq!((outcomes.refused, outcomes.unknown), (0, 0));
        eprintln!("while a node stopped: {outcomes:?}");
        cluster.start_node(at);
        cluster.wait_until_whole();
    }
}

/// A node that was told to stop once closed its connections under what it had handed to other nodes for them.
#[test]
fn what_a_node_carries_out_for_its_clients_it_answers_before_it_stops() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 8 --replicas 3").unwrap();
    cluster.wait_until_whole();
    for at in [0, 2, 0] {
        let port = cluster.ports[at].0;
        // Each client writes one number after the other, until the node leaves it. Returns the last that was answered.
        let write = move |client: usize| {
            let mut connection = Client::connect(port).unwrap();
            connection.run("TABLE t");
            let answered = (0u64..).take_while(|number| {
                match connection.call(&words(&format!("SET at{at}client{client} {number}"))) {
                    Ok(Value::Simple(_)) => true,
                    Ok(other) => panic!("{other}"),
                    Err(_) => false,
                }
            });
            answered.last()
        };
        let writers: Vec<_> = (0..16).map(|client| std::thread::spawn(move || write(client))).collect();
        let mut others = cluster.client((at + 1) % 3);
        others.run("TABLE t");
        wait_for("all clients write", WHOLE, || {
            (0..16).all(|client| others.run(&format!("EXISTS at{at}client{client}")) == Value::Integer(1)).then_some(())
        });
        assert_eq!(cluster.nodes[at].take().unwrap().process.terminate(), Some(0));
        for (client, writer) in writers.into_iter().enumerate() {
            let answered = writer.join().unwrap().expect("it has written").to_string();
            let written = others.run(&format!("GET at{at}client{client}"));
            assert_eq!(written, Value::Bulk(answered.into_bytes()), "client {client} of node {}", at + 1);
        }
        cluster.start_node(at);
        cluster.wait_until_whole();
    }
}

/// Only those queries were waited for that have a thread, and a query about one document has none.
#[test]
fn queries_about_one_document_are_answered_before_their_node_stops() {
    const STOPS: usize = 0;
    const WRITES: usize = 2;
    let Some(mut cluster) = Cluster::start_with_reql_and_power(3) else {
        return skip("mounting file systems needs root and loop devices");
    };
    let port = cluster.reql_ports()[STOPS];
    let mut other = ReqlClient::to(port);
    let name = (0..9).map(|number| format!("t{number}")).find(|name| {
        assert_eq!(other.ask(&json!([60, [name], {"replicas": 1}]))["tables_created"], 1);
        other.ask(&json!([175, [table(name)]]))["shards"][0]["primary_replicas"] == json!(["node-3"])
    });
    let name = name.expect("one of the tables is on each node");
    let mut clients: Vec<ReqlClient> = (0..16).map(|_| ReqlClient::to(port)).collect();
    let frozen = cluster.disks[WRITES].freeze();
    for (id, client) in clients.iter_mut().enumerate() {
        client.send(1, &json!([1, [56, [table(&name), {"id": id}]], {}]).to_string());
    }
    let jobs = json!([43, [[39, [[15, [[14, ["rethinkdb"]], "jobs"]], {"type": "query"}]]]]);
    wait_for("the writes are under way", WHOLE, || (other.ask(&jobs) == clients.len() + 1).then_some(()));
    cluster.signal(STOPS, "-TERM");
    wait_for("the node takes no more queries", WHOLE, || {
        let answer = other.ask(&json!([103, []]));
        answer["r"][0].as_str().is_some_and(|error| error.contains("shutting down")).then_some(())
    });
    // Longer than replies have that are ready.
    std::thread::park_timeout(Duration::from_millis(500));
    drop(frozen);
    for client in &mut clients {
        assert_eq!(client.receive().1["r"][0]["inserted"], 1);
    }
    assert_eq!(cluster.nodes[STOPS].take().unwrap().process.wait(), Some(0));
}

#[test]
fn draining_a_node_refuses_no_request() {
    let cluster = Cluster::start(4);
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 8 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let (at, other) = (0, 1);
    let outcomes = write_while(cluster.ports[other].0, "t", || {
        cluster.cli(other, &format!("node drain {}", at + 1)).unwrap();
        wait_for("the node is empty", WHOLE, || {
            let status = cluster.status(other)?;
            let nodes = status["cluster"]["nodes"].as_array()?;
            (nodes.iter().find(|node| node["id"] == at + 1)?["replicas"] == 0).then_some(())
        });
    });
    assert_eq!((outcomes.refused, outcomes.unknown), (0, 0), "while node {} was drained", at + 1);
    eprintln!("while node {} was drained: {outcomes:?}", at + 1);
}

/// A node whose disk is full lets others lead; clients notice nothing, and it comes back by itself.
#[test]
fn a_full_disk_under_one_replica_of_a_memory_table_refuses_nothing() {
    full_disk_under_one_replica("memory");
}

#[test]
fn a_full_disk_under_one_replica_of_a_rocksdb_table_refuses_nothing() {
    full_disk_under_one_replica("rocksdb");
}

fn full_disk_under_one_replica(engine: &str) {
    const MIB: usize = 1 << 20;
    let data = TempDir::new().unwrap();
    let Some(disk) = SmallDisk::mount(data.path().join("0"), 256 * MIB) else {
        return skip("mounting a small file system needs root");
    };
    let cluster = Cluster::start_at(data, None, 3);
    let create = format!("table create t --engine {engine} --durability hard --partitions 8 --replicas 3");
    cluster.cli(0, &create).unwrap();
    cluster.wait_until_whole();
    let leads = |node: u64| {
        let status = cluster.status(1).unwrap();
        let nodes = status["cluster"]["nodes"].as_array().unwrap().clone();
        nodes.iter().find(|known| known["id"] == node).unwrap()["leaders"].as_u64().unwrap()
    };
    assert!(leads(1) > 0);
    let ballast = disk.path().join("ballast");
    let outcomes = write_while(cluster.ports[1].0, "t", || {
        // All of it: a file system of its own has no reserve.
        let mut file = std::fs::File::create(&ballast).unwrap();
        while std::io::Write::write_all(&mut file, &[0; 1 << 16]).is_ok() {}
        wait_for("others lead", WHOLE, || (leads(1) == 0).then_some(()));
        std::thread::park_timeout(Duration::from_secs(2));
        std::fs::remove_file(&ballast).unwrap();
    });
    assert_eq!(outcomes.refused, 0, "{outcomes:?}");
    wait_for("the node leads its share again", WHOLE, || (leads(1) > 0).then_some(()));
    cluster.wait_until_whole();
}

/// Pegasus' Go client does not connect again to an address that it tried less than a minute ago. So a node that was started again
/// and led at once kept such clients waiting.
#[test]
fn a_node_that_was_started_again_leads_again_after_a_while_only() {
    const AFTER: Duration = Duration::from_secs(10);
    let settings = &["cluster.lead_again_after_seconds=10"];
    let mut cluster = Cluster { settings, ..Cluster::planned(TempDir::new().unwrap(), 3) }.started();
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 8 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let leads = |cluster: &Cluster| {
        let status = cluster.status(1)?;
        let nodes = status["cluster"]["nodes"].as_array()?;
        nodes.iter().find(|known| known["id"] == 1)?["leaders"].as_u64()
    };
    wait_for("the node leads its share", WHOLE, || leads(&cluster).filter(|leaders| *leaders > 0));
    cluster.kill(0);
    wait_for("others lead", WHOLE, || leads(&cluster).filter(|leaders| *leaders == 0));
    let began = Instant::now();
    cluster.start_node(0);
    wait_for("the node leads its share again", WHOLE, || leads(&cluster).filter(|leaders| *leaders > 0));
    assert!(began.elapsed() >= AFTER, "after {:?}", began.elapsed());
}

/// That time is for clients of other nodes. What no other node can lead is led at once.
#[test]
fn a_node_that_was_started_again_leads_at_once_what_no_other_node_can() {
    let settings = &["cluster.lead_again_after_seconds=3600"];
    let mut cluster = Cluster { settings, ..Cluster::planned(TempDir::new().unwrap(), 3) }.started();
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 8 --replicas 1").unwrap();
    cluster.wait_until_whole();
    let write = |cluster: &Cluster, at: usize, value: usize| {
        let mut client = cluster.client(at);
        client.run("TABLE t");
        for number in 0..50 {
            assert_eq!(client.run(&format!("SET key{number} {value}")), Value::Simple("OK".into()));
        }
    };
    write(&cluster, 1, 0);
    cluster.kill(0);
    cluster.start_node(0);
    cluster.wait_until_whole();
    write(&cluster, 1, 1);
    (0..3).for_each(|at| cluster.kill(at));
    (0..3).for_each(|at| cluster.start_node(at));
    cluster.wait_until_whole();
    write(&cluster, 2, 2);
}

/// Whoever restarts nodes one after the other waits for `status` to show no issue. A node that had just been started again, and had lost
/// what it held of a table without a log, once counted as whole for a second: the next restart then emptied the table.
#[test]
fn restarting_all_nodes_keeps_tables_without_a_log() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability none --partitions 4 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE t");
    for number in 0..1_000 {
        assert_eq!(client.run(&format!("SET key{number} {number}")), Value::Simple("OK".into()));
    }
    for at in [1, 2, 0, 1] {
        cluster.kill(at);
        cluster.start_node(at);
        cluster.wait_for("the restarted node shows no issue", WHOLE, || cluster.is_whole(at));
    }
    let mut client = cluster.client(1);
    client.run("TABLE t");
    for number in 0..1_000 {
        assert_eq!(client.run(&format!("GET key{number}")), Value::Bulk(number.to_string().into_bytes()));
    }
}

/// A replica that takes nothing for a while holds nobody up, and has everything again afterwards.
#[test]
fn a_replica_that_stands_still_stalls_nobody() {
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine rocksdb --partitions 4 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let outcomes = write_while(cluster.ports[1].0, "t", || {
        cluster.signal(2, "-STOP");
        // Longer than elections take, and than a write may take: one that waits for this node is found.
        std::thread::park_timeout(Duration::from_secs(9));
        cluster.signal(2, "-CONT");
    });
    assert_eq!(outcomes.refused, 0, "{outcomes:?}");
    assert!(outcomes.longest < Duration::from_secs(8), "{outcomes:?}");
    cluster.wait_until_whole();
    let mut written = cluster.client(0);
    written.run("TABLE t");
    let mut outdated = cluster.client(2);
    outdated.run("TABLE t");
    outdated.run("READS outdated");
    wait_for("the replica has caught up", WHOLE, || {
        let is_equal = |number: u32| {
            let get = format!("GET w0n{number}");
            written.run(&get) == outdated.run(&get)
        };
        (0..100).all(is_equal).then_some(())
    });
}
