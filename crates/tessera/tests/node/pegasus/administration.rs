//! What operators of Apache Pegasus ask for: tables, app envs, nodes.

use super::meta_client::{Meta, text};
use super::wire::{Connection, Fields, key, message, message_of_blob, v1};
use crate::cluster::Cluster;
use crate::resp_client::Value;
use crate::server::{Node, free_port, wait_for};
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[test]
fn tables_are_created_renamed_dropped_and_recalled() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let _node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    let mut meta = Meta::at(port);
    assert!(meta.create("feeds", "ERR_OK").has(&Fields::default().i32(2, 1)));
    meta.create("feeds", "ERR_APP_EXIST");
    meta.create("not a name", "ERR_INVALID_PARAMETERS");
    let rename = |old: &str, new: &str| Fields::default().string(1, old).string(2, new);
    meta.expect("RPC_CM_RENAME_APP", &rename("feeds", "default"), "ERR_INVALID_PARAMETERS");
    meta.expect("RPC_CM_RENAME_APP", &rename("feeds", "streams"), "ERR_OK");
    let drop =
        |name: &str, is_fine: bool| Fields::default().string(1, name).inner(2, &Fields::default().bool(1, is_fine));
    meta.expect("RPC_CM_DROP_APP", &drop("feeds", false), "ERR_APP_NOT_EXIST");
    meta.expect("RPC_CM_DROP_APP", &drop("feeds", true), "ERR_OK");
    meta.expect("RPC_CM_DROP_APP", &drop("streams", false), "ERR_OK");
    assert!(meta.tables(0).contains("streams") && !meta.tables(1).contains("streams"));
    let recall = |name: &str| Fields::default().i32(1, 1).string(2, name);
    meta.expect("RPC_CM_RECALL_APP", &recall("default"), "ERR_INVALID_PARAMETERS");
    let recalled = meta.expect("RPC_CM_RECALL_APP", &recall("again"), "ERR_OK");
    let available = Fields::default().i32(1, 1).string(2, "pegasus").string(3, "again").i32(4, 1);
    assert!(recalled.has(&available), "{recalled:?}");
    meta.expect("RPC_CM_RECALL_APP", &recall(""), "ERR_APP_EXIST");
    meta.expect("RPC_CM_RECALL_APP", &Fields::default().i32(1, 9), "ERR_APP_NOT_EXIST");
    assert!(meta.tables(1).contains("again"));
    let count = Fields::default().string(1, "again");
    assert!(meta.call("RPC_CM_GET_MAX_REPLICA_COUNT", &count).has(&Fields::default().i32(2, 1)));
    let three = Fields::default().string(1, "again").i32(2, 3);
    let refused = meta.expect("RPC_CM_SET_MAX_REPLICA_COUNT", &three, "ERR_INVALID_PARAMETERS");
    assert!(text(&refused).contains("3 replicas of a partition cannot be on 1 nodes"), "{refused:?}");
    let nodes = meta.call("RPC_CM_LIST_NODES", &Fields::default().i32(1, 1));
    assert!(nodes.has(&Fields::default().i32(1, 1)), "{nodes:?}");
    assert!(text(&meta.call("RPC_CM_CLUSTER_INFO", &Fields::default())).contains("meta_function_level"));
    meta.expect("RPC_CM_CONTROL_META", &Fields::default().i32(1, 10_000), "ERR_OK");
    let help = meta.0.call(&v1(-1, -1, &message("RPC_CLI_CLI_CALL", 1, &Fields::default().string(1, "help"))));
    assert_eq!((help.error.as_str(), help.name.as_str()), ("ERR_OK", "RPC_CLI_CLI_CALL_ACK"));
}

