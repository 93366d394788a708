//! What depends on the instant at which something happens elsewhere, brought about from inside.

use super::forwarding::Reach;
use super::frame::OwnedFrame;
use super::*;
use crate::commands::{self, SessionCommand};
use crate::server::RedisConfig;
use crate::test_cluster::{TestNode, config, wait_for};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tessera_access::User;
use tessera_cluster::CatalogCommand;
use tessera_engine::{DEFAULT_ENGINE, ENGINES};
use tessera_store::{Leader, Table};
use tessera_types::{
    Durability, EngineKind, Model, Partitioner, RecordKey, RequestError, Right, Rights, Scope, TableSchema,
    TableSettings, UnixMillis, WhenFull,
};

/// A connection whose replies stay in its output.
pub(super) fn connection(node: &TestNode, table: &Arc<Table>) -> Connection {
    let client = Arc::new(Client::of_another_node());
    let mut connection = Connection::new(node.server.clone(), client, None);
    connection.session.choose(table.clone()).unwrap();
    connection
}

fn frame(text: &str) -> OwnedFrame {
    OwnedFrame::from_arguments(text.split(' ').map(str::as_bytes))
}

impl Connection {
    /// Has the connection carry out a pipeline of lines, and returns the replies.
    pub(super) async fn given(&mut self, lines: &str) -> String {
        for line in lines.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            self.input.extend(format!("*{}\r\n", words.len()).into_bytes());
            words.iter().for_each(|word| self.input.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes()));
        }
        self.process().await.unwrap();
        String::from_utf8(std::mem::take(&mut self.output).bytes().to_vec()).unwrap()
    }
}

impl Connection {
    /// Has the connection read those bytes, and returns the replies.
    async fn read_raw(&mut self, bytes: &str) -> String {
        self.input = bytes.as_bytes().to_vec();
        self.process().await.unwrap();
        String::from_utf8(std::mem::take(&mut self.output).bytes().to_vec()).unwrap()
    }
}

/// Two nodes and a table of which each leads some partitions; with a key in a partition of the first, and one of the second.
pub(super) async fn two_nodes() -> (TestNode, TestNode, Arc<Table>, String, String) {
    two_nodes_with(1).await
}

/// Two nodes like [`two_nodes`], with a table that has so many replicas of each partition.
async fn two_nodes_with(replicas: u8) -> (TestNode, TestNode, Arc<Table>, String, String) {
    let first = TestNode::start(None, config());
    let second = TestNode::start(Some(&first), config());
    wait_for("both know each other", || (!first.store.is_alone() && !second.store.is_alone()).then_some(())).await;
    first.create_replicated_table("t", EngineKind::Memory, 8, replicas).await;
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
        connection.add_write(command, frame(&lines), None);
    }
    connection.flush_pending().await;
    let replies = String::from_utf8(std::mem::take(&mut connection.output).bytes().to_vec()).unwrap();
    assert_eq!(replies, ":2\r\n:2\r\n:3\r\n");
    assert_eq!(connection.given(&format!("GET {here}\nGET {there}")).await, "$-1\r\n$-1\r\n");
}

/// Writes that are carried out here once had to be done before commands for other nodes were sent, and those after them went the long way.
#[tokio::test]
async fn commands_for_both_nodes_are_carried_out_together_and_answered_in_their_order() {
    let (first, second, table, here, there) = two_nodes().await;
    let mut connection = connection(&first, &table);
    // Both have a lease from here on, so that no read has to be tried again.
    assert_eq!(connection.given(&format!("GET {there}\nGET {here}")).await, "$-1\r\n$-1\r\n");
    let forwarded = || first.server.forwarded.load(Ordering::Relaxed);
    let before = forwarded();
    let lines = format!(
        "INCR {here}\nINCR {there}\nINCR {here}\nGET {there}\nSET {here} x y z\nINCR {there}\nINCR {here}\nINCR {there}"
    );
    let replies = connection.given(&lines).await;
    assert_eq!(replies, ":1\r\n:1\r\n:2\r\n$1\r\n1\r\n-ERR syntax error\r\n:2\r\n:3\r\n:3\r\n");
    assert_eq!(forwarded() - before, 1, "all went in one request");
    // What reads what a write before it has written waits for that, whichever way the two go.
    let replies =
        connection.given(&format!("INCR {there}\nINCR {here}\nGET {here}\nGET {there}\nINCR {here}\nPING")).await;
    assert_eq!(replies, ":4\r\n:4\r\n$1\r\n4\r\n$1\r\n4\r\n:5\r\n+PONG\r\n");
    // As if the partition of `there` had moved after its writes were pending here.
    for lines in [format!("INCR {there}"), format!("INCR {here}")] {
        connection.add_write(commands::find(b"incr").unwrap(), frame(&lines), None);
    }
    let replies = connection.given(&format!("GET {there}\nINCR {here}\nINCR {there}")).await;
    assert_eq!(replies, ":5\r\n:6\r\n$1\r\n5\r\n:7\r\n:6\r\n");
    drop(second);
}

