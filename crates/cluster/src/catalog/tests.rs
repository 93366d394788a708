use super::*;
use tessera_types::{EngineKind, UnixMillis};

pub(super) fn schema(engine: EngineKind) -> TableSchema {
    TableSchema {
        engine,
        partitions: 4,
        partitioner: Partitioner::Crc64,
        model: Model::Kv,
        primary_key: None,
        durability: TableSchema::default_durability(engine),
        replicas: 1,
    }
}

fn create(name: &str) -> CatalogCommand {
    CatalogCommand::Create {
        name: name.into(),
        schema: schema(EngineKind::Memory),
        settings: TableSettings::default(),
        absent: Default::default(),
    }
}

#[test]
fn a_table_lives_is_dropped_recalled_and_purged() {
    let limits = Limits::default();
    let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
    let mut apply = |command| catalog.apply(&command, &limits);
    let drop = |name: &str, at| CatalogCommand::drop(name, UnixMillis::new(at));
    assert_eq!(apply(create("a")), Ok(Changed::Table(TableId(1))));
    assert_eq!(apply(create("a")), Err(CatalogError::Exists("a".into())));
    assert_eq!(apply(drop("a", 100)), Ok(Changed::Table(TableId(1))));
    assert_eq!(apply(drop("a", 100)), Err(CatalogError::NoSuchTable("a".into())));
    assert_eq!(apply(create("a")), Ok(Changed::Table(TableId(2))));
    let recall = |to: Option<&str>| CatalogCommand::Recall { number: TableNumber(1), to: to.map(Into::into) };
    assert_eq!(apply(recall(None)), Err(CatalogError::Exists("a".into())));
    assert_eq!(apply(recall(Some("old"))), Ok(Changed::Table(TableId(1))));
    assert_eq!(apply(drop("old", 100)), Ok(Changed::Table(TableId(1))));
    assert_eq!(apply(CatalogCommand::Purge { now: UnixMillis::new(99) }), Ok(Changed::Other));
    assert_eq!(apply(recall(Some("old"))), Ok(Changed::Table(TableId(1))));
    assert_eq!(apply(drop("old", 100)), Ok(Changed::Table(TableId(1))));
    assert_eq!(apply(CatalogCommand::Purge { now: UnixMillis::new(100) }), Ok(Changed::Other));
    assert!(matches!(apply(recall(None)), Err(CatalogError::NoSuchTable(_))));
    assert_eq!(apply(create("next")), Ok(Changed::Table(TableId(3))), "numbers are not reused");
}

#[test]
fn a_node_that_does_not_know_when_a_table_was_created_can_alter_it() {
    let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
    let created_at = Some(UnixMillis::new(5_000));
    let settings = TableSettings { created_at, ..TableSettings::default() };
    let schema = schema(EngineKind::Memory);
    let command = CatalogCommand::Create { name: "a".into(), schema, settings, absent: Default::default() };
    catalog.apply(&command, &Limits::default()).unwrap();
    let with_ttl = |seconds| TableSettings { default_ttl_seconds: seconds, ..TableSettings::default() };
    let alter = |before, settings| CatalogCommand::Alter { name: "a".into(), settings, before: Some(before) };
    catalog.apply(&alter(TableSettings::default(), with_ttl(1)), &Limits::default()).unwrap();
    let table = catalog.by_name("a").unwrap();
    assert_eq!(table.settings, TableSettings { created_at, ..with_ttl(1) });
    let of_before = alter(TableSettings::default(), with_ttl(2));
    assert_eq!(catalog.apply(&of_before, &Limits::default()), Err(CatalogError::AlteredMeanwhile("a".into())));
}

#[test]
fn the_first_table_is_created_when_its_cluster_is_founded() {
    let time = UnixMillis::new(5_000);
    let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb).founded_at(time);
    assert_eq!(catalog.by_name("default").unwrap().settings.created_at, Some(time));
    let settings = TableSettings { default_ttl_seconds: 1, ..TableSettings::default() };
    let alter = CatalogCommand::Alter { name: "default".into(), settings, before: None };
    catalog.apply(&alter, &Limits::default()).unwrap();
    assert_eq!(catalog.by_name("default").unwrap().settings.created_at, Some(time));
}

