use super::*;
use tessera_types::UnixMillis;

pub(super) fn schema(engine: EngineKind) -> TableSchema {
    TableSchema {
        engine,
        partitions: 4,
        partitioner: Partitioner::Crc64,
        model: Model::Kv,
        durability: TableSchema::default_durability(engine),
        replicas: 1,
    }
}

fn create(name: &str) -> CatalogCommand {
    CatalogCommand::Create { name: name.into(), schema: schema(EngineKind::Memory), settings: TableSettings::default() }
}

#[test]
fn a_table_lives_is_dropped_recalled_and_purged() {
    let limits = Limits::default();
    let mut catalog = Catalog::of_new_cluster(Site::default());
    let mut apply = |command| catalog.apply(&command, &limits);
    let drop = |name: &str, at| CatalogCommand::Drop { name: name.into(), purge_at: UnixMillis::new(at) };
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
fn a_change_of_settings_that_does_not_know_another_is_refused() {
    let mut catalog = Catalog::of_new_cluster(Site::default());
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
    let mut catalog = Catalog::of_new_cluster(Site::default());
    let before = catalog.clone();
    let of = |schema| CatalogCommand::Create { name: "t".into(), schema, settings: TableSettings::default() };
    let volatile = TableSchema { durability: Durability::None, ..schema(EngineKind::Rocksdb) };
    assert_eq!(catalog.apply(&of(volatile), &limits), Err(CatalogError::DurabilityOfEngine));
    let none = TableSchema { partitions: 0, ..schema(EngineKind::Memory) };
    assert_eq!(catalog.apply(&of(none), &limits), Err(CatalogError::Partitions(4_096)));
    let rename = CatalogCommand::Rename { name: "default".into(), to: "other".into() };
    assert_eq!(catalog.apply(&rename, &limits), Err(CatalogError::DefaultTable));
    assert_eq!(catalog, before);
    catalog.apply(&create("a"), &limits).unwrap();
    assert_eq!(catalog.apply(&create("b"), &limits), Err(CatalogError::TooManyTables(2)));
}