/// The leader of a partition that was not used for some seconds has no lease. It once answered reads of another node with that, which
/// asked again, unless a later write of the pipeline had been done meanwhile: then the client heard `LOADING`.
#[tokio::test]
async fn a_pipeline_may_begin_with_a_read_of_a_partition_that_rests() {
    let (first, second, table, _, there) = two_nodes_with(2).await;
    let its = second.table("t").await;
    let partition = its.partition_of(&RecordKey::new(there.as_bytes(), b""));
    let mut connection = connection(&first, &table);
    for (number, read) in ["GET", "MGET", "HGETALL"].into_iter().enumerate() {
        assert_eq!(connection.given(&format!("DEL {there}")).await, if number == 0 { ":0\r\n" } else { ":1\r\n" });
        wait_for("the partition rests", || (its.serves(partition) && !its.has_lease(partition)).then_some(())).await;
        let replies = connection.given(&format!("{read} {there}\nSET {there} 1\nGET {there}")).await;
        assert!(replies.ends_with("+OK\r\n$1\r\n1\r\n") && !replies.starts_with('-'), "{read}: {replies}");
    }
}

/// `EXEC` once overwrote what another client had written: watched keys were forgotten with the table, even if it was the same one.
#[tokio::test]
async fn a_watched_key_stays_watched_when_a_table_is_chosen() {
    let (first, _second, table, here, there) = two_nodes().await;
    first.create_table("other", EngineKind::Memory, 2).await;
    let (mut connection, mut writer) = (connection(&first, &table), connection(&first, &table));
    for key in [here, there] {
        let watch = format!("SET {key} 1\nWATCH {key}");
        let transact = format!("MULTI\nSET {key} 3\nEXEC");
        for (chosen, is_written, expected) in [
            ("TABLE t", false, "*1\r\n+OK\r\n"),
            ("TABLE t", true, "*-1\r\n"),
            // What is watched in another table cannot be part of the transaction.
            ("TABLE other", false, "*-1\r\n"),
            ("TABLE other\nTABLE t", true, "*-1\r\n"),
            ("TABLE other\nUNWATCH\nTABLE t", true, "*1\r\n+OK\r\n"),
        ] {
            connection.given(&watch).await;
            connection.given(chosen).await;
            if is_written {
                writer.given(&format!("SET {key} 2")).await;
            }
            let replies = connection.given(&transact).await;
            assert!(replies.ends_with(expected), "{chosen}: {replies}");
            connection.given("TABLE t").await;
        }
    }
}

/// Each of them was once answered by one error for all.
#[tokio::test]
async fn without_a_table_each_write_of_a_pipeline_has_an_answer() {
    let (first, _second, table, here, _) = two_nodes().await;
    let mut connection = connection(&first, &table);
    connection.session.table = None;
    let replies = connection.given(&format!("SET {here} 1\nINCR {here}\nDEL {here}")).await;
    assert_eq!(replies.matches("-ERR the chosen table does not exist").count(), 3, "{replies}");
}

/// After a split that a node that asks has not heard of yet, what it takes for one part can be two, of which only one is here.
#[tokio::test]
async fn another_node_is_not_told_that_nothing_was_done_when_some_was() {
    let (first, _second, table, here, there) = two_nodes().await;
    let mut connection = connection(&first, &table);
    assert_eq!(connection.given(&format!("SET {here} 1\nSET {there} 1")).await, "+OK\r\n+OK\r\n");
    connection.reach = Reach::Node;
    let replies = connection.given(&format!("DEL {here} {there}\nEXISTS {here}")).await;
    assert!(replies.starts_with("-LOADING ") && replies.ends_with("\r\n:1\r\n"), "{replies}");
}

