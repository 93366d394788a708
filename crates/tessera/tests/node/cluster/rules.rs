//! Rules that end records.

use super::clock::Clocks;
use super::{Cluster, WHOLE};
use crate::resp_client::Value;
use crate::server::{tessera, wait_for};
use crate::skipped::skip;

const RULES: &str = r#"[{"if": [{"hash_key": {"starts_with": "tmp:"}}, "never_expires"], "then": "delete"},
                        {"if": [{"hash_key": {"starts_with": "session:"}}, {"sort_key": {"ends_with": "9"}}],
                         "then": {"expire_in_seconds": 1000}}]"#;

/// Rules reach every partition wherever it is led, and all replicas alike.
#[test]
fn rules_are_applied_by_all_leaders_when_the_table_is_compacted() {
    let cluster = Cluster::start(3);
    for engine in ["rocksdb", "memory --durability soft"] {
        let table = &engine[..6];
        cluster.cli(0, &format!("table create {table} --engine {engine} --partitions 6 --replicas 3")).unwrap();
        cluster.wait_until_whole();
        let mut client = cluster.client(0);
        client.run(&format!("TABLE {table}"));
        for number in 0..100 {
            client.run(&format!("SET tmp:{number} 1"));
            client.run(&format!("SET tmp:kept:{number} 1 EX 5000"));
            client.run(&format!("SET other:{number} 1"));
            client.run(&format!("HSET session:{number} a8 1 a9 2"));
        }
        let alter =
            tessera().args(["table", "alter", table, "--rules", RULES, "--admin", &cluster.admin(1)]).output().unwrap();
        assert!(alter.status.success(), "{}", String::from_utf8_lossy(&alter.stderr));
        assert_eq!(client.run("EXISTS tmp:1"), Value::Integer(1), "nothing happens before it is compacted");
        // Once, if no partition is handed over to a node that was asked before, and all nodes know the rules by then.
        cluster.wait_for("the rules are applied", WHOLE, || {
            let is_compacted = (0..3).all(|at| {
                let outcome = cluster.cli(at, &format!("table compact {table}"));
                // A partition that is handed over meanwhile is refused with these words, and nothing else may be.
                outcome.inspect_err(|error| assert!(error.contains("try again"), "{error}")).is_ok()
            });
            let keys: Vec<_> = (0..100).map(|number| format!("tmp:{number}")).collect();
            is_compacted && client.run(&format!("EXISTS {}", keys.join(" "))) == Value::Integer(0)
        });
        for at in 0..3 {
            let mut client = cluster.client(at);
            client.run(&format!("TABLE {table}"));
            client.run("READS outdated");
            for number in 0..100 {
                wait_for("the replica has it", WHOLE, || {
                    let left = client.run(&format!("EXISTS tmp:{number}"));
                    let expires = client.run(&format!("HTTL session:{number} FIELDS 2 a8 a9"));
                    let Value::Array(expires) = expires else { panic!("{expires}") };
                    let is_set = matches!(expires[1], Value::Integer(900..=1000));
                    (left == Value::Integer(0) && expires[0] == Value::Integer(-1) && is_set).then_some(())
                });
                for key in ["tmp:kept:", "other:"] {
                    assert_eq!(client.run(&format!("EXISTS {key}{number}")), Value::Integer(1), "{key}{number}");
                }
            }
        }
    }
}

/// As time goes by, without anybody asking.
#[test]
fn rules_are_applied_once_a_day() {
    let Some(clocks) = Clocks::new() else {
        return skip("clocks are set by libfaketime, which is not installed");
    };
    let cluster = Cluster::start_with_clocks(clocks, 3);
    cluster.cli(0, "table create t --engine rocksdb --partitions 4 --replicas 2").unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE t");
    for number in 0..100 {
        client.run(&format!("SET tmp:{number} 1"));
        client.run(&format!("SET other:{number} 1"));
    }
    let alter =
        tessera().args(["table", "alter", "t", "--rules", RULES, "--admin", &cluster.admin(1)]).output().unwrap();
    assert!(alter.status.success(), "{}", String::from_utf8_lossy(&alter.stderr));
    cluster.set_clocks(86_400);
    wait_for("a day has passed", WHOLE, || {
        let mut is_there = |key: &str| {
            (0..100).filter(|number| client.run(&format!("EXISTS {key}{number}")) == Value::Integer(1)).count()
        };
        (is_there("tmp:") == 0 && is_there("other:") == 100).then_some(())
    });
}