#[test]
fn a_change_of_settings_that_does_not_know_another_is_refused() {
    let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
    let with_ttl = |seconds| TableSettings { default_ttl_seconds: seconds, ..TableSettings::default() };
    let mut alter = |before, settings| {
        let command = CatalogCommand::Alter { name: "default".into(), settings, before };
        catalog.apply(&command, &Limits::default())
    };
    let first = TableSettings::default();
    assert!(alter(Some(first.clone()), with_ttl(1)).is_ok());
    assert_eq!(alter(Some(first), with_ttl(2)), Err(CatalogError::AlteredMeanwhile("default".into())));
    assert!(alter(Some(with_ttl(1)), with_ttl(2)).is_ok());
    assert!(alter(None, with_ttl(3)).is_ok());
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let limits = Limits { tables: 2, ..Limits::default() };
    let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
    let before = catalog.clone();
    let of = |schema| CatalogCommand::Create {
        name: "t".into(),
        schema,
        settings: TableSettings::default(),
        absent: Default::default(),
    };
    let volatile = TableSchema { durability: Durability::None, ..schema(EngineKind::Rocksdb) };
    assert_eq!(catalog.apply(&of(volatile), &limits), Err(CatalogError::DurabilityOfEngine));
    let none = TableSchema { partitions: 0, ..schema(EngineKind::Memory) };
    assert_eq!(catalog.apply(&of(none), &limits), Err(CatalogError::Partitions(4_096)));
    let rename = CatalogCommand::Rename { name: "default".into(), to: "other".into() };
    assert_eq!(catalog.apply(&rename, &limits), Err(CatalogError::DefaultTable));
    let replica = ReplicaId { node: NodeId(2), incarnation: 41 };
    let replace = CatalogCommand::Replace { table: TableId(0), partition: 0, replica };
    assert_eq!(catalog.apply(&replace, &limits), Err(CatalogError::NotReplaceable(replica)));
    assert_eq!(catalog, before);
    catalog.apply(&create("a"), &limits).unwrap();
    assert_eq!(catalog.apply(&create("b"), &limits), Err(CatalogError::TooManyTables(2)));
}

#[test]
fn a_node_that_asks_again_to_be_let_in_gets_the_same_number_until_it_has_arrived() {
    let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
    let ask = |catalog: &mut Catalog, token: &str, peer: &str| {
        let site = Site { peer: peer.into(), ..Site::default() };
        let command = CatalogCommand::AddNode { site, token: Some(JoinToken(token.into())) };
        let Ok(Changed::Node(node)) = catalog.apply(&command, &Limits::default()) else { panic!("a node") };
        node
    };
    assert_eq!(ask(&mut catalog, "a", "old"), NodeId(2));
    assert_eq!(ask(&mut catalog, "b", "other"), NodeId(3));
    assert_eq!(ask(&mut catalog, "a", "new"), NodeId(2), "its first answer was lost");
    assert_eq!(catalog.node(NodeId(2)).unwrap().site.peer, "new");
    catalog.apply(&CatalogCommand::Arrived { node: NodeId(2), has_vote: false }, &Limits::default()).unwrap();
    assert_eq!(ask(&mut catalog, "a", "new"), NodeId(4), "who has arrived and lost that is another node");
}

#[test]
fn a_node_is_new_until_it_holds_a_replica_or_has_a_vote_and_never_again() {
    let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
    let apply = |catalog: &mut Catalog, command| {
        catalog.apply(&command, &Limits::default()).unwrap();
    };
    let new = |catalog: &Catalog| catalog.nodes().filter(|it| it.is_new).map(|it| it.id.0).collect::<Vec<_>>();
    for node in [2, 3, 4, 5].map(NodeId) {
        apply(&mut catalog, CatalogCommand::AddNode { site: Site::default(), token: None });
        apply(&mut catalog, CatalogCommand::Arrived { node, has_vote: false });
    }
    assert_eq!(new(&catalog), [2, 3, 4, 5]);
    apply(&mut catalog, CatalogCommand::Arrived { node: NodeId(2), has_vote: true });
    assert_eq!(new(&catalog), [3, 4, 5]);
    // A node that is to get a replica may be gone before it has it.
    let table = catalog.by_name("default").unwrap().id;
    let place = |node| CatalogCommand::Place { table, partition: 0, nodes: vec![NodeId(node)], witness: None };
    apply(&mut catalog, place(3));
    assert_eq!(new(&catalog), [3, 4, 5]);
    let moved = |catalog: &Catalog| CatalogCommand::moved(table, 0, &catalog.by_name("default").unwrap().placement[0]);
    let command = moved(&catalog);
    apply(&mut catalog, command);
    assert_eq!(new(&catalog), [4, 5]);
    for command in [place(1), CatalogCommand::Arrived { node: NodeId(3), has_vote: false }] {
        apply(&mut catalog, command);
    }
    let command = moved(&catalog);
    apply(&mut catalog, command);
    assert_eq!(new(&catalog), [4, 5], "it has none any more");
    // A new table's replicas are members at once.
    let CatalogCommand::Create { name, schema, settings, .. } = create("t") else { panic!("it creates") };
    let schema = TableSchema { replicas: 3, ..schema };
    apply(&mut catalog, CatalogCommand::Create { name, schema, settings, absent: [2, 3, 5].map(NodeId).into() });
    assert_eq!(new(&catalog), [5]);
    let read: Catalog = serde_json::from_str(&serde_json::to_string(&catalog).unwrap()).unwrap();
    assert_eq!(read, catalog);
}

