//! Transactions over partitions, on one node and on two.

use super::super::Connection;
use super::super::tests::{connection, two_nodes};
use crate::server::RedisConfig;
use crate::test_cluster::{TestNode, config};
use std::collections::BTreeSet;
use std::sync::Arc;
use tessera_engine::ENGINES;
use tessera_store::Table;
use tessera_types::{EngineKind, RecordKey};

/// Keys in partitions that all differ.
fn keys_apart(table: &Table, count: usize) -> Vec<String> {
    let mut partitions = BTreeSet::new();
    let is_new = |key: &String| partitions.insert(table.partition_of(&RecordKey::new(key.as_bytes(), b"")));
    (0..10_000).map(|number| format!("a{number}")).filter(is_new).take(count).collect()
}

/// What a client of Redis expects of commands on three keys, wherever they are. The keys are gone afterwards.
async fn commands_on(given: &mut Connection, [a, b, c]: [&str; 3]) {
    let expect = async |given: &mut Connection, lines: &str, expected: &str| {
        assert_eq!(given.given(lines).await, expected.replace('|', "\r\n"), "{lines}");
    };
    expect(given, &format!("MSET {a} 1 {b} 2 {c} 3"), "+OK|").await;
    expect(given, &format!("GET {a}\nGET {b}\nMGET {c} {a}"), "$1|1|$1|2|*2|$1|3|$1|1|").await;
    expect(given, &format!("MSETNX {a} 8 {b} 8"), ":0|").await;
    expect(given, &format!("DEL {a} {b} none"), ":2|").await;
    expect(given, &format!("MSETNX {a} 1 {b} 2"), ":1|").await;
    let transaction =
        format!("MULTI\nINCR {a}\nPING\nHSET {b} f v\nMGET {c} {b} {a}\nDEL {c} {a}\nEXISTS {a} {b}\nEXEC");
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    let queued = "+OK|".to_string() + &"+QUEUED|".repeat(6);
    let replies = format!("{queued}*6|:2|+PONG|{wrong}*3|$1|3|$1|2|$1|2|:2|:1|");
    expect(given, &transaction, &replies).await;
    // Moving and copying, of strings and of hashes.
    expect(given, &format!("RENAME {b} {c}\nGET {b}\nGET {c}"), "+OK|$-1|$1|2|").await;
    expect(given, &format!("RENAME {b} {c}"), "-ERR no such key|").await;
    expect(
        given,
        &format!("HSET {a} f 1 g 2\nRENAMENX {a} {c}\nRENAMENX {a} {b}\nHGETALL {b}"),
        ":2|:0|:1|*4|$1|f|$1|1|$1|g|$1|2|",
    )
    .await;
    expect(
        given,
        &format!("COPY {b} {c}\nCOPY {b} {c} REPLACE\nCOPY {b} {a}\nHGET {c} g\nHLEN {a}"),
        ":0|:1|:1|$1|2|:2|",
    )
    .await;
    expect(given, &format!("COPY none {c}\nCOPY {a} {b} WHAT"), ":0|-ERR syntax error|").await;
    // COPY takes the number of the table, which go-redis always sends.
    let number = given.session.table().unwrap().number().0;
    expect(
        given,
        &format!("COPY {b} {c} DB {number}\nCOPY {b} {c} REPLACE DB {number}\nCOPY {b} {c} DB\nCOPY {b} {c} DB x"),
        ":0|:1|-ERR syntax error|-ERR value is not an integer or out of range|",
    )
    .await;
    expect(
        given,
        &format!("COPY {b} {c} DB {} REPLACE", number + 1),
        "-ERR COPY between tables is not supported: no table's records can be changed together with another's|",
    )
    .await;
    expect(given, &format!("PEXPIRE {a} 1000000\nRENAME {a} {b}\nHLEN {b}"), ":1|+OK|:2|").await;
    let left = given.given(&format!("PTTL {b}")).await;
    let left: u64 = left.trim_start_matches(':').trim_end().parse().unwrap();
    assert!(
        (900_000..=1_010_000).contains(&left),
        "the expiry moves with the key, and is that of another node's clock: {left}"
    );
    // Nothing is done of a transaction that was refused.
    expect(given, &format!("SET {a} 1\nSET {b} 1"), "+OK|+OK|").await;
    expect(
        given,
        &format!("MULTI\nSET {a} 2\nSET {b}\nSET {c} 2\nEXEC\nGET {a}"),
        "+OK|+QUEUED|-ERR wrong number of arguments for 'set' command|+QUEUED|\
         -EXECABORT Transaction discarded because of previous errors.|$1|1|",
    )
    .await;
    // Commands that need what is in several partitions at once, among others, which they see and which see them.
    expect(
        given,
        &format!("SET {a} ohmytext\nSET {b} mynewtext\nDEL {c}\nLCS {a} {b}\nLCS {a} {c}"),
        "+OK|+OK|:1|$6|mytext|$0||",
    )
    .await;
    expect(
        given,
        &format!("MULTI\nAPPEND {a} !\nRENAME {a} {c}\nEXISTS {a}\nMSETNX {a} 1 {b} 1\nLCS {b} {c} LEN\nPING\nEXEC"),
        "+OK|+QUEUED|+QUEUED|+QUEUED|+QUEUED|+QUEUED|+QUEUED|*6|:9|+OK|:0|:0|:6|+PONG|",
    )
    .await;
    expect(
        given,
        &format!("MULTI\nDEL {b}\nMSETNX {a} 1 {b} 1\nHSET {a} f v\nCOPY {c} {a} REPLACE\nRENAME none {a}\nRENAMENX {b} {a}\nEXEC"),
        &format!("+OK|{}*6|:1|:1|{wrong}:1|-ERR no such key|:0|", "+QUEUED|".repeat(6)),
    )
    .await;
    expect(given, &format!("MGET {a} {b} {c}"), "*3|$9|ohmytext!|$1|1|$9|ohmytext!|").await;
    // The same holds for hashes, and for keys that end.
    expect(
        given,
        &format!(
            "DEL {a} {b}\nHSET {a} f 1\nMULTI\nHSET {a} g 2\nEXPIREAT {a} 4000000000\nRENAME {a} {b}\nHGETALL {b}\nEXEC"
        ),
        ":2|:1|+OK|+QUEUED|+QUEUED|+QUEUED|+QUEUED|*4|:1|:1|+OK|*4|$1|f|$1|1|$1|g|$1|2|",
    )
    .await;
    expect(given, &format!("EXPIRETIME {b}\nHLEN {b}\nEXISTS {a}"), ":4000000000|:2|:0|").await;
    expect(given, &format!("DEL {a} {b} {c}\nEXISTS {a} {b} {c}"), ":2|:0|").await;
}

