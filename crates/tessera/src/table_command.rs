//! `tessera table ...`

use crate::NodeArgs;
use crate::admin_client::{call, call_without_limit, escaped};
use crate::compaction_command::print_compaction;
use crate::comparison_command::{comparison_outcome, print_comparison};
use crate::exit::ExitError;
use crate::numbers::from_zero;
use crate::size::size;
use crate::traffic_command::{print_hot_keys, print_traffic};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::io::{BufRead, IsTerminal};
use tessera_types::{
    Acks, Denial, Durability, EngineKind, Model, Partitioner, Rate, ReplicaId, Rule, UsageScenario, WhenFull,
};

#[derive(Subcommand)]
pub enum TableCommand {
    /// Create a table
    #[command(after_help = "\
Examples:
  tessera table create sessions --engine memory --partitions 64 --ttl 3600
  tessera table create profiles --engine rocksdb --durability hard
  tessera table create carts --engine rocksdb --partitioner redis-slots   (keys with one {tag} share a partition)")]
    Create {
        name: String,
        /// memory or rocksdb [default: rocksdb, unless the node was built without it]
        #[arg(long)]
        engine: Option<EngineKind>,
        /// hard, soft or none [default: hard on rocksdb, none on memory]
        #[arg(long)]
        durability: Option<Durability>,
        /// How many parts the records are spread over [default: 16]
        #[arg(long)]
        partitions: Option<u32>,
        /// Replicas of each partition, 1 to 7, on as many nodes [default: 3]
        #[arg(long)]
        replicas: Option<u8>,
        /// crc64 or redis-slots [default: crc64]
        #[arg(long)]
        partitioner: Option<Partitioner>,
        /// kv (for Redis and Pegasus clients) or document (for ReQL clients) [default: kv]
        #[arg(long)]
        model: Option<Model>,
        /// Of a table of documents: the database that it is in; its whole name is then DATABASE.NAME [default: test]
        #[arg(long)]
        database: Option<String>,
        /// Of a table of documents: the field that documents are found by [default: id]
        #[arg(long)]
        primary_key: Option<String>,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// List tables
    List {
        /// Also list dropped tables that can be recalled
        #[arg(long)]
        dropped: bool,
    },
    /// Show one table with its statistics; they are about the records on the node that is asked
    Show { name: String },
    /// Show where the replicas of each partition of a table are, and where they should be
    Placement { name: String },
    /// Show the bytes and the load of each partition of a table, as its leader reported them in the last seconds, and which
    /// partitions are hot
    Traffic { name: String },
    /// Count for a while which keys of a partition are read and written most
    HotKeys {
        name: String,
        #[arg(long)]
        partition: u32,
        /// How many seconds to count, 1 to 150
        #[arg(long, default_value_t = 10, value_parser = from_zero)]
        seconds: u64,
    },
    /// Change a table's settings
    Alter {
        name: String,
        /// Replicas of each partition, 1 to 7
        #[arg(long)]
        replicas: Option<u8>,
        /// Number of partitions: twice as many as there are. The records are copied to new partitions, and all requests are served
        /// meanwhile
        #[arg(long)]
        partitions: Option<u32>,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Cancel the split of a table into more partitions, as long as it has not begun to take effect
    CancelSplit { name: String },
    /// Drop a table; it can be recalled until its retention is over
    Drop { name: String },
    /// Bring back a dropped table, or what a truncated one held
    Recall {
        /// The table's number, as `table list --dropped` shows it
        id: u32,
        /// A new name, if the old one is taken
        #[arg(long, visible_alias = "as")]
        name: Option<String>,
    },
    /// Give a table another name
    Rename { name: String, to: String },
    /// Empty a table; it asks first. What the table held is kept like a dropped table, and can be recalled under another name until
    /// its retention is over
    Truncate {
        name: String,
        /// Keep nothing: memory and disk are free at once, and the records cannot be brought back
        #[arg(long)]
        purge: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Apply a table's rules to the partitions that the asked node leads, and merge the table's RocksDB files there, which frees the
    /// space of deleted and expired records
    Compact { name: String },
    /// Show how far each node is with compacting a table
    Compaction { name: String },
    /// Replace a replica whose records are known to be wrong by a new one on its node, filled from the replicas that are left.
    /// This is for two replicas that differ; where a majority agrees, Tessera replaces the other replica by itself
    ReplaceReplica {
        name: String,
        #[arg(long)]
        partition: u32,
        /// The replica as `table placement` shows it, e.g. 2.41
        #[arg(long)]
        replica: ReplicaId,
    },
    /// Compare the replicas of a table's partitions now, and wait for the result. A replica that differs from the
    /// majority is replaced.
    /// Exits with 0 if all are equal, 6 if some differ, and 7 if not all can be compared
    Compare {
        name: String,
        /// Bytes of records that each node compares in a second, instead of cluster.compare_bytes_per_second; 0 for as many as it
        /// can
        #[arg(long, value_name = "BYTES", value_parser = from_zero)]
        bytes_per_second: Option<u64>,
    },
}

#[derive(Args)]
pub struct SettingsArgs {
    /// Seconds after which a record written without an expiry ends; 0 for never
    #[arg(long, value_name = "SECONDS", value_parser = from_zero)]
    ttl: Option<u64>,
    /// What a memory table does when memory is used up: refuse or evict
    #[arg(long)]
    when_full: Option<WhenFull>,
    /// What a RocksDB table is tuned for: normal, prefer_write or bulk_load
    #[arg(long)]
    usage_scenario: Option<UsageScenario>,
    /// Who must have a write before it is acknowledged: majority, or single (the leader alone; the write is lost if it fails)
    #[arg(long)]
    acks: Option<Acks>,
    /// Seconds for which the changes of documents are kept for changefeeds of ReQL, once a table has had one
    #[arg(long, value_name = "SECONDS", value_parser = from_zero)]
    feed_retention: Option<u64>,
    /// Bytes of changes that a table keeps for changefeeds at most, in all of its partitions together
    #[arg(long, value_name = "BYTES", value_parser = from_zero)]
    feed_retention_bytes: Option<u64>,
    /// Rules that delete records or change their expiry, once a day and whenever the table is compacted, as JSON:
    /// [{"if": [CONDITION, ...], "then": ACTION}, ...]; [] for none. The guide to tables has the conditions and actions
    #[arg(long, value_name = "JSON", value_parser = parse_rules)]
    rules: Option<Rules>,
    /// Limit of the writes per second to the whole table, e.g. 2000*delay*100,20000*reject*100: beyond 2000, writes are delayed by
    /// 100 ms; beyond 20000, they are refused after 100 ms. One part is enough; K and M mean 1000 and 1000000; none for no limit
    #[arg(long, value_name = "RATE")]
    write_rate: Option<Rate>,
    /// Limit of the bytes per second of requests that write, in the same form
    #[arg(long, value_name = "RATE")]
    write_byte_rate: Option<Rate>,
    /// Limit of the reads per second, in the same form
    #[arg(long, value_name = "RATE")]
    read_rate: Option<Rate>,
    /// Limit of the bytes per second that reads return, in the same form
    #[arg(long, value_name = "RATE")]
    read_byte_rate: Option<Rate>,
    /// Deny clients the table: reconfig or timeout (what clients of Pegasus see), '*', and all, read or write; or none
    #[arg(long, value_name = "WHAT")]
    deny: Option<Denial>,
}

/// Named, so that a list is one value to clap.
type Rules = Vec<Rule>;

fn parse_rules(text: &str) -> Result<Rules, serde_json::Error> {
    serde_json::from_str(text)
}

impl SettingsArgs {
    fn insert(&self, body: &mut Map<String, Value>) {
        insert(body, "default_ttl_seconds", &self.ttl);
        insert(body, "when_full", &self.when_full);
        insert(body, "usage_scenario", &self.usage_scenario);
        insert(body, "acks", &self.acks);
        insert(body, "feed_retention_seconds", &self.feed_retention);
        insert(body, "feed_retention_bytes", &self.feed_retention_bytes);
        insert(body, "rules", &self.rules);
        insert(body, "write_rate", &self.write_rate);
        insert(body, "write_byte_rate", &self.write_byte_rate);
        insert(body, "read_rate", &self.read_rate);
        insert(body, "read_byte_rate", &self.read_byte_rate);
        insert(body, "deny", &self.deny);
    }
}

fn insert<T: serde::Serialize>(body: &mut Map<String, Value>, key: &str, value: &Option<T>) {
    if let Some(value) = value {
        body.insert(key.into(), json!(value));
    }
}

pub fn run(command: &TableCommand, node: &NodeArgs) -> Result<(), ExitError> {
    match command {
        TableCommand::Create {
            name,
            engine,
            durability,
            partitions,
            replicas,
            partitioner,
            model,
            database,
            primary_key,
            settings,
        } => {
            let is_document = *model == Some(Model::Document);
            if !is_document && (database.is_some() || primary_key.is_some()) {
                let reason = "--database and --primary-key are for tables with --model document";
                return Err(ExitError::Config(reason.into()));
            }
            let name = match is_document {
                true => &format!("{}.{name}", database.as_deref().unwrap_or("test")),
                false => name,
            };
            let mut body = Map::from_iter([("name".to_string(), json!(name))]);
            insert(&mut body, "primary_key", primary_key);
            insert(&mut body, "engine", engine);
            insert(&mut body, "durability", durability);
            insert(&mut body, "partitions", partitions);
            insert(&mut body, "replicas", replicas);
            insert(&mut body, "partitioner", partitioner);
            insert(&mut body, "model", model);
            settings.insert(&mut body);
            let table = call(node, "POST", "/v1/tables", Some(&Value::Object(body)))?;
            show(node, &table, |table| {
                println!("created table {} with number {}", text(&table["name"]), table["number"])
            });
        }
        TableCommand::List { dropped: false } => {
            let tables = call(node, "GET", "/v1/tables", None)?;
            show(node, &tables, print_tables);
        }
        TableCommand::List { dropped: true } => {
            let tables = call(node, "GET", "/v1/dropped", None)?;
            show(node, &tables, |tables| {
                for table in tables.as_array().into_iter().flatten() {
                    println!("{:>6}  {}", table["number"].to_string(), text(&table["name"]));
                }
            });
        }
        TableCommand::Show { name } => {
            let table = call(node, "GET", &path(name, ""), None)?;
            show(node, &table, print_table);
        }
        TableCommand::Placement { name } => {
            let partitions = call(node, "GET", &path(name, "/placement"), None)?;
            show(node, &partitions, print_placement);
        }
        TableCommand::Traffic { name } => {
            let partitions = call(node, "GET", &path(name, "/traffic"), None)?;
            show(node, &partitions, print_traffic);
        }
        TableCommand::HotKeys { name, partition, seconds } => {
            let path = path(name, &format!("/partitions/{partition}/hot-keys"));
            let found = call_without_limit(node, "POST", &path, Some(&json!({ "seconds": seconds })))?;
            show(node, &found, print_hot_keys);
        }
        TableCommand::Alter { name, replicas, partitions, settings } => {
            let mut body = Map::new();
            insert(&mut body, "replicas", replicas);
            insert(&mut body, "partitions", partitions);
            settings.insert(&mut body);
            if body.is_empty() {
                return Err(ExitError::Usage(
                    "nothing to alter: give --replicas, --partitions or a setting such as --ttl; `tessera table alter \
                     --help` lists them"
                        .into(),
                ));
            }
            let table = call(node, "PATCH", &path(name, ""), Some(&Value::Object(body)))?;
            show(node, &table, |table| {
                println!("altered table {}", text(&table["name"]));
                if let Some(split) = describe_split(table) {
                    println!("it is being split {split}; `tessera table show` tells how far that is");
                }
            });
        }
        TableCommand::CancelSplit { name } => {
            let done = call(node, "DELETE", &path(name, "/split"), None)?;
            show(node, &done, |_| println!("table {name} is not being split any more"));
        }
        TableCommand::Drop { name } => {
            let dropped = call(node, "DELETE", &path(name, ""), None)?;
            show(node, &dropped, |dropped| {
                println!("dropped table {name}; `tessera table recall {}` brings it back", dropped["number"]);
                warn_of_nodes_behind(
                    dropped,
                    "read and write the dropped table through it until it hears of this. What they write is in the table when it is \
                     recalled",
                );
            });
        }
        TableCommand::Recall { id, name } => {
            let table = call(node, "POST", &format!("/v1/dropped/{id}/recall"), Some(&json!({ "name": name })))?;
            show(node, &table, |table| println!("recalled table {}", text(&table["name"])));
        }
        TableCommand::Rename { name, to } => {
            let table = call(node, "POST", &path(name, "/rename"), Some(&json!({ "to": to })))?;
            show(node, &table, |table| {
                println!("renamed table {name} to {to}");
                warn_of_nodes_behind(
                    table,
                    "use the table by its old name through it until it hears of this, also if another table has that name by then",
                );
            });
        }
        TableCommand::Truncate { name, purge, yes } => {
            if !yes {
                confirm_truncation(name, *purge)?;
            }
            let done = call(node, "POST", &path(name, "/truncate"), Some(&json!({ "purge": purge })))?;
            show(node, &done, |done| match done["number"].as_u64() {
                Some(number) => println!(
                    "truncated table {name}; `tessera table recall {number} --as NAME` brings back what it held, beside it"
                ),
                None => println!("truncated table {name}"),
            });
        }
        TableCommand::Compact { name } => {
            let done = call_without_limit(node, "POST", &path(name, "/compact"), None)?;
            show(node, &done, |done| {
                let [deleted, changed] =
                    ["deleted_by_rules", "changed_by_rules"].map(|key| done[key].as_u64().unwrap_or(0));
                println!("compacted table {name} on this node; rules deleted {deleted} records and changed {changed}");
            });
        }
        TableCommand::ReplaceReplica { name, partition, replica } => {
            let path = path(name, &format!("/partitions/{partition}/replace"));
            let done = call(node, "POST", &path, Some(&json!({ "replica": replica })))?;
            show(node, &done, |_| {
                println!("replica {replica} of partition {partition} of table {name} is being replaced")
            });
        }
        TableCommand::Compare { name, bytes_per_second } => {
            let body = json!({ "bytes_per_second": bytes_per_second });
            let compared = call_without_limit(node, "POST", &path(name, "/compare"), Some(&body))?;
            show(node, &compared, print_comparison);
            return comparison_outcome(name, &compared);
        }
        TableCommand::Compaction { name } => {
            let nodes = call(node, "GET", &path(name, "/compaction"), None)?;
            show(node, &nodes, print_compaction);
        }
    }
    Ok(())
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/tables/{}{rest}", escaped(name))
}

fn show(node: &NodeArgs, value: &Value, print: impl FnOnce(&Value)) {
    if node.json { println!("{value:#}") } else { print(value) }
}

/// How far a table is with being split, if it is.
pub fn describe_split(table: &Value) -> Option<String> {
    let into = table["split"]["into_partitions"].as_u64()?;
    if table["split"]["is_truncation"] == true {
        return Some(format!("to empty it: {} of {into} partitions are ready", table["split"]["copied"]));
    }
    Some(format!("into {into} partitions: {} of {} are copied", table["split"]["copied"], into / 2))
}

/// Says which nodes have not confirmed that they know a change, if any have not, and what clients that reach them may do.
pub fn warn_of_nodes_behind(changed: &Value, may: &str) {
    let nodes: Vec<String> = changed["nodes_behind"].as_array().into_iter().flatten().map(Value::to_string).collect();
    let those = match nodes.as_slice() {
        [] => return,
        [node] => format!("node {node} has"),
        nodes => format!("nodes {} have", nodes.join(", ")),
    };
    eprintln!(
        "{those} not confirmed this yet. Clients that reach a node that runs, and only stands still or is cut off from this one, may {may}"
    );
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// How many records there are; `~` says that this is an estimate.
fn records(statistics: &Value) -> String {
    let about = if statistics["records_are_estimated"] == true { "~" } else { "" };
    format!("{about}{}", statistics["records"])
}

/// Tables as lines of a table.
pub fn print_tables(tables: &Value) {
    println!(
        "{:>6}  {:24} {:8} {:10} {:>8} {:>10} {:>12} {:>12} {:>9}",
        "number", "name", "engine", "durability", "replicas", "partitions", "records here", "size here", "lag here"
    );
    for table in tables.as_array().into_iter().flatten() {
        let statistics = &table["statistics"];
        let bytes = statistics["memory_bytes"].as_u64().unwrap_or(0) + statistics["disk_bytes"].as_u64().unwrap_or(0);
        println!(
            "{:>6}  {:24} {:8} {:10} {:>8} {:>10} {:>12} {:>12} {:>9}",
            table["number"].to_string(),
            text(&table["name"]),
            text(&table["engine"]),
            text(&table["durability"]),
            table["replicas"].to_string(),
            format!("{}/{}", table["serving_partitions"], table["partitions"]),
            records(statistics),
            size(&bytes.into()),
            table["lag_seconds"].as_f64().map_or("-".into(), |seconds| format!("{seconds:.1} s"))
        );
    }
}

/// Lets people who are at a terminal type the table's name; scripts have to say that they mean it.
fn confirm_truncation(name: &str, purge: bool) -> Result<(), ExitError> {
    let kept = if purge { "and cannot be brought back" } else { "and can be recalled for a while" };
    let what = format!("all records of table {name} are deleted on all nodes {kept}");
    let mut stdin = std::io::stdin().lock();
    if !stdin.is_terminal() {
        return Err(ExitError::Usage(format!("{what}; --yes does it")));
    }
    eprint!("{what}. Type the table's name to go on: ");
    let mut answer = String::new();
    stdin.read_line(&mut answer).map_err(|error| ExitError::Other(error.to_string()))?;
    if answer.trim() == name { Ok(()) } else { Err(ExitError::Usage("nothing was deleted".into())) }
}

fn print_placement(partitions: &Value) {
    let replicas = |value: &Value| {
        let replicas = value.as_array().into_iter().flatten().map(text);
        replicas.collect::<Vec<_>>().join(" ")
    };
    let progress = |fetch: &Value| {
        let share = fetch["bytes"].as_f64().unwrap_or(0.0) / fetch["of_bytes"].as_f64().unwrap_or(1.0).max(1.0);
        format!("node {} has {:.0} %", fetch["node"], 100.0 * share)
    };
    println!(
        "{:>9} {:>7}  {:24} {:24} progress",
        "partition", "leader", "replicas (node.number)", "wanted, while moving"
    );
    for partition in partitions.as_array().into_iter().flatten() {
        println!(
            "{:>9} {:>7}  {:24} {:24} {}",
            partition["partition"].to_string(),
            partition["leader"].as_u64().map_or("-".into(), |node| node.to_string()),
            replicas(&partition["members"]),
            if partition["is_moving"] == true { replicas(&partition["wanted"]) } else { String::new() },
            partition["fetches"].as_array().into_iter().flatten().map(progress).collect::<Vec<_>>().join(", ")
        );
    }
}

fn print_table(table: &Value) {
    for key in [
        "name",
        "number",
        "engine",
        "durability",
        "partitions",
        "replicas",
        "partitioner",
        "default_ttl_seconds",
        "when_full",
        "usage_scenario",
        "acks",
        "feed_retention_seconds",
        "feed_retention_bytes",
        "rules",
        "write_rate",
        "write_byte_rate",
        "read_rate",
        "read_byte_rate",
        "deny",
        "reads",
        "writes",
        "read_units",
        "write_units",
    ] {
        println!("{key:24} {}", table[key].as_str().map_or_else(|| table[key].to_string(), str::to_string));
    }
    if let Some(split) = describe_split(table) {
        println!("{:24} {split}", "splitting");
    }
    let statistics = &table["statistics"];
    println!("{:24} {}", "records", records(statistics));
    for key in ["memory_bytes", "disk_bytes", "expired_removed", "evicted", "pending_compaction_bytes"] {
        println!("{key:24} {}", statistics[key]);
    }
    if let Some(stall_micros) = table["rocksdb"].get("stall_micros") {
        println!("{:24} {stall_micros}", "stall_micros");
    }
    if let Some(rate) = table["cache_hit_rate"].as_f64() {
        println!("{:24} {:.1} %", "cache_hit_rate", rate * 100.0);
    }
    let levels = statistics["levels"].as_array().filter(|levels| !levels.is_empty());
    if let Some(levels) = levels {
        println!(
            "\n{:6} {:>6} {:>14} {:>7} {:>9} {:>9} {:>7} {:>12} {:>12}",
            "level", "files", "bytes", "score", "read GB", "write GB", "W-amp", "key in", "key drop"
        );
        for level in levels {
            println!(
                "{:6} {:>6} {:>14} {:>7} {:>9} {:>9} {:>7} {:>12} {:>12}",
                text(&level["level"]),
                level["files"].to_string(),
                level["size_bytes"].to_string(),
                level["score"].to_string(),
                level["read_gigabytes"].to_string(),
                level["write_gigabytes"].to_string(),
                level["write_amplification"].to_string(),
                level["keys_in"].to_string(),
                level["keys_dropped"].to_string()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;
    use tessera_types::TableSchema;

    /// The help of an argument of `tessera table NAME`.
    fn help(name: &str, argument: &str) -> String {
        let mut table = TableCommand::augment_subcommands(Command::new("table"));
        let command = table.find_subcommand_mut(name).unwrap();
        let found = command.get_arguments().find(|known| known.get_id() == argument).unwrap();
        found.get_help().unwrap().to_string()
    }

    /// The node fills in what is left out, so the help can only repeat it. It once told of fewer replicas for tables without
    /// durability, which the node did not make.
    #[test]
    fn the_help_tells_the_defaults_and_limits_that_the_node_goes_by() {
        let engine = EngineKind::Rocksdb;
        let is_built_in = tessera_engine::ENGINES.contains(&engine);
        assert_eq!(tessera_engine::DEFAULT_ENGINE == engine, is_built_in);
        let default = format!("[default: {}, unless the node was built without it]", engine.as_str());
        assert!(help("create", "engine").ends_with(&default));
        let [rocksdb, memory] = [EngineKind::Rocksdb, EngineKind::Memory].map(TableSchema::default_durability);
        let durability = format!("[default: {} on rocksdb, {} on memory]", rocksdb.as_str(), memory.as_str());
        assert!(help("create", "durability").ends_with(&durability));
        assert!(help("create", "partitions").ends_with(&format!("[default: {}]", TableSchema::DEFAULT_PARTITIONS)));
        assert!(help("create", "replicas").ends_with(&format!("[default: {}]", TableSchema::DEFAULT_REPLICAS)));
        assert!(help("create", "partitioner").ends_with(&format!("[default: {}]", Partitioner::default().as_str())));
        for command in ["create", "alter"] {
            assert!(help(command, "replicas").contains(&format!("1 to {}", TableSchema::REPLICAS_CEILING)));
        }
        let longest = tessera_store::LONGEST_COUNT.as_secs();
        assert!(help("hot-keys", "seconds").contains(&format!("1 to {longest}")));
    }
}