#[test]
fn a_node_that_never_arrived_gets_no_replica_and_can_be_removed_at_once() {
    let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
    let mut apply = |command| catalog.apply(&command, &Limits::default());
    let node = NodeId(2);
    apply(CatalogCommand::AddNode { site: Site::default(), token: None }).unwrap();
    apply(create("t")).unwrap();
    assert_eq!(apply(CatalogCommand::Drain { node: NodeId(1), is_draining: true }), Err(CatalogError::LastNode));
    assert_eq!(apply(CatalogCommand::RemoveNode { node: NodeId(1) }), Err(CatalogError::NodeInUse(NodeId(1), 20)));
    apply(CatalogCommand::RemoveNode { node }).unwrap();
    assert_eq!(catalog.replicas_on(node), 0);
}

#[test]
fn a_new_table_gets_no_replicas_on_nodes_that_are_absent() {
    let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
    let mut apply = |command| catalog.apply(&command, &Limits::default()).unwrap();
    for node in [2, 3].map(NodeId) {
        apply(CatalogCommand::AddNode { site: Site::default(), token: None });
        apply(CatalogCommand::Arrived { node, has_vote: false });
    }
    let CatalogCommand::Create { name, schema, settings, .. } = create("t") else { panic!("it creates") };
    let schema = TableSchema { replicas: 3, ..schema };
    apply(CatalogCommand::Create { name, schema, settings, absent: [NodeId(2)].into() });
    let nodes = |catalog: &Catalog, node| {
        catalog.by_name("t").unwrap().placement.iter().filter(|placement| placement.on(node).is_some()).count()
    };
    assert_eq!([1, 2, 3].map(|node| nodes(&catalog, NodeId(node))), [4, 0, 4]);
}

#[test]
fn who_may_have_become_a_member_by_a_move_that_was_given_up_stays_until_the_members_are_known() {
    let mut catalog = Catalog::of_new_cluster(Site::default(), EngineKind::Rocksdb);
    let mut apply = |command: CatalogCommand| catalog.apply(&command, &Limits::default()).map(|_| catalog.clone());
    apply(CatalogCommand::AddNode { site: Site::default(), token: None }).unwrap();
    apply(CatalogCommand::Arrived { node: NodeId(2), has_vote: false }).unwrap();
    let table = TableId(0);
    let place = |nodes: &[u32]| {
        let nodes = nodes.iter().copied().map(NodeId).collect();
        CatalogCommand::Place { table, partition: 0, nodes, witness: None }
    };
    let placement = |catalog: &Catalog| catalog.get(table).unwrap().placement[0].clone();
    let moving = placement(&apply(place(&[2])).unwrap());
    let (from, to) = (moving.current[0], moving.target[0]);
    let back = placement(&apply(place(&[1])).unwrap());
    assert_eq!((&back.target[..], &back.current[..]), (&[from][..], &[from][..]));
    assert!(back.is_moving() && back.on(NodeId(2)) == Some(to), "it may be a member");
    let after = apply(CatalogCommand::moved(table, 0, &back)).unwrap();
    assert!(!placement(&after).is_moving() && placement(&after).on(NodeId(2)).is_none());
    let late = placement(&apply(CatalogCommand::moved(table, 0, &moving)).unwrap());
    assert_eq!(late, placement(&after), "what was so before that counts no more");
}

#[test]
fn a_table_of_documents_evicts_nothing() {
    let evicts = TableSettings { when_full: WhenFull::Evict, ..TableSettings::default() };
    let documents = TableSchema { model: Model::Document, ..schema(EngineKind::Memory) };
    assert_eq!(check_documents(&documents, &evicts), Err(CatalogError::EvictsDocuments));
    assert_eq!(check_documents(&documents, &TableSettings::default()), Ok(()));
    assert_eq!(check_documents(&schema(EngineKind::Memory), &evicts), Ok(()));
}

#[test]
fn the_site_of_an_older_version_names_one_address_for_clients_of_pegasus() {
    let older = r#"{"peer": "a:1", "redis": "a:2", "admin": "a:3", "pegasus": "a:4"}"#;
    let older: Site = serde_json::from_str(older).unwrap();
    assert_eq!(older.pegasus_meta(), "a:4");
    assert_eq!(Site { pegasus_meta: "a:5".into(), ..older }.pegasus_meta(), "a:5");
    assert_eq!(Site::default().pegasus_meta(), "");
}