/// WATCH before a transaction over partitions: `other` writes or does not.
async fn watches_on(given: &mut Connection, other: &mut Connection, [a, b, c]: [&str; 3]) {
    given.given(&format!("MSET {a} 1 {b} 1")).await;
    // A watched key that is written ends a transaction that is evaluated on copies, too.
    given.given(&format!("WATCH {c}")).await;
    other.given(&format!("SET {c} z\nDEL {c}")).await;
    let answered = given.given(&format!("MULTI\nRENAME {a} {b}\nEXEC\nMGET {a} {b}")).await;
    assert!(answered.ends_with("*-1\r\n*2\r\n$1\r\n1\r\n$1\r\n1\r\n"), "{answered}");
    let transaction = format!("MULTI\nINCR {a}\nINCR {b}\nEXEC");
    for (line, replies) in [
        (format!("GET {c}"), "*2\r\n:2\r\n:2\r\n"),
        (format!("SET {c} x"), "*-1\r\n"),
        (format!("DEL {a}"), "*-1\r\n"),
        // What has changed and changed back has been written all the same.
        (format!("SET {c} y\nSET {c} x"), "*-1\r\n"),
        (format!("INCR {b}\nDECR {b}\nSET {a} 5\nDEL {a}"), "*-1\r\n"),
        (format!("GET {c}"), "*2\r\n:1\r\n:3\r\n"),
    ] {
        let watched = given.given(&format!("WATCH {a} {c}")).await;
        assert_eq!(watched, "+OK\r\n");
        other.given(&line).await;
        let answered = given.given(&transaction).await;
        assert!(answered.ends_with(replies), "{a} {b} {c}, {line}: {answered}");
    }
    // What was acknowledged before is no write since, although it may have been applied after.
    for round in 0..20 {
        given.given(&format!("MSET {a} 1 {b} 1 {c} 1")).await;
        let answered = given.given(&format!("WATCH {a} {b} {c}\n{transaction}")).await;
        assert!(answered.ends_with("*2\r\n:2\r\n:2\r\n"), "round {round}: {answered}");
    }
    // In one partition, too, wherever it is led.
    for key in [a, b, c] {
        given.given(&format!("SET {key} 1\nWATCH {key}")).await;
        other.given(&format!("INCR {key}\nDECR {key}")).await;
        let answered = given.given(&format!("MULTI\nINCR {key}\nEXEC")).await;
        assert!(answered.ends_with("*-1\r\n"), "{key}: {answered}");
        let answered = given.given(&format!("WATCH {key}\nMULTI\nINCR {key}\nEXEC")).await;
        assert!(answered.ends_with("*1\r\n:2\r\n"), "{key}: {answered}");
    }
    given.given(&format!("DEL {a} {b} {c}")).await;
}

#[tokio::test]
async fn commands_on_any_keys_are_atomic_on_one_node_and_on_two() {
    let alone = TestNode::start(None, config());
    for engine in ENGINES.iter().copied() {
        let table = alone.create_table(&format!("{engine:?}").to_lowercase(), engine, 8).await;
        let keys = keys_apart(&table, 3);
        let keys = [&keys[0][..], &keys[1], &keys[2]];
        commands_on(&mut connection(&alone, &table), keys).await;
        watches_on(&mut connection(&alone, &table), &mut connection(&alone, &table), keys).await;
    }
    let (first, second, table, here, there) = two_nodes().await;
    let others = second.table("t").await;
    let third = keys_apart(&table, 8).into_iter().find(|key| *key != here && *key != there).unwrap();
    for keys in [[&here[..], &there, &third], [&there, &here, &third]] {
        commands_on(&mut connection(&first, &table), keys).await;
        commands_on(&mut connection(&second, &others), keys).await;
        watches_on(&mut connection(&first, &table), &mut connection(&second, &others), keys).await;
    }
}

