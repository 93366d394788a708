//! Nodes that made up a majority are gone for good, and an operator has those that are left go on.

use super::stop_at_end::StopAtEnd;
use super::{Cluster, WHOLE, is_settled};
use crate::resp_client::{Client, Value};
use crate::server::{tessera, wait_for};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const WRITES: u32 = 300;

/// Runs `tessera recover` with the data directory of a node that does not run. Returns whether it succeeded, and what it said.
fn recover(cluster: &Cluster, at: usize, arguments: &[&str]) -> (bool, String) {
    let mut command = tessera();
    command.arg("recover").arg("--data-dir").arg(cluster.data_directory(at)).args(arguments);
    command.current_dir(cluster.data.path());
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

fn write(client: &mut Client, table: &str) {
    assert!(matches!(client.run(&format!("TABLE {table}")), Value::Simple(_)));
    for number in 0..WRITES {
        assert!(matches!(client.run(&format!("SET n{number} {table}{number}")), Value::Simple(_)), "n{number}");
    }
}

fn assert_all_there(client: &mut Client, table: &str) {
    assert!(matches!(client.run(&format!("TABLE {table}")), Value::Simple(_)));
    for number in 0..WRITES {
        let value = client.run(&format!("GET n{number}"));
        let expected = format!("{table}{number}").into_bytes();
        assert!(matches!(&value, Value::Bulk(bytes) if *bytes == expected), "{table}: n{number}: {value}");
    }
}

fn log(cluster: &Cluster, at: usize) -> String {
    let logs = cluster.logs.as_ref().expect("nodes have logs");
    std::fs::read_to_string(logs.join(format!("node-{at}.log"))).unwrap_or_default()
}

/// Two nodes, of which the first, which founded the cluster and led half of it, loses its disk.
#[test]
fn one_of_two_nodes_goes_on_with_everything_at_an_operators_word() {
    let data = tempfile::TempDir::new().unwrap();
    let logs: PathBuf = data.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let mut cluster = Cluster { logs: Some(logs), ..Cluster::planned(data, 2) }.started();
    cluster.cli(0, "table alter default --replicas 2").unwrap();
    cluster.cli(0, "table create fast --engine memory --durability soft --partitions 4 --replicas 2").unwrap();
    cluster.wait_until_whole();
    for (at, table) in [(0, "default"), (1, "fast")] {
        write(&mut cluster.client(at), table);
    }

    cluster.kill(0);
    let (done, said) = recover(&cluster, 1, &["--lost", "1"]);
    assert!(!done && said.contains("in use by another process"), "{said}");
    cluster.kill(1);
    // The old disk turns up again later.
    cluster.copy_disk(0);
    cluster.lose_disk(0);
    let (done, said) = recover(&cluster, 1, &["--lost", "2"]);
    assert!(!done && said.contains("node 2 was named as lost, and is surveyed"), "{said}");
    let (done, said) = recover(&cluster, 1, &["--lost", "1"]);
    assert!(done && said.contains("16 go on with one replica each, which has every write"), "{said}");
    assert!(!said.contains("MAY LACK") && said.contains("Nothing was changed"), "{said}");
    assert!(!cluster.data_directory(1).join("recovery.json").exists());
    // One that is the only one left needs no survey, and may have one.
    let (done, said) = recover(&cluster, 1, &["--write-survey", "survey.json"]);
    assert!(done && said.contains("wrote what node 2 holds to survey.json"), "{said}");
    let (done, said) = recover(&cluster, 1, &["--lost", "1", "--survey", "survey.json", "--yes"]);
    assert!(done && said.contains("The next start of the node carries it out"), "{said}");

    cluster.start_node(1);
    wait_for("the node that is left serves", WHOLE, || cluster.node(1).is_serving().then_some(()));
    for table in ["default", "fast"] {
        assert_all_there(&mut cluster.client(1), table);
    }
    let status = cluster.cli(1, "status").unwrap();
    assert!(
        status.contains("recovered   ") && status.contains("without node 1, lost for good: 20 partitions"),
        "{status}"
    );

    // A new node joins and gets replicas of everything.
    let at = cluster.add_node(&[]);
    wait_for("a node joins", WHOLE, || (cluster.known_nodes(1)? == 2).then_some(()));
    assert_eq!(cluster.number(at), Some(3), "the lost one's number is not given again");
    cluster.wait_until_whole();
    assert!(cluster.replicas_of(1, "default").iter().all(|wanted| wanted.as_array().unwrap().len() == 2));
    write(&mut cluster.client(at), "fast");

    // The old one comes back as it was, and is refused.
    let old = cluster.nodes.len();
    cluster.nodes.push(None);
    cluster.ports.push((0, 0, 0));
    cluster.change_ports(old);
    std::fs::rename(cluster.copy_of(0), cluster.data_directory(old)).unwrap();
    cluster.start_node_with(old, &["--accept-older-data"]);
    wait_for("it is told why it is refused", WHOLE, || {
        log(&cluster, old)
            .contains("goes on, under another name, without nodes that an operator has named")
            .then_some(())
    });
    let led = cluster.status(old).map(|status| status["serving_partitions"].clone());
    assert!(led.is_none_or(|led| led == 0), "it leads nothing");
    assert_eq!(cluster.known_nodes(1), Some(2));
    cluster.kill(old);

    // What was recovered outlives another start, and the new node has all of it.
    cluster.kill(1);
    cluster.start_node(1);
    cluster.wait_until_whole();
    for table in ["default", "fast"] {
        assert_all_there(&mut cluster.client(at), table);
    }
}

/// One of two is drained and stopped, and only then removed: the other one decides alone by then.
#[test]
fn the_one_of_two_that_is_drained_may_be_stopped_before_it_is_removed() {
    let mut cluster = Cluster::start(2);
    cluster.wait_for("replicas move to the second node", WHOLE, || {
        cluster.status(0).is_some_and(|status| status["cluster"]["nodes"][1]["leaders"].as_u64() > Some(0))
    });
    write(&mut cluster.client(1), "default");
    cluster.cli(1, "node drain 2").unwrap();
    cluster.wait_for("it is drained", WHOLE, || {
        cluster.status(0).is_some_and(|status| status["cluster"]["nodes"][1]["replicas"] == 0)
    });
    assert_eq!(cluster.nodes[1].take().unwrap().process.terminate(), Some(0));
    let mut client = cluster.client(0);
    assert_all_there(&mut client, "default");
    cluster.cli(0, "table create t --partitions 4").unwrap();
    cluster.cli(0, "node remove 2").unwrap();
    write(&mut client, "t");
    assert_eq!(cluster.known_nodes(0), Some(1));
}

/// Both of two nodes are started again, one after the other. Nothing is lost, and what waits meanwhile is done.
#[test]
fn two_nodes_are_started_again_one_after_the_other() {
    let mut cluster = Cluster::start(2);
    cluster.cli(0, "table create t --partitions 4 --replicas 2").unwrap();
    write(&mut cluster.client(0), "t");
    for at in [0, 1] {
        let other = 1 - at;
        assert_eq!(cluster.nodes[at].take().unwrap().process.terminate(), Some(0));
        let mut client = cluster.client(other);
        let waiting = std::thread::spawn(move || {
            client.run("TABLE t");
            client.run("SET while yes")
        });
        cluster.start_node(at);
        let answer = waiting.join().unwrap();
        assert!(matches!(answer, Value::Simple(_)), "it waits for the other one: {answer}");
        wait_for("the node serves", WHOLE, || cluster.node(at).is_serving().then_some(()));
        assert_all_there(&mut cluster.client(at), "t");
    }
}

/// Writes keys until it is told to end, and counts those that are acknowledged. Returns them.
fn keep_writing(mut client: Client, round: usize, acknowledged: &AtomicU32, ends: &AtomicBool) -> Vec<String> {
    assert!(matches!(client.run("TABLE t"), Value::Simple(_)));
    let mut keys = Vec::new();
    for number in 0_u32.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("k{round}.{number}");
        // A write that waits for the other node for too long is refused, or may or may not have been done.
        if matches!(client.run(&format!("SET {key} {key}")), Value::Simple(_)) {
            keys.push(key);
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
    keys
}

/// A table without a log on two nodes, of which one ends time and again while it is written to: killed, or as for an update.
/// The other one has everything that was acknowledged, and goes on with it.
#[test]
fn of_a_table_without_a_log_one_of_two_nodes_keeps_everything() {
    let mut cluster = Cluster::start(2);
    cluster.cli(0, "table alter default --replicas 2").unwrap();
    cluster.cli(0, "table create t --engine memory --partitions 8 --replicas 2").unwrap();
    cluster.wait_until_whole();
    let mut keys = Vec::new();
    for round in 0..4 {
        let at = round % 2;
        let (acknowledged, ends) = (AtomicU32::new(0), AtomicBool::new(false));
        let client = cluster.client(1 - at);
        let written = std::thread::scope(|scope| {
            let writer = scope.spawn(|| keep_writing(client, round, &acknowledged, &ends));
            let _stop = StopAtEnd(&ends);
            let count = || acknowledged.load(Ordering::Relaxed);
            wait_for("keys are written", WHOLE, || (count() > 500).then_some(()));
            if round < 2 {
                cluster.kill(at);
            } else {
                assert_eq!(cluster.nodes[at].take().unwrap().process.terminate(), Some(0));
            }
            cluster.start_node(at);
            let before = count();
            wait_for("writes go on", WHOLE, || (count() > before + 100).then_some(()));
            cluster.wait_until_whole();
            ends.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        keys.extend(written);
        let mut client = cluster.client(at);
        assert!(matches!(client.run("TABLE t"), Value::Simple(_)));
        for key in &keys {
            let value = client.run(&format!("GET {key}"));
            assert!(matches!(&value, Value::Bulk(bytes) if bytes == key.as_bytes()), "round {round}: {key}: {value}");
        }
    }
}

/// Processes end one after the other, before the new replicas have their copies. What a table without a log held may be lost then, but it
/// serves again: once such a partition never had a leader again.
#[test]
fn a_table_without_a_log_serves_again_after_ends_in_quick_succession() {
    for (nodes, ended) in [(2, [1, 0]), (3, [1, 2])] {
        let mut cluster = Cluster::start(nodes);
        let replicas = format!("table create t --engine memory --partitions 16 --replicas {nodes}");
        cluster.cli(0, &replicas).unwrap();
        cluster.wait_for("nothing moves", WHOLE, || cluster.status(0).is_some_and(|status| is_settled(&status)));
        write(&mut cluster.client(0), "t");
        for at in ended {
            cluster.kill(at);
            cluster.start_node(at);
            let at = if nodes == 2 { 1 - at } else { 0 };
            // The first answer, as long as the copies are on their way.
            let mut client = cluster.client(at);
            wait_for("a write is taken", WHOLE, || {
                client.run("TABLE t");
                matches!(client.run("SET first write"), Value::Simple(_)).then_some(())
            });
        }
        let mut client = cluster.client(0);
        client.run("TABLE t");
        for number in 0..WRITES {
            wait_for("every partition takes writes", WHOLE, || {
                matches!(client.run(&format!("SET n{number} again")), Value::Simple(_)).then_some(())
            });
        }
    }
}
