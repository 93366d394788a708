//! Creating, dropping and recalling tables, in the cases in which Pegasus' servers do what one might not expect.

use super::meta_client::{Meta, text};
use super::wire::Fields;
use crate::cluster::Cluster;
use crate::server::{Node, free_port, wait_for};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

fn create(table: &str, partitions: i32, replicas: i32, is_fine: bool) -> Fields {
    create_with(table, partitions, replicas, is_fine, &[])
}

fn create_with(table: &str, partitions: i32, replicas: i32, is_fine: bool, envs: &[(&str, &str)]) -> Fields {
    let options = Fields::default().i32(1, partitions).i32(2, replicas).bool(3, is_fine).string(4, "pegasus");
    Fields::default().string(1, table).inner(2, &options.bool(5, true).map(6, envs))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn times(meta: &mut Meta) -> (u64, u64, u64) {
    times_with(meta, 1)
}

/// When the first table with so many replicas that is listed expires, when it was created and when dropped, in seconds since 1970.
fn times_with(meta: &mut Meta, replicas: i32) -> (u64, u64, u64) {
    // What stands before these fields is the number of replicas.
    let before = [Fields::default().i32(8, replicas).bytes(), vec![10, 0, 9]].concat();
    let list = meta.call("RPC_CM_LIST_APPS", &Fields::default().i32(1, 0)).fields;
    let at = list.windows(before.len()).position(|window| window == before).unwrap() + before.len();
    let second = |at: usize| u64::from_be_bytes(list[at..at + 8].try_into().unwrap());
    assert_eq!((&list[at + 8..at + 11], &list[at + 19..at + 22]), (&[10, 0, 10][..], &[10, 0, 11][..]));
    (second(at), second(at + 11), second(at + 22))
}

#[test]
fn a_table_says_when_it_was_created_and_dropped() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let founded = now();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    let mut meta = Meta::at(port);
    let before = now();
    // The table `default`, which no command creates.
    let (_, created, dropped) = times_with(&mut meta, 3);
    assert!((founded..=before).contains(&created) && dropped == 0, "{created} is not from {founded} on");
    meta.create("feeds", "ERR_OK");
    let created = times(&mut meta).1;
    assert!((before..=now()).contains(&created), "{created} is not from {before} on");
    meta.set_env("feeds", "default_ttl", "60", "ERR_OK");
    node.cli("table alter feeds --partitions 8");
    let table = Fields::default().string(1, "feeds");
    wait_for("the table is split", Duration::from_secs(60), || {
        let config = meta.call("RPC_CM_QUERY_PARTITION_CONFIG_BY_INDEX", &table);
        config.has(&Fields::default().i32(3, 8)).then_some(())
    });
    assert_eq!(times(&mut meta), (0, created, 0));
    let before = now();
    node.cli("table drop feeds");
    let (expires, still_created, dropped) = times(&mut meta);
    assert_eq!(still_created, created);
    assert!((before..=now()).contains(&dropped) && expires > dropped, "{dropped} is not from {before} on");
}

/// In Pegasus a time of nothing, or less, stands for that of the cluster.
#[test]
fn a_table_that_is_dropped_with_no_time_to_keep_it_can_be_recalled() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let _node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    let mut meta = Meta::at(port);
    meta.create("feeds", "ERR_OK");
    let options = Fields::default().bool(1, false).i64(2, 0);
    meta.expect("RPC_CM_DROP_APP", &Fields::default().string(1, "feeds").inner(2, &options), "ERR_OK");

    let ((expires, ..), now) = (times(&mut meta), now());
    assert!(expires > now + 3_600, "{expires} is soon after {now}");
    meta.expect("RPC_CM_RECALL_APP", &Fields::default().i32(1, 1).string(2, ""), "ERR_OK");
}

/// A client that finds a table in the list asks where its partitions are, and gives up the whole list at the first error.
#[test]
fn tables_that_pegasus_clients_cannot_use_are_not_listed() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    node.cli("table create carts --partitioner redis-slots");
    node.cli("table create feeds");
    let mut meta = Meta::at(port);
    for tables in [meta.tables(0), meta.tables(1)] {
        assert!(tables.contains("feeds") && !tables.contains("carts"), "{tables}");
    }
}

