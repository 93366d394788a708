//! Nodes that join, go, and come back elsewhere.

use super::{Cluster, WHOLE};
use crate::resp_client::{Client, Value};
use crate::server::{free_port, wait_for};
use serde_json::json;
use std::time::{Duration, Instant};

/// How long it may take until a node that is started under another address answers clients.
const SECONDS: Duration = Duration::from_secs(30);

fn write(client: &mut Client, count: u32) {
    for number in 0..count {
        assert!(matches!(client.run(&format!("SET n{number} {number}")), Value::Simple(_)), "n{number}");
    }
}

fn assert_there(client: &mut Client, count: u32) {
    for number in 0..count {
        let value = client.run(&format!("GET n{number}"));
        assert!(matches!(&value, Value::Bulk(bytes) if *bytes == number.to_string().into_bytes()), "{number}: {value}");
    }
}

/// The second node dies as soon as it has been let in, and its disk is lost. The first one goes on with everything, and
/// forgets it at a word.
#[test]
fn a_join_that_fails_does_no_harm() {
    let mut cluster = Cluster::planned(tempfile::TempDir::new().unwrap(), 2);
    cluster.start_node(0);
    wait_for("the first node serves", WHOLE, || cluster.node(0).is_serving().then_some(()));
    write(&mut cluster.client(0), 100);
    cluster.start_node(1);
    let identity = cluster.data_directory(1).join("node.json");
    wait_for("the second node is let in", WHOLE, || identity.exists().then_some(()));
    cluster.kill(1);
    std::fs::remove_dir_all(cluster.data_directory(1)).unwrap();
    // It goes at once unless it had time to say that it is there.
    wait_for("the catalog takes changes", WHOLE, || cluster.cli(0, "node remove 2").ok());
    cluster.cli(0, "table create t --partitions 4 --replicas 3").unwrap();
    let mut client = cluster.client(0);
    assert_there(&mut client, 100);
    write(&mut client, 100);
    // It comes back with an empty disk, as another node.
    cluster.start_node(1);
    wait_for("it is let in again", WHOLE, || (cluster.known_nodes(0)? == 2).then_some(()));
    cluster.wait_until_no_more_moves();
    assert_there(&mut cluster.client(1), 100);
}

/// A node is started again under another cluster port. Others learn that from it, and need it at once.
#[test]
fn a_node_that_comes_back_under_another_address_serves_within_seconds() {
    let mut cluster = Cluster::start(3);
    cluster.wait_until_whole();
    write(&mut cluster.client(0), 50);
    for moved in [1, 0] {
        cluster.kill(moved);
        cluster.ports[moved].2 = free_port();
        cluster.start_node(moved);
        wait_for("it answers", SECONDS, || {
            let value = Client::connect(cluster.ports[moved].0).ok()?.run("GET n0");
            matches!(value, Value::Bulk(_)).then_some(())
        });
        cluster.wait_until_whole();
        let address = format!("127.0.0.1:{}", cluster.ports[moved].2);
        let is_known =
            |at: usize| cluster.status(at).is_some_and(|it| it["cluster"]["nodes"][moved]["peer"] == address);
        wait_for("all know where it is", WHOLE, || (0..3).all(is_known).then_some(()));
    }
    // With the third one gone nothing is done without both that have moved.
    cluster.kill(2);
    let mut client = cluster.client(1);
    assert_there(&mut client, 50);
    write(&mut client, 50);
}

/// A node with another secret is away for the others, and every node's status names the setting. It once said "silent" only, and the
/// reason stood in the logs.
#[test]
fn status_says_why_a_node_with_another_secret_is_away() {
    let mut cluster = Cluster::start(3);
    cluster.wait_until_whole();
    cluster.kill(2);
    cluster.start_node_with(2, &["--set", "cluster.secret=of somebody else"]);
    for (told_by, about) in [(0, "node 3"), (1, "node 3"), (2, "node 1"), (2, "node 2")] {
        let names_setting = || {
            let status = cluster.status(told_by)?;
            let issues = status["issues"].as_array()?.clone();
            let mut issues = issues.iter().filter_map(|issue| issue.as_str());
            issues
                .any(|issue| issue.starts_with(about) && issue.contains("`cluster.secret` must be the same"))
                .then_some(())
        };
        wait_for("the status names the secret", WHOLE, names_setting);
    }
    cluster.kill(2);
    cluster.start_node(2);
    cluster.wait_until_whole();
}

