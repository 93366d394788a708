//! `tessera status`

use crate::NodeArgs;
use crate::admin_client::call;
use crate::exit::ExitError;
use crate::node_command::print_nodes;
use crate::size::size;
use crate::table_command::{describe_split, print_tables};
use serde_json::Value;
use tessera_types::UnixMillis;

/// The last recovery, in words: which nodes the cluster continues without.
fn describe_recovery(recovery: &Value) -> String {
    let lost: Vec<_> = recovery["lost"].as_array().into_iter().flatten().map(Value::to_string).collect();
    let seconds = recovery["at"].as_u64().unwrap_or_default() / 1000;
    let ago = UnixMillis::now().get().saturating_sub(seconds * 1000) / 1000;
    let [alone, may_lack, begun_anew] = ["alone", "may_lack", "begun_anew"].map(|name| recovery[name].to_string());
    format!(
        "{ago} seconds ago without node {}, lost for good: {alone} partitions went on with one replica, {may_lack} of them may \
         lack acknowledged writes, {begun_anew} started again empty",
        lost.join(", ")
    )
}

pub fn run(node: &NodeArgs) -> Result<(), ExitError> {
    let status = call(node, "GET", "/v1/status", None)?;
    if node.json {
        println!("{status:#}");
        return Ok(());
    }
    let cluster = &status["cluster"];
    println!("cluster     {}", cluster["cluster"].as_str().unwrap_or_default());
    println!("partitions  {} of {} have a leader", status["serving_partitions"], status["partitions"]);
    println!("memory      {} of {}", size(&status["memory_used_bytes"]), size(&status["memory_limit_bytes"]));
    println!("log         {}, {} syncs", size(&status["log_bytes"]), status["log_syncs"]);
    match status["issues"].as_array().filter(|issues| !issues.is_empty()) {
        None => println!("issues      none"),
        Some(issues) => issues.iter().for_each(|issue| println!("issue       {}", issue.as_str().unwrap_or_default())),
    }
    for note in status["notes"].as_array().into_iter().flatten() {
        println!("note        {}", note.as_str().unwrap_or_default());
    }
    for recovery in cluster["recoveries"].as_array().into_iter().flatten() {
        println!("recovered   {}", describe_recovery(recovery));
    }
    for door in status["doors"].as_array().into_iter().flatten() {
        println!("door        {}", door.as_str().unwrap_or_default());
    }
    for hot in status["hot"].as_array().into_iter().flatten() {
        println!("hot         {}", hot.as_str().unwrap_or_default());
    }
    let moving = cluster["tables"].as_array().into_iter().flatten().filter(|table| table["moving"] != 0);
    let moving: Vec<_> =
        moving.map(|table| format!("{} of table {}", table["moving"], table["name"].as_str().unwrap_or("-"))).collect();
    if !moving.is_empty() {
        println!("moving      partitions: {} (`tessera table placement` shows how far)", moving.join(", "));
    }
    for table in cluster["tables"].as_array().into_iter().flatten() {
        if let Some(split) = describe_split(table) {
            println!("splitting   table {} {split}", table["name"].as_str().unwrap_or("-"));
        }
    }
    println!();
    print_nodes(cluster);
    println!();
    print_tables(&status["tables"]);
    Ok(())
}
