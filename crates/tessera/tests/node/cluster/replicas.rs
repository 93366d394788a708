//! Replicas of every kind: witnesses, those without a log, large ones; and what their tables promise.

use super::chaos::{NamedReplica, replicas_on};
use super::{Cluster, WHOLE};
use crate::resp_client::{Client, Value};
use crate::server::wait_for;
use crate::skipped::skip;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Numbered writes, each to a key of its own, as far as they were acknowledged.
fn write_numbers(client: &mut Client, numbers: std::ops::Range<u32>) -> Vec<u32> {
    let is_done = |number: &u32| matches!(client.run(&format!("SET n{number} {number}")), Value::Simple(_));
    numbers.filter(is_done).collect()
}

fn assert_there(client: &mut Client, numbers: &[u32]) {
    for number in numbers {
        let value = client.run(&format!("GET n{number}"));
        assert!(
            matches!(&value, Value::Bulk(bytes) if *bytes == number.to_string().into_bytes()),
            "n{number}: {value}"
        );
    }
}

fn table_client(cluster: &Cluster, at: usize, table: &str) -> Client {
    let mut client = cluster.client(at);
    client.run(&format!("TABLE {table}"));
    client
}

/// Two replicas and a witness, on both engines and without a log: whichever node is lost, all goes on with everything.
#[test]
fn two_replicas_and_a_witness_go_on_without_any_one_node() {
    let mut cluster = Cluster::start(3);
    let tables = ["--engine rocksdb", "--engine memory --durability hard", "--engine memory --durability none"];
    for (at, options) in tables.iter().enumerate() {
        cluster.cli(0, &format!("table create t{at} {options} --partitions 3 --replicas 2")).unwrap();
    }
    cluster.wait_until_whole();
    let mut written = vec![Vec::new(); tables.len()];
    for lost in 0..3u32 {
        let other = (lost as usize + 1) % 3;
        for (table, written) in written.iter_mut().enumerate() {
            let mut client = cluster.client(other);
            client.run(&format!("TABLE t{table}"));
            let done = write_numbers(&mut client, 200 * lost..200 * lost + 100);
            assert_eq!(done.len(), 100, "all nodes are there");
            written.extend(done);
        }
        cluster.kill(lost as usize);
        for (table, written) in written.iter_mut().enumerate() {
            let mut client = cluster.client(other);
            client.run(&format!("TABLE t{table}"));
            assert_there(&mut client, written);
            let done = write_numbers(&mut client, 200 * lost + 100..200 * lost + 200);
            assert_eq!(done.len(), 100, "node {} is lost", lost + 1);
            written.extend(done);
        }
        let before = cluster.replicas_of(other, "t2");
        cluster.start_node(lost as usize);
        wait_for("what has forgotten is renewed", WHOLE, || (cluster.replicas_of(other, "t2") != before).then_some(()));
        cluster.wait_until_whole();
    }
    for (table, written) in written.iter().enumerate() {
        let mut client = cluster.client(0);
        client.run(&format!("TABLE t{table}"));
        assert_there(&mut client, written);
    }
}

/// A replica that has forgotten its votes comes back as another one, and when most have, the table begins anew.
#[test]
fn a_table_without_a_log_survives_one_node_and_begins_anew_after_all() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability none --partitions 4 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE t");
    let written = write_numbers(&mut client, 0..500);
    assert_eq!(written.len(), 500);
    for lost in [1, 2] {
        cluster.kill(lost);
        assert_there(&mut client, &written);
        let before = cluster.replicas_of(0, "t");
        cluster.start_node(lost);
        wait_for("replicas are others", WHOLE, || (cluster.replicas_of(0, "t") != before).then_some(()));
        cluster.wait_until_whole();
    }
    assert_there(&mut client, &written);
    (0..3).for_each(|at| cluster.kill(at));
    (0..3).for_each(|at| cluster.start_node(at));
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE t");
    wait_for("the table serves again", WHOLE, || (write_numbers(&mut client, 1_000..1_001).len() == 1).then_some(()));
    assert!(matches!(client.run("GET n1"), Value::Null));
}

