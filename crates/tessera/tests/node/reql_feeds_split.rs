//! Changefeeds whose clients read after a split what was written before it.

use crate::reql::{Client, table};
use crate::reql_feeds::{Feed, changes, node, put};
use crate::server::{Node, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn split(process: &Node, partitions: usize) {
    process.cli(&format!("table alter test.t --partitions {partitions}"));
    wait_for("the table is split", PATIENCE, || {
        let placement: Vec<Value> = serde_json::from_str(&process.cli("table placement test.t --json")).ok()?;
        (placement.len() == partitions).then_some(())
    });
}

fn make(client: &mut Client) {
    assert_eq!(client.ask(&json!([60, ["t"], {"shards": 4}]))["tables_created"], 1);
    client.ask(&json!([177, [table("t")]]));
}

#[test]
fn tokens_from_before_splits_work_whenever_their_messages_are_read() {
    let (_data, port, process) = node(&[]);
    let mut client = Client::to(port);
    make(&mut client);
    let mut feed = Feed::open(port, &changes(&table("t"), &json!({"include_resume_token": true})));
    (0..10).for_each(|n| drop(client.ask(&put(&n.to_string(), n))));
    split(&process, 8);
    (10..12).for_each(|n| drop(client.ask(&put(&n.to_string(), n))));
    split(&process, 16);
    client.ask(&put("last", 12));
    let told = feed.take(13);
    for (at, message) in told.iter().enumerate() {
        let resumed = changes(&table("t"), &json!({"resume": message["resume_token"]}));
        if at + 1 == told.len() {
            Feed::open(port, &resumed);
            break;
        }
        let ids = |messages: &[Value]| {
            let mut ids: Vec<String> = messages.iter().map(|message| message["new_val"]["id"].to_string()).collect();
            ids.sort();
            ids
        };
        let rest = Feed::open(port, &resumed).take(told.len() - at - 1);
        assert_eq!(ids(&rest), ids(&told[at + 1..]), "after message {at}");
    }
}

#[test]
fn the_first_rows_of_an_order_are_those_of_the_whole_table_after_a_split() {
    let (_data, port, process) = node(&[]);
    let mut client = Client::to(port);
    make(&mut client);
    let id = |n: usize| format!("{n:03}");
    (0..100).for_each(|n| drop(client.ask(&put(&id(n), n))));
    let first = json!([71, [[41, [table("t")], {"index": "id"}], 20]]);
    // Nothing is read before the client asks for it.
    let mut feed = Feed::open(port, &changes(&first, &json!({})));
    let rows = |from: usize| (from..from + 20).map(|n| json!({"id": id(n), "n": n})).collect::<Vec<Value>>();
    let mut shown = rows(0);
    // More than are kept behind those that are shown.
    for n in 0..60 {
        assert_eq!(client.ask(&json!([54, [[16, [table("t"), id(n)]]]]))["deleted"], 1);
    }
    split(&process, 8);
    while shown != rows(60) {
        for message in feed.next() {
            shown.retain(|row| *row != message["old_val"]);
            shown.extend(Some(message["new_val"].clone()).filter(|row| !row.is_null()));
        }
        shown.sort_by_key(|row| row["id"].to_string());
    }
}
