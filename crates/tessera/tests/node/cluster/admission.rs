//! What tables admit holds for clients of Redis, whichever node they ask.

use super::Cluster;
use crate::resp_client::{Client, Value};
use crate::server::wait_for;
use std::time::{Duration, Instant};

fn clients(cluster: &Cluster) -> Vec<Client> {
    let client = |at| {
        let mut client = cluster.client(at);
        client.run("TABLE t");
        client
    };
    (0..3).map(client).collect()
}

fn is_error(reply: &Value, code: &str) -> bool {
    matches!(reply, Value::Error(line) if line.starts_with(code))
}

fn is_ok(reply: &Value) -> bool {
    *reply == Value::Simple("OK".into())
}

/// Waits until every node has heard of a setting, as the reply to a command tells.
fn wait_until(clients: &mut [Client], command: &str, is_so: impl Fn(&Value) -> bool) {
    for client in clients {
        wait_for("the setting is everywhere", Duration::from_secs(10), || is_so(&client.run(command)).then_some(()));
    }
}

#[test]
fn tables_throttle_and_deny_clients_of_redis_on_every_node() {
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --partitions 1 --replicas 1").unwrap();
    cluster.wait_until_whole();
    let mut clients = clients(&cluster);
    clients[0].run("SET k v");

    cluster.cli(1, "table alter t --write-rate 10*reject*0").unwrap();
    for client in &mut clients {
        // All nodes' clients together have ten in a second.
        wait_until(std::slice::from_mut(client), "SET k v", is_ok);
        let replies: Vec<_> = (0..100).map(|_| client.run("SET k v")).collect();
        let refused = replies.iter().filter(|reply| is_error(reply, "TRYAGAIN")).count();
        assert!(refused > 0, "none of 100 was refused");
        assert!(replies.iter().all(|reply| is_error(reply, "TRYAGAIN") || is_ok(reply)));
        assert_eq!(client.run("GET k"), Value::Bulk(b"v".to_vec()), "reads are not throttled");
    }
    cluster.cli(1, "table alter t --write-rate 0*delay*300 --read-rate 0*reject*0").unwrap();
    wait_until(&mut clients, "GET k", |reply| is_error(reply, "TRYAGAIN"));
    for client in &mut clients {
        let began = Instant::now();
        assert!(is_ok(&client.run("SET k v")));
        assert!(began.elapsed() >= Duration::from_millis(300), "it was delayed");
    }
    cluster.cli(1, "table alter t --write-rate none --read-rate none --read-byte-rate 5*reject*0").unwrap();
    for client in &mut clients {
        wait_for("the bytes of a second are used up", Duration::from_secs(10), || {
            is_error(&client.run("GET k"), "TRYAGAIN").then_some(())
        });
    }

    cluster.cli(2, "table alter t --read-byte-rate none --deny reconfig*write").unwrap();
    wait_until(&mut clients, "SET k other", |reply| is_error(reply, "ERR the table denies clients its writes"));
    for client in &mut clients {
        wait_for("reads are admitted", Duration::from_secs(10), || {
            (client.run("GET k") == Value::Bulk(b"v".to_vec())).then_some(())
        });
        client.run("MULTI");
        client.run("GET k");
        client.run("SET k other");
        assert!(is_error(&client.run("EXEC"), "ERR the table denies"));
        assert!(is_error(&client.run("FLUSHDB"), "ERR the table denies"));
    }
    let shown = cluster.cli(0, "table show t").unwrap();
    assert!(shown.contains("reconfig*write"), "{shown}");
    cluster.cli(2, "table alter t --deny none").unwrap();
    wait_until(&mut clients, "SET k v", is_ok);
    assert!(cluster.cli(2, "table alter t --deny everything").is_err());
}
