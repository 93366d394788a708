//! How far compactions and splits are, asked as soon as they were begun.

use super::meta_client::{Meta, text};
use super::wire::Fields;
use crate::cluster::Cluster;
use crate::server::wait_for;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn a_compaction_that_has_not_begun_is_not_done() {
    let cluster = Cluster::start_with_pegasus(3);
    cluster.cli(0, "table create t --engine memory --partitions 2").unwrap();
    let table = Fields::default().string(1, "t");
    let query = "RPC_CM_QUERY_MANUAL_COMPACT_STATUS";
    let progress = |percent: i32| Fields::default().string(2, "").i32(3, percent);
    let mut metas: Vec<Meta> = cluster.pegasus_ports().iter().map(|port| Meta::at(*port)).collect();
    metas[0].expect(query, &table, "ERR_INVALID_STATE");
    // The second time, all nodes have ended one.
    for _ in 0..2 {
        let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 8;
        let soon = table.clone().i64(2, i64::try_from(soon).unwrap());
        metas[0].expect("RPC_CM_START_MANUAL_COMPACT", &soon, "ERR_OK");
        for meta in &mut metas {
            let reply = meta.expect(query, &table, "ERR_OK");
            assert!(reply.has(&progress(0)), "{reply:?}");
        }
        wait_for("the compaction ends", Duration::from_secs(60), || {
            metas.iter_mut().all(|meta| meta.call(query, &table).has(&progress(100))).then_some(())
        });
    }
}

#[test]
fn a_split_is_known_to_all_nodes_at_once() {
    let cluster = Cluster::start_with_pegasus(3);
    cluster.wait_until_whole();
    let mut metas: Vec<Meta> = cluster.pegasus_ports().iter().map(|port| Meta::at(*port)).collect();
    for number in 0..6 {
        let name = format!("t{number}");
        cluster.cli(0, &format!("table create {name} --engine memory --partitions 2")).unwrap();
        let table = Fields::default().string(1, &name);
        metas[number % 3].expect("RPC_CM_START_PARTITION_SPLIT", &table.clone().i32(2, 4), "ERR_OK");
        for asked in [number % 3, (number + 1) % 3, (number + 2) % 3] {
            let meta = &mut metas[asked];
            let reply = meta.call("RPC_CM_QUERY_PARTITION_SPLIT", &table);
            // It may be over by now, and then the table has four partitions.
            let four = match text(&reply).contains("ERR_INVALID_STATE") {
                true => meta.call("RPC_CM_QUERY_PARTITION_CONFIG_BY_INDEX", &table).has(&Fields::default().i32(3, 4)),
                false => reply.has(&Fields::default().i32(2, 4)),
            };
            assert!(four, "node {}: {reply:?}", asked + 1);
        }
    }
}