/// Replicas evict each on its own. What the leader had evicted was once not deleted where it was left, and came back, with old
/// fields beside new ones, when that replica led.
#[tokio::test]
async fn what_is_deleted_on_a_table_that_evicts_is_gone_from_all_replicas() {
    let first = TestNode::start_with(None, config(), |config| config.memory.limit_bytes = 1 << 20);
    let second = TestNode::start(Some(&first), config());
    wait_for("both know each other", || (!first.store.is_alone() && !second.store.is_alone()).then_some(())).await;
    let schema = TableSchema {
        engine: EngineKind::Memory,
        partitions: 4,
        partitioner: Partitioner::RedisSlots,
        model: Model::default(),
        primary_key: None,
        durability: Durability::Soft,
        replicas: 2,
    };
    let settings = TableSettings { when_full: WhenFull::Evict, ..TableSettings::default() };
    let create = CatalogCommand::Create { name: "cache".into(), schema, settings, absent: Default::default() };
    first.store.change_catalog(create).await.unwrap().unwrap();
    let (table, other) = (first.table("cache").await, second.table("cache").await);
    // Before each leads its share, leaders change, and the next one may well have what this one evicted.
    wait_for("each node leads its share, and both have all", || {
        let leads = |leader| (0..4).filter(|at| table.leader_of(*at) == leader).count() == 2;
        (leads(Leader::Here)
            && leads(Leader::Node(second.store.node()))
            && (0..4).all(|at| table.lag(at).is_some() && other.lag(at).is_some()))
        .then_some(())
    })
    .await;
    let mut client = connection(&first, &table);
    let (pad, all) = ("x".repeat(1_000), 0..1_500);
    for number in all.clone() {
        client.given(&format!("SET k{number} {pad}\nHSET h{number} old {pad} both old")).await;
    }
    let is_evicted = |replies: &str| replies == ":0\r\n";
    let (mut keys, mut hashes) = (Vec::new(), Vec::new());
    for number in all {
        if is_evicted(&client.given(&format!("EXISTS k{number}")).await) {
            keys.push(number);
        }
        if is_evicted(&client.given(&format!("EXISTS h{number}")).await) {
            hashes.push(number);
        }
    }
    assert!(keys.len() > 100 && hashes.len() > 300, "evicted {} keys and {} hashes", keys.len(), hashes.len());
    for number in &keys {
        assert_eq!(client.given(&format!("DEL k{number}")).await, ":0\r\n", "as the leader sees it");
    }
    for (at, number) in hashes.iter().enumerate() {
        let lines = match at % 3 {
            0 => format!("HSET h{number} both new"),
            1 => format!("HDEL h{number} old both"),
            _ => format!("SET h{number} new"),
        };
        assert!(!client.given(&lines).await.starts_with('-'), "{lines}");
    }
    let mut replica = connection(&second, &other);
    assert_eq!(replica.given("READS outdated").await, "+OK\r\n");
    wait_for("the other replica has all", || {
        (0..4).all(|at| table.applied_index(at) == other.applied_index(at)).then_some(())
    })
    .await;
    for number in &keys {
        assert_eq!(replica.given(&format!("EXISTS k{number}")).await, ":0\r\n", "k{number}");
    }
    for (at, number) in hashes.iter().enumerate() {
        let (line, expected) = match at % 3 {
            0 => (format!("HGETALL h{number}"), "*2\r\n$4\r\nboth\r\n$3\r\nnew\r\n"),
            1 => (format!("EXISTS h{number}"), ":0\r\n"),
            _ => (format!("GET h{number}\nHLEN h{number}"), "$3\r\nnew\r\n-WRONGTYPE"),
        };
        let found = replica.given(&line).await;
        assert!(found.starts_with(expected), "{line}: {found}");
    }
}

/// Commands without keys once went to the partition with the number 0, and failed with it.
#[tokio::test]
async fn commands_without_keys_need_no_partition() {
    let node = TestNode::start(None, config());
    let table = node.create_table("t", EngineKind::Memory, 2).await;
    let mut connection = connection(&node, &table);
    // From now on no partition of the table is served.
    node.store.change_catalog(CatalogCommand::drop("t", UnixMillis::now())).await.unwrap().unwrap();
    wait_for("the table is dropped", || node.store.table_named("t").is_none().then_some(())).await;
    assert!(connection.given("GET k").await.starts_with('-'));
    assert_eq!(connection.given("PING\nECHO x").await, "+PONG\r\n$1\r\nx\r\n");
    assert!(connection.given("TIME").await.starts_with("*2\r\n"));
    let replies = connection.given("MULTI\nPING\nECHO x\nUNWATCH\nEXEC").await;
    assert_eq!(replies, "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+PONG\r\n$1\r\nx\r\n+OK\r\n");
}

