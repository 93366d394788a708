//! Commands for partitions that other nodes lead.

use super::Cluster;
use crate::differential::{Spread, compare_through};
use crate::resp_client::{Client, Value};

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