/// Two of the three replicas of some partitions are forgotten at once, while nodes that had the third one, or none, live. These once
/// went on to ask the leader of before for ever, because its term was greater than those of the table that began anew.
#[test]
fn a_table_without_a_log_serves_through_every_node_after_a_majority_has_forgotten() {
    let mut cluster = Cluster::start(4);
    cluster.cli(0, "table create t --engine memory --durability none --partitions 8 --replicas 3").unwrap();
    cluster.wait_until_whole();
    // Terms grow with each change of leaders.
    for at in [1, 2, 3] {
        cluster.kill(at);
        assert_eq!(write_numbers(&mut table_client(&cluster, 0, "t"), 0..50).len(), 50, "one node is lost");
        renew(&mut cluster, &[at]);
    }
    cluster.kill(1);
    cluster.kill(2);
    renew(&mut cluster, &[1, 2]);
    for at in 0..4 {
        // A request that finds no leader is refused after ten seconds.
        let done = write_numbers(&mut table_client(&cluster, at, "t"), 0..50);
        assert_eq!(done.len(), 50, "through node {}", at + 1);
    }
}

/// Starts nodes that were killed, and waits until others have taken the place of each replica without a log that they had.
fn renew(cluster: &mut Cluster, nodes: &[usize]) {
    let held = |cluster: &Cluster| -> BTreeSet<NamedReplica> {
        nodes.iter().flat_map(|at| replicas_on(cluster, *at, ["t"].into_iter())).collect()
    };
    let before = held(cluster);
    nodes.iter().for_each(|at| cluster.start_node(*at));
    cluster.wait_for("what was forgotten is renewed", WHOLE, || held(cluster).is_disjoint(&before));
    cluster.wait_until_whole();
}

/// With `READS outdated` the replica on the node that is asked answers, also when there is no leader, and says how far it may
/// be behind.
#[test]
fn outdated_reads_are_answered_by_whoever_is_left() {
    let mut cluster = Cluster::start(3);
    for (table, replicas) in [("everywhere", 3), ("once", 1)] {
        cluster.cli(0, &format!("table create {table} --engine rocksdb --partitions 4 --replicas {replicas}")).unwrap();
    }
    cluster.wait_until_whole();
    let client = |cluster: &Cluster, at: usize, table: &str, mode: &str| {
        let mut client = cluster.client(at);
        client.run(&format!("TABLE {table}"));
        assert!(matches!(client.run(&format!("READS {mode}")), Value::Simple(_)));
        client
    };
    let numbers: Vec<u32> = (0..100).collect();
    for table in ["everywhere", "once"] {
        assert_eq!(write_numbers(&mut client(&cluster, 0, table, "single"), 0..100), numbers);
        for at in 0..3 {
            let mut client = client(&cluster, at, table, "outdated");
            let is_there =
                |client: &mut Client, number| matches!(client.run(&format!("GET n{number}")), Value::Bulk(_));
            // A replica hears of a commit with the next message.
            wait_for("all of it is there", WHOLE, || {
                numbers.iter().all(|number| is_there(&mut client, number)).then_some(())
            });
            assert_there(&mut client, &numbers);
        }
    }
    cluster.kill(1);
    cluster.kill(2);
    let mut outdated = client(&cluster, 0, "everywhere", "outdated");
    assert_there(&mut outdated, &numbers);
    let mut longest_lag = || {
        let lag = |number| match outdated.run(&format!("READS LAG n{number}")) {
            Value::Integer(millis) => millis,
            other => panic!("{other}"),
        };
        numbers.iter().map(lag).max()
    };
    wait_for("what has no leader gets older", WHOLE, || longest_lag().filter(|millis| *millis > 2_000));
    // Others have to say that they do not know.
    let mut single = client(&cluster, 0, "everywhere", "single");
    assert!(matches!(single.run("GET n1"), Value::Error(_)));
}

