//! `tessera node ...`

use crate::NodeArgs;
use crate::admin_client::call;
use crate::exit::ExitError;
use crate::size::size;
use clap::Subcommand;
use serde_json::{Value, json};

#[derive(Subcommand)]
pub enum NodeCommand {
    /// List the nodes of the cluster
    List,
    /// Move all replicas of a node elsewhere, without refusing requests; `node list` shows how many are left, and `status` what they
    /// wait for
    Drain {
        number: u32,
        /// Let the node hold replicas again
        #[arg(long)]
        undo: bool,
    },
    /// Forget a node that holds no replicas any more; it can come back only as a new one, with an empty data directory
    Remove { number: u32 },
}

pub fn run(command: &NodeCommand, node: &NodeArgs) -> Result<(), ExitError> {
    match command {
        NodeCommand::List => {
            let cluster = call(node, "GET", "/v1/cluster", None)?;
            if node.json {
                println!("{:#}", cluster["nodes"]);
            } else {
                print_nodes(&cluster);
                if let Some(doubt) = cluster["doubt"].as_str() {
                    println!("\n{doubt}");
                }
            }
        }
        NodeCommand::Drain { number, undo } => {
            call(node, "POST", &format!("/v1/nodes/{number}/drain"), Some(&json!({ "is_draining": !undo })))?;
            match undo {
                true => println!("node {number} may hold replicas again"),
                false => println!(
                    "node {number} is being drained; `tessera node list` shows how many replicas are left, and `tessera status` what \
                     they wait for"
                ),
            }
        }
        NodeCommand::Remove { number } => {
            call(node, "DELETE", &format!("/v1/nodes/{number}"), None)?;
            println!("removed node {number}");
        }
    }
    Ok(())
}

/// Nodes as lines of a table.
pub fn print_nodes(cluster: &Value) {
    println!(
        "{:>5}  {:22} {:22} {:8} {:>8} {:>8} {:>14} {:>8}  state",
        "node", "cluster address", "redis address", "zone", "replicas", "leaders", "size", "units/s"
    );
    for node in cluster["nodes"].as_array().into_iter().flatten() {
        let mut state = Vec::new();
        if node["id"] == cluster["node"] {
            state.push("this node".to_string());
        }
        if node["id"] == cluster["catalog_leader"] {
            state.push("leads the catalog".to_string());
        }
        if node["is_draining"] == true {
            state.push("draining".to_string());
        }
        if node["is_expected"] == true {
            state.push("has not arrived".to_string());
        } else if node["is_silent"] == true {
            let silence = node["silent_seconds"].as_f64();
            state.push(silence.map_or("never heard of".into(), |seconds| format!("silent for {seconds:.0} s")));
        }
        let line = format!(
            "{:>5}  {:22} {:22} {:8} {:>8} {:>8} {:>14} {:>8}  {}",
            node["id"].to_string(),
            node["peer"].as_str().unwrap_or("-"),
            node["redis"].as_str().unwrap_or("-"),
            node["zone"].as_str().filter(|zone| !zone.is_empty()).unwrap_or("-"),
            node["replicas"].to_string(),
            node["leaders"].to_string(),
            size(&node["bytes"]),
            node["units_per_second"].to_string(),
            state.join(", ")
        );
        println!("{}", line.trim_end());
    }
}
