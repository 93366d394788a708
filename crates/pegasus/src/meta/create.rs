//! Creating a table, unless it is there already.

use super::envs;
use super::messages::{CreateOptions, CreateRequest};
use super::outcome::{OK, Refusal, change};
use super::routing::id;
use crate::server::PegasusServer;
use tessera_cluster::{CatalogCommand, Changed, NodeEntry, TableEntry};
use tessera_types::{Model, Partitioner, TableSchema, TableSettings};

/// Creates a table and returns the name of an error and the table's number. What Pegasus has no word for can be asked as app
/// envs: `tessera.engine` and `tessera.durability`.
pub(super) async fn create(server: &PegasusServer, request: CreateRequest) -> (&'static str, i32) {
    let name = request.table.clone();
    match created(server, request).await {
        Ok(number) => (OK, id(number)),
        Err((error, hint)) => {
            // The answer has no room for it.
            tracing::info!(table = name, hint, "a table could not be created");
            (error, 0)
        }
    }
}

async fn created(server: &PegasusServer, request: CreateRequest) -> Result<u32, Refusal> {
    let CreateRequest { table: name, options } = request;
    let may_exist = options.success_if_exists;
    let wanted = Wanted::of(server, options).map_err(invalid)?;
    let existing = |server: &PegasusServer| server.store.catalog().by_name(&name).cloned();
    if let Some(table) = existing(server) {
        return wanted.instead_of(&table, may_exist);
    }
    let (schema, settings) = (wanted.schema.clone(), wanted.settings.clone());
    let command = CatalogCommand::Create { name: name.clone(), schema, settings, absent: Default::default() };
    match change(server, command).await {
        Ok(Changed::Table(table)) => Ok(table.0),
        Ok(_) => Err(("ERR_UNKNOWN", "no table was created".into())),
        Err(("ERR_APP_EXIST", hint)) => {
            // Another node has just created it, and this one may not have heard of it.
            server.store.find_table(|store| store.table_named(&name)).await;
            let table = existing(server).ok_or(("ERR_APP_EXIST", hint))?;
            wanted.instead_of(&table, may_exist)
        }
        Err(refusal) => Err(refusal),
    }
}

fn invalid(hint: String) -> Refusal {
    ("ERR_INVALID_PARAMETERS", hint)
}

/// A table that somebody wants.
struct Wanted {
    schema: TableSchema,
    settings: TableSettings,
    /// Whether these were asked for. If not, any will do of a table that is there already.
    has_engine: bool,
    has_durability: bool,
}

impl Wanted {
    /// # Errors
    /// What is wrong with the options, for a person.
    fn of(server: &PegasusServer, options: CreateOptions) -> Result<Self, String> {
        let replicas = replicas(server, options.replicas)?;
        let mut envs = options.envs;
        let (engine, durability) = (envs.remove("tessera.engine"), envs.remove("tessera.durability"));
        let (has_engine, has_durability) = (engine.is_some(), durability.is_some());
        let engine = engine.map_or(Ok(tessera_engine::DEFAULT_ENGINE), |engine| engine.parse())?;
        let durability = durability.map_or(Ok(TableSchema::default_durability(engine)), |name| name.parse())?;
        let partitions = options.partitions;
        let partitions = u32::try_from(partitions).map_err(|_| format!("{partitions} is no number of partitions"))?;
        let mut settings = TableSettings::default();
        envs::set(&mut settings, envs)?;
        let (partitioner, model, primary_key) = (Partitioner::Crc64, Model::Kv, None);
        let schema = TableSchema { engine, partitions, partitioner, model, primary_key, durability, replicas };
        Ok(Self { schema, settings, has_engine, has_durability })
    }

    /// Takes a table that is there already, if that may be and it is what is wanted. Returns its number.
    fn instead_of(&self, table: &TableEntry, may_exist: bool) -> Result<u32, Refusal> {
        if !may_exist {
            return Err(("ERR_APP_EXIST", "there is a table of this name".into()));
        }
        let (wanted, there) = (&self.schema, &table.schema);
        let is_the_same = (wanted.partitions, wanted.replicas) == (there.partitions, there.replicas)
            && (wanted.partitioner, wanted.model) == (there.partitioner, there.model)
            && (!self.has_engine || wanted.engine == there.engine)
            && (!self.has_durability || wanted.durability == there.durability)
            && envs::of(&self.settings) == envs::of(&table.settings);
        is_the_same.then_some(table.number.0).ok_or_else(|| invalid("the table that is there is another one".into()))
    }
}

/// Checks a number of replicas, as Pegasus does: there must be as many nodes that can take one.
///
/// # Errors
/// What is wrong with it, for a person.
pub(super) fn replicas(server: &PegasusServer, wanted: i32) -> Result<u8, String> {
    let catalog = server.store.catalog();
    let takes_replicas = |node: &&NodeEntry| !node.is_draining && !node.is_expected && server.store.is_heard(node.id);
    let nodes = catalog.nodes().filter(takes_replicas).count();
    let is_fine = |replicas: &u8| *replicas > 0 && usize::from(*replicas) <= nodes;
    let replicas = u8::try_from(wanted).ok().filter(is_fine);
    replicas.ok_or_else(|| format!("{wanted} replicas of a partition cannot be on {nodes} nodes"))
}