/// A node that had a table dropped by the one that leads the catalog once listed it for a while, and did not know one that it had
/// had created.
#[tokio::test]
async fn a_node_knows_what_it_has_had_changed() {
    let first = TestNode::start(None, config());
    let second = TestNode::start(Some(&first), config());
    wait_for("the second node knows who leads the catalog", || second.store.catalog_leader()).await;
    assert_eq!(second.store.catalog_leader(), Some(first.store.node()));
    let schema = TableSchema {
        engine: EngineKind::Memory,
        partitions: 1,
        partitioner: Partitioner::default(),
        model: Model::default(),
        primary_key: None,
        durability: Durability::None,
        replicas: 1,
    };
    let table = first.create_table("some", EngineKind::Memory, 1).await;
    assert!(connection(&first, &table).given("SELECT 99").await.contains("no table has this number"));
    for number in 0..8 {
        let (name, schema) = (format!("t{number}"), schema.clone());
        let (settings, absent) = (TableSettings::default(), Default::default());
        let create = CatalogCommand::Create { name: name.clone(), schema, settings, absent };
        second.store.change_catalog(create).await.unwrap().unwrap();
        assert!(second.store.catalog().by_name(&name).is_some() && second.store.table_named(&name).is_some(), "{name}");
        let drop = CatalogCommand::drop(&name, UnixMillis::now());
        second.store.change_catalog(drop).await.unwrap().unwrap();
        assert!(second.store.table_named(&name).is_none(), "{name}");
    }
}