#[test]
fn app_envs_throttle_and_deny() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    node.cli("table create feeds --engine memory --partitions 1");
    let mut meta = Meta::at(port);
    let put = Fields::default().blob(1, &key("h", "s")).blob(2, &[7; 1_000]).i32(3, 0);
    let put = v1(1, 0, &message("RPC_RRDB_RRDB_PUT", 1, &put));
    let get = v1(1, 0, &message_of_blob("RPC_RRDB_RRDB_GET", 2, &key("h", "s")));
    let mut client = Connection::to(port);
    meta.set_env("feeds", "no.such.env", "1", "ERR_INVALID_PARAMETERS");
    meta.set_env("feeds", "replica.write_throttling", "many", "ERR_INVALID_PARAMETERS");
    meta.set_env("nobody", "default_ttl", "1", "ERR_APP_NOT_EXIST");
    assert_eq!(client.call(&put).code(), 0);

    meta.set_env("feeds", "replica.write_throttling", "10*reject*0", "ERR_OK");
    // More than ten in one second, however the seconds fall.
    let refused = (0..100).filter(|_| client.call(&put).error == "ERR_BUSY").count();
    assert!((1..=99).contains(&refused), "{refused} of 100 refused");
    assert_eq!(client.call(&get).code(), 0, "reads are not throttled");
    meta.set_env("feeds", "replica.write_throttling", "0*delay*300", "ERR_OK");
    let began = Instant::now();
    assert_eq!(client.call(&put).code(), 0);
    assert!(began.elapsed() >= Duration::from_millis(300), "it was delayed");
    meta.set_env("feeds", "replica.write_throttling", "1M*reject*0", "ERR_OK");
    meta.set_env("feeds", "replica.write_throttling_by_size", "5K*reject*0", "ERR_OK");
    assert!((0..100).any(|_| client.call(&put).error == "ERR_BUSY"));
    meta.set_env("feeds", "replica.write_throttling_by_size", "100M*reject*0", "ERR_OK");
    meta.set_env("feeds", "replica.read_throttling_by_size", "5K*reject*0", "ERR_OK");
    assert!((0..100).any(|_| client.call(&get).error == "ERR_BUSY"));

    let clear = Fields::default().string(1, "feeds").i32(2, 3).string(5, "");
    meta.expect("RPC_CM_UPDATE_APP_ENV", &clear, "ERR_OK");
    wait_for("the envs are gone", Duration::from_secs(5), || (client.call(&get).error == "ERR_OK").then_some(()));
    meta.set_env("feeds", "replica.deny_client_request", "reconfig*write", "ERR_OK");
    assert_eq!(client.call(&put).error, "ERR_INVALID_STATE");
    assert_eq!(client.call(&get).code(), 0);
    meta.set_env("feeds", "replica.deny_client_request", "timeout*read", "ERR_OK");
    client.send(&get);
    // The reply to what came later is the first one.
    assert_eq!(client.call(&put).name, "RPC_RRDB_RRDB_PUT_ACK");
    let drop_env = Fields::default().string(1, "feeds").i32(2, 2).strings(3, &["replica.deny_client_request"]);
    meta.expect("RPC_CM_UPDATE_APP_ENV", &drop_env, "ERR_OK");
    assert_eq!(Connection::to(port).call(&get).code(), 0);
}

/// Scripts of operators set these too. Some of them set what there is nothing for here, and the answer says so.
#[test]
fn app_envs_without_effect_are_kept_and_compactions_can_be_disabled() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let _node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    let mut meta = Meta::at(port);
    meta.create("feeds", "ERR_OK");
    for (name, value) in [
        ("rocksdb.write_buffer_size", "67108864"),
        ("replica.rocksdb_block_cache_enabled", "false"),
        ("rocksdb.checkpoint.reserve_min_count", "3"),
        ("manual_compact.once.target_level", "-1"),
    ] {
        meta.set_env("feeds", name, "much", "ERR_INVALID_PARAMETERS");
        let hint = text(&meta.set_env("feeds", name, value, "ERR_OK"));
        assert!(hint.contains(&format!("kept, but it has no effect here: {name}")), "{hint}");
        assert!(meta.tables(1).contains(name));
    }
    let start = Fields::default().string(1, "feeds");
    assert!(!text(&meta.set_env("feeds", "manual_compact.disabled", "true", "ERR_OK")).contains("effect"));
    meta.expect("RPC_CM_START_MANUAL_COMPACT", &start, "ERR_OPERATION_DISABLED");
    meta.set_env("feeds", "manual_compact.disabled", "false", "ERR_OK");
    meta.expect("RPC_CM_START_MANUAL_COMPACT", &start, "ERR_OK");
}

