//! An older copy of a data directory is put back under a node that has acknowledged more since. No majority with it loses what
//! was acknowledged: the copy is recognised, and counts for nothing until others that have everything come, or somebody says so.

use super::{Cluster, WHOLE};
use crate::resp_client::{Client, Value};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const WRITES: u32 = 200;

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

/// Puts what is in a copy into the place of a data directory, whose lock stays if `in_place`: so it does where a tool leaves
/// files alone that have not changed.
fn put_back(copied: &Path, directory: &Path, in_place: bool) {
    if !in_place {
        std::fs::remove_dir_all(directory).unwrap();
        return copy(copied, directory);
    }
    for file in std::fs::read_dir(directory).unwrap().map(Result::unwrap).filter(|file| file.file_name() != "LOCK") {
        match file.file_type().unwrap().is_dir() {
            true => std::fs::remove_dir_all(file.path()).unwrap(),
            false => std::fs::remove_file(file.path()).unwrap(),
        }
    }
    for file in std::fs::read_dir(copied).unwrap().map(Result::unwrap).filter(|file| file.file_name() != "LOCK") {
        copy(&file.path(), directory);
    }
}

/// Longer than a group that nobody uses stays awake.
const REST: Duration = Duration::from_secs(5);

fn wait_until_noticed(cluster: &Cluster, at: usize) {
    cluster.wait_for("the older copy is noticed", Duration::from_secs(30), || {
        cluster.cli(at, "status").is_ok_and(|status| status.contains("older than what the node had"))
    });
}

/// A client of a node, once that listens.
fn client(cluster: &Cluster, at: usize) -> Client {
    cluster.wait_for("the node answers", Duration::from_secs(30), || cluster.status(at).is_some());
    cluster.client(at)
}

fn write(client: &mut Client) {
    for number in 0..WRITES {
        assert!(matches!(client.run(&format!("SET n{number} {number}")), Value::Simple(_)));
    }
}

fn assert_all_there(client: &mut Client) {
    for number in 0..WRITES {
        let value = client.run(&format!("GET n{number}"));
        assert!(
            matches!(&value, Value::Bulk(bytes) if *bytes == number.to_string().into_bytes()),
            "n{number}: {value}"
        );
    }
}

/// The second of three nodes has an older copy; the third one was not there when the writes were made, which the first two
/// have acknowledged. Only the second and the third are up at the end.
fn with_an_older_copy(third_knows: bool) -> Cluster {
    let mut cluster = Cluster::start(3);
    cluster.wait_until_whole();
    if !third_knows {
        cluster.kill(2);
    }
    assert_eq!(cluster.nodes[1].take().unwrap().process.terminate(), Some(0));
    let copied = cluster.data.path().join("copy");
    copy(&cluster.data_directory(1), &copied);
    cluster.start_node(1);
    if third_knows {
        cluster.wait_until_whole();
        cluster.kill(2);
    }
    write(&mut client(&cluster, 0));
    cluster.kill(0);
    cluster.kill(1);
    put_back(&copied, &cluster.data_directory(1), third_knows);
    cluster.start_node(1);
    cluster.start_node(2);
    wait_until_noticed(&cluster, 1);
    // Whatever they answer now, it is not that there is nothing.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        let led = cluster.status(2).map(|status| status["serving_partitions"].clone());
        assert!(led.is_none_or(|led| led == 0), "two nodes lead that lack what was acknowledged");
    }
    cluster
}

fn comes_back_with_everything(third_knows: bool) {
    let mut cluster = with_an_older_copy(third_knows);
    cluster.start_node(0);
    cluster.wait_until_whole();
    for at in 0..3 {
        assert_all_there(&mut client(&cluster, at));
    }
    // It is a full member again: any two serve.
    cluster.kill(2);
    assert_all_there(&mut client(&cluster, 1));
    cluster.start_node(2);
    cluster.wait_until_whole();
    cluster.kill(1);
    cluster.start_node(1);
    cluster.wait_until_whole();
}

#[test]
fn a_copy_that_others_know_to_be_older_loses_nothing() {
    comes_back_with_everything(true);
}

#[test]
fn a_copy_that_nobody_else_knows_of_loses_nothing() {
    comes_back_with_everything(false);
}

#[test]
fn an_operator_may_say_that_an_older_copy_counts() {
    let mut cluster = with_an_older_copy(false);
    cluster.kill(1);
    cluster.start_node_with(1, &["--accept-older-data"]);
    let mut client = client(&cluster, 2);
    assert!(matches!(client.run("SET n0 anew"), Value::Simple(_)));
    assert_eq!(client.run("GET n1"), Value::Null);
}

/// Replicas that rested went on waiting for a leader that had been on that node and was never to come back: its node was there
/// again before anybody had missed it, and nobody asked the partition for anything.
#[test]
fn what_an_older_copy_led_finds_another_leader_although_nobody_uses_it() {
    let mut cluster = Cluster::start(3);
    cluster.wait_until_whole();
    cluster.kill(1);
    let copied = cluster.data.path().join("copy");
    copy(&cluster.data_directory(1), &copied);
    cluster.start_node(1);
    cluster.wait_for("the second node leads again", WHOLE, || {
        let led = cluster.status(1).map(|status| status["serving_partitions"].as_u64());
        led.flatten().is_some_and(|led| led > 0)
    });
    cluster.wait_until_whole();
    std::thread::park_timeout(REST);
    cluster.kill(1);
    put_back(&copied, &cluster.data_directory(1), false);
    cluster.start_node(1);
    wait_until_noticed(&cluster, 1);
    cluster.wait_until_whole();
}
