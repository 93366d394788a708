//! What depends on the instant at which something happens elsewhere, brought about from inside.

use super::elsewhere::Confined;
use super::*;
use crate::test_cluster::{TestNode, config, wait_for};
use tessera_store::{Leader, Table};
use tessera_types::{EngineKind, RecordKey};

/// A connection whose replies stay in its output.
fn connection(node: &TestNode, table: &Arc<Table>) -> Connection {
    let client = Arc::new(Client::of_another_node());
    let mut connection = Connection::new(node.server.clone(), client, Stream::Nowhere);
    connection.session.choose(table.clone()).unwrap();
    connection
}

fn frame(text: &str) -> OwnedFrame {
    OwnedFrame::from_arguments(text.split(' ').map(str::as_bytes))
}

impl Connection {
    /// Has the connection carry out a pipeline of lines, and returns the replies.
    async fn given(&mut self, lines: &str) -> String {
        self.input = lines.lines().flat_map(|line| [line.as_bytes(), b"\r\n"].concat()).collect();
        self.process().await.unwrap();
        String::from_utf8(std::mem::take(&mut self.output)).unwrap()
    }
}

/// Two nodes and a table of which each leads some partitions; with a key in a partition of the first, and one of the second.
async fn two_nodes() -> (TestNode, TestNode, Arc<Table>, String, String) {
    let first = TestNode::start(None, config());
    let second = TestNode::start(Some(&first), config());
    wait_for("both know each other", || (!first.store.is_alone() && !second.store.is_alone()).then_some(())).await;
    first.create_table("t", EngineKind::Memory, 8).await;
    let key_of = |table: &Table, leader: Leader| {
        let partition = |key: &String| table.partition_of(&RecordKey::new(key.as_bytes(), b""));
        (0..1_000).map(|number| format!("k{number}")).find(|key| table.leader_of(partition(key)) == leader)
    };
    let table = first.table("t").await;
    let (here, there) = wait_for("each leads some", || {
        let there = Leader::Node(second.store.node());
        Some((key_of(&table, Leader::Here)?, key_of(&table, there)?))
    })
    .await;
    (first, second, table, here, there)
}

/// It once deleted both anew when one of the partitions had moved, and answered 1.
#[tokio::test]
async fn a_part_that_was_done_is_not_done_again_when_another_partition_has_moved() {
    let (first, _second, table, here, there) = two_nodes().await;
    let mut connection = connection(&first, &table);
    assert_eq!(connection.given(&format!("SET {here} 1\nSET {there} 1\nSET n 1")).await, "+OK\r\n+OK\r\n+OK\r\n");
    // As if the partition of `there` had moved after it was looked where that is.
    for lines in ["INCR n".to_string(), format!("DEL {here} {there}"), "INCR n".into()] {
        let command = commands::find(frame(&lines).arguments()[0]).unwrap();
        connection.gather_write(command, frame(&lines));
    }
    connection.settle().await;
    let replies = String::from_utf8(std::mem::take(&mut connection.output)).unwrap();
    assert_eq!(replies, ":2\r\n:2\r\n:3\r\n");
    assert_eq!(connection.given(&format!("GET {here}\nGET {there}")).await, "$-1\r\n$-1\r\n");
}

/// After a split that a node that asks has not heard of yet, what it takes for one part can be two, of which only one is here.
#[tokio::test]
async fn another_node_is_not_told_that_nothing_was_done_when_some_was() {
    let (first, _second, table, here, there) = two_nodes().await;
    let mut connection = connection(&first, &table);
    assert_eq!(connection.given(&format!("SET {here} 1\nSET {there} 1")).await, "+OK\r\n+OK\r\n");
    connection.confined = Confined::Here;
    let replies = connection.given(&format!("DEL {here} {there}\nEXISTS {here}")).await;
    assert!(replies.starts_with("-LOADING ") && replies.ends_with("\r\n:1\r\n"), "{replies}");
}