/// What cannot be done partition by partition is refused then, and the rest is done so.
#[tokio::test]
async fn with_the_setting_partition_nothing_is_locked_over_partitions() {
    let node = TestNode::start(None, RedisConfig { transactions_over_partitions: false, ..config() });
    let table = node.create_table("t", EngineKind::Memory, 8).await;
    let keys = keys_apart(&table, 2);
    let [a, b] = [&keys[0], &keys[1]];
    let mut given = connection(&node, &table);
    let mut expect = async |lines: String, expected: &str| {
        assert_eq!(given.given(&lines).await, expected.replace('|', "\r\n"), "{lines}");
    };
    expect(format!("MSET {a} 1 {b} 2\nMGET {a} {b}\nEXISTS {a} {b}"), "+OK|*2|$1|1|$1|2|:2|").await;
    for refused in [format!("RENAME {a} {b}"), format!("COPY {a} {b}"), format!("MSETNX {a} 1 {b} 2")] {
        let answered = connection(&node, &table).given(&refused).await;
        assert!(answered.starts_with("-CROSSSLOT "), "{refused}: {answered}");
    }
    let answered = connection(&node, &table).given(&format!("MULTI\nINCR {a}\nINCR {b}\nEXEC")).await;
    assert!(answered.contains("-CROSSSLOT "), "{answered}");
    // Nothing of it was done. Within one partition it is.
    expect(format!("MGET {a} {b}"), "*2|$1|1|$1|2|").await;
    expect(format!("MULTI\nINCR {a}\nINCR {a}\nEXEC"), "+OK|+QUEUED|+QUEUED|*2|:2|:3|").await;
    expect(format!("DEL {a} {b}\nMGET {a} {b}"), ":2|*2|$-1|$-1|").await;
    assert_eq!(node.store.statistics().transactions, Default::default());
    assert_eq!(node.store.statistics().transactions, Default::default());
}

/// A transaction whose partitions refused their parts was once tried for ten seconds, and its client then heard that they had no leader.
#[tokio::test]
async fn a_refusal_says_the_same_whoever_leads_the_keys_and_however_many_they_are() {
    let (first, second, table, here, there) = two_nodes().await;
    let others = second.table("t").await;
    let began = std::time::Instant::now();
    for mut given in [connection(&first, &table), connection(&second, &others)] {
        assert_eq!(given.given("DURABILITY hard").await, "+OK\r\n");
        let mut replies = BTreeSet::new();
        for command in [
            format!("SET {here} 1"),
            format!("SET {there} 1"),
            format!("DEL {here} {there}"),
            format!("MSET {there} 1 {here} 1"),
        ] {
            replies.insert(given.given(&command).await);
        }
        assert_eq!(replies.len(), 1, "{replies:?}");
        assert!(replies.first().unwrap().starts_with("-ERR the table keeps nothing on disk"), "{replies:?}");
    }
    assert!(began.elapsed() < tessera_store::PATIENCE, "it took {:?}", began.elapsed());
}

/// Transfers between accounts whose sum must not change in any transaction that reads all of them.
#[tokio::test]
async fn no_transaction_sees_a_half_of_another() {
    const ACCOUNTS: usize = 4;
    const TRANSFERS: usize = 100;
    let (first, second, table, _, _) = two_nodes().await;
    let others = second.table("t").await;
    let keys = Arc::new(keys_apart(&table, ACCOUNTS));
    connection(&first, &table).given(&keys.iter().map(|key| format!("SET {key} 100\n")).collect::<String>()).await;
    let local = tokio::task::LocalSet::new();
    for client in 0..6_usize {
        let mut connection =
            if client.is_multiple_of(2) { connection(&first, &table) } else { connection(&second, &others) };
        let keys = keys.clone();
        local.spawn_local(async move {
            for number in 0..TRANSFERS {
                let (from, to) = ((number + client) % ACCOUNTS, (number * 7 + client * 3 + 1) % ACCOUNTS);
                let transfer = format!("MULTI\nDECRBY {} {number}\nINCRBY {} {number}\nEXEC", keys[from], keys[to]);
                let replies = connection.given(&transfer).await;
                assert!(replies.contains("\r\n*2\r\n:"), "{replies}");
                let reads: String = keys.iter().map(|key| format!("GET {key}\n")).collect();
                let replies = connection.given(&format!("MULTI\n{reads}EXEC")).await;
                let numbers =
                    replies.lines().skip_while(|line| *line != "*4").filter(|line| !line.starts_with(['*', '$']));
                let sum: i64 = numbers.map(|line| line.trim().parse::<i64>().unwrap()).sum();
                assert_eq!(sum, 100 * i64::try_from(ACCOUNTS).unwrap(), "{replies}");
            }
        });
    }
    local.await;
}
