//! Tables that are truncated while clients use them, and what they held when it is recalled.

use super::stop_at_end::StopAtEnd;
use super::{Cluster, WHOLE};
use crate::resp_client::{Client, Value};
use crate::server::wait_for;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WRITERS: usize = 6;

fn ok() -> Value {
    Value::Simple("OK".into())
}

fn chosen(cluster: &Cluster, at: usize, table: &str) -> Client {
    let mut client = cluster.client(at);
    assert_eq!(client.run(&format!("TABLE {table}")), ok());
    client
}

/// The number under which what a truncated table held can be recalled.
fn truncate(cluster: &Cluster, at: usize, table: &str) -> u64 {
    let truncated = cluster.cli(at, &format!("table truncate {table} --yes --json")).unwrap();
    let truncated: serde_json::Value = serde_json::from_str(&truncated).unwrap();
    truncated["number"].as_u64().unwrap_or_else(|| panic!("{truncated}"))
}

fn has(client: &mut Client, writer: usize, number: u64) -> bool {
    match client.run(&format!("GET w{writer}n{number}")) {
        Value::Null => false,
        Value::Bulk(_) => true,
        other => panic!("w{writer}n{number}: {other}"),
    }
}

/// Each client writes one key after the other, through two nodes in turn, and nobody is refused. Of what one client has written a part
/// from the beginning on is in the old table, and all the rest in the new one: the table was emptied at one instant.
#[test]
fn a_table_is_emptied_at_one_instant_for_clients_of_all_nodes_and_what_it_held_can_be_recalled() {
    let cluster = Cluster::start(3);
    for (round, engine) in ["memory --durability soft", "rocksdb", "memory"].into_iter().enumerate() {
        let name = format!("t{round}");
        cluster.cli(0, &format!("table create {name} --engine {engine} --partitions 8 --replicas 3")).unwrap();
        let stop = AtomicBool::new(false);
        let done: [AtomicU64; WRITERS] = std::array::from_fn(|_| AtomicU64::new(0));
        // One client may be far behind the others.
        let wait_for_more = || {
            let counts = || done.each_ref().map(|done| done.load(Ordering::Relaxed));
            let before = counts();
            wait_for("every client writes", WHOLE, || {
                counts().iter().zip(before).all(|(now, before)| *now >= before + 100).then_some(())
            });
        };
        let write = |writer: usize| {
            let mut clients = [writer, writer + 1].map(|at| chosen(&cluster, at % 3, &name));
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                let written = clients[number as usize % 2].run(&format!("SET w{writer}n{number} v"));
                assert_eq!(written, ok(), "w{writer}n{number}");
                number += 1;
                done[writer].fetch_add(1, Ordering::Relaxed);
            }
            number
        };
        let write = &write;
        let (written, held) = std::thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            wait_for_more();
            let held = truncate(&cluster, round, &name);
            wait_for_more();
            stop.store(true, Ordering::Relaxed);
            (writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<u64>>(), held)
        });
        cluster.cli(2, &format!("table recall {held} --as old{round}")).unwrap();
        let (mut old, mut new) = (chosen(&cluster, 0, &format!("old{round}")), chosen(&cluster, 1, &name));
        for (writer, written) in written.into_iter().enumerate() {
            let in_old: Vec<bool> = (0..written).map(|number| has(&mut old, writer, number)).collect();
            let first_in_new = in_old.iter().take_while(|is_there| **is_there).count() as u64;
            assert!(0 < first_in_new && first_in_new < written, "writer {writer} wrote before and after");
            for (number, in_old) in (0..written).zip(in_old) {
                let places = (in_old, has(&mut new, writer, number));
                let expected = if number < first_in_new { (true, false) } else { (false, true) };
                assert_eq!(places, expected, "w{writer}n{number} of {written}, {first_in_new} in the old table");
            }
        }
        // Both go on, and can be truncated again.
        assert_eq!((old.run("SET k old"), new.run("SET k new")), (ok(), ok()));
        let again = truncate(&cluster, 0, &format!("old{round}"));
        assert_eq!((old.run("GET k"), new.run("GET k")), (Value::Null, Value::Bulk(b"new".to_vec())));
        cluster.cli(1, &format!("table recall {again} --as older{round}")).unwrap();
        assert_eq!(chosen(&cluster, 2, &format!("older{round}")).run("GET k"), Value::Bulk(b"old".to_vec()));
        assert_eq!(old.run("GET k"), Value::Null, "who has chosen a table stays with its name");
    }
    cluster.wait_until_whole();
}