#[test]
fn every_node_knows_a_new_table_and_answers_for_it() {
    let cluster = Cluster::start_with_pegasus(3);
    cluster.wait_until_whole();
    let mut connections: Vec<Connection> = cluster.pegasus_ports().iter().map(|port| Connection::to(*port)).collect();
    for round in 1..=5 {
        let table = format!("round-{round}");
        let options = Fields::default().i32(1, 2).i32(2, 3);
        let request = Fields::default().string(1, &table).inner(2, &options);
        let created = connections[round % 3].call(&v1(-1, -1, &message("RPC_CM_CREATE_APP", 1, &request)));
        assert!(text(&created).contains("ERR_OK"), "{created:?}");
        // Whoever is asked, and however new the table is.
        for connection in &mut connections {
            let codes: Vec<String> = (0..2)
                .map(|partition| {
                    let put = Fields::default().blob(1, &key("h", "s")).blob(2, b"v").i32(3, 0);
                    let put = message("RPC_RRDB_RRDB_PUT", 1, &put);
                    connection.call(&v1(i32::try_from(round).unwrap(), partition, &put)).error
                })
                .collect();
            // One of the partitions is not the key's, which is no matter as long as the table is not split.
            assert_eq!(codes, ["ERR_OK", "ERR_OK"]);
        }
    }
}

#[test]
fn changes_of_settings_through_several_nodes_are_all_kept() {
    let cluster = Cluster::start_with_pegasus(3);
    cluster.cli(0, "table create shared --engine memory --partitions 1").unwrap();
    let envs = ["replica.write_throttling", "replica.read_throttling", "replica.write_throttling_by_size"];
    let writers = envs.into_iter().zip(cluster.pegasus_ports()).map(|(env, port)| {
        let mut meta = Meta::at(*port);
        std::thread::spawn(move || {
            (1..=10).for_each(|number| _ = meta.set_env("shared", env, &format!("{number}*reject*0"), "ERR_OK"));
        })
    });
    let writers: Vec<_> = writers.collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    for port in cluster.pegasus_ports() {
        let mut meta = Meta::at(*port);
        wait_for("a node knows all", Duration::from_secs(5), || {
            (meta.tables(1).matches("10*reject*0").count() == envs.len()).then_some(())
        });
    }
}

