//! What `tessera table compaction` prints.

use serde_json::Value;
use tessera_types::UnixMillis;

pub fn print_compaction(nodes: &Value) {
    println!("{:>5}  compaction", "node");
    for node in nodes.as_array().into_iter().flatten() {
        println!("{:>5}  {}", node["node"].to_string(), describe(node));
    }
}

fn describe(node: &Value) -> String {
    match (node["running"].as_u64(), node["ended"].as_u64()) {
        (None, _) => "cannot be asked".into(),
        (Some(0), None) => "none since the node started".into(),
        (Some(0), Some(ended)) => {
            format!("ended {} s ago", UnixMillis::now().get().saturating_sub(ended) / 1_000)
        }
        (Some(_), _) => format!("under way, {:.0} % done", 100.0 * node["done"].as_f64().unwrap_or(0.0)),
    }
}