/// What the third node has of the catalog does not fit together any more. It once heard of no change until somebody
/// removed the node.
#[test]
fn a_catalog_that_contradicts_itself_is_replaced() {
    let mut cluster = Cluster::start(3);
    cluster.wait_until_whole();
    cluster.kill(2);
    let directory = cluster.data_directory(2);
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(directory.join(name)).unwrap()).unwrap()
    };
    let mut catalog = read("catalog.json");
    // The log begins behind that.
    catalog["applied_index"] = 1.into();
    std::fs::write(directory.join("catalog.json"), catalog.to_string()).unwrap();
    cluster.start_node(2);
    cluster.wait_for("the third node gets another replica of the catalog", WHOLE, || {
        let identity = read("node.json");
        identity["catalog_incarnation"].as_u64() > Some(0) && identity["is_catalog_to_begin"] == false
    });
    cluster.cli(0, "table create t --partitions 4 --replicas 3").unwrap();
    cluster.wait_for("the third node hears of a table", WHOLE, || cluster.cli(2, "table placement t").is_ok());
    cluster.wait_for("nothing is set aside any more", WHOLE, || cluster.lacks_nothing(2));
}

/// A table that was dropped, and can still be recalled, once kept a drained node for ever. And a node that was removed while it ran
/// went on to answer; started again, it recovered for ever.
#[test]
fn a_drained_node_lets_go_of_dropped_tables_and_knows_that_it_was_removed() {
    let mut cluster = Cluster::start_with_reql(3);
    cluster.wait_until_whole();
    cluster.cli(0, "table create t --partitions 4 --replicas 2").unwrap();
    cluster.cli(0, "table create d --model document --database test --partitions 4 --replicas 2").unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    assert!(matches!(client.run("TABLE t"), Value::Simple(_)));
    write(&mut client, 50);
    cluster.cli(0, "table drop t").unwrap();
    cluster.cli(0, "node drain 3").unwrap();
    let holds_none =
        || cluster.status(0)?["cluster"]["nodes"][2]["replicas"].as_u64().filter(|replicas| *replicas == 0);
    wait_for("the drained node holds nothing", WHOLE, holds_none);
    cluster.cli(0, "node remove 3").unwrap();
    let is_told = |cluster: &Cluster| {
        wait_for("the node says that it was removed", WHOLE, || {
            let status = cluster.cli(2, "status").ok()?;
            status.contains("was removed from its cluster").then_some(())
        });
        let began = Instant::now();
        for command in ["SET n1 v", "GET n1", "MGET n1 n2 n3 n4 n5"] {
            let answer = cluster.client(2).run(command).to_string();
            assert!(answer.contains("removed from its cluster"), "{command}: {answer}");
        }
        let mut client = crate::reql::Client::to(cluster.reql_ports()[2]);
        for term in [json!([43, [[15, ["d"]]]]), json!([56, [[15, ["d"]], {"id": 1}]]), json!([24, [1, 2]])] {
            let answer = client.ask(&term);
            assert_eq!(answer["e"], 4_100_000, "it was not done: {answer}");
            assert!(answer["r"][0].as_str().unwrap().contains("removed from its cluster"), "{answer}");
        }
        assert!(began.elapsed() < Duration::from_secs(5), "it looks for leaders no more");
        assert!(!cluster.node(2).is_serving());
        // What it knew of tables and users was once told as if it were so.
        for command in [
            "table create u",
            "table list",
            "table placement default",
            "table compact default",
            "user list",
            "node list",
        ] {
            let refusal = cluster.cli(2, command).expect_err(command);
            assert!(refusal.contains("removed from its cluster"), "{command}: {refusal}");
        }
        assert_eq!(cluster.status(2).unwrap()["is_removed"], true);
    };
    is_told(&cluster);
    cluster.kill(2);
    cluster.start_node(2);
    is_told(&cluster);
    // With an empty data directory it is another node.
    cluster.kill(2);
    cluster.lose_disk(2);
    cluster.start_node(2);
    wait_for("it joins anew", WHOLE, || (cluster.number(2)? == 4).then_some(()));
    cluster.cli(0, "table recall 1").unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(2);
    assert!(matches!(client.run("TABLE t"), Value::Simple(_)));
    assert_there(&mut client, 50);
}