/// Gives a connection of its own the same pipeline again and again, until dropped.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Writer {
    fn start(mut connection: Connection, mut lines: impl FnMut() -> String + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            while !is_over.load(Ordering::Relaxed) {
                runtime.block_on(connection.given(&lines()));
            }
        };
        Self { stop, thread: Some(std::thread::spawn(run)) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// How long reads and writes that must not meet halfway are tried beside each other.
const STRESS: Duration = Duration::from_secs(2);

#[tokio::test]
async fn keys_of_one_partition_are_read_at_one_instant() {
    let node = TestNode::start(None, config());
    let keys: Vec<String> = (0..20).map(|number| format!("{{t}}{number}")).collect();
    for engine in ENGINES.iter().copied() {
        let name = engine.as_str();
        let table = node.create_table(name, engine, 2).await;
        let (mut round, written) = (0, keys.clone());
        let _writer = Writer::start(connection(&node, &table), move || {
            round += 1;
            let pairs: String = written.iter().map(|key| format!(" {key} {:09}", round)).collect();
            format!("MSET{pairs}")
        });
        let mut reader = connection(&node, &table);
        let (began, mut reads) = (Instant::now(), 0);
        while began.elapsed() < STRESS {
            let reply = reader.given(&format!("MGET {} other", keys.join(" "))).await;
            let mut values: Vec<&str> = reply.split("\r\n").skip(2).step_by(2).take(keys.len()).collect();
            values.dedup();
            assert!(values.len() == 1 || reply.starts_with("*21\r\n$-1"), "{name}, read {reads}: {reply}");
            reads += 1;
        }
    }
}

#[tokio::test]
async fn a_string_that_comes_and_goes_is_never_taken_for_a_hash() {
    let node = TestNode::start(None, config());
    let table = node.create_table("t", EngineKind::Memory, 1).await;
    let mut reader = connection(&node, &table);
    assert_eq!(reader.given("HSET h f v").await, ":1\r\n");
    let _writer = Writer::start(connection(&node, &table), || "DEL s\nSET s v".into());
    let (began, gets) = (Instant::now(), "GET s\nTYPE s\nSTRLEN s\n".repeat(20));
    while began.elapsed() < STRESS {
        let replies = reader.given(&gets).await;
        assert!(!replies.contains("WRONGTYPE") && !replies.contains("hash"), "{replies}");
    }
}

/// Values read from a table so far, used or not.
fn reads(node: &TestNode) -> u64 {
    node.store.statistics().tables.iter().map(|table| table.counts.reads).sum()
}

/// Sets `count` keys to values of that many bytes.
async fn fill(connection: &mut Connection, count: usize, bytes: usize) {
    let value = "v".repeat(bytes);
    for number in 0..count {
        assert_eq!(connection.given(&format!("SET k{number} {value}")).await, "+OK\r\n");
    }
}

fn gets(count: usize) -> String {
    (0..count).map(|number| format!("GET k{number}\n")).collect()
}

/// Replies are written out when there are enough. What had been read beyond that was once read again for each of them, so the
/// work grew with the square of the pipeline's length.
#[tokio::test]
async fn each_value_of_a_long_pipeline_is_read_about_once() {
    let node = TestNode::start(None, config());
    for (name, engine, has_hash) in
        [("disk", DEFAULT_ENGINE, false), ("memory", EngineKind::Memory, false), ("hashes", EngineKind::Memory, true)]
    {
        let table = node.create_table(name, engine, 4).await;
        let mut connection = connection(&node, &table);
        if has_hash {
            connection.given("HSET {k0}h f v\nHSET {k1}h f v\nHSET {k2}h f v\nHSET {k3}h f v").await;
        }
        let (count, bytes) = (200, 100 << 10);
        fill(&mut connection, count, bytes).await;
        for given in
            [gets(count), format!("MGET{}", (0..count).map(|number| format!(" k{number}")).collect::<String>())]
        {
            let before = reads(&node);
            let replies = connection.given(&given).await;
            assert!(replies.len() > count * bytes);
            assert_eq!(replies.matches("\r\nv").count(), count);
            let reads = reads(&node) - before;
            assert!(reads <= 2 * count as u64, "{name}: {reads} values were read for {count} replies");
        }
    }
}

/// What other tasks of the thread get to do while a connection works through a pipeline.
async fn turns_beside(connection: &mut Connection, lines: &str) -> (usize, String) {
    let turns = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = turns.clone();
    let beside = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let replies = connection.given(lines).await;
    beside.abort();
    (turns.load(Ordering::Relaxed), replies)
}

#[tokio::test]
async fn others_have_their_turn_while_a_connection_has_much_to_do() {
    let node = TestNode::start(None, config());
    let table = node.create_table("t", EngineKind::Memory, 4).await;
    let mut connection = connection(&node, &table);
    fill(&mut connection, 100, 100 << 10).await;
    let keys: String = (0..100).map(|number| format!(" k{number}")).collect();
    connection.given(&format!("SET l {}", "v".repeat(4_000))).await;
    // Ten megabytes each, and ten thousand small commands.
    for number in 0..200 {
        let pairs: String = (0..100).map(|field| format!(" f{number}-{field} {}", "v".repeat(100))).collect();
        connection.given(&format!("HSET h{pairs}")).await;
    }
    for (lines, least) in [
        ("HGETALL h".to_string(), 4),
        ("HVALS h".to_string(), 4),
        (gets(100), 8),
        (format!("MGET{keys}"), 8),
        ("STRLEN k1\n".repeat(10_000), 8),
        ("PING\n".repeat(10_000), 8),
        ("GET nosuch\n".repeat(10_000), 8),
        // Little is asked and answered, and each takes long.
        ("HLEN h\n".repeat(100), 20),
        ("LCS l l LEN\n".repeat(10), 8),
    ] {
        let (turns, _) = turns_beside(&mut connection, &lines).await;
        assert!(turns >= least, "{turns} turns beside {}", &lines[..20]);
    }
}

/// The node that led the keys once read nothing any more after the first megabyte of replies, and never came back.
#[tokio::test]
async fn a_pipeline_of_large_values_is_forwarded_piece_by_piece() {
    let (first, _second, table, _here, there) = two_nodes().await;
    let mut connection = connection(&first, &table);
    let bytes = 300 << 10;
    assert_eq!(connection.given(&format!("SET {there} {}", "v".repeat(bytes))).await, "+OK\r\n");
    let asked = first.server.forwarded_count();
    let lines = format!("GET {there}\n").repeat(60);
    let replies = tokio::time::timeout(Duration::from_secs(60), connection.given(&lines)).await.expect("an answer");
    assert_eq!(replies.matches("\r\nv").count(), 60);
    assert_eq!(replies.len(), 60 * (format!("${bytes}\r\n").len() + bytes + 2));
    assert!(first.server.forwarded_count() - asked > 1, "no answer holds all");
}

/// The head of a request was answered with errors, and its body carried out.
#[tokio::test]
async fn nothing_of_an_http_request_is_carried_out() {
    let node = TestNode::start(None, config());
    let table = node.create_table("t", EngineKind::Memory, 1).await;
    for request in [
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 19\r\n\r\nFLUSHALL\r\nSET k w\r\n",
        "GET /?a HTTP/1.1\r\nHost: x\r\n\r\nSET k w\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\nSET k w\r\n",
        "PUT /k HTTP/1.0\r\n\r\nSET k w\r\n",
        "Host: x\r\nSET k w\r\n",
        "*2\r\n$5\r\nHost:\r\n$1\r\nx\r\nSET k w\r\n",
        "*1\r\n$4\r\npost\r\nSET k w\r\n",
    ] {
        let mut connection = connection(&node, &table);
        assert_eq!(connection.given("SET k v").await, "+OK\r\n");
        assert_eq!(connection.read_raw(request).await, "", "{request}");
        assert!(connection.closing, "{request}");
        let mut another = self::connection(&node, &table);
        assert_eq!(another.given("GET k").await, "$1\r\nv\r\n", "{request}");
    }
}

/// A browser that is led to `https` at this port sends a session token that the page's server chose.
#[tokio::test]
async fn nothing_of_a_tls_handshake_is_carried_out() {
    let node = TestNode::start(None, config());
    let table = node.create_table("t", EngineKind::Memory, 1).await;
    let mut browser = connection(&node, &table);
    assert_eq!(browser.read_raw("\u{16}\u{3}\u{1} token\r\nSET owned 1\r\n").await, "");
    assert!(browser.closing);
    assert_eq!(connection(&node, &table).given("EXISTS owned").await, ":0\r\n");
}

#[tokio::test]
async fn only_who_may_administer_sees_and_ends_other_connections() {
    let node = TestNode::start(None, config());
    let table = node.create_table("t", EngineKind::Memory, 1).await;
    let mut connection = connection(&node, &table);
    assert_eq!(connection.given("CLIENT LIST").await, "$0\r\n\r\n");
    let mut rights = Rights::all();
    rights.set(&Scope::Global, rights.at(&Scope::Global).with(Right::Config, None));
    connection.session.log_in(&node.server, User { name: "reader".into(), rights, ..User::everybody() });
    for refused in ["CLIENT LIST", "CLIENT KILL ID 1", "CLIENT KILL 1.2.3.4:5", "ACL LIST", "ACL USERS"] {
        assert!(connection.given(refused).await.starts_with("-NOPERM "), "{refused}");
    }
    for allowed in ["CLIENT ID", "CLIENT GETNAME", "CLIENT SETNAME me", "CLIENT INFO", "ACL WHOAMI"] {
        assert!(!connection.given(allowed).await.starts_with('-'), "{allowed}");
    }
}

#[tokio::test]
async fn the_slow_log_keeps_no_passwords() {
    let node = TestNode::start(None, RedisConfig { slow_log_micros: 0, ..config() });
    let table = node.create_table("t", EngineKind::Memory, 1).await;
    let mut connection = connection(&node, &table);
    connection
        .given("AUTH hush\nAUTH default hush\nHELLO 3 AUTH default hush\nHELLO 2\nCONFIG SET requirepass hush")
        .await;
    connection.given("ACL SETUSER u on >hush").await;
    let log = connection.given("SLOWLOG GET 100").await;
    assert!(log.contains("AUTH") && log.contains("requirepass") && log.contains("SETUSER"), "{log}");
    assert!(!log.contains("hush"), "{log}");
}

#[tokio::test]
async fn a_transaction_that_is_too_long_is_refused() {
    let node = TestNode::start(None, config());
    let table = node.create_table("t", EngineKind::Memory, 1).await;
    let mut connection = connection(&node, &table);
    let value = "v".repeat(1 << 20);
    for (command, count) in [("INCR k".to_string(), 100_001), (format!("SET k {value}"), 66)] {
        assert_eq!(connection.given("MULTI").await, "+OK\r\n");
        let mut replies = String::new();
        for _ in 0..count {
            replies = connection.given(&command).await;
            if replies.starts_with('-') {
                break;
            }
        }
        assert!(replies.starts_with("-ERR the transaction is longer than the limit of "), "{replies}");
        assert_eq!(connection.given("INCR k").await, "+QUEUED\r\n");
        assert!(connection.given("EXEC").await.starts_with("-EXECABORT "));
        assert_eq!(connection.given("EXISTS k").await, ":0\r\n");
    }
}

#[tokio::test]
async fn an_exec_with_an_argument_ends_the_transaction() {
    let node = TestNode::start(None, config());
    let table = node.create_table("t", EngineKind::Memory, 1).await;
    let mut connection = connection(&node, &table);
    let refused = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n";
    assert_eq!(connection.given("MULTI").await, "+OK\r\n");
    assert_eq!(connection.given("SET a 1").await, "+QUEUED\r\n");
    assert_eq!(connection.given("EXEC x").await, refused);
    assert_eq!(connection.given("SET b 1").await, "+OK\r\n");
    assert_eq!(connection.given("EXISTS a b").await, ":1\r\n");
    assert_eq!(connection.given("EXEC").await, "-ERR EXEC without MULTI\r\n");
    assert_eq!(connection.given("EXEC x").await, refused);
}

#[tokio::test]
async fn the_keys_that_a_connection_watches_are_bounded() {
    let node = TestNode::start(None, config());
    let table = node.create_table("t", EngineKind::Memory, 1).await;
    let mut connection = connection(&node, &table);
    let watch = |from: usize, count: usize| {
        (from..from + count).fold("WATCH".to_string(), |line, number| line + &format!(" w{number}"))
    };
    assert_eq!(connection.given(&watch(0, 60_000)).await, "+OK\r\n");
    let refused = connection.given(&watch(60_000, 60_000)).await;
    assert!(refused.starts_with("-ERR a connection watches at most 100000 keys"), "{refused}");
    assert_eq!(connection.given(&watch(60_000, 40_000)).await, "+OK\r\n");
    assert!(connection.given("WATCH one").await.starts_with("-ERR "));
    assert_eq!(connection.given("UNWATCH\nWATCH one").await, "+OK\r\n+OK\r\n");
    // Long keys count by their bytes.
    let long = "k".repeat(60_000);
    let mut replies = String::new();
    for _ in 0..1_200 {
        replies = connection.given(&format!("WATCH {long}")).await;
        if replies.starts_with('-') {
            break;
        }
    }
    assert!(replies.starts_with("-ERR a connection watches at most 100000 keys"), "{replies}");
}

#[tokio::test]
async fn no_reply_is_longer_than_one_may_be() {
    let node = TestNode::start(None, config());
    let table = node.create_table("t", EngineKind::Memory, 1).await;
    let mut connection = connection(&node, &table);
    let value = "v".repeat(16 << 20);
    assert_eq!(connection.given(&format!("SET k {value}\nHSET h f {value}")).await, "+OK\r\n:1\r\n");
    for (command, word) in [("MGET", " k"), ("HMGET h", " f")] {
        let replies = connection.given(&format!("{command}{}", word.repeat(40))).await;
        assert!(replies.starts_with("-ERR the reply would be longer"), "{command}: {} bytes", replies.len());
    }
    let lines = format!("MULTI\n{}EXEC", "GET k\n".repeat(40));
    assert!(connection.given(&lines).await.contains("-ERR the reply would be longer"));
}

/// A page may end in the middle of a hash, of which a cursor could keep the beginning only.
#[tokio::test]
#[cfg_attr(not(feature = "rocksdb"), ignore = "RocksDB is needed")]
async fn scan_gets_past_hashes_of_many_pages_whether_they_have_expired_or_not() {
    let node = TestNode::start(None, config());
    // RocksDB keeps what has expired until it compacts.
    let table = node.create_table("t", EngineKind::Rocksdb, 1).await;
    let mut connection = connection(&node, &table);
    const FIELDS: usize = 3_000;
    let fields: String = (0..FIELDS).map(|field| format!(" f{field}")).collect();
    let pairs = fields.replace(" f", " v f");
    for hash in ["expired", "live"] {
        let set = connection.given(&format!("HSET {hash} f{pairs} v")).await;
        assert_eq!(set, format!(":{}\r\n", FIELDS + 1));
    }
    connection.given(&format!("HPEXPIRE expired 1 FIELDS {} f{fields}", FIELDS + 1)).await;
    let mut expected = BTreeSet::from(["live".to_string()]);
    for number in 0..20 {
        connection.given(&format!("SET k{number} v")).await;
        expected.insert(format!("k{number}"));
    }
    let began = Instant::now();
    while connection.given("EXISTS expired").await != ":0\r\n" {
        assert!(began.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for count in [1, 2, 7, 1_000] {
        let (mut found, mut cursor) = (Vec::new(), "0".to_string());
        loop {
            let reply = connection.given(&format!("SCAN {cursor} COUNT {count}")).await;
            let words: Vec<&str> = reply.split("\r\n").collect();
            found.extend(words.iter().skip(5).step_by(2).filter(|word| !word.is_empty()).map(ToString::to_string));
            cursor = words[2].to_string();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(found.len(), expected.len(), "COUNT {count}: {found:?}");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}

#[tokio::test]
async fn a_hash_of_many_pages_is_that_of_one_instant() {
    let node = TestNode::start(None, config());
    for engine in ENGINES.iter().copied() {
        let name = engine.as_str();
        let table = node.create_table(name, engine, 1).await;
        let mut round = 0;
        const FIELDS: usize = 3_000;
        let hash = move |round: usize| {
            let pairs: String = (0..FIELDS).map(|field| format!(" f{field:05} {round:09}")).collect();
            format!("HSET h{pairs}")
        };
        let mut reader = connection(&node, &table);
        assert_eq!(reader.given(&hash(0)).await, format!(":{FIELDS}\r\n"));
        assert_eq!(reader.given("SET s v").await, "+OK\r\n");
        let whole = |reply: &str, what: &str| {
            let words: Vec<&str> = reply.split("\r\n").collect();
            let mut values: Vec<&str> = words.iter().skip(4).step_by(4).take(FIELDS).copied().collect();
            assert_eq!((words[0], values.len()), (&format!("*{}", 2 * FIELDS)[..], FIELDS), "{what}");
            assert_eq!(words[words.len() - 4], format!("f{:05}", FIELDS - 1));
            values.dedup();
            assert_eq!(values.len(), 1, "{what}: {values:?}");
        };
        whole(&reader.given("HGETALL h").await, name);
        assert!(reader.given("HGETALL s").await.starts_with("-WRONGTYPE"));
        assert_eq!(reader.given("HKEYS nosuch").await, "*0\r\n");
        let _writer = Writer::start(connection(&node, &table), move || {
            round += 1;
            hash(round)
        });
        let began = Instant::now();
        while began.elapsed() < STRESS {
            whole(&reader.given("HGETALL h").await, name);
        }
    }
}

/// FLUSHALL that met a split once started again on all partitions, and deleted what had been written to those that were done.
#[tokio::test]
async fn partitions_that_were_cleared_are_not_cleared_again_after_a_split() {
    let (first, _second, table, here, there) = two_nodes().await;
    let mut connection = connection(&first, &table);
    assert_eq!(connection.given(&format!("SET {here} 1\nSET {there} 1\nFLUSHALL")).await, "+OK\r\n+OK\r\n+OK\r\n");
    assert_eq!(connection.given(&format!("EXISTS {here} {there}")).await, ":0\r\n");
    connection.reply().ok();
    connection.refuse(&RequestError::Interrupted.into());
    let last = connection.output.len();
    connection.refuse(&RequestError::NotReady.into());
    assert!(!connection.asks_again(SessionCommand::Flush, 0) && !connection.asks_again(SessionCommand::Flush, 5));
    assert!(connection.asks_again(SessionCommand::Flush, last) && connection.asks_again(SessionCommand::DbSize, 0));
}

/// It answered OK to whoever chose a table, and found the table in the catalog of before. Of two nodes, the one that was removed took
/// itself for one that is alone, and said of each key that its partition has no leader yet.
#[tokio::test]
async fn no_table_is_chosen_on_a_node_that_was_removed() {
    let first = TestNode::start(None, config());
    let second = TestNode::start(Some(&first), config());
    wait_for("both know each other", || (!first.store.is_alone() && !second.store.is_alone()).then_some(())).await;
    first.create_table("t", EngineKind::Memory, 1).await;
    let table = second.table("t").await;
    let select = format!("SELECT {}", table.number().0);
    let mut connection = connection(&second, &table);
    assert_eq!(connection.given(&format!("TABLE t\n{select}")).await, "+OK\r\n+OK\r\n");
    let node = second.store.node();
    first.store.change_catalog(CatalogCommand::Drain { node, is_draining: true }).await.unwrap().unwrap();
    wait_for("it holds nothing", || (first.store.catalog().replicas_on(node) == 0).then_some(())).await;
    first.store.change_catalog(CatalogCommand::RemoveNode { node }).await.unwrap().unwrap();
    wait_for("it is told", || second.store.is_removed().then_some(())).await;
    for line in ["TABLE t", "TABLE other", select.as_str(), "SELECT 99", "GET k", "SET k v"] {
        let reply = connection.given(line).await;
        assert!(reply.starts_with("-ERR this node was removed from its cluster"), "{line}: {reply}");
    }
}