/// Replicas are filled a piece at a time, no faster than allowed; a node that is killed meanwhile goes on where it was.
#[test]
fn large_replicas_are_fetched_slowly_and_come_through_a_crash() {
    // A fetch takes seven seconds: long enough to be seen under way, and to be seen behind if it begins anew.
    let settings = &["cluster.move_bytes_per_second=4194304"];
    let mut cluster = Cluster { settings, ..Cluster::planned(tempfile::TempDir::new().unwrap(), 3) }.started();
    for engine in ["rocksdb", "memory --durability hard"] {
        let table = &engine[..5];
        cluster.cli(0, &format!("table create {table} --engine {engine} --partitions 1 --replicas 1")).unwrap();
        cluster.wait_until_whole();
        let mut client = cluster.client(0);
        client.run(&format!("TABLE {table}"));
        // Not to be compressed.
        let value: String =
            StdRng::seed_from_u64(1).sample_iter(rand::distr::Alphanumeric).take(100_000).map(char::from).collect();
        let value = |number: usize| format!("{}{}", &value[number..], &value[..number]);
        for number in 0..300 {
            assert!(matches!(client.run(&format!("SET n{number} {}", value(number))), Value::Simple(_)));
        }
        cluster.cli(0, &format!("table alter {table} --replicas 3")).unwrap();
        let placement = |cluster: &Cluster, at: usize| -> Option<serde_json::Value> {
            serde_json::from_str(&cluster.cli(at, &format!("table placement {table} --json")).ok()?).ok()
        };
        let leader = placement(&cluster, 0).unwrap()[0]["leader"].as_u64().unwrap();
        let lost = if leader == 2 { 2 } else { 1 };
        let fetched = |cluster: &Cluster, at: usize| -> Option<u64> {
            let placement = placement(cluster, at)?;
            let fetches = placement[0]["fetches"].as_array()?;
            fetches.iter().find(|fetch| fetch["node"] == lost as u64 + 1)?["bytes"].as_u64()
        };
        wait_for("a replica is being fetched", WHOLE, || fetched(&cluster, 0).filter(|bytes| *bytes > 6_000_000));
        cluster.kill(lost);
        let files = std::fs::read_dir(cluster.data.path().join(lost.to_string()).join("snapshots")).unwrap();
        let incoming = files.map(Result::unwrap).find(|file| file.file_name().to_string_lossy().starts_with("from-"));
        let on_disk = incoming.unwrap().metadata().unwrap().len();
        assert!(matches!(client.run(&format!("SET n300 {}", value(300))), Value::Simple(_)), "the leader goes on");
        cluster.start_node(lost);
        let goes_on = wait_for("fetching goes on", WHOLE, || fetched(&cluster, lost));
        assert!(goes_on >= on_disk, "{goes_on} of {on_disk}");
        wait_for("the replicas are there", WHOLE, || {
            (placement(&cluster, 0)?[0]["members"].as_array()?.len() == 3).then_some(())
        });
        cluster.wait_until_whole();
        for at in 0..3 {
            let mut client = cluster.client(at);
            client.run(&format!("TABLE {table}"));
            client.run("READS outdated");
            for number in 0..=300 {
                let found = wait_for("the record is there", WHOLE, || match client.run(&format!("GET n{number}")) {
                    Value::Bulk(bytes) => Some(bytes),
                    _ => None,
                });
                assert!(found == value(number).into_bytes(), "n{number}");
            }
        }
    }
}

/// The leader's word is enough for ACKS single, and reads see what it acknowledged.
#[test]
fn acks_single_are_answered_by_the_leader_and_read_back() {
    let cluster = Cluster::start(3);
    cluster
        .cli(0, "table create t --engine memory --durability hard --partitions 4 --replicas 3 --acks single")
        .unwrap();
    cluster.wait_until_whole();
    for (table, acks) in [("t", "table"), ("default", "single")] {
        let mut client = cluster.client(1);
        client.run(&format!("TABLE {table}"));
        client.run(&format!("ACKS {acks}"));
        for number in 0..500 {
            let name = number % 50;
            assert!(matches!(client.run(&format!("SET n{name} {number}")), Value::Simple(_)));
            let value = client.run(&format!("GET n{name}"));
            assert_eq!(value, Value::Bulk(number.to_string().into_bytes()), "a client reads what it wrote");
        }
    }
    // Without a majority the leader's word still counts, until it knows that it leads no longer.
    let (leader, other) = {
        let placement: serde_json::Value =
            serde_json::from_str(&cluster.cli(0, "table placement t --json").unwrap()).unwrap();
        let leader = placement[0]["leader"].as_u64().unwrap() as usize - 1;
        (leader, [(leader + 1) % 3, (leader + 2) % 3])
    };
    let mut client = cluster.client(leader);
    client.run("TABLE t");
    other.iter().for_each(|other| cluster.signal(*other, "-STOP"));
    let acknowledged = (0..20).take_while(|at| matches!(client.run(&format!("SET s{at} 1")), Value::Simple(_))).count();
    other.iter().for_each(|other| cluster.signal(*other, "-CONT"));
    assert!(acknowledged > 0, "the leader's word");
}

