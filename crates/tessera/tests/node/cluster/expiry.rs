//! Times to live, while the clock of one node after another is wrong by hours.

use super::clock::Clocks;
use super::{Cluster, WHOLE};
use crate::resp_client::{Client, Value};
use crate::server::wait_for;
use crate::skipped::skip;
use std::time::{Duration, Instant};

const KEYS: usize = 100;
const HOURS: i64 = 2 * 3_600;
/// How long a key of a second may be there after its end: its own second, and what a busy machine adds.
const SHORT: Duration = Duration::from_secs(10);

fn there(client: &mut Client, table: &str, kind: &str) -> usize {
    client.run(&format!("TABLE {table}"));
    (0..KEYS).filter(|number| client.run(&format!("EXISTS {kind}{number}")) == Value::Integer(1)).count()
}

/// Waits until a node's own clock is off by so many seconds.
fn wait_for_clock(cluster: &Cluster, at: usize, off: i64) {
    wait_for("the clock was set", WHOLE, || {
        let Value::Array(time) = cluster.client(at).run("TIME") else { return None };
        let Value::Bulk(seconds) = &time[0] else { return None };
        let seconds: i64 = std::str::from_utf8(seconds).ok()?.parse().ok()?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        ((seconds - now.cast_signed() - off).abs() < 60).then_some(())
    });
}

/// Followers once removed what had expired by their own clocks, and a leader with another clock than its predecessor's showed
/// again what that had taken for expired.
#[test]
fn keys_live_as_long_as_they_were_given_whatever_the_clock_of_one_node_says() {
    let Some(clocks) = Clocks::new() else {
        return skip("clocks are set by libfaketime, which is not installed");
    };
    let mut cluster = Cluster::start_with_clocks(clocks, 3);
    let tables = ["rocksdb", "memory"];
    for table in tables {
        cluster
            .cli(0, &format!("table create {table} --engine {table} --durability soft --partitions 4 --replicas 3"))
            .unwrap();
    }
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    for table in tables {
        client.run(&format!("TABLE {table}"));
        for number in 0..KEYS {
            client.run(&format!("SET long{number} 1 EX 3600"));
            client.run(&format!("SET deleted{number} 1 EX 3600"));
            client.run(&format!("DEL deleted{number}"));
        }
    }
    for (at, off) in [(2, HOURS), (1, -HOURS)] {
        cluster.clocks.as_ref().unwrap().set(&cluster.data_directory(at), off);
        wait_for_clock(&cluster, at, off);
        // Both through it and beside it, and whoever leads.
        for (from, table) in [(0, tables[0]), (at, tables[1])] {
            let mut client = cluster.client(from);
            client.run(&format!("TABLE {table}"));
            let began = Instant::now();
            for number in 0..KEYS {
                client.run(&format!("SET short{number} 1 PX 1000"));
            }
            wait_for("short lives end", SHORT, || (there(&mut client, table, "short") == 0).then_some(()));
            assert!(began.elapsed() >= Duration::from_secs(1), "keys of a second lived for {:?}", began.elapsed());
            for number in 0..KEYS {
                // Expired, and deleted as well.
                client.run(&format!("DEL short{number}"));
            }
            assert_eq!((there(&mut client, table, "long"), there(&mut client, table, "deleted")), (KEYS, 0), "{table}");
        }
        cluster.cli(at, "table compact rocksdb").unwrap();
        // What it leads goes to others, and comes to it again, with a clock that is right.
        cluster.kill(at);
        cluster.clocks.as_ref().unwrap().set(&cluster.data_directory(at), 0);
        cluster.start_node(at);
        cluster.wait_until_whole();
        let mut client = cluster.client(at);
        client.run("READS outdated");
        for table in tables {
            // The replica that had the wrong clock.
            wait_for("the replica has all", WHOLE, || (there(&mut client, table, "long") == KEYS).then_some(()));
        }
        client.run("READS single");
        for table in tables {
            let kinds = ["long", "deleted", "short"].map(|kind| there(&mut client, table, kind));
            assert_eq!(kinds, [KEYS, 0, 0], "{table}");
        }
    }
}
