use crate::test_node::TestNode;
use std::path::Path;
use std::time::Duration;
use tessera_cluster::CatalogCommand;
use tessera_store::hosting::group_of;
use tessera_types::{Durability, EngineKind, ReplicaId, TableId, UnixMillis};

/// The node once did not start any more.
#[tokio::test]
async fn a_replica_with_a_damaged_checkpoint_is_set_aside_and_the_others_serve() {
    let configure = |config: &mut crate::config::NodeConfig| config.flush_age = Duration::from_millis(1);
    let node = TestNode::start(configure);
    let table = node.create_durable_table("t", 2, EngineKind::Memory, Durability::Hard).await;
    node.store.clear(&table, 0..2).await.unwrap();
    let is_durable =
        |partition| table.engine().durable_index(partition).unwrap() == table.engine().applied_index(partition);
    node.wait_for("checkpoints of all that was applied", |_| (0..2).all(is_durable).then_some(())).await;
    let damage = |directory: &Path| {
        let path = directory.join(format!("memory/table-{}/partition-00001.checkpoint", table.id()));
        let mut checkpoint = std::fs::read(&path).unwrap();
        let last = checkpoint.len() - 1;
        checkpoint[last] ^= 1;
        std::fs::write(&path, checkpoint).unwrap();
    };
    let node = node.restart(damage, configure);
    let aside = node.wait_for("a replica that is set aside", |_| node.node.set_aside().pop()).await;
    assert!(aside.starts_with("table t: partition 1 on this node is set aside: "), "{aside}");
    let table = node.wait_for("the table", |store| store.table_named("t")).await;
    node.wait_for("the other partition", |_| table.known_leader(0)).await;
    node.store.clear(&table, 0..1).await.unwrap();
    assert_eq!((table.known_leader(1), node.node.set_aside().len()), (None, 1));
}

/// A node with older data once said for ever that it waits for new replicas: some were of a table that was split meanwhile.
#[tokio::test]
async fn no_replica_of_a_table_that_is_gone_is_waited_for() {
    let node = TestNode::start(|_| {});
    let table = node.create_table("t", 2).await;
    let context = &node.context;
    let (here, gone) = (group_of(table.id(), 1), group_of(TableId(table.id().0 + 1), 0));
    let other =
        ReplicaId { incarnation: 1_000, ..context.view.catalog().get(table.id()).unwrap().placement[1].current[0] };
    context.replicas.held.lock().shunned.extend([here, gone].map(|group| (group.0, other)));
    context.reconcile_replicas().unwrap();
    assert_eq!(context.earlier_replicas(), []);
}

/// The files of a table once went while what an earlier replica had left there was removed.
#[tokio::test]
async fn the_files_of_a_table_stay_until_nobody_writes_there() {
    let node = TestNode::start(|_| {});
    let table = node.create_table_in("t", 2, EngineKind::Rocksdb).await;
    let (context, group) = (&node.context, group_of(table.id(), 1));
    context.replicas.held.lock().clearing.insert(group);
    node.change(CatalogCommand::drop("t", UnixMillis::new(1))).await;
    node.change(CatalogCommand::Purge { now: UnixMillis::now() }).await;
    let has_left = |partition| !context.replicas.is_leaving(group_of(table.id(), partition));
    node.wait_for("the workers have let go of it", |_| (0..2).all(has_left).then_some(())).await;
    context.finish_purges();
    assert_eq!(context.purging.lock().len(), 1);
    context.replicas.held.lock().clearing.remove(&group);
    node.wait_for("its files are removed", |_| context.purging.lock().is_empty().then_some(())).await;
}

/// A crash may come between the purge of a table and the removal of its files.
#[tokio::test]
async fn the_directory_of_a_memory_table_that_is_gone_is_removed_at_the_next_start() {
    const LEFT: &str = "memory/table-4000000";
    let node = TestNode::start(|_| {});
    let table = node.create_durable_table("t", 1, EngineKind::Memory, Durability::Hard).await;
    let kept = format!("memory/table-{}", table.id());
    let node = node.restart(|directory| std::fs::create_dir_all(directory.join(LEFT)).unwrap(), |_| {});
    let is_there = |path: &str| node.context.directory.root().join(path).exists();
    assert_eq!([is_there(&kept), is_there(LEFT)], [true, false]);
}