/// A single copy in memory moves with its records, and its table begins anew where it is when that node ends.
#[test]
fn a_single_copy_without_a_log_moves_and_begins_anew() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability none --partitions 4 --replicas 1").unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE t");
    let written = write_numbers(&mut client, 0..200);
    assert_eq!(written.len(), 200);
    cluster.cli(0, "node drain 2").unwrap();
    let replicas = |cluster: &Cluster| {
        let status = cluster.status(0).unwrap();
        let nodes = status["cluster"]["nodes"].as_array().unwrap().clone();
        nodes.iter().find(|node| node["id"] == 2).unwrap()["replicas"].as_u64().unwrap()
    };
    wait_for("the node is empty", WHOLE, || (replicas(&cluster) == 0).then_some(()));
    assert_there(&mut client, &written);
    cluster.cli(0, "node drain 2 --undo").unwrap();
    wait_for("it gets replicas again", WHOLE, || (replicas(&cluster) > 0).then_some(()));
    cluster.wait_until_whole();
    assert_there(&mut client, &written);
    cluster.kill(2);
    cluster.start_node(2);
    cluster.wait_until_whole();
    wait_for("all partitions serve", WHOLE, || (write_numbers(&mut client, 0..200).len() == 200).then_some(()));
    assert_there(&mut client, &written);
}

/// What a node had staged is lost with its machine, or its container. Its replicas may have forgotten, and others take their
/// place, even if the process ends again before that; a node that is only killed goes on as it was, and so do all at once.
#[test]
fn a_node_whose_staged_writes_are_lost_gets_other_replicas() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability soft --partitions 2 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let mut written = write_numbers(&mut table_client(&cluster, 0, "t"), 0..100);
    let before = cluster.replicas_of(0, "t");
    cluster.kill(1);
    cluster.start_node(1);
    cluster.wait_until_whole();
    assert_eq!(cluster.replicas_of(0, "t"), before, "it has everything");
    written.extend(write_numbers(&mut table_client(&cluster, 0, "t"), 100..200));
    cluster.kill(1);
    let mark = cluster.data_directory(1).join("log/staging");
    std::fs::remove_file(std::fs::read_to_string(&mark).unwrap()).unwrap();
    cluster.start_node(1);
    let boot = cluster.data_directory(1).join("boot.json");
    let has_lost =
        || std::fs::read_to_string(&boot).ok().filter(|text| text.contains("\"has_lost\": true")).map(|_| ());
    wait_for("the loss is written down", WHOLE, has_lost);
    cluster.kill(1);
    cluster.start_node(1);
    wait_for("others take their place", WHOLE, || (cluster.replicas_of(0, "t") != before).then_some(()));
    cluster.wait_until_whole();
    wait_for("that is written down", WHOLE, || has_lost().is_none().then_some(()));
    written.extend(write_numbers(&mut table_client(&cluster, 2, "t"), 200..300));
    (0..3).for_each(|at| cluster.kill(at));
    (0..3).for_each(|at| cluster.start_node(at));
    cluster.wait_until_whole();
    assert_eq!(written.len(), 300, "all nodes were there");
    assert_there(&mut table_client(&cluster, 1, "t"), &written);
}