#[test]
fn a_table_is_split_and_clients_that_do_not_know_are_told() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    node.cli("table create feeds --engine memory --partitions 2");
    let (mut meta, mut client) = (Meta::at(port), Connection::to(port));
    let put = |hash_key: &str| {
        let put = Fields::default().blob(1, &key(hash_key, "s")).blob(2, hash_key.as_bytes()).i32(3, 0);
        message("RPC_RRDB_RRDB_PUT", 1, &put)
    };
    let keys: Vec<String> = (0..40).map(|number| format!("key{number}")).collect();
    // So it tells in which partition a key is.
    let validated = "replica.split.validate_partition_hash";
    meta.set_env("feeds", validated, "true", "ERR_OK");
    let mut partition = |hash_key: &String| match &client.call(&v1(1, 0, &put(hash_key))).error[..] {
        "ERR_OK" => 0,
        error => {
            assert_eq!(error, "ERR_PARENT_PARTITION_MISUSED");
            assert_eq!(client.call(&v1(1, 1, &put(hash_key))).error, "ERR_OK");
            1
        }
    };
    let before: Vec<i32> = keys.iter().map(&mut partition).collect();
    meta.set_env("feeds", validated, "false", "ERR_OK");
    for hash_key in &keys {
        let get = message_of_blob("RPC_RRDB_RRDB_GET", 2, &key(hash_key, "s"));
        for partition in 0..2 {
            let reply = client.call(&v1(1, partition, &get));
            assert!(reply.error == "ERR_OK" && text(&reply).contains(hash_key), "{hash_key}: {reply:?}");
            assert!(reply.has(&Fields::default().i32(4, partition)), "it says the partition that was asked: {reply:?}");
        }
    }

    let scanner = |start: &[u8], stop: &[u8]| {
        let bounds = Fields::default().blob(1, start).blob(2, stop).bool(3, true).bool(4, stop.len() < 3).i32(5, 100);
        let filters = bounds.bool(6, false).i32(7, 0).blob(8, b"").i32(9, 0).blob(10, b"");
        message("RPC_RRDB_RRDB_GET_SCANNER", 3, &filters)
    };
    let all = scanner(b"\0\0", b"\xff\xff");
    // It does nothing but scan.
    let mut scans = Connection::to(port);
    let counts = |client: &mut Connection, partition: i32, scanner: &[u8]| {
        let reply = client.call(&v1(1, partition, scanner));
        (reply.error.clone(), keys.iter().filter(|hash_key| text(&reply).contains(&format!("{hash_key}s"))).count())
    };
    let found: Vec<_> = (0..2).map(|partition| counts(&mut scans, partition, &all)).collect();
    assert!(found.iter().all(|(error, _)| error == "ERR_OK"), "{found:?}");
    assert_eq!(found.iter().map(|(_, count)| count).sum::<usize>(), keys.len(), "{found:?}");
    let (mut asks, mut locates) = (Connection::to(port), Connection::to(port));
    for client in [&mut asks, &mut locates] {
        assert_eq!(counts(client, 0, &all).0, "ERR_OK");
    }

    let table = Fields::default().string(1, "feeds");
    let into = |partitions: i32| Fields::default().string(1, "feeds").i32(2, partitions);
    let cancel = Fields::default().string(1, "feeds").i32(2, 2).i32(3, -1).i32(4, 2);
    meta.expect("RPC_CM_QUERY_PARTITION_SPLIT", &table, "ERR_INVALID_STATE");
    meta.expect("RPC_CM_CONTROL_PARTITION_SPLIT", &cancel, "ERR_INVALID_STATE");
    meta.expect("RPC_CM_START_PARTITION_SPLIT", &into(3), "ERR_INVALID_PARAMETERS");
    meta.expect("RPC_CM_START_PARTITION_SPLIT", &Fields::default().string(1, "no").i32(2, 4), "ERR_APP_NOT_EXIST");
    meta.expect("RPC_CM_START_PARTITION_SPLIT", &into(4), "ERR_OK");
    let pause = Fields::default().string(1, "feeds").i32(2, 0).i32(3, -1);
    meta.expect("RPC_CM_CONTROL_PARTITION_SPLIT", &pause, "ERR_INVALID_PARAMETERS");
    wait_for("the table is split", Duration::from_secs(30), || {
        let reply = meta.call("RPC_CM_QUERY_PARTITION_SPLIT", &table);
        text(&reply).contains("ERR_INVALID_STATE").then_some(())
    });
    let config = meta.call("RPC_CM_QUERY_PARTITION_CONFIG_BY_INDEX", &table);
    assert!(config.has(&Fields::default().i32(2, 1).i32(3, 4)), "the same number, four partitions: {config:?}");

    let (mut moved, mut new_place) = (0, None);
    for (hash_key, partition) in keys.iter().zip(before) {
        let get = message_of_blob("RPC_RRDB_RRDB_GET", 2, &key(hash_key, "s"));
        let mut reply = client.call(&v1(1, partition, &get));
        if reply.error == "ERR_PARENT_PARTITION_MISUSED" {
            moved += 1;
            new_place = Some((hash_key, partition + 2));
            reply = client.call(&v1(1, partition + 2, &get));
        }
        assert_eq!((reply.error.as_str(), reply.code()), ("ERR_OK", 0), "{hash_key}");
        assert!(text(&reply).contains(hash_key), "{hash_key}: {reply:?}");
    }
    assert!((1..40).contains(&moved), "{moved} of 40 keys are in new partitions");

    // Who may believe that there are two partitions would take half of the records for all.
    let misused = "ERR_PARENT_PARTITION_MISUSED".to_string();
    for partition in [0, 1, 0, 1] {
        assert_eq!(counts(&mut scans, partition, &all), (misused.clone(), 0));
    }
    for client in [&mut Connection::to(port), &mut client] {
        let found: Vec<_> = (0..4).map(|partition| counts(client, partition, &all)).collect();
        assert!(found.iter().all(|(error, _)| error == "ERR_OK"), "{found:?}");
        assert_eq!(found.iter().map(|(_, count)| count).sum::<usize>(), keys.len(), "{found:?}");
    }
    // Whoever asks for a new partition knows of it, and whoever asks where partitions are is told.
    let (hash_key, partition) = new_place.unwrap();
    let get = message_of_blob("RPC_RRDB_RRDB_GET", 4, &key(hash_key, "s"));
    let locate = message("RPC_CM_QUERY_PARTITION_CONFIG_BY_INDEX", 5, &table);
    for (client, request) in [(&mut asks, v1(1, partition, &get)), (&mut locates, v1(0, 0, &locate))] {
        assert_eq!(counts(client, 0, &all), (misused.clone(), 0));
        assert_eq!(client.call(&request).error, "ERR_OK");
        assert_eq!(counts(client, 0, &all).0, "ERR_OK");
    }
    // A scan of one hash key is for its partition.
    let mut ends = key(&keys[0], "");
    *ends.last_mut().unwrap() += 1;
    let of_one = scanner(&key(&keys[0], ""), &ends);
    let asked: Vec<_> = (0..4).map(|partition| counts(&mut scans, partition, &of_one)).collect();
    assert_eq!(asked.iter().filter(|found| **found == (misused.clone(), 0)).count(), 3, "{asked:?}");
    assert_eq!(asked.iter().filter(|found| **found == ("ERR_OK".to_string(), 1)).count(), 1, "{asked:?}");
    // By now it was told.
    assert_eq!(counts(&mut scans, 0, &all).0, "ERR_OK");
}