/// Nothing is recalled of a table that is truncated with `--purge`, and a node that was killed keeps to what was decided without it.
#[test]
fn a_node_that_was_away_knows_that_a_table_was_truncated_and_recalled() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine rocksdb --partitions 4 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let mut client = chosen(&cluster, 0, "t");
    (0..50).for_each(|number| assert_eq!(client.run(&format!("SET k{number} 1")), ok()));
    cluster.kill(2);
    let first = truncate(&cluster, 0, "t");
    (0..50).for_each(|number| assert_eq!(client.run(&format!("SET k{number} 2")), ok()));
    cluster.cli(0, &format!("table recall {first} --as before")).unwrap();
    cluster.start_node(2);
    cluster.wait_until_whole();
    // Its replicas lead soon; then the ones that were sealed here or there must serve.
    cluster.kill(1);
    for (table, value) in [("t", "2"), ("before", "1")] {
        let mut client = chosen(&cluster, 2, table);
        for number in 0..50 {
            assert_eq!(client.run(&format!("GET k{number}")), Value::Bulk(value.into()), "k{number} of {table}");
        }
    }
    cluster.start_node(1);
    cluster.wait_until_whole();
    cluster.cli(1, "table truncate before --purge --yes").unwrap();
    let is_gone = || !cluster.cli(0, "table list --dropped").unwrap().contains("before");
    wait_for("what it held is purged", WHOLE, || is_gone().then_some(()));
    assert_eq!(chosen(&cluster, 2, "before").run("GET k1"), Value::Null);
}

/// What was truncated, recalled under another name and dropped once sent its clients to the table that had taken its place; and a
/// connection that had chosen the truncated table, and was idle meanwhile, once went on in the one that was recalled.
#[test]
fn a_recalled_table_has_nothing_to_do_with_the_one_that_took_its_place() {
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --partitions 4 --replicas 3").unwrap();
    cluster.wait_until_whole();
    let mut idle: Vec<Client> = (0..3).map(|at| chosen(&cluster, at, "t")).collect();
    assert_eq!(idle[0].run("SET k before"), ok());
    let held = truncate(&cluster, 0, "t");
    cluster.cli(0, &format!("table recall {held} --as old")).unwrap();
    let again = truncate(&cluster, 1, "old");
    let mut of_old: Vec<Client> = (0..3).map(|at| chosen(&cluster, at, "old")).collect();
    for client in &mut idle {
        // In one piece: what comes first may find out what has become of the table, and what comes next is to be there, too.
        let replies = client.pipeline(&["SET k after", "INCR n"].map(crate::resp_client::words)).unwrap();
        assert!(matches!(replies[..], [_, Value::Integer(1..=3)]), "{replies:?}");
    }
    for client in &mut of_old {
        assert_eq!(client.run("MGET k n"), Value::Array(vec![Value::Null, Value::Null]));
    }
    cluster.cli(2, &format!("table recall {again} --as older")).unwrap();
    let mut of_older: Vec<Client> = (0..3).map(|at| chosen(&cluster, at, "older")).collect();
    cluster.cli(0, "table drop older").unwrap();
    cluster.cli(0, "table drop old").unwrap();
    for client in of_older.iter_mut().chain(&mut of_old) {
        for command in ["SET k other", "GET k", "FLUSHDB", "MSET k other n other"] {
            let reply = client.run(command);
            assert!(matches!(&reply, Value::Error(error) if error.contains("table")), "{command}: {reply}");
        }
    }
    let expected = Value::Array([b"after".to_vec(), b"3".to_vec()].map(Value::Bulk).to_vec());
    idle.iter_mut().for_each(|client| assert_eq!(client.run("MGET k n"), expected));
}

/// Requests between nodes once named a table in a way that the recalled one kept: a node that had not heard of all that yet wrote
/// there what was meant for the empty table, and acknowledged it.
#[test]
fn a_node_that_stood_still_writes_nothing_into_the_recalled_table() {
    const KEYS: usize = 64;
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --partitions 8 --replicas 3").unwrap();
    cluster.wait_until_whole();
    for round in 0..4 {
        let (mut old_client, mut client) = (chosen(&cluster, 2, "t"), chosen(&cluster, 0, "t"));
        assert_eq!(old_client.run("SET k 1"), ok());
        cluster.signal(2, "-STOP");
        let held = truncate(&cluster, 0, "t");
        cluster.cli(0, &format!("table recall {held} --as old{round}")).unwrap();
        let sets: Vec<_> = (0..KEYS).map(|key| crate::resp_client::words(&format!("SET r{round}k{key} v"))).collect();
        let sent: Vec<u8> = sets.iter().flat_map(|set| crate::resp_client::encode(set)).collect();
        old_client.send(&sent).unwrap();
        cluster.signal(2, "-CONT");
        let mut of_old = chosen(&cluster, 0, &format!("old{round}"));
        for key in 0..KEYS {
            let is_acknowledged = old_client.read().unwrap() == ok();
            let found = client.run(&format!("GET r{round}k{key}"));
            assert!(!is_acknowledged || found == Value::Bulk(b"v".to_vec()), "key {key} of round {round}: {found}");
            assert_eq!(of_old.run(&format!("GET r{round}k{key}")), Value::Null, "key {key} of round {round}");
        }
        cluster.wait_until_whole();
    }
}