/// A soft table `t` of one partition: the nodes of its witness and of its two other replicas.
fn create_pair(cluster: &Cluster) -> (usize, Vec<usize>) {
    cluster.cli(0, "table create t --engine memory --durability soft --partitions 1 --replicas 2").unwrap();
    cluster.wait_until_whole();
    let members = cluster.replicas_of(0, "t").remove(0);
    let members: Vec<&str> = members.as_array().unwrap().iter().map(|member| member.as_str().unwrap()).collect();
    let node_of = |member: &&str| member.split('.').next().unwrap().parse::<usize>().unwrap() - 1;
    let (witnesses, data_replicas): (Vec<&str>, Vec<&str>) = members.iter().partition(|member| member.ends_with('w'));
    (node_of(&witnesses[0]), data_replicas.iter().map(node_of).collect())
}

/// Power fails on both replicas' nodes before anything is on their disks, and the witness has dropped what both had. What nobody
/// has is lost then, and the table serves again. It once waited for ever for somebody who had it.
#[test]
fn a_soft_table_serves_again_after_all_its_replicas_have_forgotten() {
    let Some(mut cluster) = Cluster::start_with_power(3, &["log.soft_sync_interval_ms=3600000"]) else {
        return skip("mounting file systems needs root and loop devices");
    };
    let (witness, data_replicas) = create_pair(&cluster);
    assert_eq!(write_numbers(&mut table_client(&cluster, 0, "t"), 0..20).len(), 20);
    // What is written to a group that rests reaches it before it is spared; then it drops at once what both others have. Only the
    // last key is written once more: of a second round the witness could still have the first keys when power fails.
    let (mut client, mut written) = (table_client(&cluster, 0, "t"), Instant::now());
    wait_for("the witness hears of the last write", WHOLE, || {
        if written.elapsed() > Duration::from_secs(5) {
            written = Instant::now();
            assert_eq!(write_numbers(&mut client, 19..20).len(), 1);
        }
        let staged = std::fs::read_dir(cluster.memory_of(witness)).unwrap().map(|file| file.unwrap().path());
        let has_last = |bytes: Vec<u8>| bytes.windows(3).any(|window| window == b"n19");
        staged.into_iter().any(|path| std::fs::read(path).is_ok_and(has_last)).then_some(())
    });
    cluster.cut_power(&data_replicas);
    data_replicas.iter().for_each(|at| cluster.start_node(*at));
    cluster.wait_until_whole();
    let mut client = table_client(&cluster, witness, "t");
    wait_for("the table serves again", WHOLE, || matches!(client.run("SET n19 19"), Value::Simple(_)).then_some(()));
    let written = write_numbers(&mut client, 20..40);
    assert_eq!(written.len(), 20);
    assert!(matches!(table_client(&cluster, witness, "t").run("GET n0"), Value::Null), "nobody had it");
    cluster.wait_until_whole();
    cluster.kill(data_replicas[0]);
    let mut client = table_client(&cluster, data_replicas[1], "t");
    wait_for("the other one leads", WHOLE, || matches!(client.run("GET n20"), Value::Bulk(_)).then_some(()));
    assert_there(&mut client, &written);
}

/// Of two replicas one is away for good, and power fails on the other one's node. It once gave up what its disk held for what
/// the one that is away has.
#[test]
fn what_the_last_replica_has_on_its_disk_is_kept_when_power_fails() {
    let Some(mut cluster) = Cluster::start_with_power(3, &["cluster.replace_after_seconds=4"]) else {
        return skip("mounting file systems needs root and loop devices");
    };
    let (witness, data_replicas) = create_pair(&cluster);
    cluster.kill(data_replicas[1]);
    let mut client = table_client(&cluster, witness, "t");
    assert!(matches!(client.run("DURABILITY hard"), Value::Simple(_)));
    wait_for("the first replica leads", WHOLE, || matches!(client.run("SET n0 0"), Value::Simple(_)).then_some(()));
    let written = write_numbers(&mut client, 0..20);
    assert_eq!(written.len(), 20);
    cluster.cut_power(&data_replicas[..1]);
    cluster.start_node(data_replicas[0]);
    let is_led = || matches!(client.run("GET n0"), Value::Bulk(_)).then_some(());
    wait_for("the other one is given up, and this one goes on", WHOLE, is_led);
    assert_there(&mut client, &written);
    cluster.start_node(data_replicas[1]);
    cluster.wait_until_whole();
    assert_there(&mut table_client(&cluster, data_replicas[1], "t"), &written);
}