#[test]
fn a_table_that_another_node_has_just_created_has_its_number_for_who_would_create_it() {
    let cluster = Cluster::start_with_pegasus(3);
    cluster.wait_until_whole();
    let mut metas: Vec<Meta> = cluster.pegasus_ports().iter().map(|port| Meta::at(*port)).collect();
    for number in 1..=20 {
        let table = format!("table-{number}");
        for at in 0..3 {
            let request = create(&table, 2, 3, true);
            let reply = metas[(number + at) % 3].expect("RPC_CM_CREATE_APP", &request, "ERR_OK");
            assert!(reply.has(&Fields::default().i32(2, i32::try_from(number).unwrap())), "{table}: {reply:?}");
        }
    }
}

/// As Pegasus does, the request to create a table that is there already is fine if that is the table that it asks for.
#[test]
fn a_table_that_is_there_is_not_taken_for_another_one() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let _node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    let mut meta = Meta::at(port);
    let memory = [("default_ttl", "60"), ("tessera.engine", "memory")];
    let mut answer = |request: Fields, error: &str| meta.expect("RPC_CM_CREATE_APP", &request, error);
    answer(create_with("feeds", 4, 1, false, &memory), "ERR_OK");
    answer(create_with("feeds", 4, 1, false, &memory), "ERR_APP_EXIST");
    assert!(answer(create_with("feeds", 4, 1, true, &memory), "ERR_OK").has(&Fields::default().i32(2, 1)));
    answer(create_with("feeds", 4, 1, true, &memory[..1]), "ERR_OK");
    answer(create_with("feeds", 8, 1, true, &memory), "ERR_INVALID_PARAMETERS");
    answer(create("feeds", 4, 1, true), "ERR_INVALID_PARAMETERS");
    answer(create_with("feeds", 4, 1, true, &[("default_ttl", "61")]), "ERR_INVALID_PARAMETERS");
    let hard = [("default_ttl", "60"), ("tessera.durability", "hard")];
    answer(create_with("feeds", 4, 1, true, &hard), "ERR_INVALID_PARAMETERS");
    for replicas in [-1, 0, 2, 300] {
        answer(create("others", 4, replicas, false), "ERR_INVALID_PARAMETERS");
        answer(create_with("feeds", 4, replicas, true, &memory), "ERR_INVALID_PARAMETERS");
    }
}

#[test]
fn replicas_are_asked_for_as_many_as_nodes_can_take() {
    let mut cluster = Cluster::start_with_pegasus(3);
    cluster.wait_until_whole();
    let mut meta = Meta::at(cluster.pegasus_ports()[0]);
    meta.expect("RPC_CM_CREATE_APP", &create("wide", 2, 4, false), "ERR_INVALID_PARAMETERS");
    meta.expect("RPC_CM_CREATE_APP", &create("wide", 2, 2, false), "ERR_OK");
    let replicas = |number: i32| Fields::default().string(1, "wide").i32(2, number);
    let (get, set) = ("RPC_CM_GET_MAX_REPLICA_COUNT", "RPC_CM_SET_MAX_REPLICA_COUNT");
    meta.expect(set, &replicas(4), "ERR_INVALID_PARAMETERS");
    assert!(meta.expect(set, &replicas(3), "ERR_OK").has(&Fields::default().i32(2, 2)), "the number before");
    assert!(meta.expect(get, &replicas(0), "ERR_OK").has(&Fields::default().i32(2, 3)));
    cluster.kill(2);
    // A node that has just ended is still taken for one that lives.
    wait_for("a node is missed", Duration::from_secs(60), || {
        let reply = meta.call("RPC_CM_CREATE_APP", &create("wide", 2, 3, true));
        text(&reply).contains("ERR_INVALID_PARAMETERS").then_some(())
    });
}