/// Rules in Pegasus' words are applied when the table is compacted, at the time that another app env says.
#[test]
fn app_envs_end_records_when_the_table_is_compacted() {
    let data = TempDir::new().unwrap();
    let port = free_port();
    let node = Node::start(data.path(), &[&format!("pegasus.port={port}")]);
    node.cli("table create t --engine rocksdb --partitions 4");
    let mut client = node.client();
    client.run("TABLE t");
    for number in 0..50 {
        client.run(&format!("SET tmp{number} 1"));
        client.run(&format!("SET kept{number} 1"));
    }
    let pattern = r#"{\"pattern\":\"tmp\",\"match_type\":\"SMT_MATCH_PREFIX\"}"#;
    let filter = format!(r#"{{"type":"FRT_HASHKEY_PATTERN","params":"{pattern}"}}"#);
    let rules = format!(r#"{{"ops":[{{"type":"COT_DELETE","params":"","rules":[{filter}]}}]}}"#);
    let mut meta = Meta::at(port);
    meta.set_env("t", "user_specified_compaction", r#"{"ops":[{"type":"COT_DELETE"}]}"#, "ERR_INVALID_PARAMETERS");
    meta.set_env("t", "user_specified_compaction", &rules, "ERR_OK");
    let soon = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 3;
    let progress = Fields::default().string(1, "t");
    meta.expect("RPC_CM_QUERY_MANUAL_COMPACT_STATUS", &progress, "ERR_INVALID_STATE");
    meta.set_env("t", "manual_compact.once.trigger_time", &soon.to_string(), "ERR_OK");
    let limit = Duration::from_secs(60);
    wait_for("they are deleted", limit, || {
        (0..50).all(|number| client.run(&format!("EXISTS tmp{number}")) == Value::Integer(0)).then_some(())
    });
    assert!((0..50).all(|number| client.run(&format!("EXISTS kept{number}")) == Value::Integer(1)));
    let all = Fields::default().string(2, "").i32(3, 100);
    wait_for("the compaction ends", limit, || {
        meta.call("RPC_CM_QUERY_MANUAL_COMPACT_STATUS", &progress).has(&all).then_some(())
    });
    assert!(node.cli("table compaction t").contains("ended"));
}

/// A search goes on for some seconds, on whichever node leads, and the node that began it tells what was found.
#[test]
fn the_hottest_key_of_a_partition_is_found() {
    let cluster = Cluster::start_with_pegasus(3);
    cluster.cli(0, "table create t --engine memory --partitions 1 --replicas 1").unwrap();
    cluster.wait_until_whole();
    let mut client = cluster.client(0);
    client.run("TABLE t");
    let (start, stop, query) = (0, 1, 2);
    let ask = |kind: i32, action: i32, partition: u32| {
        Fields::default().i32(1, kind).i32(2, action).partition(3, 1, partition)
    };
    for port in cluster.pegasus_ports() {
        let mut meta = Meta::at(*port);
        let name = "RPC_DETECT_HOTKEY";
        meta.expect(name, &ask(0, start, 1), "ERR_OBJECT_NOT_FOUND");
        meta.expect(name, &ask(2, start, 0), "ERR_INVALID_PARAMETERS");
        meta.expect(name, &ask(0, query, 0), "ERR_BUSY");
        meta.expect(name, &ask(0, start, 0), "ERR_OK");
        meta.expect(name, &ask(1, start, 0), "ERR_SERVICE_ALREADY_EXIST");
        let found = wait_for("the key is found", Duration::from_secs(60), || {
            (0..100).for_each(|number| _ = client.run(if number % 3 == 0 { "GET other" } else { "GET hot" }));
            let reply = meta.call(name, &ask(0, query, 0));
            (!text(&reply).contains("ERR_BUSY")).then_some(reply)
        });
        assert!(found.has(&Fields::default().string(3, "hot")), "{found:?}");
        meta.expect(name, &ask(0, stop, 0), "ERR_OK");
        meta.expect(name, &ask(0, query, 0), "ERR_BUSY");
    }
}
