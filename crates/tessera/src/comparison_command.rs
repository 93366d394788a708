//! What `tessera table compare` prints.

use crate::exit::ExitError;
use serde_json::Value;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

pub fn print_comparison(compared: &Value) {
    println!("{:>9}  {:14} {:>12} {:>14}  replicas compared", "partition", "outcome", "records", "bytes");
    for partition in compared["partitions"].as_array().into_iter().flatten() {
        let replicas = partition["replicas"].as_array().into_iter().flatten().map(text);
        println!(
            "{:>9}  {:14} {:>12} {:>14}  {}",
            partition["partition"].to_string(),
            text(&partition["outcome"]).replace('_', " "),
            partition["records"].to_string(),
            partition["bytes"].to_string(),
            replicas.collect::<Vec<_>>().join(" ")
        );
        partition["reason"].as_str().iter().for_each(|reason| println!("{:>9}  {reason}", ""));
        for difference in partition["differences"].as_array().into_iter().flatten() {
            println!("{:>9}  from {} to {}:", "", text(&difference["from"]), text(&difference["to"]));
            for replica in difference["replicas"].as_array().into_iter().flatten() {
                let (id, digest) = (text(&replica["replica"]), text(&replica["digest"]));
                println!("{:>9}    replica {id}: {} records, digest {digest}", "", replica["records"]);
            }
        }
        partition["mended"].as_str().iter().for_each(|mended| println!("{:>9}  {mended}", ""));
    }
}

/// The exit code of the program.
pub fn comparison_outcome(table: &str, compared: &Value) -> Result<(), ExitError> {
    match compared["outcome"].as_str() {
        Some("equal") => Ok(()),
        Some("differ") => Err(ExitError::ReplicasDiffer(format!("replicas of table {table} differ"))),
        _ => Err(ExitError::ReplicasNotCompared(format!("not all replicas of table {table} could be compared"))),
    }
}
