//! Nodes that join, go, and come back elsewhere.

use super::{Cluster, WHOLE};
use crate::resp_client::{Client, Value};
use crate::server::{free_port, wait_for};

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
