//! Commands for partitions that other nodes lead.

use super::Cluster;
use crate::differential::{Spread, compare_through};
use crate::pegasus::wire::{Connection, Fields, key, message, v0};
use crate::resp_client::{Client, Value};
use crate::server::wait_for;
use std::time::Duration;

/// Every command of the differential test, on a partition that is led elsewhere: all of it is forwarded.
#[test]
fn commands_through_another_node_answer_as_redis() {
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 1 --replicas 1").unwrap();
    cluster.wait_until_whole();
    let placement: serde_json::Value =
        serde_json::from_str(&cluster.cli(0, "table placement t --json").unwrap()).unwrap();
    let elsewhere = if placement[0]["leader"] == 1 { 1 } else { 0 };
    for protocol in ["2", "3"] {
        compare_through(200, cluster.client(elsewhere), protocol, Spread::OnePartition);
    }
}

/// Every command on keys whose partitions are led by three nodes.
#[test]
fn commands_over_the_partitions_of_several_nodes_answer_as_redis() {
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 12 --replicas 2").unwrap();
    cluster.wait_until_whole();
    for protocol in ["2", "3"] {
        compare_through(200, cluster.client(1), protocol, Spread::Nodes);
    }
}

/// Connections that ask for it are sent to the leader; others are served.
#[test]
fn redirects_are_for_those_who_ask() {
    let cluster = Cluster::start(3);
    cluster
        .cli(0, "table create t --engine memory --durability hard --partitions 6 --partitioner redis-slots")
        .unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE t");
    let is_served =
        |client: &mut Client| (0..60).all(|at| matches!(client.run(&format!("SET k{at} 1")), Value::Simple(_)));
    assert!(is_served(&mut client));
    assert!(matches!(client.run("CLUSTER REDIRECTS on"), Value::Simple(_)));
    let mut redirected = 0;
    for at in 0..60 {
        match client.run(&format!("GET k{at}")) {
            Value::Bulk(_) => {}
            Value::Error(line) => {
                let mut words = line.trim_start_matches('-').split(' ');
                assert_eq!(words.next(), Some("MOVED"), "{line}");
                let slot = client.run(&format!("CLUSTER KEYSLOT k{at}"));
                assert_eq!(slot, Value::Integer(words.next().unwrap().parse().unwrap()));
                let port = words.next().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
                let mut leader = Client::connect(port).unwrap();
                leader.run("TABLE t");
                leader.run("CLUSTER REDIRECTS on");
                assert!(matches!(leader.run(&format!("GET k{at}")), Value::Bulk(_)), "it leads");
                redirected += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert!(redirected > 10, "{redirected}");
    assert!(matches!(client.run("CLUSTER REDIRECTS off"), Value::Simple(_)));
    assert!(is_served(&mut client));
}

/// Whoever has created a table through one node may use it through any other at once.
#[test]
fn a_new_table_is_known_everywhere() {
    let cluster = Cluster::start(3);
    for number in 0..10 {
        cluster.cli(number % 3, &format!("table create t{number} --engine memory --partitions 4")).unwrap();
        for at in 0..3 {
            let mut client = cluster.client(at);
            assert_eq!(client.run(&format!("TABLE t{number}")), Value::Simple("OK".into()));
            assert_eq!(client.run(&format!("SET k{at} v")), Value::Simple("OK".into()));
        }
    }
    assert!(matches!(cluster.client(1).run("TABLE none"), Value::Error(_)));
}

/// What the nodes' clients hear, one of whom leads the partition; it must be the same.
fn common(replies: impl Iterator<Item = String>) -> String {
    let mut replies: Vec<String> = replies.collect();
    replies.dedup();
    assert_eq!(replies.len(), 1, "{replies:?}");
    replies.remove(0)
}

/// The node that forwards a request knows the reason for a refusal from the node that refuses.
#[test]
fn a_refusal_says_the_same_whichever_node_is_asked() {
    let mut cluster = Cluster::start_with_pegasus(3);
    cluster.cli(0, "table create one --engine memory --partitions 1 --replicas 1").unwrap();
    cluster.cli(0, "table create many --engine memory --partitions 6 --replicas 1").unwrap();
    cluster.wait_until_whole();
    let placement: serde_json::Value =
        serde_json::from_str(&cluster.cli(0, "table placement one --json").unwrap()).unwrap();
    let leader = usize::try_from(placement[0]["leader"].as_u64().unwrap()).unwrap() - 1;
    let mut redis: Vec<Client> = (0..3).map(|at| cluster.client(at)).collect();
    let mut pegasus: Vec<Connection> = cluster.pegasus_ports().iter().map(|port| Connection::to(*port)).collect();
    let mut redis_says = |command: &str| common(redis.iter_mut().map(|client| client.run(command).to_string()));
    let put = Fields::default().blob(1, &key("k", "")).blob(2, b"v").i32(3, 0);
    // The first table after `default` has the number 1.
    let put = v0(1, 0, &message("RPC_RRDB_RRDB_PUT", 1, &put));
    let mut pegasus_says = || common(pegasus.iter_mut().map(|client| client.call(&put).error));

    redis_says("TABLE one");
    assert!(redis_says("SET k v").contains("OK"));
    assert_eq!(pegasus_says(), "ERR_OK");
    let long = format!("SET {} v", "k".repeat(70_000));
    assert!(redis_says(&long).contains("the limit `hash_key_bytes`"), "too large");
    redis_says("DURABILITY hard");
    let refusal = redis_says("SET k v");
    assert!(refusal.contains("the table keeps nothing on disk"), "{refusal}");
    // A transaction over partitions is refused by one of those that take part.
    redis_says("TABLE many");
    let keys: String = (0..20).map(|at| format!(" k{at} v")).collect();
    assert_eq!(redis_says(&format!("MSET{keys}")), refusal);
    for at in 0..20 {
        assert_eq!(redis_says(&format!("SET k{at} v")), refusal);
    }
    redis_says("DURABILITY table");
    redis_says("TABLE one");

    cluster.cli(1, "table alter one --deny reconfig*write").unwrap();
    for at in 0..3 {
        let mut client = cluster.client(at);
        client.run("TABLE one");
        wait_for("the setting is there", Duration::from_secs(10), || {
            matches!(client.run("SET k v"), Value::Error(_)).then_some(())
        });
    }
    assert!(redis_says("SET k v").contains("the table denies clients its writes"));
    assert_eq!(pegasus_says(), "ERR_INVALID_STATE");

    cluster.cli(1, "table alter one --deny none").unwrap();
    cluster.kill(leader);
    let others = |at: &usize| *at != leader;
    let told = common((0..3).filter(others).map(|at| {
        let mut client = cluster.client(at);
        client.run("TABLE one");
        client.run("SET k v").to_string()
    }));
    assert!(told.contains("LOADING the partition has no leader yet"), "{told}");
    let told = common((0..3).filter(others).map(|at| Connection::to(cluster.pegasus_ports()[at]).call(&put).error));
    assert_eq!(told, "ERR_NOT_ENOUGH_MEMBER");
}

/// The node once waited for a second for a table that was about to come, at each `SELECT`.
#[test]
fn a_database_that_there_is_not_is_refused_at_once_with_the_way_to_have_it() {
    let cluster = Cluster::start(3);
    cluster.wait_until_whole();
    let began = std::time::Instant::now();
    for at in 0..3 {
        let mut client = cluster.client(at);
        for number in 1..=5 {
            let Value::Error(refusal) = client.run(&format!("SELECT {number}")) else {
                panic!("there is no table {number}")
            };
            let said = ["DB index is out of range", "tessera table create", "redis.databases"];
            assert!(said.iter().all(|part| refusal.contains(part)), "{refusal}");
        }
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?} for 15 of them", began.elapsed());
}
